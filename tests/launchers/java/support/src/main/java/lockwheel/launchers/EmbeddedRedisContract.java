// The contract of every fork of embedded-redis with the server that REDIS_SERVER names.

package lockwheel.launchers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.jar.JarFile;
import java.util.stream.Stream;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.params.SetParams;

@ExtendWith(Report.class)
public abstract class EmbeddedRedisContract {
    private static final String COMPARE_AND_DELETE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
                    + "else return 0 end";

    /** The fork's name. */
    protected abstract String vendor();

    /** A server on this port, with these lines in its configuration. */
    protected abstract Launched launch(File program, int port, String... settings)
            throws Exception;

    @Test
    @DisplayName("starts on the port asked for, and serves")
    void serves() throws Exception {
        var port = freePort();
        var server = launched(port);
        assertFalse(server.isActive());
        server.start();
        assertTrue(server.isActive());
        assertEquals(process(server).pid(), use(port, null));
        server.stop();
        assertFalse(server.isActive());
    }

    @Test
    @DisplayName("takes settings, and a program from elsewhere")
    void takesSettings() throws Exception {
        var port = freePort();
        var server = launched(port, "requirepass secret", "maxmemory 128M", "appendonly no");
        server.start();
        use(port, "secret");
        server.stop();
    }

    @Test
    @DisplayName("refuses a port that is taken")
    void refusesAPortThatIsTaken() throws Exception {
        var port = freePort();
        var server = launched(port);
        server.start();
        var second = launched(port);
        assertThrows(Exception.class, second::start);
        assertEquals(1, process(second).waitFor());
        assertFalse(second.isActive());
        use(port, null);
        server.stop();
    }

    @Test
    @DisplayName("ends with status 0, and leaves no process, socket or pidfile")
    void leavesNothing(@TempDir Path folder) throws Exception {
        var socket = folder.resolve("redis.sock");
        var pidfile = folder.resolve("redis.pid");
        var server = launched(freePort(), "unixsocket " + socket, "pidfile " + pidfile);
        server.start();
        var process = process(server);
        assertTrue(Files.exists(socket));
        server.stop();
        assertEquals(0, process.waitFor());
        assertFalse(process.toHandle().isAlive());
        try (Stream<Path> left = Files.list(folder)) {
            assertEquals(0, left.count());
        }
    }

    @Test
    @DisplayName("continues when its log is no longer read")
    void continuesWithoutLogReader() throws Exception {
        var port = freePort();
        // At this level the server logs each client.
        var server = launched(port, "loglevel debug");
        server.start();
        for (var time = 0; time < 100; time++) {
            use(port, null);
        }
        server.stop();
        assertEquals(0, process(server).waitFor());
    }

    @Test
    @DisplayName("is stopped and started again on the same port")
    void startsAgain() throws Exception {
        var port = freePort();
        var server = launched(port);
        var earlier = 0L;
        for (var time = 0; time < 3; time++) {
            server.start();
            assertNotEquals(earlier, earlier = use(port, null));
            server.stop();
        }
    }

    /** A server on this port. */
    protected final Launched launched(int port, String... settings) throws Exception {
        return launch(program(), port, settings);
    }

    protected static File program() {
        return new File(System.getenv("REDIS_SERVER"));
    }

    /** Takes a lock and releases it. Returns the server's process number. */
    protected static long use(int port, String password) {
        try (var jedis = new Jedis("127.0.0.1", port)) {
            if (password != null) {
                assertThrows(RuntimeException.class, jedis::ping);
                jedis.auth(password);
            }
            var lease = SetParams.setParams().nx().px(30_000);
            assertEquals("OK", jedis.set("lock", "token", lease));
            assertNull(jedis.set("lock", "other", lease));
            assertEquals("token", jedis.get("lock"));
            assertEquals(0L, jedis.eval(COMPARE_AND_DELETE, 1, "lock", "other"));
            assertEquals(1L, jedis.eval(COMPARE_AND_DELETE, 1, "lock", "token"));
            var line = jedis.info("server").lines().filter(it -> it.startsWith("process_id:"));
            return Long.parseLong(line.findFirst().orElseThrow().split(":")[1].trim());
        }
    }

    /** A free port of 127.0.0.1. */
    protected static int freePort() throws IOException {
        try (var listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return listener.getLocalPort();
        }
    }

    /** The process that a launcher keeps to itself. */
    protected static Process process(Launched server) throws IllegalAccessException {
        for (Class<?> type = server.itself().getClass(); type != null; type = type.getSuperclass()) {
            for (var field : type.getDeclaredFields()) {
                if (field.getType() == Process.class) {
                    field.setAccessible(true);
                    return (Process) field.get(server.itself());
                }
            }
        }
        throw new AssertionError("a launcher without a process");
    }

    /** The version of the jar, as Maven recorded it there. */
    final String version() {
        try {
            var type = launched(0).itself().getClass();
            var place = type.getProtectionDomain().getCodeSource().getLocation().getPath();
            try (var jar = new JarFile(place)) {
                var record = jar.stream().filter(it -> it.getName().endsWith("/pom.properties"));
                var properties = new Properties();
                properties.load(jar.getInputStream(record.findFirst().orElseThrow()));
                return properties.getProperty("version");
            }
        } catch (Exception error) {
            throw new IllegalStateException("no version", error);
        }
    }
}
