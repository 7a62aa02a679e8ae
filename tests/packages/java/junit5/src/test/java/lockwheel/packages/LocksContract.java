// Tests lock objects, over each library.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Fault;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.junit5.Lockwheel;
import io.github.lockwheel.locks.LockException;
import io.github.lockwheel.locks.LockLostException;
import io.github.lockwheel.locks.Locks;
import io.github.lockwheel.locks.NativeLock;
import io.github.lockwheel.locks.NoNativeLocksException;
import io.github.lockwheel.locks.NotAcquiredException;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

@Lockwheel(frozen = true)
abstract class LocksContract {
    /** A lease that does not end by the clock of a process, however slow it is. */
    static final Duration TTL = Duration.ofMinutes(10);
    private static final Duration MINUTE = Duration.ofMinutes(1);
    private static final Duration MILLISECOND = Duration.ofMillis(1);
    private static final Requests RENEWALS = Requests.any().command("lock.renew");

    private final List<NativeLock> made = new ArrayList<>();
    private final List<Process> processes = new ArrayList<>();
    LockwheelServer server;
    private Locks locks;

    /** The locks of the server, with a client that has this name. */
    abstract Locks locks(int port, String name);

    /** As {@link #locks} but with other settings. */
    abstract Locks locks(int port, String name, String password, int database, int protocol);

    /** The error of the library for a reply. */
    abstract Class<? extends RuntimeException> replyError();

    /** A part of the name of each jar that the locks have to do without. */
    abstract List<String> otherJars();

    @BeforeEach
    void connect(LockwheelServer server) {
        this.server = server;
        locks = locks(server.port(), "worker");
    }

    @AfterEach
    void release() {
        made.forEach(NativeLock::release);
        processes.forEach(Process::destroyForcibly);
    }

    /** The options of a lock, which is not renewed unless they say so. */
    private NativeLock.Builder options(String key) {
        return locks.lock(key, TTL).renewEvery(Duration.ZERO);
    }

    /** A lock that is released with the test. */
    private NativeLock built(NativeLock.Builder options) {
        var lock = options.build();
        made.add(lock);
        return lock;
    }

    private NativeLock held(NativeLock.Builder options) throws Exception {
        return built(options).acquire();
    }

    /** A lock and its attempt to acquire it, which waits. */
    private record Waiter(NativeLock lock, Later<Boolean> acquires) {}

    private Waiter waiter(int expected) throws Exception {
        var lock = built(options("lock").waitFor(MINUTE));
        var acquires = Later.run(lock::tryAcquire);
        Later.eventually("it waits", () -> queue().size() == expected);
        return new Waiter(lock, acquires);
    }

    private Object info(String key) {
        return server.call("LOCK.INFO", key);
    }

    /** A field of a reply of pairs. */
    private static Object field(Object reply, String name) {
        var pairs = (List<?>) reply;
        return pairs.get(pairs.indexOf(name) + 1);
    }

    /** A field of the only owner of a lock. */
    private Object shown(String key, String name) {
        var holders = (List<?>) field(info(key), "holders");
        assertEquals(1, holders.size());
        return field(holders.get(0), name);
    }

    private List<?> queue() {
        return (List<?>) field(info("lock"), "queue");
    }

    /** Waits until the lease has been renewed. */
    private void awaitRenewal() throws Exception {
        Later.eventually("it is renewed", () -> shown("lock", "ttl").equals(TTL.toMillis()));
    }

    @Test
    void aLockIsHeldWithinItsBlock() throws Exception {
        var lock = built(options("lock").meta("job 7"));
        assertEquals(0, lock.token());
        try (var same = lock.acquire()) {
            assertTrue(same.isHeld());
            assertEquals(lock.owner(), shown("lock", "owner"));
            assertEquals(lock.token(), shown("lock", "token"));
            assertEquals("job 7", shown("lock", "meta"));
            assertEquals(TTL.toMillis(), shown("lock", "ttl"));
            assertNull(shown("lock", "grace"));
            assertTrue(lock.owner().contains(":" + ProcessHandle.current().pid() + ":"));

            var another = built(options("lock"));
            assertNotEquals(lock.owner(), another.owner());
            assertFalse(another.tryAcquire());
            var error = assertThrows(NotAcquiredException.class, another::acquire);
            assertEquals("the lock 'lock' was not acquired (refused): owners 1, "
                    + "lease 600000 ms, queue 0", error.getMessage());
            var twice = assertThrows(LockException.class, lock::tryAcquire);
            assertEquals("this object holds the lock 'lock' already", twice.getMessage());
        }
        assertFalse(lock.isHeld());
        assertFalse(lock.release());
        lock.close();
        server.journal().assertNoLockHeld();
    }

