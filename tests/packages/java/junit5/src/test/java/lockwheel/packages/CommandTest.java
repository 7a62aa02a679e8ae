// Tests the program at the path that the main class of the jar prints.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Program;
import io.github.lockwheel.junit5.Lockwheel;
import java.io.File;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

class CommandTest {
    @Test
    void theMainClassPrintsThePathOfTheProgram() throws Exception {
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        var printed = run(0, java, "-cp", System.getProperty("java.class.path"),
                Program.class.getName());
        assertEquals(program() + System.lineSeparator(), printed);
        assertTrue(new File(program()).canExecute());
    }

    @Test
    void theProgramHasAVersion() throws Exception {
        assertTrue(run(0, program(), "--version").contains(" lockwheel="));
    }

    @Test
    void runStartsAServerForACommand() throws Exception {
        var output = run(7, program(), "run", "--", "sh", "-c", "echo $REDIS_URL; exit 7");
        assertTrue(output.startsWith("redis://127.0.0.1:"), output);
    }

    @Test
    @Lockwheel
    void compatChecksAServer(LockwheelServer server) throws Exception {
        run(0, program(), "compat", server.url(), "--only", "SET NX refuses");
    }

    private static String program() {
        return Program.find().toString();
    }

    /** Runs a command that ends with a status. Returns its output. */
    private static String run(int status, String... command) throws Exception {
        var process = new ProcessBuilder(command).redirectErrorStream(true).start();
        var output = new String(process.getInputStream().readAllBytes());
        assertEquals(status, process.waitFor(), output);
        return output;
    }
}
