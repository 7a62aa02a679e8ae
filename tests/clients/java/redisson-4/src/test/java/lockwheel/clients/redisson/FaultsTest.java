// Tests locks after lost connections and flushed scripts.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import lockwheel.clients.Actor;
import lockwheel.clients.Await;
import lockwheel.clients.Redis;
import lockwheel.clients.Servers;
import lockwheel.clients.Servers.Slice;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.redisson.api.RedissonClient;

class FaultsTest implements Contract {
    private static final Clients CLIENTS = Clients.single();

    @Override
    public Clients clients() {
        return CLIENTS;
    }

    @Test
    @DisplayName("RLock: held and renewed though its owner's connections are cut")
    void outlivesItsConnections() throws Exception {
        var name = Contract.fresh("cut");
        var owner = named(name);
        var lock = owner.getLock(name);
        lock.lock();
        var other = CLIENTS.any(0).getLock(name);
        try (var redis = new Redis(Servers.main())) {
            cut(name);
            var left = (Long) redis.call("PTTL", name);
            for (var now = left; now <= left; now = (Long) redis.call("PTTL", name)) {
                assertTrue(now > 0, "not renewed");
                assertFalse(other.tryLock(100, MILLISECONDS), "lost");
                left = now;
            }
        }
        lock.unlock();
        assertTrue(other.tryLock());
        other.unlock();
        owner.shutdown();
    }

    @Test
    @DisplayName("RLock: an unlock wakes the waiter, though its connections were cut as it waited")
    void wakesAcrossACut() throws Exception {
        var name = Contract.fresh("cut");
        var lock = CLIENTS.any(0).getLock(name);
        lock.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
        var client = named(name);
        try (var waiter = new Actor()) {
            var granted = waiter.begin(() -> client.getLock(name).tryLock(300, 300, SECONDS));
            CLIENTS.awaitSubscriber(name);
            cut(name);
            CLIENTS.awaitSubscriber(name);
            assertFalse(granted.isDone());
            var unlocked = System.nanoTime();
            lock.unlock();
            assertTrue(granted.get());
            var seconds = NANOSECONDS.toSeconds(granted.doneNanos() - unlocked);
            assertTrue(seconds < LockContract.WAKE_UP_SECONDS, () -> "woken after " + seconds);
        }
        client.shutdown();
    }

    @Test
    @DisplayName("RLock: taken and freed, though the server forgot the scripts before")
    void outlivesItsScripts() throws Exception {
        var server = Slice.SCRIPT_FLUSH.servers().get(0);
        var clients = Clients.single(() -> server);
        var name = Contract.fresh("forgotten");
        var lock = clients.any(0).getLock(name);
        var other = clients.any(1).getLock(name);
        try (var redis = new Redis(server)) {
            for (var round = 0; round < 5; round++) {
                lock.lock();
                redis.call("SCRIPT", "FLUSH");
                assertFalse(other.tryLock());
                redis.call("SCRIPT", "FLUSH");
                lock.unlock();
                assertFalse(lock.isLocked());
            }
        }
    }

    /**
     * A client with named connections, so that faults can select them. It may pause for seconds
     * before it reconnects, so its leases are longer than those of other tests.
     */
    private static RedissonClient named(String name) {
        return new Clients(Servers::main, "CHANNELS", config -> {
            config.setLockWatchdogTimeout(12_000);
            config.useSingleServer().setClientName(name).setAddress(Servers.main().toString());
        }).open();
    }

    /** Closes all connections of that name, and returns when none is left. */
    private static void cut(String name) throws Exception {
        try (var redis = new Redis(Servers.main())) {
            var doomed = redis.call("CLIENT", "LIST").toString().lines()
                    .filter(line -> line.contains("name=" + name))
                    .map(line -> line.replaceFirst("^id=(\\d+) .*", "$1"))
                    .toList();
            assertFalse(doomed.isEmpty(), "no connection of that name");
            for (var id : doomed) {
                redis.call("CLIENT", "KILL", "ID", id);
            }
            Await.until("the end of the connections", () ->
                    redis.call("CLIENT", "LIST").toString().lines()
                            .noneMatch(line -> doomed.contains(line.split("[= ]")[1])));
        }
    }
}
