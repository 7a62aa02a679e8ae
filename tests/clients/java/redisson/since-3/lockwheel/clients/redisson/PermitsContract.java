// The contracts of permits with a lease, and of the rate limiter.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.concurrent.atomic.AtomicReference;
import lockwheel.clients.Actor;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.GuardedSection;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.redisson.api.RateIntervalUnit;
import org.redisson.api.RateType;

interface PermitsContract extends Contract {
    @Test
    @DisplayName("PermitExpirableSemaphore: never more holders than permits under contention")
    default void expirablePermitsBound() throws Exception {
        var name = Contract.fresh("permits");
        assertTrue(clients().any(0).getPermitExpirableSemaphore(name).trySetPermits(2));
        var section = new GuardedSection(2);
        Contention.runGuarded(section, 6, 8, worker -> {
            var semaphore = clients().any(worker).getPermitExpirableSemaphore(name);
            var permit = new AtomicReference<String>();
            return Guard.of(
                    () -> permit.set(semaphore.acquire(300, SECONDS)),
                    () -> semaphore.release(permit.get()));
        });
        var semaphore = clients().any(0).getPermitExpirableSemaphore(name);
        assertEquals(2, semaphore.availablePermits());
    }

    @Test
    @DisplayName("PermitExpirableSemaphore: a permit comes back when its lease ended, not before")
    default void permitsExpire() throws Exception {
        var name = Contract.fresh("permits");
        var semaphore = clients().any(0).getPermitExpirableSemaphore(name);
        var other = clients().any(1).getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        Lease.ends(Measured.BY_CLIENT, 1000,
                () -> semaphore.acquire(1000, MILLISECONDS),
                () -> other.tryAcquire() != null,
                () -> other.tryAcquire(40, 300, SECONDS) != null);
    }

    @Test
    @DisplayName("PermitExpirableSemaphore: a permit that ended cannot be given back")
    default void permitsEndOnce() throws Exception {
        var name = Contract.fresh("permits");
        var semaphore = clients().any(0).getPermitExpirableSemaphore(name);
        var other = clients().any(1).getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        var ended = semaphore.acquire(100, MILLISECONDS);
        var next = other.tryAcquire(40, 300, SECONDS);
        assertFalse(semaphore.tryRelease(ended));
        assertEquals(0, semaphore.availablePermits());
        assertTrue(other.tryRelease(next));
        assertEquals(1, semaphore.availablePermits());
    }

    @Test
    @DisplayName("PermitExpirableSemaphore: a waiter is woken by the release")
    default void permitReleaseWakes() throws Exception {
        var name = Contract.fresh("permits");
        var semaphore = clients().any(0).getPermitExpirableSemaphore(name);
        assertTrue(semaphore.trySetPermits(1));
        var permit = semaphore.acquire(300, SECONDS);
        try (var waiter = new Actor()) {
            var granted = waiter.begin(() -> clients().any(1)
                    .getPermitExpirableSemaphore(name).tryAcquire(300, 300, SECONDS));
            clients().awaitSubscriber(name);
            assertFalse(granted.isDone());
            var released = System.nanoTime();
            semaphore.release(permit);
            assertNotNull(granted.get());
            var seconds = NANOSECONDS.toSeconds(granted.doneNanos() - released);
            assertTrue(seconds < LockContract.WAKE_UP_SECONDS, () -> "woken after " + seconds);
        }
    }

    @Test
    @DisplayName("RateLimiter: never more than the rate in an interval, for all clients")
    default void limits() throws Exception {
        var name = Contract.fresh("rate");
        var rate = 5;
        var intervalMs = 1000;
        var limiter = clients().any(0).getRateLimiter(name);
        var unit = RateIntervalUnit.MILLISECONDS;
        assertTrue(limiter.trySetRate(RateType.OVERALL, rate, intervalMs, unit));
        assertFalse(limiter.trySetRate(RateType.OVERALL, 99, intervalMs, unit));
        var other = clients().any(1).getRateLimiter(name);
        var start = Measured.BY_CLIENT.now();
        for (var permit = 0; permit < rate; permit++) {
            assertTrue((permit % 2 == 0 ? limiter : other).tryAcquire());
        }
        // If the interval has passed on a slow machine, nothing is refused.
        var refused = !other.tryAcquire();
        if (!refused) {
            start.assertPassed(intervalMs, "one more than the rate");
        }
        assertTrue(other.tryAcquire(rate, 20, SECONDS));
        start.assertPassed(intervalMs, "twice the rate");
    }
}
