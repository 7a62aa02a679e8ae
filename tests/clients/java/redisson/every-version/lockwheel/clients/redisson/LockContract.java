// The contract of every RLock.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import lockwheel.clients.Actor;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface LockContract extends Contract {
    /** Much longer than any test waits: a waiter that relies on it is too late. */
    long LONG_LEASE_SECONDS = 300;

    /** Far longer than a message takes on a busy machine, far shorter than the lease. */
    long WAKE_UP_SECONDS = 10;

    @Test
    @DisplayName("RLock: one holder at a time under contention")
    default void excludes() throws Exception {
        var name = Contract.fresh("lock");
        Contention.exclusive(8, 20, worker -> {
            var lock = clients().any(worker).getLock(name);
            // A waiter that missed the message of an unlock would wait for the end of this lease.
            return Guard.of(() -> lock.lock(LONG_LEASE_SECONDS, SECONDS), lock::unlock);
        });
    }

    @Test
    @DisplayName("RLock: a holder may enter again, and leaves with its last unlock")
    default void isReentrant() throws Exception {
        var name = Contract.fresh("lock");
        var lock = clients().any(0).getLock(name);
        var other = clients().any(1).getLock(name);
        lock.lock();
        assertTrue(lock.tryLock());
        assertEquals(2, lock.getHoldCount());
        lock.unlock();
        assertTrue(lock.isHeldByCurrentThread());
        assertFalse(other.tryLock());
        lock.unlock();
        assertFalse(lock.isLocked());
        assertTrue(other.tryLock());
        other.unlock();
    }

    @Test
    @DisplayName("RLock: tryLock is refused at once, or when its wait is over")
    default void refusesWhileHeld() throws Exception {
        var name = Contract.fresh("lock");
        var lock = clients().any(0).getLock(name);
        var other = clients().any(1).getLock(name);
        lock.lock(LONG_LEASE_SECONDS, SECONDS);
        assertFalse(other.tryLock());
        var start = Measured.BY_CLIENT.now();
        assertFalse(other.tryLock(300, LONG_LEASE_SECONDS * 1000, MILLISECONDS));
        start.assertPassed(300, "gave up");
        lock.unlock();
        assertTrue(other.tryLock(300, LONG_LEASE_SECONDS * 1000, MILLISECONDS));
        other.unlock();
    }

    @Test
    @DisplayName("RLock: an unlock wakes the waiter")
    default void wakesTheWaiter() throws Exception {
        var name = Contract.fresh("lock");
        var lock = clients().any(0).getLock(name);
        lock.lock(LONG_LEASE_SECONDS, SECONDS);
        try (var waiter = new Actor()) {
            var granted = waiter.begin(() -> clients().any(1).getLock(name)
                    .tryLock(LONG_LEASE_SECONDS, LONG_LEASE_SECONDS, SECONDS));
            clients().awaitSubscriber(name);
            assertFalse(granted.isDone());
            var unlocked = System.nanoTime();
            lock.unlock();
            assertTrue(granted.get());
            assertSoon(unlocked, granted);
        }
    }

    @Test
    @DisplayName("RLock: a forced unlock frees the lock and wakes the waiter")
    default void yieldsToForce() throws Exception {
        var name = Contract.fresh("lock");
        var lock = clients().any(0).getLock(name);
        lock.lock(LONG_LEASE_SECONDS, SECONDS);
        try (var waiter = new Actor()) {
            var granted = waiter.begin(() -> clients().any(1).getLock(name)
                    .tryLock(LONG_LEASE_SECONDS, LONG_LEASE_SECONDS, SECONDS));
            clients().awaitSubscriber(name);
            var unlocked = System.nanoTime();
            clients().any(1).getLock(name).forceUnlock();
            assertTrue(granted.get());
            assertSoon(unlocked, granted);
        }
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    @DisplayName("RLock: refused while the lease lasts, granted when it ended without an unlock")
    default void outlivesItsOwner() throws Exception {
        var name = Contract.fresh("lock");
        var lock = clients().any(0).getLock(name);
        var other = clients().any(1).getLock(name);
        Lease.ends(Measured.BY_SERVER, 1000,
                () -> lock.lock(1000, MILLISECONDS),
                () -> other.tryLock(),
                () -> other.tryLock(LONG_LEASE_SECONDS, LONG_LEASE_SECONDS, SECONDS));
        other.unlock();
    }

    @Test
    @DisplayName("RLock: an unlock by another owner throws and changes nothing")
    default void refusesAnUnlockByAnotherOwner() throws Exception {
        var name = Contract.fresh("lock");
        var lock = clients().any(0).getLock(name);
        lock.lock(LONG_LEASE_SECONDS, SECONDS);
        var other = clients().any(1).getLock(name);
        assertThrows(IllegalMonitorStateException.class, other::unlock);
        try (var thread = new Actor()) {
            // Another thread of the same client is another owner.
            assertThrows(IllegalMonitorStateException.class, () -> thread.run(lock::unlock));
        }
        assertTrue(lock.isHeldByCurrentThread());
        assertFalse(other.tryLock());
        lock.unlock();
    }

    /** Woken by the message, and not by the end of a lease or a retry. */
    private static void assertSoon(long sinceNanos, Actor.Result<?> result) {
        var seconds = NANOSECONDS.toSeconds(result.doneNanos() - sinceNanos);
        assertTrue(seconds < WAKE_UP_SECONDS, () -> "woken after " + seconds + " s");
    }
}
