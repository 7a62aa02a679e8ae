// Runs the contracts of Redisson 2.2 on one server.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.Redis;
import lockwheel.clients.Servers;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class SingleServerTest
        implements LockContract,
                FairLockContract,
                ReadWriteLockContract,
                SemaphoreContract,
                MultiLockContract {
    private static final Clients CLIENTS = Clients.single();

    /** The lease of the watchdog, which is fixed in this version and renewed after each third. */
    private static final long LEASE_MS = 30_000;

    @Override
    public Clients clients() {
        return CLIENTS;
    }

    @Override
    @Test
    @DisplayName("MultiLock: one holder at a time under contention")
    public void multiLockExcludes() throws Exception {
        // In this version MultiLock.lock() can deadlock: it waits for a monitor on the thread that
        // must read the reply for which the monitor's holder waits. So this test retries tryLock().
        var names = List.of(Contract.fresh("a"), Contract.fresh("b"), Contract.fresh("c"));
        Contention.exclusive(4, 8, worker -> Guard.retrying(CLIENTS.multiLock(worker, names)));
    }

    @Override
    @Test
    @Disabled("2.2.17 has one monitor for all clients of a JVM; a dead client keeps it for ever")
    @DisplayName("FairLock: a waiter that died in the queue is passed over")
    public void passesOverTheDead() {}

    @Override
    @Test
    @Disabled("2.2.17 leaves the waiter in the queue, for the lease of the holder and 5 s more")
    @DisplayName("FairLock: a waiter that gives up leaves the queue")
    public void removesAWaiterThatGaveUp() {}

    @Override
    @Test
    @Disabled("2.2.17 wakes one waiting reader a client; its others wait for the lease to end")
    @DisplayName("ReadWriteLock: an unlocked writer lets all waiting readers in")
    public void wakesAllReaders() {}

    @Test
    @DisplayName("RLock: the watchdog renews the lease while the owner lives")
    void renewsWhileAlive() throws Exception {
        var name = Contract.fresh("watched");
        var lock = CLIENTS.any(0).getLock(name);
        lock.lock();
        try (var redis = new Redis(Servers.main())) {
            var left = LEASE_MS;
            for (var now = left; now <= left; now = (Long) redis.call("PTTL", name)) {
                assertTrue(now > LEASE_MS / 2, "not renewed");
                left = now;
                Thread.sleep(100);
            }
        }
        assertFalse(CLIENTS.any(1).getLock(name).tryLock());
        lock.unlock();
    }

    @Test
    @DisplayName("RBucket: compareAndSet lets one of many through")
    void compareAndSet() {
        var bucket = CLIENTS.any(0).<String>getBucket(Contract.fresh("bucket"));
        assertTrue(bucket.compareAndSet(null, "0"));
        assertTrue(bucket.compareAndSet("0", "1"));
        assertFalse(bucket.compareAndSet("0", "2"));
        assertEquals("1", bucket.get());
    }

    @Test
    @DisplayName("RBlockingQueue: a taker is given what is put")
    void queuesBlock() throws Exception {
        var queue = CLIENTS.any(0).<String>getBlockingQueue(Contract.fresh("queue"));
        assertTrue(queue.offer("a"));
        assertEquals("a", queue.poll(20, SECONDS));
    }
}
