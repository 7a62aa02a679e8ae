// Tests the timers of Spring's lock libraries and the server's clock.

package lockwheel.packages.spring;

import static org.awaitility.Awaitility.await;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.util.ConcurrentModificationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.redis.util.RedisLockRegistry;

@Lockwheel(frozen = true)
class LibrariesTest {
    private static final Duration LEASE = Duration.ofSeconds(30);

    private LockwheelServer server;
    private LettuceConnectionFactory connections;

    @BeforeEach
    void connect(LockwheelServer server) {
        this.server = server;
        connections = Templates.connect(server);
    }

    @AfterEach
    void disconnect() {
        connections.destroy();
    }

    /** Lettuce reconnects and sends requests without a reply again. */
    @Test
    void lettuceIsRefusedByItsOwnLockWhenAnAnswerIsLost() {
        var redis = new StringRedisTemplate(connections);
        redis.opsForValue().get("lock"); // It has connected.
        server.faults().add(Fault.loseAndClose(), Requests.any().command("set").nth(1));
        assertEquals(false, redis.opsForValue().setIfAbsent("lock", "token", LEASE));
        assertEquals("token", redis.opsForValue().get("lock"), "and yet it has it");
    }

    private RedisLockRegistry registry() {
        return new RedisLockRegistry(connections, "registry", LEASE.toMillis());
    }

    @Test
    void aLockOfARegistryEndsWithItsLease() {
        var lock = registry().obtain("invoice");
        var other = registry().obtain("invoice");
        assertTrue(lock.tryLock());
        assertFalse(other.tryLock());
        server.clock().advance(LEASE);
        assertTrue(other.tryLock());
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        other.unlock();
        server.journal().assertNoLockHeld();
    }

    @Test
    void aWaitForALockOfARegistryEndsByItsOwnClock() throws Exception {
        assertTrue(registry().obtain("invoice").tryLock());
        assertFalse(registry().obtain("invoice").tryLock(50, TimeUnit.MILLISECONDS));
    }

    @Test
    void aRegistryKeepsItsOwnThreadsOutByItself() throws Exception {
        var registry = registry();
        assertTrue(registry.obtain("invoice").tryLock());
        server.clock().advance(LEASE);
        var another = CompletableFuture.supplyAsync(registry.obtain("invoice")::tryLock);
        assertFalse(another.get(), "whatever the server says");
    }

    @Test
    void aWaiterForALockOfARegistryPolls() throws Exception {
        assertTrue(registry().obtain("invoice").tryLock());
        var waits = CompletableFuture.supplyAsync(() -> waits(registry()));
        await().atMost(Duration.ofMinutes(1)).until(this::isRefused);
        server.clock().advance(LEASE);
        assertTrue(waits.get());
    }

    private static boolean waits(RedisLockRegistry registry) {
        try {
            return registry.obtain("invoice").tryLock(60, TimeUnit.SECONDS);
        } catch (InterruptedException error) {
            throw new AssertionError(error);
        }
    }

    private boolean isRefused() {
        return server.journal().entries().stream()
                .anyMatch(entry -> entry.event().equals("refused"));
    }

    private LockProvider shedlock() {
        return new RedisLockProvider.Builder(connections)
                .environment("tests").safeUpdate(true).build();
    }

    private static LockConfiguration task(Duration atMost, Duration atLeast) {
        return new LockConfiguration(Instant.now(), "task", atMost, atLeast);
    }

    @Test
    void aTaskOfShedLockIsLockedForNoLongerThanAtMost() {
        var task = task(LEASE, Duration.ZERO);
        assertTrue(shedlock().lock(task).isPresent());
        assertFalse(shedlock().lock(task).isPresent());
        server.clock().advance(LEASE);
        assertTrue(shedlock().lock(task(LEASE, Duration.ZERO)).isPresent());
    }

    @Test
    void aTaskOfShedLockIsLockedForAtLeast() {
        var atLeast = Duration.ofSeconds(20);
        shedlock().lock(task(LEASE, atLeast)).orElseThrow().unlock();
        assertFalse(shedlock().lock(task(LEASE, atLeast)).isPresent(), "it is done, and locked");
        server.clock().advance(atLeast);
        assertTrue(shedlock().lock(task(LEASE, atLeast)).isPresent());
    }

    @Test
    void howLongATaskTookIsByShedLocksOwnClock() {
        var lock = shedlock().lock(task(LEASE, Duration.ofSeconds(20))).orElseThrow();
        try {
            ClockProvider.setClock(Clock.offset(Clock.systemUTC(), Duration.ofSeconds(15)));
            lock.unlock();
        } finally {
            ClockProvider.setClock(Clock.systemUTC());
        }
        server.clock().advance(Duration.ofSeconds(5));
        assertTrue(shedlock().lock(task(LEASE, Duration.ZERO)).isPresent());
    }
}
