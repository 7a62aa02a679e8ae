// Tests the clock.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.LockwheelException;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.time.Instant;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.Jedis;

@Lockwheel(frozen = true)
class ClockTest {
    private static final Duration MILLISECOND = Duration.ofMillis(1);
    private static final Duration LEASE = Duration.ofSeconds(30);

    @BeforeEach
    void takeTheLock(LockwheelServer server) {
        server.call("SET", "lock", "token", "NX", "PX", "30000");
    }

    @Test
    void advanceEndsLeasesToTheMillisecond(LockwheelServer server) {
        server.clock().advance(LEASE.minus(MILLISECOND));
        assertEquals(1L, server.call("PTTL", "lock"));
        server.clock().advance(MILLISECOND);
        assertNull(server.call("GET", "lock"));
    }

    @Test
    void setGoesToAMoment(LockwheelServer server) {
        Instant moment = server.clock().now().plus(LEASE);
        server.clock().set(moment);
        assertEquals(moment, server.clock().now());
        assertNull(server.call("GET", "lock"));
    }

    @Test
    void setRefusesThePast(LockwheelServer server) {
        Instant shown = server.clock().now();
        var error = assertThrows(LockwheelException.class,
                () -> server.clock().set(shown.minus(MILLISECOND)));
        assertTrue(error.getMessage().contains("the clock shows " + shown.toEpochMilli()),
                error.getMessage());
        assertTrue(error.getMessage().contains("never goes back"), error.getMessage());
        assertEquals(shown, server.clock().now());
    }

    @Test
    void beginsAtTheChosenTime() {
        Instant begin = Instant.parse("2001-09-09T01:46:40Z");
        var builder = LockwheelServer.builder().clockStart(begin);
        try (var running = builder.start(); var frozen = builder.frozen(true).start()) {
            assertEquals(begin, frozen.clock().now());
            assertEquals(begin, frozen.clock().wall());
            assertEquals(1.0, running.clock().rate());
            running.clock().set(begin.plus(Duration.ofDays(1)));
        }
    }

    @Test
    void jumpMovesLeasesBothWays(LockwheelServer server) {
        server.clock().jump(Duration.ofSeconds(-10));
        assertEquals(40_000L, server.call("PTTL", "lock"));
        server.clock().jump(Duration.ofHours(1));
        assertNull(server.call("GET", "lock"));
    }

    @Test
    void stepMovesTheWallClockAlone(LockwheelServer server) {
        Instant now = server.clock().now();
        Instant wall = server.clock().wall();
        server.clock().step(Duration.ofHours(1));
        assertEquals(now, server.clock().now());
        assertEquals(wall.plus(Duration.ofHours(1)), server.clock().wall());
        assertEquals(30_000L, server.call("PTTL", "lock"));
    }

    @Test
    void runsAndStops(LockwheelServer server) {
        assertEquals(0.0, server.clock().rate());
        server.clock().run(1000);
        assertEquals(1000.0, server.clock().rate());
        server.clock().run();
        assertEquals(1.0, server.clock().rate());
        server.clock().freeze();
        assertEquals(server.clock().now(), server.clock().now());
    }

    /** Half a minute in thirty milliseconds. */
    @Test
    void aFastClockEndsALeaseByItself(LockwheelServer server) {
        server.call("CONFIG", "SET", "notify-keyspace-events", "Ex");
        try (var client = new Jedis(server.url())) {
            var expired = Listener.of(client, "__keyevent@0__:expired");
            server.clock().run(1000);
            assertEquals("lock", expired.next());
        }
    }

    @Test
    void aSpanIsOneOfWholeMilliseconds(LockwheelServer server) {
        var error = assertThrows(IllegalArgumentException.class,
                () -> server.clock().advance(Duration.ofNanos(1_500_000)));
        assertTrue(error.getMessage().contains("PT0.0015S"), error.getMessage());
    }
}
