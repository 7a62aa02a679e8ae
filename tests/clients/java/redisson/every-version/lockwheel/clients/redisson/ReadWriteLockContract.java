// The contract of a read/write lock: many readers, or one writer.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.concurrent.atomic.AtomicInteger;
import lockwheel.clients.Actor;
import lockwheel.clients.GuardedSection;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

interface ReadWriteLockContract extends Contract {
    @Test
    @DisplayName("ReadWriteLock: no writer meets a reader or another writer under contention")
    default void separatesWriters() throws Exception {
        var name = Contract.fresh("rw");
        var section = new SharedSection();
        var ends = new ArrayList<Actor.Result<Void>>();
        for (var worker = 0; worker < 8; worker++) {
            var lock = clients().any(worker).getReadWriteLock(name);
            var writes = worker % 4 < 2;
            ends.add(new Actor().begin(() -> {
                for (var round = 0; round < 12; round++) {
                    var side = writes ? lock.writeLock() : lock.readLock();
                    side.lock();
                    try {
                        section.run(writes);
                    } finally {
                        side.unlock();
                    }
                }
                return null;
            }));
        }
        for (var end : ends) {
            end.get();
        }
        assertEquals(4 * 12, section.writes.runs(), "writes");
    }

    @Test
    @DisplayName("ReadWriteLock: readers share, and the writer waits for the last of them")
    default void letsReadersShare() throws Exception {
        var name = Contract.fresh("rw");
        var first = clients().any(0).getReadWriteLock(name);
        var second = clients().any(1).getReadWriteLock(name);
        first.readLock().lock();
        assertTrue(second.readLock().tryLock());
        try (var writer = new Actor()) {
            var lock = clients().any(0).getReadWriteLock(name).writeLock();
            assertFalse(writer.call(() -> lock.tryLock()));
            var granted = writer.begin(() -> lock.tryLock(40, 300, SECONDS));
            clients().awaitSubscriber(name);
            first.readLock().unlock();
            Thread.sleep(200);
            assertFalse(granted.isDone(), "one reader is still inside");
            second.readLock().unlock();
            assertTrue(granted.get());
            assertFalse(second.readLock().tryLock());
            writer.run(lock::unlock);
        }
        assertTrue(second.readLock().tryLock());
        second.readLock().unlock();
    }

    @Test
    @DisplayName("ReadWriteLock: an unlocked writer lets all waiting readers in")
    default void wakesAllReaders() throws Exception {
        var name = Contract.fresh("rw");
        var writer = clients().any(0).getReadWriteLock(name).writeLock();
        writer.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        var ends = new ArrayList<Actor.Result<Boolean>>();
        for (var worker = 0; worker < 4; worker++) {
            var reader = clients().any(worker).getReadWriteLock(name).readLock();
            ends.add(new Actor().begin(() -> reader.tryLock(40, 300, SECONDS)));
        }
        clients().awaitSubscriber(name);
        Thread.sleep(200);
        var unlocked = System.nanoTime();
        writer.unlock();
        for (var end : ends) {
            assertTrue(end.get());
            var seconds = NANOSECONDS.toSeconds(end.doneNanos() - unlocked);
            assertTrue(seconds < LockContract.WAKE_UP_SECONDS, () -> "woken after " + seconds);
        }
    }

    @Test
    @DisplayName("ReadWriteLock: readers are refused until a dead writer's lease ends")
    default void writerLeaseEnds() throws Exception {
        var name = Contract.fresh("rw");
        var writer = clients().any(0).getReadWriteLock(name).writeLock();
        var reader = clients().any(1).getReadWriteLock(name).readLock();
        Lease.ends(Measured.BY_SERVER, 1000,
                () -> writer.lock(1000, MILLISECONDS),
                () -> reader.tryLock(),
                () -> reader.tryLock(40, 300, SECONDS));
        reader.unlock();
    }

    @Test
    @DisplayName("ReadWriteLock: an unlock by another owner throws and changes nothing")
    default void readWriteRefusesAnUnlockByAnotherOwner() throws Exception {
        var name = Contract.fresh("rw");
        var owner = clients().any(0).getReadWriteLock(name);
        var other = clients().any(1).getReadWriteLock(name);
        owner.writeLock().lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        assertThrows(IllegalMonitorStateException.class, () -> other.writeLock().unlock());
        assertFalse(other.readLock().tryLock());
        owner.writeLock().unlock();
        owner.readLock().lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        assertThrows(IllegalMonitorStateException.class, () -> other.readLock().unlock());
        assertFalse(other.writeLock().tryLock());
        owner.readLock().unlock();
    }

    /** The section that several readers may enter at once, and a writer only alone. */
    final class SharedSection {
        private final AtomicInteger readers = new AtomicInteger();
        private final AtomicInteger writers = new AtomicInteger();
        private final GuardedSection writes = new GuardedSection(1);

        void run(boolean writes) throws InterruptedException {
            if (writes) {
                writers.incrementAndGet();
                this.writes.run();
                assertEquals(0, readers.get(), "readers beside a writer");
                writers.decrementAndGet();
            } else {
                readers.incrementAndGet();
                Thread.sleep(1);
                assertEquals(0, writers.get(), "writers beside a reader");
                readers.decrementAndGet();
            }
        }
    }
}
