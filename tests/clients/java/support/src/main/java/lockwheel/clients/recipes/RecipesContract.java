// The contract of the lock recipes, with any library.

package lockwheel.clients.recipes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.UUID;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import lockwheel.clients.Await;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.GuardedSection;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

public interface RecipesContract {
    long LONG_LEASE_MS = 300_000;

    String COMPARE_AND_DELETE = "if redis.call('get', KEYS[1]) == ARGV[1] then "
            + "return redis.call('del', KEYS[1]) else return 0 end";

    String COMPARE_AND_EXPIRE = "if redis.call('get', KEYS[1]) == ARGV[1] then "
            + "return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

    /** A connection of its own. */
    Commands open();

    @Test
    @DisplayName("SETNX and DEL: one holder at a time under contention")
    default void setnxExcludes() throws Exception {
        var name = fresh();
        contend(redis -> {
            var token = UUID.randomUUID().toString();
            return new Guard() {
                @Override
                public void enter() throws InterruptedException {
                    while (!redis.setIfAbsent(name, token)) {
                        pause();
                    }
                }

                @Override
                public void leave() {
                    assertTrue(redis.delete(name));
                }
            };
        });
    }

    @Test
    @DisplayName("SET NX PX and a compare-and-delete script: one holder at a time under contention")
    default void setNxPxExcludes() throws Exception {
        var name = fresh();
        contend(redis -> {
            var token = UUID.randomUUID().toString();
            return new Guard() {
                @Override
                public void enter() throws InterruptedException {
                    while (!redis.setIfAbsent(name, token, LONG_LEASE_MS)) {
                        pause();
                    }
                }

                @Override
                public void leave() {
                    assertEquals(1, redis.eval(COMPARE_AND_DELETE, name, token));
                }
            };
        });
    }

    @Test
    @DisplayName("SET NX PX: refused while the lease lasts, granted when it ended")
    default void leaseEnds() throws Exception {
        var name = fresh();
        try (var one = open(); var other = open()) {
            Lease.ends(Measured.BY_SERVER, 700,
                    () -> assertTrue(one.setIfAbsent(name, "one", 700)),
                    () -> other.setIfAbsent(name, "other", LONG_LEASE_MS),
                    () -> {
                        Await.until("the end of the lease",
                                () -> other.setIfAbsent(name, "other", LONG_LEASE_MS));
                        return true;
                    });
        }
    }

    @Test
    @DisplayName("compare and delete: only the current owner frees the lock")
    default void onlyTheOwnerFrees() throws Exception {
        var name = fresh();
        try (var one = open(); var other = open()) {
            assertTrue(one.setIfAbsent(name, "one", LONG_LEASE_MS));
            assertEquals(0, other.eval(COMPARE_AND_DELETE, name, "other"));
            assertEquals("one", other.get(name));
            assertEquals(1, one.eval(COMPARE_AND_DELETE, name, "one"));
            assertTrue(other.setIfAbsent(name, "other", LONG_LEASE_MS));
            assertEquals(0, one.eval(COMPARE_AND_DELETE, name, "one"));
            assertEquals("other", one.get(name));
        }
    }

    @Test
    @DisplayName("compare and PEXPIRE: only the owner's renewal prolongs the lease")
    default void onlyTheOwnerRenews() throws Exception {
        var name = fresh();
        try (var one = open(); var other = open()) {
            // The library's own start must not eat up the lease.
            one.eval(COMPARE_AND_EXPIRE, fresh(), "one", "1");
            other.eval(COMPARE_AND_EXPIRE, fresh(), "other", "1");
            assertTrue(one.setIfAbsent(name, "one", 4000));
            assertEquals(0, other.eval(COMPARE_AND_EXPIRE, name, "other", "1"));
            assertEquals(1, one.eval(COMPARE_AND_EXPIRE, name, "one", "" + LONG_LEASE_MS));
            Thread.sleep(4100);
            assertFalse(other.setIfAbsent(name, "other", LONG_LEASE_MS));
            assertEquals(1, one.eval(COMPARE_AND_EXPIRE, name, "one", "100"));
            Await.until("the end of the lease", () -> other.setIfAbsent(name, "other"));
        }
    }

    @Test
    @DisplayName("SETNX, then PEXPIRE: a lock that got no lease stays, and one that did ends")
    default void setnxThenExpire() throws Exception {
        var name = fresh();
        try (var one = open(); var other = open()) {
            assertTrue(one.setIfAbsent(name, "one"));
            assertEquals(-1, other.remainingMs(name));
            assertFalse(other.setIfAbsent(name, "other"));
            var start = Measured.BY_SERVER.now();
            assertTrue(one.expire(name, 300));
            Await.until("the end of the lease", () -> other.setIfAbsent(name, "other"));
            start.assertPassed(300, "granted");
            assertEquals(-1, one.remainingMs(name));
        }
    }

    @Test
    @DisplayName("SETNX and GETSET: of many that find the deadline passed, one takes the lock")
    default void takenOverOnce() throws Exception {
        var name = fresh();
        var stale = "1000";
        var winners = new AtomicInteger();
        try (var dead = open()) {
            dead.set(name, stale);
        }
        Contention.runGuarded(new GuardedSection(8), 8, 1, worker -> new Guard() {
            @Override
            public void enter() {
                try (var redis = open()) {
                    // Each worker has its own deadline, so that the first one can be identified.
                    var mine = "" + (System.currentTimeMillis() + LONG_LEASE_MS + worker);
                    if (stale.equals(redis.getAndSet(name, mine))) {
                        winners.incrementAndGet();
                    }
                }
            }

            @Override
            public void leave() {}
        });
        assertEquals(1, winners.get());
    }

    @Test
    @DisplayName("WATCH, MULTI, EXEC: the owner frees the lock; a change in between aborts it")
    default void watchedDelete() throws Exception {
        var name = fresh();
        try (var one = open(); var other = open()) {
            assertTrue(one.setIfAbsent(name, "one"));
            assertFalse(other.deleteWatched(name, "other", () -> {}));
            assertEquals("one", other.get(name));
            assertFalse(one.deleteWatched(name, "one", () -> other.set(name, "other")));
            assertEquals("other", one.get(name));
            assertTrue(other.deleteWatched(name, "other", () -> {}));
            assertTrue(one.setIfAbsent(name, "one"));
        }
    }

    @Test
    @DisplayName("WATCH, MULTI, EXEC: the end of a lease in between breaks it, too")
    default void watchedLeaseEnds() throws Exception {
        var name = fresh();
        try (var one = open(); var other = open()) {
            assertTrue(one.setIfAbsent(name, "one", 200));
            assertFalse(one.deleteWatched(name, "one", () -> {
                try {
                    Await.until("the end of the lease", () -> other.get(name) == null);
                } catch (Exception error) {
                    throw new AssertionError(error);
                }
            }));
            assertTrue(other.setIfAbsent(name, "other"));
        }
    }

    /** Eight workers with a connection each. */
    private void contend(Function<Commands, Guard> guards) throws Exception {
        var connections = new ConcurrentLinkedQueue<Commands>();
        try {
            Contention.exclusive(8, 20, worker -> {
                var redis = open();
                connections.add(redis);
                return guards.apply(redis);
            });
        } finally {
            connections.forEach(Commands::close);
        }
    }

    private static void pause() throws InterruptedException {
        Thread.sleep(ThreadLocalRandom.current().nextInt(2, 20));
    }

    /** A key that no other test uses. */
    static String fresh() {
        return "recipe:" + UUID.randomUUID();
    }
}
