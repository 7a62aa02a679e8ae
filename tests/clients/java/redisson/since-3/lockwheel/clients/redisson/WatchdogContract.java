// The contract of the watchdog: it renews a lock until its owner releases it or ends.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import lockwheel.clients.Actor;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface WatchdogContract extends Contract {
    @Test
    @DisplayName("RLock: the watchdog renews the lease while the owner lives")
    default void renewsWhileAlive() throws Exception {
        var name = Contract.fresh("watched");
        var owner = clients().openWatched();
        var lock = owner.getLock(name);
        var other = clients().any(1).getLock(name);
        lock.lock();
        assertFalse(other.tryLock(2 * Clients.WATCHDOG_MS, MILLISECONDS));
        assertTrue(lock.isHeldByCurrentThread());
        lock.unlock();
        assertTrue(other.tryLock());
        other.unlock();
        owner.shutdown(0, 1, SECONDS);
    }

    @Test
    @DisplayName("RLock: the lease of an owner that died ends, and another is granted")
    default void endsWithItsOwner() throws Exception {
        var name = Contract.fresh("watched");
        var owner = clients().openWatched();
        try (var thread = new Actor()) {
            thread.run(() -> owner.getLock(name).lock());
            Thread.sleep(3 * Clients.WATCHDOG_MS / 2);
            var other = clients().any(0).getLock(name);
            assertFalse(other.tryLock());
            owner.shutdown();
            var died = System.nanoTime();
            assertTrue(other.tryLock(30, 300, SECONDS));
            var passedMs = NANOSECONDS.toMillis(System.nanoTime() - died);
            var most = Clients.WATCHDOG_MS + LockContract.WAKE_UP_SECONDS * 1000;
            assertTrue(passedMs < most, () -> "after " + passedMs + " ms");
            other.unlock();
        }
    }

    @Test
    @DisplayName("ReadWriteLock: the watchdog renews readers and writers while they live")
    default void renewsReadersAndWriters() throws Exception {
        var name = Contract.fresh("watched");
        var owner = clients().openWatched();
        var mine = owner.getReadWriteLock(name);
        var other = clients().any(1).getReadWriteLock(name);
        for (var side : new Object[] {mine.readLock(), mine.writeLock()}) {
            var lock = (java.util.concurrent.locks.Lock) side;
            lock.lock();
            assertFalse(other.writeLock().tryLock(3 * Clients.WATCHDOG_MS / 2, MILLISECONDS));
            lock.unlock();
            assertTrue(other.writeLock().tryLock());
            other.writeLock().unlock();
        }
        owner.shutdown(0, 1, SECONDS);
    }

    @Test
    @DisplayName("ReadWriteLock: a writer may read as well, and reads on when it stops writing")
    default void writerMayRead() throws Exception {
        var name = Contract.fresh("rw");
        var mine = clients().any(0).getReadWriteLock(name);
        var other = clients().any(1).getReadWriteLock(name);
        mine.writeLock().lock();
        assertTrue(mine.readLock().tryLock());
        assertFalse(other.readLock().tryLock());
        mine.writeLock().unlock();
        assertTrue(other.readLock().tryLock());
        assertFalse(other.writeLock().tryLock());
        other.readLock().unlock();
        mine.readLock().unlock();
        assertTrue(other.writeLock().tryLock());
        other.writeLock().unlock();
    }
}