    @Test
    void tokensGrow() throws Exception {
        var lock = built(options("lock"));
        long last = 0;
        for (int count = 0; count < 3; count++) {
            assertTrue(lock.tryAcquire());
            assertTrue(lock.token() > last);
            last = lock.token();
            assertTrue(lock.release());
        }
    }

    @Test
    void ownersShareALockAndPermits() throws Exception {
        held(options("lock").shared());
        held(options("lock").shared());
        assertFalse(built(options("lock")).tryAcquire());
        held(options("jobs").permits(2, 3));
        assertEquals(2L, shown("jobs", "permits"));
        assertFalse(built(options("jobs").permits(2, 3)).tryAcquire());
    }

    @Test
    void locksOfOneOwnerAreHeldAtTheSameTime() throws Exception {
        var first = held(options("lock").owner("me"));
        var second = held(options("lock").owner("me"));
        assertEquals(first.token(), second.token());
        assertTrue(first.release());
        assertEquals(1L, shown("lock", "count"));
        assertTrue(second.release());
        assertNull(info("lock"));
    }

    @Test
    void waitersGetALockInOrder() throws Exception {
        var holder = held(options("lock"));
        var waiters = List.of(waiter(1), waiter(2), waiter(3));
        for (Waiter waiter : waiters) {
            assertTrue(holder.release());
            assertTrue(waiter.acquires().get());
            assertEquals(waiter.lock().owner(), shown("lock", "owner"));
            holder = waiter.lock();
        }
    }

    @Test
    void aWaitEndsByTheServersClock() throws Exception {
        held(options("lock"));
        var waiter = waiter(1);
        server.clock().advance(MINUTE.minus(MILLISECOND));
        assertEquals(1, queue().size());
        server.clock().advance(MILLISECOND);
        assertFalse(waiter.acquires().get());
    }

    @Test
    void anInterruptedThreadLeavesTheQueue() throws Exception {
        held(options("lock"));
        interruptWhen(() -> Later.eventually("it waits", () -> queue().size() == 1));
        Later.eventually("it waits no more", () -> queue().isEmpty());
    }

    @Test
    void anInterruptedThreadDoesNotAcquireALockLater() throws Exception {
        int before = clients();
        var gate = server.faults().gate(Requests.any().command("hello"));
        interruptWhen(gate::await);
        gate.open();
        Later.eventually("its connection is closed", () -> clients() == before);
        assertNull(info("lock"));
    }

    /** Interrupts a thread that acquires the lock, after a step of the test. */
    private void interruptWhen(Executable step) throws Exception {
        var lock = built(options("lock").waitFor(MINUTE));
        var thread = new CompletableFuture<Thread>();
        var acquires = Later.run(() -> {
            thread.complete(Thread.currentThread());
            return lock.tryAcquire();
        });
        assertDoesNotThrow(step);
        thread.get().interrupt();
        assertThrows(InterruptedException.class, acquires::get);
        assertFalse(lock.isHeld());
    }

    @Test
    void anInterruptedThreadReleasesItsLock() throws Exception {
        var lock = held(options("lock"));
        Thread.currentThread().interrupt();
        lock.close();
        assertTrue(Thread.interrupted());
        assertNull(info("lock"));
    }

    @Test
    void aLeaseIsRenewed() throws Exception {
        var lock = held(options("lock").renewEvery(MILLISECOND));
        for (int count = 0; count < 3; count++) {
            server.clock().advance(TTL.minusSeconds(1));
            awaitRenewal();
        }
        assertTrue(lock.release());
        server.journal().assertRenewedBeforeExpiry();
    }

