// The contract of a RedisLockRegistry, for both of its ways to wait.

package lockwheel.clients.spring;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import lockwheel.clients.Actor;
import lockwheel.clients.Await;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

interface LockRegistryContract {
    Duration LONG_LEASE = Duration.ofMinutes(5);

    RedisLockType type();

    /** A registry that simulates a separate process. */
    default RedisLockRegistry open(Duration lease) {
        var registry = new RedisLockRegistry(Connections.open(), "registry", lease);
        registry.setRedisLockType(type());
        return registry;
    }

    @Test
    @DisplayName("one holder at a time under contention, among processes and among threads")
    default void excludes() throws Exception {
        var name = fresh();
        var registries = new ConcurrentHashMap<Integer, RedisLockRegistry>();
        Contention.exclusive(6, 8, worker -> {
            var registry = registries.computeIfAbsent(worker % 3, which -> open(LONG_LEASE));
            return Guard.of(registry.obtain(name));
        });
    }

    @Test
    @DisplayName("a holder may enter again, and leaves with its last unlock")
    default void isReentrant() throws Exception {
        var name = fresh();
        var lock = open(LONG_LEASE).obtain(name);
        var other = open(LONG_LEASE).obtain(name);
        lock.lock();
        assertTrue(lock.tryLock());
        lock.unlock();
        assertFalse(other.tryLock());
        lock.unlock();
        assertTrue(other.tryLock());
        other.unlock();
    }

    @Test
    @DisplayName("an unlock wakes the waiter long before the lease ends")
    default void wakesTheWaiter() throws Exception {
        var name = fresh();
        var lock = open(LONG_LEASE).obtain(name);
        var other = open(LONG_LEASE).obtain(name);
        lock.lock();
        try (var waiter = new Actor()) {
            var granted = waiter.begin(() -> other.tryLock(200, SECONDS));
            Thread.sleep(300);
            assertFalse(granted.isDone());
            var unlocked = System.nanoTime();
            lock.unlock();
            assertTrue(granted.get());
            var seconds = NANOSECONDS.toSeconds(granted.doneNanos() - unlocked);
            assertTrue(seconds < 10, () -> "woken after " + seconds + " s");
            waiter.run(other::unlock);
        }
    }

    @Test
    @DisplayName("tryLock is refused when its wait is over")
    default void refusesWhileHeld() throws Exception {
        var name = fresh();
        var lock = open(LONG_LEASE).obtain(name);
        var other = open(LONG_LEASE).obtain(name);
        lock.lock();
        var start = Measured.BY_CLIENT.now();
        assertFalse(other.tryLock(300, MILLISECONDS));
        start.assertPassed(300, "gave up");
        lock.unlock();
    }

    @Test
    @DisplayName("refused while the lease lasts, granted when it ended; a late unlock throws")
    default void outlivesItsOwner() throws Exception {
        var name = fresh();
        var late = open(Duration.ofMillis(700)).obtain(name);
        var other = open(LONG_LEASE).obtain(name);
        // A waiter that is woken only by unlock messages would wait for as long as its own lease.
        Lease.ends(Measured.BY_SERVER, 700, late::lock, other::tryLock, () -> {
            Await.until("the end of the lease", other::tryLock);
            return true;
        });
        assertThrows(ConcurrentModificationException.class, late::unlock);
        assertFalse(open(LONG_LEASE).obtain(name).tryLock());
        other.unlock();
    }

    @Test
    @DisplayName("an unlock by another owner throws and changes nothing")
    default void refusesAnUnlockByAnotherOwner() throws Exception {
        var name = fresh();
        var lock = open(LONG_LEASE).obtain(name);
        var other = open(LONG_LEASE).obtain(name);
        lock.lock();
        assertThrows(IllegalStateException.class, other::unlock);
        assertFalse(other.tryLock());
        lock.unlock();
    }

    @Test
    @DisplayName("a lock that is renewed outlives its lease, and ends with its unlock")
    default void isRenewed() throws Exception {
        var name = fresh();
        var scheduler = new ThreadPoolTaskScheduler();
        scheduler.initialize();
        // Renewed after each third of the lease: a busy machine may stall for three seconds.
        var registry = open(Duration.ofSeconds(5));
        registry.setRenewalTaskScheduler(scheduler);
        var lock = registry.obtain(name);
        var other = open(LONG_LEASE).obtain(name);
        lock.lock();
        assertFalse(other.tryLock(11, SECONDS));
        lock.unlock();
        assertTrue(other.tryLock());
        other.unlock();
        scheduler.shutdown();
    }

    private static String fresh() {
        return UUID.randomUUID().toString();
    }
}
