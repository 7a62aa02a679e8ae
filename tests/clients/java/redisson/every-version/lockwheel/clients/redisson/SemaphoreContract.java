// The contracts of the semaphore and the latch.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import lockwheel.clients.Actor;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.GuardedSection;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface SemaphoreContract extends Contract {
    @Test
    @DisplayName("Semaphore: never more holders than permits under contention")
    default void bounds() throws Exception {
        var name = Contract.fresh("semaphore");
        clients().any(0).getSemaphore(name).release(3);
        // All three can be held at once. Under contention that would depend on timing.
        for (var worker = 0; worker < 3; worker++) {
            assertTrue(clients().any(worker).getSemaphore(name).tryAcquire());
        }
        assertFalse(clients().any(0).getSemaphore(name).tryAcquire());
        clients().any(1).getSemaphore(name).release(3);
        var section = new GuardedSection(3);
        Contention.runGuarded(section, 8, 12, worker -> {
            var semaphore = clients().any(worker).getSemaphore(name);
            return Guard.of(() -> semaphore.acquire(), () -> semaphore.release());
        });
        assertEquals(3, clients().any(0).getSemaphore(name).availablePermits());
    }

    @Test
    @DisplayName("Semaphore: refused without permits, and woken by a release")
    default void releaseWakes() throws Exception {
        var name = Contract.fresh("semaphore");
        var semaphore = clients().any(0).getSemaphore(name);
        semaphore.release(2);
        assertTrue(semaphore.tryAcquire(2));
        assertFalse(semaphore.tryAcquire());
        assertFalse(semaphore.tryAcquire(1, 100, MILLISECONDS));
        try (var waiter = new Actor()) {
            var granted = waiter.begin(() ->
                    clients().any(1).getSemaphore(name).tryAcquire(2, 300, SECONDS));
            clients().awaitSubscriber(name);
            semaphore.release();
            Thread.sleep(200);
            assertFalse(granted.isDone(), "granted with one permit of two");
            var released = System.nanoTime();
            semaphore.release();
            assertTrue(granted.get());
            var seconds = NANOSECONDS.toSeconds(granted.doneNanos() - released);
            assertTrue(seconds < LockContract.WAKE_UP_SECONDS, () -> "woken after " + seconds);
        }
        assertEquals(0, semaphore.availablePermits());
    }

    @Test
    @DisplayName("CountDownLatch: holds all until the count is zero, then frees them all")
    default void opensAtZero() throws Exception {
        var name = Contract.fresh("latch");
        var latch = clients().any(0).getCountDownLatch(name);
        assertTrue(latch.trySetCount(2));
        assertFalse(clients().any(1).getCountDownLatch(name).trySetCount(9));
        assertFalse(latch.await(100, MILLISECONDS));
        var ends = new ArrayList<Actor.Result<Boolean>>();
        for (var worker = 0; worker < 4; worker++) {
            var waiting = clients().any(worker).getCountDownLatch(name);
            ends.add(new Actor().begin(() -> waiting.await(300, SECONDS)));
        }
        clients().awaitSubscriber(name);
        latch.countDown();
        Thread.sleep(200);
        assertEquals(1, latch.getCount());
        assertTrue(ends.stream().noneMatch(Actor.Result::isDone), "freed before zero");
        clients().any(1).getCountDownLatch(name).countDown();
        for (var end : ends) {
            assertTrue(end.get());
        }
        assertTrue(latch.await(1, SECONDS));
    }
}