    @ParameterizedTest
    @CsvSource({"300,", "600000,300", "600000,0"})
    void aLockRenewsItselfByDefault(long ttlMs, Long graceMs) throws Exception {
        // A rule without an effect counts the requests.
        var renewals = server.faults().add(Fault.flushScripts(), RENEWALS);
        var options = locks.lock("lock", Duration.ofMillis(ttlMs));
        held(graceMs == null ? options : options.bound(Duration.ofMillis(graceMs)));
        Later.eventually("it is renewed", () -> renewals.fired() > 0);
    }

    @Test
    void aLeaseIsRenewedByHand() throws Exception {
        var lost = new ArrayList<NativeLock>();
        var lock = built(options("lock").onLost(lost::add));
        assertFalse(lock.renew());
        assertTrue(lock.tryAcquire());
        server.clock().advance(TTL.minusSeconds(1));
        assertTrue(lock.renew());
        awaitRenewal();
        server.clock().advance(TTL);
        assertFalse(lock.renew());
        assertFalse(lock.isHeld());
        assertEquals(List.of(lock), lost);
        assertFalse(lock.renew());
        assertEquals(List.of(lock), lost);
    }

    @ParameterizedTest
    @ValueSource(strings = {"lease", "force", "other"})
    void theCallbackIsCalledForALostLock(String loss) throws Exception {
        var results = new LinkedBlockingQueue<Boolean>();
        var lock = held(options("lock").renewEvery(MILLISECOND)
                .onLost(each -> results.add(each.isHeld() || each.release())));
        long token = lock.token();
        var gate = server.faults().gate(RENEWALS);
        gate.await();
        if (loss.equals("lease")) {
            server.clock().advance(TTL);
        } else {
            server.call("LOCK.FORCE", "lock");
        }
        if (loss.equals("other")) {
            // Another grant to the same owner is not this one.
            server.call("LOCK.ACQUIRE", "lock", lock.owner(), "TTL", "600000");
        }
        gate.open();
        assertEquals(false, results.poll(Later.MAX_WAIT_SECONDS, TimeUnit.SECONDS));
        assertThrows(LockLostException.class, lock::close);
        server.call("LOCK.FORCE", "lock");
        assertTrue(lock.tryAcquire());
        assertTrue(lock.token() > token);
    }

    @Test
    void aBlockEndsWithAnErrorIfTheLockWasLost() {
        var error = assertThrows(LockLostException.class, () -> {
            try (var lock = held(options("lock"))) {
                assertEquals(1L, server.call("LOCK.FORCE", "lock"), lock.owner());
            }
        });
        assertTrue(error.getMessage().matches("the lock 'lock' with the token \\d+ was lost"));
        // The error of the block itself is not replaced.
        var own = assertThrows(IllegalStateException.class, () -> {
            try (var lock = held(options("lock"))) {
                server.call("LOCK.FORCE", "lock");
                throw new IllegalStateException(lock.owner());
            }
        });
        assertEquals(LockLostException.class, own.getSuppressed()[0].getClass());
    }

    @Test
    void aLockOfAnUnreachableServerIsLostWithItsLease() throws Exception {
        var lost = new CompletableFuture<NativeLock>();
        var lock = held(locks.lock("lock", Duration.ofMillis(300)).renewEvery(MILLISECOND)
                .onLost(lost::complete));
        var client = (Long) shown("lock", "client");
        server.faults().add(Fault.refuse());
        server.faults().add(Fault.close(), Requests.any().clientId(client));
        assertEquals(lock, lost.get(Later.MAX_WAIT_SECONDS, TimeUnit.SECONDS));
        assertEquals(lock.owner(), shown("lock", "owner"), "the server's clock has not moved");
    }

