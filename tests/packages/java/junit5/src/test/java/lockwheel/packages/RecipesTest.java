// Tests the mistakes of common lock recipes, and their corrections.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.Journal.Finding;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.Rule;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.redisson.api.RLock;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;

/**
 * Common mistakes in lock recipes. Each has two tests under the same fault: one of the mistake, made
 * visible with the clock and fault rules, and one of its correction. Each connection of Jedis is an
 * owner: a, b or c.
 */
@Lockwheel(frozen = true)
class RecipesTest {
    private static final Duration LEASE = Duration.ofSeconds(10);
    private static final Duration SECOND = Duration.ofSeconds(1);
    private static final Duration YEAR = Duration.ofDays(365);
    private static final SetParams NEW_WITH_LEASE = SetParams.setParams().nx().px(LEASE.toMillis());

    private static final String COMPARE_AND_DELETE = """
            if redis.call('get', KEYS[1]) == ARGV[1] then
                return redis.call('del', KEYS[1])
            end
            return 0
            """;
    private static final String COMPARE_AND_RENEW = """
            if redis.call('get', KEYS[1]) == ARGV[1] then
                return redis.call('pexpire', KEYS[1], ARGV[2])
            end
            return 0
            """;

    private LockwheelServer server;
    private Jedis a;
    private Jedis b;
    private Jedis c;

    @BeforeEach
    void connect(LockwheelServer server) {
        this.server = server;
        a = client(server);
        b = client(server);
        c = client(server);
    }

    @AfterEach
    void disconnect() {
        List.of(a, b, c).forEach(Jedis::close);
    }

    private static Jedis client(LockwheelServer server) {
        var client = new Jedis(server.url());
        client.connect();
        return client;
    }

    /** Acquires the lock for the lease. Returns whether it was granted. */
    private static boolean take(Jedis client, String token) {
        return "OK".equals(client.set("lock", token, NEW_WITH_LEASE));
    }

    /** Releases the lock if it is held by the token. Returns whether it was. */
    private static boolean release(Jedis client, String token) {
        return client.eval(COMPARE_AND_DELETE, List.of("lock"), List.of(token)).equals(1L);
    }

    /** Renews the lease if the lock is held by the token. Returns whether it was. */
    private static boolean renew(Jedis client, String token) {
        var arguments = List.of(token, Long.toString(LEASE.toMillis()));
        return client.eval(COMPARE_AND_RENEW, List.of("lock"), arguments).equals(1L);
    }

    private void mistakes(String... rules) {
        assertEquals(List.of(rules), server.journal().lint().stream().map(Finding::rule).toList());
    }

    @Test
    void setnxWithoutALease() {
        assertEquals(1, a.setnx("lock", "a"));
        a.close(); // It dies.
        server.clock().advance(YEAR);
        assertEquals(0, b.setnx("lock", "b"));
        assertThrows(AssertionError.class, server.journal()::assertEveryLockHasALease);
        mistakes("lock-without-lease");
    }

    @Test
    void setnxWithoutALeaseCorrected() {
        assertTrue(take(a, "a"));
        a.close();
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        server.journal().assertEveryLockHasALease();
    }

    @Test
    void setnxThenExpire() {
        server.faults().add(Fault.close(), Requests.any().command("expire"));
        assertEquals(1, a.setnx("lock", "a"));
        assertThrows(JedisConnectionException.class, () -> a.expire("lock", 10));
        server.clock().advance(YEAR);
        assertEquals(0, b.setnx("lock", "b"));
        assertThrows(AssertionError.class, server.journal()::assertEveryLockHasALease);
    }

    @Test
    void setnxThenExpireCorrected() {
        server.faults().add(Fault.loseAndClose(), Requests.any().command("set").nth(1));
        assertThrows(JedisConnectionException.class, () -> take(a, "a"));
        assertFalse(take(b, "b"), "a has it, and does not know");
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        server.journal().assertEveryLockHasALease();
    }

