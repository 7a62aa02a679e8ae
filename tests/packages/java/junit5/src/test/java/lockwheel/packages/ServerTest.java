// Tests the start, the calls and the end of servers.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.LockwheelException;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;

class ServerTest {
    @Test
    void listensWhenItHasStarted() {
        try (var server = LockwheelServer.start(); var client = new Jedis(server.url())) {
            assertEquals("PONG", client.ping());
            assertEquals("redis://" + server.host() + ":" + server.port(), server.url());
            assertEquals("127.0.0.1", server.host());
        }
    }

    @Test
    void endsWhenItIsStopped() {
        var server = LockwheelServer.start();
        var process = ProcessHandle.of(server.pid()).orElseThrow();
        var client = new Jedis(server.url());
        client.ping();
        server.stop();
        assertFalse(process.isAlive());
        assertThrows(RuntimeException.class, client::ping);
        assertThrows(LockwheelException.class, () -> server.call("PING"));
        server.stop();
        server.close();
    }

    @Test
    void callReturnsTheReply() {
        try (var server = LockwheelServer.start()) {
            assertEquals("OK", server.call("SET", "lock", "a \u00e9\r\n b"));
            assertEquals("a \u00e9\r\n b", server.call("GET", "lock"));
            assertEquals("", server.call("ECHO", ""));
            assertNull(server.call("GET", "nothing"));
            assertEquals(1L, server.call("DEL", "lock"));
            var nested = server.call("EVAL", "return {1, 'two', {false, {}}}", "0");
            assertEquals(List.of(1L, "two", Arrays.asList(null, List.of())), nested);
        }
    }

    @Test
    void anErrorIsRaisedWithItsText() {
        try (var server = LockwheelServer.start()) {
            var error = assertThrows(LockwheelException.class, () -> server.call("NONSENSE"));
            assertTrue(error.getMessage().startsWith("ERR unknown command"), error.getMessage());
            assertEquals("PONG", server.call("PING"), "and the connection goes on");
        }
    }

    @Test
    void aConnectionClosedByAFaultIsReopened() {
        try (var server = LockwheelServer.start()) {
            server.faults().add(Fault.close(), Requests.any().command("get").times(1));
            assertThrows(LockwheelException.class, () -> server.call("GET", "lock"));
            assertNull(server.call("GET", "lock"));
        }
    }

    @Test
    void optionsAreThoseOfRedisServer() {
        var builder = LockwheelServer.builder().options(
                "--requirepass", "p w:/@", "--notify-keyspace-events", "Ex");
        try (var server = builder.start(); var client = new Jedis(server.url())) {
            assertEquals("redis://:p%20w%3A%2F%40@127.0.0.1:" + server.port(), server.url());
            assertEquals("PONG", client.ping());
            assertEquals("xE", client.configGet("notify-keyspace-events").values()
                    .iterator().next());
            assertEquals("PONG", server.call("PING"), "the password is known");
            server.clock().freeze();
        }
    }

    @Test
    void aFailedStartReportsTheOutput() {
        var builder = LockwheelServer.builder().options("--bogus", "1");
        var error = assertThrows(LockwheelException.class, builder::start);
        assertTrue(error.getMessage().startsWith("the server ended with status 1:"), error.getMessage());
        assertTrue(error.getMessage().contains("Bad directive"), error.getMessage());
    }

    @Test
    void aPendingCallFailsWhenTheServerStops() {
        var server = LockwheelServer.start();
        var gate = server.faults().gate(Requests.any().command("get"));
        var get = Later.run(() -> server.call("GET", "lock"));
        gate.await();
        server.stop();
        assertThrows(LockwheelException.class, get::get);
    }

    @Test
    void serversAreIndependent() {
        try (var one = LockwheelServer.start(); var other = LockwheelServer.start()) {
            assertNotEquals(one.url(), other.url());
            one.call("SET", "lock", "one");
            assertNull(other.call("GET", "lock"));
            one.clock().freeze();
            assertEquals(1.0, other.clock().rate());
        }
    }

    @Test
    void clientsReconnectAfterARestart() {
        try (var server = LockwheelServer.builder().frozen(true).start();
                var client = new Jedis(server.url())) {
            client.set("lock", "token");
            long pid = server.pid();
            String url = server.url();
            server.restart();
            assertEquals(url, server.url());
            assertNotEquals(pid, server.pid());
            assertThrows(JedisConnectionException.class, () -> client.get("lock"));
            try (var another = new Jedis(url)) {
                assertNull(another.get("lock"));
            }
            assertEquals(0.0, server.clock().rate());
            server.stop();
            server.restart();
            assertEquals("PONG", server.call("PING"));
        }
    }

    @Test
    void resetRemovesAllState() {
        try (var server = LockwheelServer.builder().frozen(true).start();
                var client = new Jedis(server.url())) {
            client.set("lock", "token");
            client.clientSetname("worker");
            client.configSet("notify-keyspace-events", "KEA");
            int port = server.port();
            var script = client.scriptLoad("return 1");
            server.faults().add(Fault.error("ERR no"));
            server.faults().gate(Requests.any());
            server.clock().run(10);
            server.reset();
            assertEquals("PONG", client.ping());
            assertEquals(0, client.dbSize());
            assertEquals(port, server.port());
            assertFalse(client.scriptExists(script));
            assertNull(client.clientGetname());
            assertEquals("", client.configGet("notify-keyspace-events").values().iterator().next());
            assertEquals(List.of(), server.faults().list());
            assertEquals(0.0, server.clock().rate(), "as it was started");
            assertEquals(List.of(), server.journal().locks());
            assertTrue(server.journal().entries().stream()
                    .noneMatch(entry -> entry.keys().contains("lock")));
        }
        try (var server = LockwheelServer.start()) {
            server.clock().freeze();
            server.clock().advance(Duration.ofDays(1));
            server.reset();
            assertEquals(1.0, server.clock().rate());
        }
    }
}
