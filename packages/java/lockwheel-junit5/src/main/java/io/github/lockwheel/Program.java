// Finds the server program.

package io.github.lockwheel;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * Finds the server program: the one that {@code LOCKWHEEL_BINARY} names, else the one in the
 * platform's jar, else {@code lockwheel} on the {@code PATH}.
 */
public final class Program {
    private static final String OVERRIDE = "LOCKWHEEL_BINARY";
    private static final ClassLoader JARS = Program.class.getClassLoader();

    private static Path carried;

    private Program() {}

    /**
     * Prints the path of the program.
     *
     * @param arguments are ignored
     */
    public static void main(String[] arguments) {
        try {
            System.out.println(find());
        } catch (LockwheelException error) {
            System.err.println(error.getMessage());
            System.exit(1);
        }
    }

    /**
     * Finds the program. That of a jar is extracted into the user's cache folder.
     *
     * @return its path
     * @throws LockwheelException if there is none
     */
    public static Path find() {
        String override = System.getenv(OVERRIDE);
        if (override != null && !override.isEmpty()) {
            return overriding(Path.of(override));
        }
        return carried().or(Program::onPath).orElseThrow(Program::nowhere);
    }

    private static Path overriding(Path program) {
        if (!Files.isExecutable(program)) {
            throw new LockwheelException(
                    OVERRIDE + " is " + program + ", which is not an executable file");
        }
        return program;
    }

    private static Optional<Path> onPath() {
        String folders = Optional.ofNullable(System.getenv("PATH")).orElse("");
        return Stream.of(folders.split(File.pathSeparator))
                .map(folder -> Path.of(folder, "lockwheel"))
                .filter(Files::isRegularFile)
                .filter(Files::isExecutable)
                .findFirst();
    }

    private static LockwheelException nowhere() {
        return new LockwheelException("there is no Lockwheel for " + platform()
                + ": no jar on the class path carries it, and PATH has no lockwheel. Add the"
                + " dependency io.github.lockwheel:lockwheel-server-" + platform()
                + ", or set the environment variable " + OVERRIDE + " to the path of a program");
    }

    /** The platform as in the names of the jars: linux-x86_64, macos-aarch64. */
    static String platform() {
        String system = System.getProperty("os.name").toLowerCase();
        String processor = System.getProperty("os.arch").toLowerCase();
        return (system.startsWith("mac") ? "macos" : system.split(" ")[0]) + "-"
                + (processor.equals("amd64") ? "x86_64" : processor);
    }

    /** The extracted program of the platform's jar. It is verified once in each JVM. */
    private static synchronized Optional<Path> carried() {
        String resource = "io/github/lockwheel/" + platform() + "/lockwheel";
        if (carried == null && JARS.getResource(resource) != null) {
            try {
                carried = extracted(resource);
            } catch (IOException error) {
                throw new LockwheelException("the program cannot be extracted: " + error, error);
            }
        }
        return Optional.ofNullable(carried);
    }

    private static Path extracted(String resource) throws IOException {
        String hash;
        try (InputStream stream = JARS.getResourceAsStream(resource + ".sha256")) {
            hash = new String(stream.readAllBytes(), StandardCharsets.US_ASCII).strip();
        }
        try {
            return extracted(resource, hash, caches().resolve("lockwheel").resolve(hash));
        } catch (IOException error) {
            // Without a writable cache folder, use a temporary one.
            return extracted(resource, hash, Files.createTempDirectory("lockwheel"));
        }
    }

    /** Extracts the program into a folder, unless an identical copy is there. */
    private static Path extracted(String resource, String hash, Path folder) throws IOException {
        Path program = Files.createDirectories(folder).resolve("lockwheel");
        if (Files.isExecutable(program) && hash(program).equals(hash)) {
            return program;
        }
        // Several processes may do this at the same time: each writes a file of its own and renames it.
        Path fresh = Files.createTempFile(folder, "lockwheel", ".new");
        try (InputStream stream = JARS.getResourceAsStream(resource)) {
            Files.copy(stream, fresh, StandardCopyOption.REPLACE_EXISTING);
        }
        Files.setPosixFilePermissions(fresh, PosixFilePermissions.fromString("rwxr-xr-x"));
        if (!hash(fresh).equals(hash)) {
            throw new IOException("the program in the jar is damaged: " + resource);
        }
        return Files.move(fresh, program, StandardCopyOption.ATOMIC_MOVE);
    }

    /** The user's cache folder. */
    private static Path caches() {
        String home = System.getProperty("user.home");
        String named = System.getenv("XDG_CACHE_HOME");
        if (named != null && !named.isEmpty()) {
            return Path.of(named);
        }
        return platform().startsWith("macos")
                ? Path.of(home, "Library", "Caches") : Path.of(home, ".cache");
    }

    private static String hash(Path file) throws IOException {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file));
            return String.format("%064x", new BigInteger(1, hash));
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError("every Java has SHA-256", error);
        }
    }
}
