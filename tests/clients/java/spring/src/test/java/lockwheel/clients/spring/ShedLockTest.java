// Tests ShedLock, which runs a scheduled task on one machine at a time.

package lockwheel.clients.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import lockwheel.clients.Await;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.GuardedSection;
import lockwheel.clients.Lease;
import lockwheel.clients.Lease.Measured;
import lockwheel.clients.Library;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

@Library(name = "ShedLock", type = RedisLockProvider.class)
class ShedLockTest {
    private static final Duration LONG = Duration.ofMinutes(5);

    private final LockProvider one = provider();
    private final LockProvider other = provider();

    @Test
    @DisplayName("one holder at a time under contention")
    void excludes() throws Exception {
        var name = fresh();
        Contention.exclusive(6, 15, worker -> new Guard() {
            private final LockProvider provider = provider();
            private SimpleLock lock;

            @Override
            public void enter() throws Exception {
                Await.until("the lock", () -> {
                    var taken = provider.lock(lease(name, LONG, Duration.ZERO));
                    taken.ifPresent(simpleLock -> lock = simpleLock);
                    return taken.isPresent();
                });
            }

            @Override
            public void leave() {
                lock.unlock();
            }
        });
    }

    @Test
    @DisplayName("of many that want to run a task at once, one does")
    void runsOnce() throws Exception {
        var name = fresh();
        var ran = new AtomicInteger();
        Contention.runGuarded(new GuardedSection(8), 8, 1, worker -> new Guard() {
            @Override
            public void enter() {
                var taken = provider().lock(lease(name, LONG, LONG));
                taken.ifPresent(lock -> {
                    ran.incrementAndGet();
                    lock.unlock();
                });
            }

            @Override
            public void leave() {}
        });
        assertEquals(1, ran.get());
    }

    @Test
    @DisplayName("lockAtMostFor: refused while it lasts, granted when it ended without an unlock")
    void endsAtTheLatest() throws Exception {
        var name = fresh();
        Lease.ends(Measured.BY_CLIENT, 700,
                () -> assertTrue(
                        one.lock(lease(name, Duration.ofMillis(700), Duration.ZERO)).isPresent()),
                () -> other.lock(lease(name, LONG, Duration.ZERO)).isPresent(),
                () -> {
                    Await.until("the end of the lease", () ->
                            other.lock(lease(name, LONG, Duration.ZERO)).isPresent());
                    return true;
                });
    }

    @Test
    @DisplayName("lockAtLeastFor: an unlock keeps the lock until then")
    void lastsAtLeast() throws Exception {
        var name = fresh();
        var start = Measured.BY_CLIENT.now();
        var lock = one.lock(lease(name, LONG, Duration.ofMillis(600))).orElseThrow();
        lock.unlock();
        Await.until("the end of the least", () ->
                other.lock(lease(name, LONG, Duration.ZERO)).isPresent());
        start.assertPassed(600, "granted");
    }

    @Test
    @DisplayName("extend: the lock lives on beyond its first lease")
    void isExtended() throws Exception {
        var name = fresh();
        var lock = one.lock(lease(name, Duration.ofSeconds(4), Duration.ZERO)).orElseThrow();
        var extended = lock.extend(LONG, Duration.ZERO).orElseThrow();
        Thread.sleep(4100);
        assertFalse(other.lock(lease(name, LONG, Duration.ZERO)).isPresent());
        extended.unlock();
        assertTrue(other.lock(lease(name, LONG, Duration.ZERO)).isPresent());
    }

    private static LockProvider provider() {
        // Only then is the owner compared before a lock is freed or extended.
        return new RedisLockProvider.Builder(Connections.open())
                .environment("tests").safeUpdate(true).build();
    }

    private static LockConfiguration lease(String name, Duration most, Duration least) {
        // The library counts from this moment, by a clock that shows whole milliseconds.
        var now = Instant.now().truncatedTo(ChronoUnit.MILLIS);
        return new LockConfiguration(now, name, most, least);
    }

    private static String fresh() {
        return UUID.randomUUID().toString();
    }
}
