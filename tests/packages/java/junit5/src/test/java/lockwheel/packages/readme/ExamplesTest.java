// The README's code. ReadmeTest compares the two.

package lockwheel.packages.readme;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Check;
import io.github.lockwheel.CheckError;
import io.github.lockwheel.Fault;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.junit5.Lockwheel;
import io.github.lockwheel.locks.LettuceLocks;
import io.github.lockwheel.locks.Locks;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.redisson.Redisson;
import org.redisson.config.Config;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;

class ExamplesTest {
    @Test
    @Lockwheel(frozen = true, check = Check.EVERY_LOCK_HAS_A_LEASE)
    void mostOfThreeServers(LockwheelServer one, LockwheelServer two, LockwheelServer three) {
        long taken = Stream.of(one, two, three)
                .map(server -> server.call("SET", "lock", "token", "NX", "PX", "30000"))
                .filter("OK"::equals).count();
        assertEquals(3, taken);
    }

    @Test
    void withoutJUnit() {
        var builder = LockwheelServer.builder().frozen(true).options("--databases", "1");
        try (var server = builder.start()) {
            server.call("SET", "lock", "token", "NX", "PX", "30000");
            server.clock().advance(Duration.ofSeconds(29));
            assertEquals(1000L, server.call("PTTL", "lock"));
        }
    }

    @Test
    @Lockwheel(frozen = true)
    void aLostReply(LockwheelServer server) {
        server.faults().add(Fault.loseAndClose(), Requests.any().command("set").nth(1));
        try (var redis = new Jedis(server.url())) {
            assertThrows(JedisConnectionException.class, () ->
                    redis.set("lock", "token", SetParams.setParams().nx().px(30_000)));
        }
        assertEquals("token", server.call("GET", "lock")); // The client holds the lock but got no reply.
    }

    @Test
    @Lockwheel(frozen = true)
    void aFailoverLosesTheLock(LockwheelServer server) {
        assertEquals("OK", server.call("SET", "lock", "token", "NX", "PX", "30000"));
        server.faults().failover(1);
        assertNull(server.call("GET", "lock"));
    }

    @Test
    @Lockwheel(frozen = true)
    void comparingAndDeletingAreTwoSteps(LockwheelServer server) throws Exception {
        try (var owner = new Jedis(server.url())) {
            owner.set("lock", "owner", SetParams.setParams().nx().px(30_000));
            assertEquals("owner", owner.get("lock")); // The client owns the lock and deletes it:
            var gate = server.faults().gate(Requests.any().command("del"));
            var delete = CompletableFuture.supplyAsync(() -> owner.del("lock"));
            gate.await();
            server.clock().advance(Duration.ofSeconds(30));
            server.call("SET", "lock", "another", "NX", "PX", "30000");
            gate.open();
            delete.get();
        }
        assertNull(server.call("GET", "lock")); // The lock of another client was deleted.
        assertEquals("compare-and-delete-in-two-steps", server.journal().lint().get(0).rule());
    }

    @Test
    @Lockwheel(frozen = true)
    void aLockWithoutALease(LockwheelServer server) {
        server.call("SETNX", "lock", "token");
        var error = assertThrows(CheckError.class, server.journal()::assertEveryLockHasALease);
        assertEquals("every-lock-has-a-lease: the lock 'lock' that client 2 holds has no lease\n"
                + "  +0 ms #3 client 2: SETNX lock token -> 1\n"
                + "=>+0 ms #4 client 2: acquired 'lock' as 'token' without a lease",
                error.getMessage());
    }

    @Test
    @Lockwheel(frozen = true)
    void aLeaseOfRedisson(LockwheelServer server) throws Exception {
        var config = new Config();
        config.useSingleServer().setAddress(server.url());
        var redisson = Redisson.create(config);
        var lock = redisson.getLock("invoice");
        lock.lock(10, TimeUnit.SECONDS);
        assertFalse(CompletableFuture.supplyAsync(lock::tryLock).get());
        server.clock().advance(Duration.ofSeconds(10));
        assertTrue(CompletableFuture.supplyAsync(lock::tryLock).get());
        redisson.shutdown();
    }

    private long stored;

    private void store(long token) {
        stored = token;
    }

    void sendInvoice(Locks locks) throws InterruptedException {
        try (var lock = locks.lock("invoice:7", Duration.ofSeconds(30))
                .waitFor(Duration.ofSeconds(5)).meta("nightly run").build().acquire()) {
            store(lock.token()); // Storage refuses a write with an older token.
        }
    }

    @Test
    @Lockwheel(check = Check.NO_LOCK_HELD)
    void aTokenIsStored(LockwheelServer server) throws Exception {
        try (var client = RedisClient.create()) {
            sendInvoice(new LettuceLocks(client, RedisURI.create(server.url())));
        }
        assertTrue(stored > 0);
    }
}
