// The contract of a fair lock: it is granted in the order of the requests.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import lockwheel.clients.Actor;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface FairLockContract extends Contract {
    @Test
    @DisplayName("FairLock: one holder at a time under contention")
    default void fairLockExcludes() throws Exception {
        var name = Contract.fresh("fair");
        Contention.exclusive(6, 8, worker -> Guard.of(clients().any(worker).getFairLock(name)));
    }

    @Test
    @DisplayName("FairLock: granted in the order of arrival")
    default void servesInOrder() throws Exception {
        var name = Contract.fresh("fair");
        var lock = clients().any(0).getFairLock(name);
        lock.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        var line = new Line(clients(), name, List.of());
        line.join(5);
        lock.unlock();
        line.assertServedInOrder();
    }

    @Test
    @DisplayName("FairLock: a waiter that died in the queue is passed over")
    default void passesOverTheDead() throws Exception {
        var name = Contract.fresh("fair");
        var lock = clients().any(0).getFairLock(name);
        var dead = clients().open();
        // All clients queue within the lease, which may take seconds on a busy machine. A dead
        // client keeps its place for the remaining lease and the time it would have waited.
        lock.lock(8, SECONDS);
        try (var actor = new Actor()) {
            actor.begin(() -> dead.getFairLock(name).tryLock(4, 300, SECONDS));
            var line = new Line(clients(), name, clients().awaitQueue(name, 1, List.of()));
            dead.shutdown(0, 1, SECONDS);
            line.join(3);
            line.assertServedInOrder();
        }
    }

    @Test
    @DisplayName("FairLock: a waiter that gives up leaves the queue")
    default void removesAWaiterThatGaveUp() throws Exception {
        var name = Contract.fresh("fair");
        var lock = clients().any(0).getFairLock(name);
        var other = clients().any(1).getFairLock(name);
        lock.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        assertFalse(other.tryLock(300, 10_000, MILLISECONDS));
        lock.unlock();
        lock.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        lock.unlock();
        assertTrue(other.tryLock());
        other.unlock();
    }

    /** Waiters in a queue. Each releases the lock for the next. */
    final class Line {
        private final String name;
        private final List<String> ahead;
        private final Clients clients;
        private final List<Integer> served = Collections.synchronizedList(new ArrayList<>());
        private final List<Actor.Result<Void>> ends = new ArrayList<>();

        /** A queue for the lock of this name, behind these waiters. */
        Line(Clients clients, String name, List<String> ahead) {
            this.clients = clients;
            this.name = name;
            this.ahead = ahead;
        }

        /** Adds so many waiters to the queue, one after another. */
        void join(int waiters) throws Exception {
            for (var place = 0; place < waiters; place++) {
                var number = place;
                var waiter = clients.any(place).getFairLock(name);
                ends.add(new Actor().begin(() -> {
                    assertTrue(waiter.tryLock(40, 300, SECONDS));
                    served.add(number);
                    waiter.unlock();
                    return null;
                }));
                clients.awaitQueue(name, place + 1, ahead);
            }
        }

        void assertServedInOrder() throws Exception {
            for (var end : ends) {
                end.get();
            }
            var arrivals = new ArrayList<>(served);
            Collections.sort(arrivals);
            assertEquals(arrivals, served);
            assertEquals(ends.size(), served.size());
        }
    }
}
