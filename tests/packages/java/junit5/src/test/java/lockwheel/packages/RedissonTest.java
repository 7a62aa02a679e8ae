// Tests Redisson's own timers and the server's clock.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisResponseTimeoutException;

@Lockwheel(frozen = true)
class RedissonTest {
    private static final Duration WATCHDOG = Duration.ofSeconds(30);

    private LockwheelServer server;
    private RedissonClient redisson;
    private RLock lock;

    @BeforeEach
    void connect(LockwheelServer server) {
        this.server = server;
        redisson = Redissons.withWatchdog(server, WATCHDOG);
        lock = redisson.getLock("lock");
    }

    @AfterEach
    void disconnect() {
        redisson.shutdown();
    }

    private boolean anotherTries() throws Exception {
        return Later.run(lock::tryLock).get();
    }

    private void awaitARefusal() throws Exception {
        Later.eventually("it is refused", () -> server.journal().entries().stream()
                .anyMatch(entry -> entry.event().equals("refused")));
    }

    @Test
    void aLeaseEndsByTheServersClock() throws Exception {
        lock.lock(10, TimeUnit.SECONDS);
        assertFalse(anotherTries());
        server.clock().advance(Duration.ofSeconds(10));
        assertTrue(anotherTries());
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void aStepBeyondTheLeaseIsQuickerThanTheWatchdog() throws Exception {
        lock.lock();
        server.clock().advance(WATCHDOG);
        assertFalse(lock.isHeldByCurrentThread());
        assertTrue(anotherTries());
    }

    @Test
    void aWaitEndsByTheWaitersOwnClock() throws Exception {
        lock.lock();
        var waits = Later.run(() -> lock.tryLock(50, TimeUnit.MILLISECONDS));
        assertFalse(waits.get(), "and no time has passed on the server");
    }

    @Test
    void anUnlockWakesAWaiter() throws Exception {
        lock.lock();
        var waits = Later.run(() -> lock.tryLock(1, TimeUnit.HOURS));
        awaitARefusal();
        lock.unlock();
        assertTrue(waits.get());
    }

    @Test
    void aWaiterTriesAgainWhenTheLeaseHasPassedOnItsOwnClock() throws Exception {
        lock.lock(200, TimeUnit.MILLISECONDS);
        var waits = Later.run(() -> lock.tryLock(1, TimeUnit.HOURS));
        awaitARefusal();
        server.clock().advance(Duration.ofMillis(200));
        assertTrue(waits.get());
    }

    /** The lock then has an owner without a reply, and no watchdog. */
    @Test
    void aLostAnswerIsWaitedForByItsOwnClock() throws Exception {
        var impatient = Redissons.withTimeout(server, Duration.ofSeconds(1));
        impatient.getLock("another").tryLock(); // The server knows the script now.
        server.faults().add(Fault.loseAndClose(), Requests.any().command("eval*").nth(1));
        assertThrows(RedisResponseTimeoutException.class, impatient.getLock("lock")::tryLock);
        assertFalse(lock.tryLock());
        server.clock().advance(WATCHDOG);
        assertTrue(lock.tryLock());
        impatient.shutdown();
    }
}