    @Test
    void aLockThatIsNotRenewedIsLostByTheClockOfItsProcess() throws Exception {
        var grace = Duration.ofMillis(500);
        for (var options : List.of(locks.lock("lock", grace), options("lock").bound(grace))) {
            var lock = held(options.renewEvery(Duration.ZERO));
            Later.eventually("it is lost", () -> !lock.isHeld());
            assertEquals(lock.owner(), shown("lock", "owner"), "the server's clock has moved");
            server.call("LOCK.FORCE", "lock");
        }
    }

    // Shows L17, L18.
    @Test
    void aLockCountsFromWhenItsRequestWasSent() throws Exception {
        var grace = Duration.ofSeconds(2);
        var lock = held(options("lock").bound(grace));
        var gate = server.faults().gate(RENEWALS);
        var renews = Later.run(lock::renew);
        gate.await();
        long sentNs = System.nanoTime(); // Or before.
        Thread.sleep(grace.toMillis() / 3);
        gate.open();
        Later.eventually("it is answered", renews::isDone);
        for (long nowNs = sentNs; lock.isHeld(); nowNs = System.nanoTime()) {
            assertTrue(nowNs - sentNs < grace.toNanos() / 20 * 19, "it counts from the reply");
        }
    }

    @Test
    void aLockWithoutRepliesIsLostWithItsLease() throws Exception {
        var lost = new CompletableFuture<NativeLock>();
        var lock = held(locks.lock("lock", Duration.ofMillis(300)).onLost(lost::complete));
        server.faults().add(Fault.drop(), RENEWALS);
        assertEquals(lock, lost.get(Later.MAX_WAIT_SECONDS, TimeUnit.SECONDS));
    }

    @ParameterizedTest
    @ValueSource(strings = {"close", "lose", "error"})
    void aFailedRenewalIsTriedAgain(String failure) throws Exception {
        var lock = held(options("lock").renewEvery(MILLISECOND));
        var fault = switch (failure) {
            case "close" -> Fault.close();
            case "lose" -> Fault.loseAndClose();
            default -> Fault.error("ERR not now");
        };
        var rule = server.faults().add(fault, RENEWALS.times(3));
        Later.eventually("it has failed", () -> rule.fired() == 3);
        server.clock().advance(TTL.minusSeconds(1));
        awaitRenewal();
        assertTrue(lock.release());
    }

    @Test
    void aBoundLockSurvivesItsConnection() throws Exception {
        var lock = held(options("lock").bound(MINUTE).renewEvery(MILLISECOND));
        var first = shown("lock", "client");
        server.call("CLIENT", "KILL", "ID", first.toString());
        Later.eventually("it is bound again", () ->
                !List.of(first, 0L).contains(shown("lock", "client")));
        server.clock().advance(TTL.minusSeconds(1));
        assertEquals(lock.owner(), shown("lock", "owner"));
        assertTrue(lock.release());
    }

    @Test
    void aBoundLockIsReleasedOverANewConnection() throws Exception {
        var lock = held(options("lock").bound());
        server.call("CLIENT", "KILL", "ID", shown("lock", "client").toString());
        assertTrue(lock.release());
        assertNull(info("lock"));
    }

    /** Holds the lock until its process ends. */
    static void hold(Locks locks) throws Exception {
        locks.lock("lock", TTL).bound(Duration.ofSeconds(5)).build().acquire();
        System.out.println("held");
        System.in.read();
    }

    @Test
    void aBoundLockOfAnEndedProcessIsReleasedAfterItsGrace() throws Exception {
        var classPath = Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(jar -> otherJars().stream().noneMatch(jar::contains))
                .collect(Collectors.joining(File.pathSeparator));
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        var holder = new ProcessBuilder(java, "-XX:TieredStopAtLevel=1", "-cp", classPath,
                getClass().getName(), Integer.toString(server.port()))
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        processes.add(holder);
        assertEquals("held", reader(holder).readLine());
        var waiter = waiter(1);
        holder.destroyForcibly().waitFor();
        Later.eventually("its connection ends", () -> shown("lock", "client").equals(0L));
        server.clock().advance(Duration.ofSeconds(5).minus(MILLISECOND));
        assertEquals(1, queue().size());
        server.clock().advance(MILLISECOND);
        assertTrue(waiter.acquires().get());
    }