    @Test
    void releaseWithoutACheck() {
        assertTrue(take(a, "OK"));
        server.clock().advance(LEASE); // It still works ...
        assertTrue(take(b, "OK"));
        a.del("lock"); // ... and is done.
        assertTrue(take(c, "OK"), "b and c are inside");
        assertThrows(AssertionError.class, server.journal()::assertReleasedOnlyByOwner);
        mistakes("delete-without-check", "lease-shorter-than-hold");
    }

    @Test
    void releaseWithoutACheckCorrected() {
        assertTrue(take(a, "a"));
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        assertFalse(release(a, "a"));
        assertFalse(take(c, "c"));
        assertTrue(release(b, "b"));
        server.journal().assertReleasedOnlyByOwner();
        server.journal().assertNoLockHeld();
    }

    /** Before the last command of a's release its lease ends, and b takes the lock. */
    private <T> T whileItIsReleased(String lastCommand, Function<Jedis, T> release)
            throws Exception {
        assertTrue(take(a, "a"));
        var gate = server.faults().gate(Requests.any().command(lastCommand));
        var released = Later.run(() -> release.apply(a));
        gate.await();
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        gate.open();
        return released.get();
    }

    @Test
    void checkThenDelete() throws Exception {
        whileItIsReleased("del", client -> {
            assertEquals("a", client.get("lock"));
            return client.del("lock");
        });
        assertNull(b.get("lock"), "b works, and holds nothing");
        assertThrows(AssertionError.class, server.journal()::assertReleasedOnlyByOwner);
        mistakes("compare-and-delete-in-two-steps", "lease-shorter-than-hold");
    }

    @Test
    void checkThenDeleteCorrected() throws Exception {
        boolean released = whileItIsReleased("eval", client -> release(client, "a"));
        assertFalse(released);
        assertEquals("b", b.get("lock"));
        server.journal().assertReleasedOnlyByOwner();
    }

    @Test
    void checkThenDeleteCorrectedByATransaction() throws Exception {
        List<Object> deleted = whileItIsReleased("exec", client -> {
            client.watch("lock");
            assertEquals("a", client.get("lock"));
            var transaction = client.multi();
            transaction.del("lock");
            return transaction.exec();
        });
        assertNull(deleted, "nothing was run");
        assertEquals("b", b.get("lock"));
        server.journal().assertReleasedOnlyByOwner();
    }

    @Test
    void workLongerThanTheLease() {
        var inside = new ArrayList<String>();
        assertTrue(take(a, "a"));
        inside.add("a");
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        inside.add("b");
        assertEquals(List.of("a", "b"), inside, "both are");
        server.clock().advance(SECOND.multipliedBy(5));
        assertFalse(release(a, "a"), "after fifteen seconds the release is refused");
        assertThrows(AssertionError.class, server.journal()::assertNeverTwoHolders);
        mistakes("lease-shorter-than-hold");
    }

    @Test
    void workLongerThanTheLeaseCorrected() {
        assertTrue(take(a, "a"));
        for (int third = 0; third < 5; third++) {
            server.clock().advance(Duration.ofMillis(LEASE.toMillis() / 3));
            assertTrue(renew(a, "a"));
            assertFalse(take(b, "b"));
        }
        assertTrue(release(a, "a"));
        assertTrue(take(b, "b"));
        server.journal().assertNeverTwoHolders();
        mistakes();
    }

    /** Redisson renews a lock at every third of the lease, by its own clock. */
    @Test
    void workLongerThanTheLeaseCorrectedByAWatchdog() throws Exception {
        var redisson = Redissons.withWatchdog(server, Duration.ofMillis(600));
        var lock = redisson.getLock("lock");
        lock.lock();
        for (int times = 0; times < 3; times++) {
            long before = renewals();
            Later.eventually("it is renewed", () -> renewals() > before);
            server.clock().advance(Duration.ofMillis(500));
            assertTrue(b.exists("lock"));
        }
        lock.unlock();
        assertFalse(b.exists("lock"));
        redisson.shutdown();
    }

    private long renewals() {
        return server.journal().entries().stream()
                .filter(entry -> entry.event().equals("renewed")).count();
    }

