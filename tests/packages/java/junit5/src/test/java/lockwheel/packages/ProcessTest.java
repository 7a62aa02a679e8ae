// Tests the choice of the program and its end with a JVM, in child processes.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ProcessTest {
    private static final String CARRIER = "lockwheel-server-";
    private static final List<String> CLASS_PATH =
            List.of(System.getProperty("java.class.path").split(File.pathSeparator));

    private final List<Process> processes = new ArrayList<>();

    @TempDir
    private Path folder;

    @AfterEach
    void stopProcesses() {
        processes.forEach(Process::destroyForcibly);
    }

    @Test
    void aServerEndsWithAKilledJvm() throws Exception {
        var starter = starter(CLASS_PATH, Map.of());
        int port = Integer.parseInt(line(starter).split(" ")[0]);
        try (var socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout(Later.MAX_WAIT_SECONDS * 1000);
            socket.getOutputStream().write("PING\r\n".getBytes());
            assertEquals("+PONG\r\n", new String(socket.getInputStream().readNBytes(7)));
            starter.destroyForcibly().waitFor();
            assertEquals(-1, socket.getInputStream().read(), "the server has ended");
        }
    }

    @Test
    void theCarriedProgramIsExtractedOnce() throws Exception {
        var environment = Map.of("XDG_CACHE_HOME", folder.toString());
        var first = program(line(starter(CLASS_PATH, environment)));
        assertEquals(folder.resolve("lockwheel"), first.getParent().getParent());
        var extracted = Files.getLastModifiedTime(first);
        assertEquals(first, program(line(starter(CLASS_PATH, environment))));
        assertEquals(extracted, Files.getLastModifiedTime(first));
        assertEquals(List.of(first), files(first.getParent()));
    }

    @Test
    void aDamagedCopyIsReplaced() throws Exception {
        var environment = Map.of("XDG_CACHE_HOME", folder.toString());
        var first = starter(CLASS_PATH, environment);
        var program = program(line(first));
        first.destroyForcibly().waitFor();
        var whole = Files.readAllBytes(program);
        Files.delete(program);
        Files.write(program, new byte[] {'#', '!'});
        assertTrue(program.toFile().setExecutable(true));
        assertEquals(program, program(line(starter(CLASS_PATH, environment))));
        assertEquals(whole.length, Files.size(program));
    }

    @Test
    void manyMayExtractAtOnce() throws Exception {
        var environment = Map.of("XDG_CACHE_HOME", folder.toString());
        var starters = new ArrayList<Process>();
        for (int count = 0; count < 3; count++) {
            starters.add(starter(CLASS_PATH, environment));
        }
        for (Process starter : starters) {
            // The last rename replaces the files of running programs.
            assertTrue(program(line(starter)).startsWith(folder));
        }
        var programs = files(files(folder.resolve("lockwheel")).get(0));
        assertEquals(List.of("lockwheel"),
                programs.stream().map(file -> file.getFileName().toString()).toList());
    }

    @Test
    void aFolderThatCannotBeWrittenToIsNotNeeded() throws Exception {
        var file = Files.createFile(folder.resolve("file"));
        var program = program(line(starter(CLASS_PATH, Map.of("XDG_CACHE_HOME", file.toString()))));
        assertTrue(Files.isRegularFile(program), program.toString());
    }

    @Test
    void aVariableNamesAnotherProgram() throws Exception {
        var program = copyOfTheProgram("another");
        var line = line(starter(CLASS_PATH, Map.of("LOCKWHEEL_BINARY", program.toString())));
        assertEquals(program, program(line));
    }

    @Test
    void aVariableThatNamesNoProgramIsAnError() throws Exception {
        var line = line(starter(CLASS_PATH, Map.of("LOCKWHEEL_BINARY", "/no/such/program")));
        assertEquals("LOCKWHEEL_BINARY is /no/such/program, which is not an executable file",
                line);
    }

    @Test
    void theEnvironmentDoesNotSetOptions() throws Exception {
        var line = line(starter(CLASS_PATH, Map.of("LOCKWHEEL_REQUIREPASS", "secret")));
        assertTrue(Files.isRegularFile(program(line)), line);
    }

    @Test
    void withoutACarriedProgramPathIsSearched() throws Exception {
        var program = copyOfTheProgram("lockwheel");
        var line = line(starter(withoutTheProgram(), Map.of("PATH", folder.toString())));
        assertEquals(program, program(line));
    }

    @Test
    void aMissingProgramIsAnErrorWithAdvice() throws Exception {
        var line = line(starter(withoutTheProgram(), Map.of("PATH", folder.toString())));
        assertTrue(line.startsWith("there is no Lockwheel for "), line);
        assertTrue(line.contains("io.github.lockwheel:" + CARRIER), line);
        assertTrue(line.contains("LOCKWHEEL_BINARY"), line);
    }

    private Process starter(List<String> classPath, Map<String, String> environment)
            throws IOException {
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        // A short-lived process needs no optimising compiler.
        var builder = new ProcessBuilder(java, "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp",
                String.join(File.pathSeparator, classPath), Starter.class.getName());
        builder.environment().putAll(environment);
        var process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        processes.add(process);
        return process;
    }

    private static String line(Process starter) throws IOException {
        return new BufferedReader(new InputStreamReader(starter.getInputStream())).readLine();
    }

    /** The program, from a line with the port and the program. */
    private static Path program(String line) {
        return Path.of(line.split(" ", 2)[1]);
    }

    private Path copyOfTheProgram(String name) throws IOException {
        var environment = Map.of("XDG_CACHE_HOME", folder.resolve("cache").toString());
        var carried = program(line(starter(CLASS_PATH, environment)));
        return Files.copy(carried, folder.resolve(name),
                StandardCopyOption.COPY_ATTRIBUTES);
    }

    private static List<String> withoutTheProgram() {
        return CLASS_PATH.stream().filter(entry -> !entry.contains(CARRIER))
                .toList();
    }

    private static List<Path> files(Path folder) throws IOException {
        try (Stream<Path> files = Files.list(folder)) {
            return files.toList();
        }
    }
}