    private static BufferedReader reader(Process process) {
        return new BufferedReader(new InputStreamReader(process.getInputStream()));
    }

    @Test
    void acquiringAgainAfterALostReplyHoldsTheLockOnce() throws Exception {
        server.faults().add(
                Fault.loseAndClose(), Requests.any().command("lock.acquire").nth(1));
        var lock = built(options("lock"));
        assertThrows(RuntimeException.class, lock::tryAcquire);
        assertFalse(lock.isHeld());
        assertTrue(lock.tryAcquire());
        assertEquals(2L, shown("lock", "count"));
        assertTrue(lock.release());
        assertNull(info("lock"));
    }

    @ParameterizedTest
    @ValueSource(ints = {2, 3})
    @Lockwheel(options = {"--requirepass", "secret"})
    void theSettingsOfTheClientApply(int protocol) throws Exception {
        locks = locks(server.port(), "accountant", "secret", 3, protocol);
        var lock = held(options("lock"));
        var found = server.journal().locks().get(0);
        assertEquals(lock.owner(), found.owner());
        assertEquals("accountant", found.name());
        assertEquals(3, found.database());
        assertFalse(built(options("lock")).tryAcquire());
        assertTrue(lock.renew());
        assertTrue(lock.release());
        assertFalse(lock.release());
    }

    @Test
    @Lockwheel(options = {"--requirepass", "secret"})
    void aRefusedConnectionIsTriedAgain() throws Exception {
        locks = locks(server.port(), "worker", "secret", 3, 2);
        var lock = held(options("lock").renewEvery(MILLISECOND));
        var refusals = server.faults().add(
                Fault.error("LOADING not yet"), Requests.any().command("select").times(2));
        var client = server.journal().locks().get(0).client();
        server.call("CLIENT", "KILL", "ID", Long.toString(client));
        Later.eventually("it is refused", () -> refusals.fired() == 2);
        // A rule without an effect counts the requests.
        var renewals = server.faults().add(Fault.flushScripts(), RENEWALS);
        Later.eventually("it is renewed", () -> renewals.fired() > 0);
        assertTrue(lock.release());
    }

    @Test
    void aServerWithoutNativeLocksIsAClearError(@TempDir Path folder) throws Exception {
        locks = locks(plainRedis(folder), "worker");
        var lock = built(options("lock"));
        var error = assertThrows(NoNativeLocksException.class, lock::acquire);
        assertEquals("this server has no native locks: it must be Lockwheel 0.1 or later",
                error.getMessage());
        assertFalse(lock.isHeld());
    }

    /** The port of a redis-server, if it is installed. */
    private int plainRedis(Path folder) throws Exception {
        while (true) {
            int port;
            try (var free = new ServerSocket(0)) {
                port = free.getLocalPort();
            }
            try {
                processes.add(new ProcessBuilder("redis-server", "--bind", "127.0.0.1", "--port",
                        Integer.toString(port), "--save", "", "--dir", folder.toString()).start());
            } catch (IOException error) {
                Assumptions.abort("there is no redis-server");
            }
            // It ends if the port has been taken since.
            var lines = reader(processes.get(processes.size() - 1)).lines();
            if (lines.anyMatch(line -> line.contains("Ready to accept connections"))) {
                return port;
            }
        }
    }

    @Test
    void otherErrorsOfTheServerArePassedOn() {
        server.call("SET", "lock", "value");
        var error = assertThrows(replyError(), built(options("lock"))::tryAcquire);
        assertTrue(error.getMessage().startsWith("WRONGTYPE"), error.getMessage());
    }

    private int clients() {
        return server.call("CLIENT", "LIST").toString().split("id=", -1).length;
    }

    @Test
    void noConnectionStaysBehind() throws Exception {
        held(options("lock"));
        int before = clients();
        var another = built(options("another"));
        var refused = built(options("lock"));
        for (int count = 0; count < 3; count++) {
            assertTrue(another.tryAcquire());
            assertTrue(another.release());
            assertFalse(refused.tryAcquire());
        }
        Later.eventually("they are closed", () -> clients() == before);
    }
}
