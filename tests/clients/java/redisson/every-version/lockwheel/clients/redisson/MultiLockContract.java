// The contract of a lock of several locks: all of them are taken, or none.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface MultiLockContract extends Contract {
    @Test
    @DisplayName("MultiLock: one holder at a time under contention")
    default void multiLockExcludes() throws Exception {
        var names = List.of(Contract.fresh("a"), Contract.fresh("b"), Contract.fresh("c"));
        Contention.exclusive(4, 8, worker -> Guard.of(clients().multiLock(worker, names)));
    }

    @Test
    @DisplayName("MultiLock: with one of its locks taken it is refused and leaves the others free")
    default void takesAllOrNone() throws Exception {
        var names = List.of(Contract.fresh("a"), Contract.fresh("b"), Contract.fresh("c"));
        var taken = clients().any(0).getLock(names.get(2));
        taken.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        var all = clients().multiLock(1, names);
        assertFalse(all.tryLock());
        for (var name : names.subList(0, 2)) {
            assertFalse(clients().any(1).getLock(name).isLocked(), name);
        }
        taken.unlock();
        assertTrue(all.tryLock());
        assertFalse(taken.tryLock());
        all.unlock();
        for (var name : names) {
            assertFalse(clients().any(0).getLock(name).isLocked(), name);
        }
    }
}
