// The contracts of locks that only recent versions of Redisson have.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface RecentLocksContract extends Contract {
    @Test
    @DisplayName("FencedLock: one holder at a time, and each has a higher token than those before")
    default void tokensGrow() throws Exception {
        var name = Contract.fresh("fenced");
        var tokens = Collections.synchronizedList(new ArrayList<Long>());
        Contention.exclusive(6, 10, worker -> {
            var lock = clients().any(worker).getFencedLock(name);
            return Guard.of(() -> tokens.add(lock.lockAndGetToken()), lock::unlock);
        });
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
    }

    @Test
    @DisplayName("FencedLock: the token grows across a lease that ended, and is refused meanwhile")
    default void tokensOutliveLeases() throws Exception {
        var lock = clients().any(0).getFencedLock(Contract.fresh("fenced"));
        var other = clients().any(1).getFencedLock(lock.getName());
        // Redisson 4.7.0 ignores the lease in lockAndGetToken, and waits in tryLockAndGetToken().
        Lease.ends(Measured.BY_SERVER, 1000,
                () -> lock.lock(1000, MILLISECONDS),
                () -> other.tryLock(),
                () -> other.tryLockAndGetToken(30, 300, SECONDS) != null);
        assertEquals(2, other.getToken());
        assertTrue(other.isHeldByCurrentThread());
    }

    @Test
    @DisplayName("SpinLock: one holder at a time under contention")
    default void spinLockExcludes() throws Exception {
        var name = Contract.fresh("spin");
        Contention.exclusive(6, 10, worker -> Guard.of(clients().any(worker).getSpinLock(name)));
    }

    @Test
    @DisplayName("SpinLock: granted without any message when the lease ended, not before")
    default void spinLockExpires() throws Exception {
        var name = Contract.fresh("spin");
        var lock = clients().any(0).getSpinLock(name);
        var other = clients().any(1).getSpinLock(name);
        Lease.ends(Measured.BY_SERVER, 1000,
                () -> lock.lock(1000, MILLISECONDS),
                () -> other.tryLock(),
                () -> other.tryLock(30, 300, SECONDS));
        other.unlock();
        assertFalse(other.isLocked());
    }

    @Test
    @DisplayName("NonReentrantLock: one holder at a time under contention")
    default void nonReentrantLockExcludes() throws Exception {
        var name = Contract.fresh("once");
        Contention.exclusive(6, 10,
                worker -> Guard.of(clients().any(worker).getNonReentrantLock(name)));
    }

    @Test
    @DisplayName("NonReentrantLock: its own holder is refused as well, by an exception")
    default void nonReentrantLockRefusesItsHolder() {
        for (var lock : List.of(
                clients().any(0).getNonReentrantLock(Contract.fresh("once")),
                clients().any(0).getNonReentrantFairLock(Contract.fresh("once")))) {
            lock.lock(300, SECONDS);
            assertThrows(IllegalMonitorStateException.class, lock::tryLock);
            lock.unlock();
            assertTrue(lock.tryLock());
            lock.unlock();
        }
    }

    @Test
    @DisplayName("FasterMultiLock: one holder at a time under contention")
    default void fasterMultiLockExcludes() throws Exception {
        var group = Contract.fresh("group");
        Contention.exclusive(4, 10, worker ->
                Guard.of(clients().any(worker).getMultiLock(group, List.of("a", "b", "c"))));
    }

    @Test
    @DisplayName("FasterMultiLock: refused where one value is taken, granted beside it")
    default void fasterMultiLockTakesAllOrNone() throws Exception {
        var group = Contract.fresh("group");
        var taken = clients().any(0).getMultiLock(group, List.of("b"));
        var overlapping = clients().any(1).getMultiLock(group, List.of("a", "b"));
        var beside = clients().any(1).getMultiLock(group, List.of("a", "c"));
        Lease.ends(Measured.BY_CLIENT, 1000,
                () -> taken.lock(1000, MILLISECONDS),
                () -> overlapping.tryLock(),
                () -> {
                    assertTrue(beside.tryLock());
                    beside.unlock();
                    return overlapping.tryLock(30, 300, SECONDS);
                });
        overlapping.unlock();
    }
}
