// Tests {@code @Lockwheel} in test classes and by running test classes that fail.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import io.github.lockwheel.Check;
import io.github.lockwheel.CheckError;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import io.github.lockwheel.junit5.LockwheelExtension;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.testkit.engine.EngineTestKit;
import org.junit.platform.testkit.engine.Events;

class ExtensionTest {
    @Nested
    @Lockwheel(frozen = true, options = {"--databases", "3"})
    class ParametersOfATest {
        private LockwheelServer first;

        @BeforeEach
        void before(LockwheelServer server) {
            first = server;
        }

        @AfterEach
        void after(LockwheelServer server) {
            assertSame(first, server);
        }

        @Test
        void theFirstIsTheSameEverywhere(LockwheelServer server) {
            assertSame(first, server);
        }

        @Test
        void eachIsAServerOfItsOwn(
                LockwheelServer one, LockwheelServer two, LockwheelServer three) {
            assertSame(first, one);
            assertNotSame(one, two);
            assertNotSame(two, three);
            assertFalse(one.port() == two.port() || two.port() == three.port());
        }

        @Test
        void eachIsAsTheAnnotationSays(LockwheelServer one, LockwheelServer two) {
            for (LockwheelServer server : List.of(one, two)) {
                assertEquals(0.0, server.clock().rate());
                assertEquals(List.of("databases", "3"), server.call("CONFIG", "GET", "databases"));
            }
        }

        @Test
        @Lockwheel(options = {"--databases", "5"})
        void aMethodsAnnotationIsNearer(LockwheelServer server) {
            assertEquals(1.0, server.clock().rate());
            assertEquals(List.of("databases", "5"), server.call("CONFIG", "GET", "databases"));
        }

        @ParameterizedTest
        @ValueSource(ints = {1, 2})
        void eachRunHasItsOwn(int run, LockwheelServer server) {
            assertEquals(0L, server.call("EXISTS", "lock"), "in run " + run);
            server.call("SET", "lock", "token");
        }
    }

    @Nested
    @ExtendWith(LockwheelExtension.class)
    class WithoutAnAnnotation {
        @Test
        void aServerIsAsItStarts(LockwheelServer server) {
            assertEquals(1.0, server.clock().rate());
        }
    }

    @Test
    void serversEndWithTheirTest() {
        Kept.SERVERS.clear();
        run(Kept.class).assertStatistics(statistics -> statistics.succeeded(2));
        assertEquals(3, Kept.SERVERS.size());
        Kept.SERVERS.values().forEach(ExtensionTest::hasEnded);
    }

    @Lockwheel
    static class Kept {
        static final Map<Long, ProcessHandle> SERVERS = new ConcurrentHashMap<>();

        @Test
        void one(LockwheelServer server) {
            keep(server);
        }

        @Test
        void two(LockwheelServer server, LockwheelServer other) {
            keep(server);
            keep(other);
        }

        static void keep(LockwheelServer server) {
            SERVERS.put(server.pid(), ProcessHandle.of(server.pid()).orElseThrow());
        }
    }

    @Test
    void aSharedServerIsResetBeforeEachTestAndEndsWithTheClass() {
        Kept.SERVERS.clear();
        run(Shared.class).assertStatistics(statistics -> statistics.succeeded(3));
        assertEquals(1, Kept.SERVERS.size());
        Kept.SERVERS.values().forEach(ExtensionTest::hasEnded);
    }

    @Lockwheel(shared = true)
    static class Shared {
        @BeforeAll
        static void all(LockwheelServer server) {
            Kept.keep(server);
        }

        Shared(LockwheelServer server) {
            Kept.keep(server);
        }

        @ParameterizedTest
        @ValueSource(ints = {1, 2})
        void nothingIsLeftOfTheTestBefore(int run, LockwheelServer server) {
            Kept.keep(server);
            assertEquals(0L, server.call("EXISTS", "lock"), "in run " + run);
            server.call("SET", "lock", "token");
            server.clock().freeze();
        }

        @Nested
        class Within {
            @Test
            void itIsTheSame(LockwheelServer server) {
                Kept.keep(server);
                assertEquals(0L, server.call("EXISTS", "lock"));
            }
        }
    }

    @Test
    void aCheckThatDoesNotHoldFailsTheTest() {
        Throwable failure = failureOf(LeavesALock.class);
        assertEquals(CheckError.class, failure.getClass());
        assertTrue(failure.getMessage().startsWith("no-lock-held: client "), failure.getMessage());
        assertStoryIsShownOnceWithTheOtherJournal(failure);
    }