    @Test
    void renewalWithoutACheck() {
        assertTrue(take(a, "a"));
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        b.close(); // Simulates a crash. No client should wait for longer than the lease.
        server.clock().advance(LEASE.minus(SECOND));
        assertNotNull(a.get("lock"), "there is a lock ...");
        assertEquals(1, a.expire("lock", 10), "... so it is renewed");
        server.clock().advance(SECOND);
        assertFalse(take(c, "c"));
        mistakes("renewal-after-loss");
    }

    @Test
    void renewalWithoutACheckCorrected() {
        assertTrue(take(a, "a"));
        server.clock().advance(LEASE);
        assertTrue(take(b, "b"));
        b.close();
        server.clock().advance(LEASE.minus(SECOND));
        assertFalse(renew(a, "a"), "and so it learns that it must stop");
        server.clock().advance(SECOND);
        assertTrue(take(c, "c"));
    }

    @Test
    void notReentrant() {
        assertTrue(take(a, "a"));
        assertFalse(take(a, "a"), "it waits for itself ...");
        server.clock().advance(LEASE);
        assertTrue(take(a, "a"), "... until it has lost what it waited for");
    }

    @Test
    void notReentrantCorrected() throws Exception {
        var redisson = Redissons.of(server);
        RLock lock = redisson.getLock("lock");
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock());
        assertEquals(2, lock.getHoldCount());
        lock.unlock();
        assertEquals(1, lock.getHoldCount(), "still inside");
        assertFalse(Later.run(lock::tryLock).get(), "another thread is another owner");
        lock.unlock();
        assertEquals(0, lock.getHoldCount());
        server.journal().assertNoLockHeld();
        redisson.shutdown();
    }

    @Test
    void waitingForTheReleaseMessageAlone() {
        assertTrue(take(a, "a"));
        assertFalse(take(b, "b"));
        var released = Listener.of(b, "released");
        a.close(); // A crashed holder does not publish.
        server.clock().advance(YEAR);
        assertFalse(c.exists("lock"));
        assertTrue(released.hasReceivedNothing(), "the lock is free, and b waits");
    }

    @Test
    void waitingForTheReleaseMessageAloneCorrected() {
        c.configSet("notify-keyspace-events", "Ex");
        assertTrue(take(a, "a"));
        assertFalse(take(b, "b"));
        // It waits for a message, but for no longer than the lease, or for the end of the lease.
        var remaining = Duration.ofMillis(b.pttl("lock"));
        var messages = Listener.of(b, "released", "__keyevent@0__:expired");
        a.close();
        server.clock().advance(remaining);
        assertEquals("lock", messages.next(), "expired");
        assertTrue(take(c, "b"));
    }

    @Test
    void lostReply() {
        server.faults().add(Fault.loseAndClose(), Requests.any().command("set").nth(1));
        assertThrows(JedisConnectionException.class, () -> take(a, "a1"));
        a = client(server);
        for (String token : List.of("a2", "a3", "a4")) {
            assertFalse(take(a, token), "its own lock keeps it out");
            server.clock().advance(SECOND.multipliedBy(3));
        }
        server.clock().advance(SECOND);
        assertTrue(take(a, "a5"));
    }

    @Test
    void lostReplyCorrected() {
        server.faults().add(Fault.loseAndClose(), Requests.any().command("set").nth(1));
        assertThrows(JedisConnectionException.class, () -> take(a, "a"));
        a = client(server);
        // The same token again: either it takes the lock, or it sees that it has.
        assertTrue(take(a, "a") || "a".equals(a.get("lock")));
        assertTrue(renew(a, "a"), "from now on for the whole lease");
        assertTrue(release(a, "a"));
        server.journal().assertNoLockHeld();
    }

    @Test
    void failoverLosesTheLock() {
        assertTrue(take(a, "a"));
        assertEquals(1, server.faults().failover(1));
        b = client(server);
        assertTrue(take(b, "b"), "both are inside");
        a = client(server);
        assertFalse(release(a, "a"), "the release of a is late");
        assertEquals("b", b.get("lock"));
    }

    @Test
    void failoverLosesTheLockCorrected(
            LockwheelServer one, LockwheelServer two, LockwheelServer three) {
        var majority = new Majority(one, two, three);
        assertEquals(3, majority.take("a"));
        two.faults().failover(1);
        assertEquals(1, majority.take("b"), "and one of three is not most of them");
    }

    @Test
    void slowMajority(LockwheelServer one, LockwheelServer two, LockwheelServer three)
            throws Exception {
        var majority = new Majority(one, two, three);
        assertEquals(3, majority.takeSlowly("a").count(), "for ten seconds, as it believes");
        majority.advance(SECOND.multipliedBy(6));
        assertEquals(2, majority.take("b"), "b holds it as well");
    }

    @Test
    void slowMajorityCorrected(LockwheelServer one, LockwheelServer two, LockwheelServer three)
            throws Exception {
        var majority = new Majority(one, two, three);
        var taken = majority.takeSlowly("a");
        assertEquals(3, taken.count());
        assertTrue(LEASE.minus(taken.elapsed()).isNegative(), "nothing is left of the lease");
        majority.release("a");
        assertEquals(3, majority.take("b"));
    }

    /** It takes the lock on one; the others give it as well, and their answers are lost. */
    private static Majority takenUnknowingly(LockwheelServer... servers) {
        var majority = new Majority(servers);
        for (LockwheelServer server : List.of(servers).subList(1, servers.length)) {
            server.faults().add(Fault.loseAndClose(), Requests.any().command("set").nth(1));
        }
        assertEquals(1, majority.take("a"), "it gives up");
        return majority;
    }

    @Test
    void leftoversOfAFailedMajority(
            LockwheelServer one, LockwheelServer two, LockwheelServer three) {
        var majority = takenUnknowingly(one, two, three);
        assertTrue(release(a, "a"), "where it knows that it has it");
        assertEquals(1, majority.take("b"), "no client holds the lock, and none can take it");
        assertThrows(AssertionError.class, two.journal()::assertNoLockHeld);
        assertThrows(AssertionError.class, three.journal()::assertNoLockHeld);
    }

    @Test
    void leftoversOfAFailedMajorityCorrected(
            LockwheelServer one, LockwheelServer two, LockwheelServer three) {
        var majority = takenUnknowingly(one, two, three);
        majority.release("a");
        for (LockwheelServer server : List.of(one, two, three)) {
            server.journal().assertNoLockHeld();
        }
        assertEquals(3, majority.take("b"));
    }

    /** Independent servers; a lock is held on most of them. */
    private record Majority(List<LockwheelServer> servers) {
        private static final Duration SLOW = SECOND.multipliedBy(4);

        Majority(LockwheelServer... servers) {
            this(List.of(servers));
        }

        /** On how many servers, and how long it took on their clocks. */
        record Taken(long count, Duration elapsed) {}

        /** The number of servers that confirmed the lock of the token. */
        long take(String token) {
            return servers.stream().filter(server -> taken(server, token)).count();
        }

        private static boolean taken(LockwheelServer server, String token) {
            try (var client = client(server)) {
                return RecipesTest.take(client, token);
            } catch (JedisConnectionException error) {
                return false;
            }
        }

        /** As {@link #take}, while each server needs four seconds for it. */
        Taken takeSlowly(String token) throws Exception {
            var begin = servers.get(0).clock().now();
            var slow = new ArrayList<Rule>();
            for (LockwheelServer server : servers) {
                slow.add(server.faults().add(
                        Fault.delay(SLOW), Requests.any().command("set").nth(1)));
            }
            var count = Later.run(() -> take(token));
            for (int asked = 0; asked < servers.size(); asked++) {
                Rule rule = slow.get(asked);
                Later.eventually("it is held", () -> rule.fired() == 1);
                // The server that holds the request comes last: until then no other gets one.
                var others = new ArrayList<>(servers);
                others.add(others.remove(asked));
                others.forEach(server -> server.clock().advance(SLOW));
            }
            return new Taken(count.get(),
                    Duration.between(begin, servers.get(0).clock().now()));
        }

        void release(String token) {
            for (LockwheelServer server : servers) {
                try (var client = client(server)) {
                    RecipesTest.release(client, token);
                }
            }
        }

        void advance(Duration span) {
            servers.forEach(server -> server.clock().advance(span));
        }
    }
}
