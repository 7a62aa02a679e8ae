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

/** Which program is started, and that it ends with a JVM: with programs that start servers. */
class ProcessTest {
    private static final String CARRIER = "lockwheel-server-";
    private static final List<String> CLASS_PATH =
            List.of(System.getProperty("java.class.path").split(File.pathSeparator));

    private final List<Process> processes = new ArrayList<>();

    @TempDir
    private Path folder;

    @AfterEach
    void endThem() {
        processes.forEach(Process::destroyForcibly);
    }

    @Test
    void aServerEndsWithAKilledJvm() throws Exception {
        var starter = starter(CLASS_PATH, Map.of());
        int port = Integer.parseInt(told(starter).split(" ")[0]);
        try (var socket = new Socket("127.0.0.1", port)) {
            socket.setSoTimeout(Later.PATIENCE_SECONDS * 1000);
            socket.getOutputStream().write("PING\r\n".getBytes());
            assertEquals("+PONG\r\n", new String(socket.getInputStream().readNBytes(7)));
            starter.destroyForcibly().waitFor();
            assertEquals(-1, socket.getInputStream().read(), "the server is gone");
        }
    }

    @Test
    void theCarriedProgramIsExtractedOnce() throws Exception {
        var environment = Map.of("XDG_CACHE_HOME", folder.toString());
        var first = program(told(starter(CLASS_PATH, environment)));
        assertEquals(folder.resolve("lockwheel"), first.getParent().getParent());
        var extracted = Files.getLastModifiedTime(first);
        assertEquals(first, program(told(starter(CLASS_PATH, environment))));
        assertEquals(extracted, Files.getLastModifiedTime(first));
        assertEquals(List.of(first), files(first.getParent()));
    }

    @Test
    void aDamagedCopyIsReplaced() throws Exception {
        var environment = Map.of("XDG_CACHE_HOME", folder.toString());
        var first = starter(CLASS_PATH, environment);
        var program = program(told(first));
        first.destroyForcibly().waitFor();
        var whole = Files.readAllBytes(program);
        Files.delete(program);
        Files.write(program, new byte[] {'#', '!'});
        assertTrue(program.toFile().setExecutable(true));
        assertEquals(program, program(told(starter(CLASS_PATH, environment))));
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
            // The last to rename its copy has replaced those that run already.
            assertTrue(program(told(starter)).startsWith(folder));
        }
        var programs = files(files(folder.resolve("lockwheel")).get(0));
        assertEquals(List.of("lockwheel"),
                programs.stream().map(file -> file.getFileName().toString()).toList());
    }

    @Test
    void aFolderThatCannotBeWrittenToIsNotNeeded() throws Exception {
        var file = Files.createFile(folder.resolve("file"));
        var program = program(told(starter(CLASS_PATH, Map.of("XDG_CACHE_HOME", file.toString()))));
        assertTrue(Files.isRegularFile(program), program.toString());
    }

    @Test
    void aVariableNamesAnotherProgram() throws Exception {
        var program = copyOfTheProgram("another");
        var told = told(starter(CLASS_PATH, Map.of("LOCKWHEEL_BINARY", program.toString())));
        assertEquals(program, program(told));
    }

    @Test
    void aVariableThatNamesNothingIsToldOf() throws Exception {
        var told = told(starter(CLASS_PATH, Map.of("LOCKWHEEL_BINARY", "/no/such/program")));
        assertEquals("LOCKWHEEL_BINARY is /no/such/program, where there is no program to run",
                told);
    }

    @Test
    void noVariableIsASettingOfTheServer() throws Exception {
        var told = told(starter(CLASS_PATH, Map.of("LOCKWHEEL_REQUIREPASS", "secret")));
        assertTrue(Files.isRegularFile(program(told)), told);
    }

    @Test
    void withoutACarriedProgramPathIsSearched() throws Exception {
        var program = copyOfTheProgram("lockwheel");
        var told = told(starter(withoutTheProgram(), Map.of("PATH", folder.toString())));
        assertEquals(program, program(told));
    }

    @Test
    void withoutAnyProgramItSaysWhatToDo() throws Exception {
        var told = told(starter(withoutTheProgram(), Map.of("PATH", folder.toString())));
        assertTrue(told.startsWith("there is no Lockwheel for "), told);
        assertTrue(told.contains("io.github.lockwheel:" + CARRIER), told);
        assertTrue(told.contains("LOCKWHEEL_BINARY"), told);
    }

    private Process starter(List<String> classPath, Map<String, String> environment)
            throws IOException {
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        // It lives shortly: no time is spent on compiling it well.
        var builder = new ProcessBuilder(java, "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp",
                String.join(File.pathSeparator, classPath), Starter.class.getName());
        builder.environment().putAll(environment);
        var process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        processes.add(process);
        return process;
    }

    private static String told(Process starter) throws IOException {
        return new BufferedReader(new InputStreamReader(starter.getInputStream())).readLine();
    }

    /** Of a line that tells the port and the program. */
    private static Path program(String told) {
        return Path.of(told.split(" ", 2)[1]);
    }

    private Path copyOfTheProgram(String name) throws IOException {
        var environment = Map.of("XDG_CACHE_HOME", folder.resolve("cache").toString());
        var carried = program(told(starter(CLASS_PATH, environment)));
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