    private static void assertStoryIsShownOnceWithTheOtherJournal(Throwable failure) {
        var printed = new StringWriter();
        failure.printStackTrace(new PrintWriter(printed));
        String text = printed.toString();
        assertEquals(2, text.split("acquired 'lock' as 'token'", -1).length, text);
        assertFalse(text.contains("Caused by"), text);
        assertEquals(1, failure.getSuppressed().length, text);
        assertTrue(failure.getSuppressed()[0].toString().contains("SET another value"), text);
    }

    @Test
    void aFailedAssertionShowsItsStoryOnceAndTheJournalsOfOtherServers() {
        assertStoryIsShownOnceWithTheOtherJournal(failureOf(AssertsItself.class));
    }

    @Lockwheel
    static class AssertsItself {
        @Test
        void takesIt(LockwheelServer other, LockwheelServer server) {
            other.call("SET", "another", "value");
            server.call("SET", "lock", "token", "NX", "PX", "30000");
            server.journal().key("lock*").assertNoLockHeld();
        }
    }

    @Test
    @Lockwheel(lockKeys = {"cron:*", "job:*"}, ignoredLockKeys = "tmp:*")
    void theAnnotationDeclaresKeys(LockwheelServer server) {
        assertEquals(List.of("job:1"), JournalTest.heldKeys(server));
    }

    @Lockwheel(check = {Check.RELEASED_ONLY_BY_OWNER, Check.NO_LOCK_HELD})
    static class LeavesALock {
        @Test
        void takesIt(LockwheelServer other, LockwheelServer server) {
            other.call("SET", "another", "value");
            server.call("SET", "lock", "token", "NX", "PX", "30000");
        }
    }

    @Test
    void aFailureShowsTheJournalsOfItsServers() {
        Throwable failure = failureOf(Fails.class);
        assertEquals("its own", failure.getMessage());
        var stories = Arrays.stream(failure.getSuppressed()).map(Throwable::toString).toList();
        assertEquals(2, stories.size(), stories.toString());
        assertTrue(stories.get(0).startsWith("the journal of redis://127.0.0.1:"), stories.get(0));
        assertTrue(stories.get(0).contains("acquired 'lock' as 'token'"), stories.get(0));
        assertTrue(stories.get(0).contains("LOCKWHEEL CLOCK ADVANCE"), stories.get(0));
        assertFalse(stories.get(0).contains("LOCKWHEEL JOURNAL HOLDERS"), "a question is no story");
    }

    @Lockwheel(check = Check.NO_LOCK_HELD)
    static class Fails {
        @Test
        void ofItself(LockwheelServer server, LockwheelServer other) {
            server.call("SET", "lock", "token", "NX", "PX", "30000");
            server.clock().advance(Duration.ofSeconds(1));
            server.journal().locks();
            fail("its own");
        }
    }

    @Test
    void aServerPerTestIsRefusedAsAConstructorParameter() {
        String message = failureOf(InAConstructor.class).getMessage();
        assertTrue(message.contains("@Lockwheel(shared = true)"), message);
    }

    @Lockwheel
    static class InAConstructor {
        InAConstructor(LockwheelServer server) {}

        @Test
        void isNotReached() {}
    }

    @Test
    void parallelTestsHaveTheirOwnServers() {
        EngineTestKit.engine("junit-jupiter").selectors(selectClass(InParallel.class))
                .configurationParameter("junit.jupiter.execution.parallel.enabled", "true")
                .configurationParameter(
                        "junit.jupiter.execution.parallel.mode.default", "concurrent")
                .configurationParameter(
                        "junit.jupiter.execution.parallel.config.strategy", "fixed")
                .configurationParameter(
                        "junit.jupiter.execution.parallel.config.fixed.parallelism", "2")
                .execute().testEvents().assertStatistics(statistics -> statistics.succeeded(2));
    }

    /** Both are within at the same time, or neither passes. */
    @Lockwheel(check = Check.EVERY_LOCK_HAS_A_LEASE)
    static class InParallel {
        private static final CountDownLatch BOTH = new CountDownLatch(2);

        @ParameterizedTest
        @ValueSource(strings = {"one", "other"})
        void takesTheLock(String token, LockwheelServer server) throws InterruptedException {
            assertEquals("OK", server.call("SET", "lock", token, "NX", "PX", "30000"));
            BOTH.countDown();
            assertTrue(BOTH.await(Later.MAX_WAIT_SECONDS, TimeUnit.SECONDS));
            assertEquals(token, server.call("GET", "lock"));
        }
    }

    private static Events run(Class<?> tests) {
        return EngineTestKit.engine("junit-jupiter").selectors(selectClass(tests))
                .execute().testEvents();
    }

    private static Throwable failureOf(Class<?> tests) {
        var failed = run(tests).failed().list();
        assertEquals(1, failed.size());
        return failed.get(0).getRequiredPayload(TestExecutionResult.class)
                .getThrowable().orElseThrow();
    }

    private static void hasEnded(ProcessHandle process) {
        assertFalse(process.isAlive());
    }
}
