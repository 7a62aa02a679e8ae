package leasehold.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import io.github.leasehold.Check;
import io.github.leasehold.LeaseholdServer;
import io.github.leasehold.junit5.Leasehold;
import io.github.leasehold.junit5.LeaseholdExtension;
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

/** What JUnit makes of {@code @Leasehold}, seen from inside a test and from outside. */
class ExtensionTest {
    @Nested
    @Leasehold(frozen = true, options = {"--databases", "3"})
    class ParametersOfATest {
        private LeaseholdServer first;

        @BeforeEach
        void before(LeaseholdServer server) {
            first = server;
        }

        @AfterEach
        void after(LeaseholdServer server) {
            assertSame(first, server);
        }

        @Test
        void theFirstIsTheSameEverywhere(LeaseholdServer server) {
            assertSame(first, server);
        }

        @Test
        void eachIsAServerOfItsOwn(
                LeaseholdServer one, LeaseholdServer two, LeaseholdServer three) {
            assertSame(first, one);
            assertNotSame(one, two);
            assertNotSame(two, three);
            assertFalse(one.port() == two.port() || two.port() == three.port());
        }

        @Test
        void eachIsAsTheAnnotationSays(LeaseholdServer one, LeaseholdServer two) {
            for (LeaseholdServer server : List.of(one, two)) {
                assertEquals(0.0, server.clock().rate());
                assertEquals(List.of("databases", "3"), server.call("CONFIG", "GET", "databases"));
            }
        }

        @Test
        @Leasehold(options = {"--databases", "5"})
        void aMethodsAnnotationIsNearer(LeaseholdServer server) {
            assertEquals(1.0, server.clock().rate());
            assertEquals(List.of("databases", "5"), server.call("CONFIG", "GET", "databases"));
        }

        @ParameterizedTest
        @ValueSource(ints = {1, 2})
        void eachRunHasItsOwn(int run, LeaseholdServer server) {
            assertEquals(0L, server.call("EXISTS", "lock"), "in run " + run);
            server.call("SET", "lock", "token");
        }
    }

    @Nested
    @ExtendWith(LeaseholdExtension.class)
    class WithoutAnAnnotation {
        @Test
        void aServerIsAsItStarts(LeaseholdServer server) {
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

    @Leasehold
    static class Kept {
        static final Map<Long, ProcessHandle> SERVERS = new ConcurrentHashMap<>();

        @Test
        void one(LeaseholdServer server) {
            keep(server);
        }

        @Test
        void two(LeaseholdServer server, LeaseholdServer other) {
            keep(server);
            keep(other);
        }

        static void keep(LeaseholdServer server) {
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

    @Leasehold(shared = true)
    static class Shared {
        @BeforeAll
        static void all(LeaseholdServer server) {
            Kept.keep(server);
        }

        Shared(LeaseholdServer server) {
            Kept.keep(server);
        }

        @ParameterizedTest
        @ValueSource(ints = {1, 2})
        void nothingIsLeftOfTheTestBefore(int run, LeaseholdServer server) {
            Kept.keep(server);
            assertEquals(0L, server.call("EXISTS", "lock"), "in run " + run);
            server.call("SET", "lock", "token");
            server.clock().freeze();
        }

        @Nested
        class Within {
            @Test
            void itIsTheSame(LeaseholdServer server) {
                Kept.keep(server);
                assertEquals(0L, server.call("EXISTS", "lock"));
            }
        }
    }

    @Test
    void aCheckThatDoesNotHoldFailsTheTest() {
        Throwable failure = failureOf(LeavesALock.class);
        assertEquals(AssertionError.class, failure.getClass());
        assertTrue(failure.getMessage().startsWith("no-lock-held: client "), failure.getMessage());
        assertTrue(failure.getMessage().contains("acquired 'lock' as 'token'"),
                failure.getMessage());
    }

    @Leasehold(check = {Check.RELEASED_ONLY_BY_OWNER, Check.NO_LOCK_HELD})
    static class LeavesALock {
        @Test
        void takesIt(LeaseholdServer unused, LeaseholdServer server) {
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
        assertTrue(stories.get(0).contains("LEASEHOLD CLOCK ADVANCE"), stories.get(0));
        assertFalse(stories.get(0).contains("LEASEHOLD LOCKS"), "a question is no story");
    }

    @Leasehold(check = Check.NO_LOCK_HELD)
    static class Fails {
        @Test
        void ofItself(LeaseholdServer server, LeaseholdServer other) {
            server.call("SET", "lock", "token", "NX", "PX", "30000");
            server.clock().advance(Duration.ofSeconds(1));
            server.journal().locks();
            fail("its own");
        }
    }

    @Test
    void aServerOfItsOwnIsNoConstructorsParameter() {
        String message = failureOf(InAConstructor.class).getMessage();
        assertTrue(message.contains("@Leasehold(shared = true)"), message);
    }

    @Leasehold
    static class InAConstructor {
        InAConstructor(LeaseholdServer server) {}

        @Test
        void isNotReached() {}
    }

    @Test
    void testsThatRunInParallelDoNotMeet() {
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
    @Leasehold(check = Check.EVERY_LOCK_HAS_A_LEASE)
    static class InParallel {
        private static final CountDownLatch BOTH = new CountDownLatch(2);

        @ParameterizedTest
        @ValueSource(strings = {"one", "other"})
        void takesTheLock(String token, LeaseholdServer server) throws InterruptedException {
            assertEquals("OK", server.call("SET", "lock", token, "NX", "PX", "30000"));
            BOTH.countDown();
            assertTrue(BOTH.await(Later.PATIENCE_SECONDS, TimeUnit.SECONDS));
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
