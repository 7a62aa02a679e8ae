// The contract of a lock on independent servers.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.Lock;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.Redis;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.MethodOrderer.OrderAnnotation;
import org.junit.jupiter.api.Order;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;
import org.junit.jupiter.api.TestInstance.Lifecycle;
import org.junit.jupiter.api.TestMethodOrder;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;

/**
 * A lock over independent servers: with all servers alive, with a minority dead, and with a
 * majority dead. The tests run in this order, since killed servers are not restarted.
 */
@TestMethodOrder(OrderAnnotation.class)
@TestInstance(Lifecycle.PER_CLASS)
@Execution(ExecutionMode.SAME_THREAD)
abstract class QuorumContract implements Contract {
    private static final long WAIT_SECONDS = 20;

    private final List<URI> mortals;
    private final List<Clients> servers = new ArrayList<>();
    private int dead;

    /** Locks over all of these servers, some of which may be killed. */
    QuorumContract(List<URI> survivors, List<URI> mortals) {
        this.mortals = mortals;
        mortals.forEach(server -> servers.add(Clients.impatient(server)));
        survivors.forEach(server -> servers.add(Clients.impatient(server)));
    }

    @Override
    public Clients clients() {
        return servers.get(0);
    }

    /** Held on most of the servers. */
    Lock redLock(int worker, String name) {
        return Clients.redLock(servers, worker, name);
    }

    @Test
    @Order(1)
    @DisplayName("RedLock: one holder at a time under contention")
    void redLockExcludes() throws Exception {
        var name = Contract.fresh("red");
        Contention.exclusive(3, 5, worker -> Guard.of(redLock(worker, name)));
    }

    @Test
    @Order(2)
    @DisplayName("MultiLock: held on all of its servers, and refused with one of them dead")
    void multiLockNeedsAll() throws Exception {
        var name = Contract.fresh("multi");
        var lock = Clients.multiLock(servers, 0, name);
        assertTrue(lock.tryLock(WAIT_SECONDS, SECONDS));
        for (var server : servers) {
            assertTrue(server.any(1).getLock(name).isLocked());
        }
        lock.unlock();
        kill(1);
        assertRefused(Clients.multiLock(servers, 0, name)::tryLock);
        for (var server : servers.subList(dead, servers.size())) {
            assertFalse(server.any(1).getLock(name).isLocked(), "left behind");
        }
    }

    @Test
    @Order(3)
    @DisplayName("RedLock: granted, to one at a time, with a minority of its servers dead")
    void redLockOutlivesAMinority() throws Exception {
        kill((servers.size() - 1) / 2);
        var name = Contract.fresh("red");
        var lock = redLock(0, name);
        var other = redLock(1, name);
        assertTrue(lock.tryLock(WAIT_SECONDS, SECONDS));
        assertRefused(other::tryLock);
        lock.unlock();
        assertTrue(other.tryLock(WAIT_SECONDS, SECONDS));
        other.unlock();
    }

    @Test
    @Order(4)
    @DisplayName("RedLock: refused with a majority of its servers dead")
    void redLockNeedsAMajority() throws Exception {
        kill(servers.size() / 2 + 1);
        var name = Contract.fresh("red");
        assertRefused(redLock(0, name)::tryLock);
        for (var server : servers.subList(dead, servers.size())) {
            assertFalse(server.any(1).getLock(name).isLocked(), "left behind");
        }
    }

    /** Kills servers until so many are dead. */
    private void kill(int count) throws Exception {
        for (; dead < count; dead++) {
            // The clients are created before, since Redisson creates none without a server.
            servers.get(dead).any(0);
            servers.get(dead).any(1);
            Redis.kill(mortals.get(dead));
        }
    }

    /** Versions report a dead server either by `false` or by an exception. */
    private static void assertRefused(Attempt attempt) {
        try {
            assertFalse(attempt.tryLock());
        } catch (RuntimeException refusal) {
            assertTrue(refusal.getClass().getName().startsWith("org.redisson."), refusal::toString);
        }
    }

    /** One try at a lock. */
    private interface Attempt {
        boolean tryLock();
    }
}
