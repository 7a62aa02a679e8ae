// Tests the journal and its assertions.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Check;
import io.github.lockwheel.CheckError;
import io.github.lockwheel.Fault;
import io.github.lockwheel.Journal;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.Requests;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.params.SetParams;

@Lockwheel(frozen = true)
class JournalTest {
    private static final SetParams LEASE = SetParams.setParams().nx().px(10_000);

    private static final String UNIQUE = "2f1c7a9-58f4-4a6e-9d54-0f0e9f3c8a11";

    private LockwheelServer server;
    private Journal journal;
    private Jedis worker;

    @BeforeEach
    void connect(LockwheelServer server) {
        this.server = server;
        journal = server.journal();
        worker = new Jedis(server.url());
        worker.clientSetname("worker");
    }

    @AfterEach
    void disconnect() {
        worker.close();
    }

    @Test
    void entriesContainCallsAndChangesOfLocks() {
        worker.set("lock", "one \"two\"\n\u0001", LEASE);
        var entries = journal.entries();
        var acquired = entries.get(entries.size() - 1);
        var command = entries.get(entries.size() - 2);
        assertEquals("command", command.event());
        var argv = command.argv();
        assertEquals(List.of("SET", "lock"), argv.subList(0, 2));
        assertEquals("acquired", acquired.event());
        assertEquals(List.of("lock"), acquired.keys());
        assertEquals(worker.clientId(), acquired.client());
        assertEquals(server.clock().now(), acquired.time());
        assertEquals(command.sequence() + 1, acquired.sequence());
        assertEquals(Duration.ofSeconds(10), acquired.lease());
        assertEquals("worker", acquired.name());
        assertEquals("one \"two\"\n\u0001", acquired.owner());
        assertEquals(1L, acquired.count());
        assertNull(acquired.argv());
        assertEquals("OK", command.reply());
        assertEquals(false, command.script());
        assertEquals(List.of("command", "acquired"),
                journal.entries("l*").stream().map(Journal.Entry::event).toList());
        String story = journal.story(4);
        String line = " 'worker' (jedis): acquired 'lock' as 'one \"two\"\\n\\u{1}' for";
        assertTrue(story.contains(line), story);
        journal.clear();
        assertEquals(List.of(), journal.entries("lock"));
    }

    @Test
    void locksAreThoseThatAreHeld() {
        worker.set("lease", "token", LEASE);
        worker.setnx("eternal", "token");
        worker.setnx("eternal", "another");
        server.clock().advance(Duration.ofSeconds(3));
        var locks = journal.locks().stream()
                .sorted((one, other) -> one.key().compareTo(other.key())).toList();
        assertEquals(List.of("eternal", "lease"), locks.stream().map(Journal.Lock::key).toList());
        assertNull(locks.get(0).lease());
        assertEquals(List.of(worker.clientId()), locks.get(0).waiting());
        assertEquals(Duration.ofSeconds(7), locks.get(1).lease());
        assertEquals("token", locks.get(1).owner());
        assertEquals(1, locks.get(1).count());
        assertEquals(0, locks.get(1).database());
        assertEquals("worker", locks.get(1).name());
        assertEquals(worker.clientId(), locks.get(1).client());
        assertEquals(server.clock().now().minusSeconds(3), locks.get(1).since());
    }

    @Test
    void lintNamesTheUsualMistakes() {
        worker.setnx("lock", "token");
        worker.del("lock");
        var findings = journal.lint();
        assertEquals(List.of("lock-without-lease", "delete-without-check"),
                findings.stream().map(Journal.Finding::rule).toList());
        assertEquals("lock", findings.get(0).key());
        assertTrue(findings.get(0).sentence().contains("SET key token NX PX"));
        assertEquals(findings.get(0).sentence(), findings.get(0).toString());
        assertEquals(1, findings.get(0).count());
        assertEquals("lock", findings.get(0).entries().get(0).keys().get(0));
    }

    @Test
    void aCheckThatHoldsDoesNotThrow() {
        try (var other = new Jedis(server.url())) {
            worker.set("lock", "a" + UNIQUE, LEASE);
            assertNull(other.set("lock", "b" + UNIQUE, LEASE));
            release(worker, "a" + UNIQUE);
            other.set("lock", "b" + UNIQUE, LEASE);
            server.clock().advance(Duration.ofSeconds(5));
            release(other, "b" + UNIQUE);
        }
        journal.assertNoLockHeld();
        journal.assertNeverTwoHolders();
        journal.assertEveryLockHasALease();
        journal.assertReleasedOnlyByOwner();
        journal.assertNotRefusedByOwnToken();
        journal.assertNoWaiterLost();
        journal.assertRenewedBeforeExpiry();
        for (Check check : Check.values()) {
            journal.check(check);
        }
    }

    private static void release(Jedis client, String token) {
        client.eval("if redis.call('get', KEYS[1]) == ARGV[1] then"
                + " return redis.call('del', KEYS[1]) end", List.of("lock"), List.of(token));
    }

    @Test
    void aFailedCheckListsTheEntriesOfTheJournal() {
        worker.setnx("lock", "token");
        fails(journal::assertNoLockHeld, "no-lock-held: ", "SETNX lock token -> 1",
                "acquired 'lock' as 'token' without a lease");
        fails(journal::assertEveryLockHasALease, "every-lock-has-a-lease: ", "acquired 'lock'");
        server.call("DEL", "lock");
        fails(journal::assertReleasedOnlyByOwner, "released-only-by-owner: ",
                "released 'lock', which is that of 'token', taken by client ");
    }

    /** Breaks a check, by one or two clients. */
    private interface Breach {
        void by(LockwheelServer server, Jedis a, Jedis b);
    }

    private static final Map<Check, Breach> BREACHES = Map.of(
            Check.NO_LOCK_HELD, (server, a, b) -> a.set("lock", "a", LEASE),
            Check.EVERY_LOCK_HAS_A_LEASE, (server, a, b) -> a.setnx("lock", "a"),
            Check.RELEASED_ONLY_BY_OWNER, (server, a, b) -> {
                a.set("lock", "a", LEASE);
                b.del("lock");
            },
            Check.NEVER_TWO_HOLDERS, (server, a, b) -> {
                a.set("lock", "a", LEASE);
                server.clock().advance(Duration.ofSeconds(10));
                b.set("lock", "b", LEASE);
                a.del("lock");
            },
            Check.REFUSED_BY_OWN_TOKEN, (server, a, b) -> {
                // Tokens that others may use too are not compared.
                a.set("lock", "a" + UNIQUE, LEASE);
                a.set("lock", "a" + UNIQUE, LEASE);
            },
            Check.NO_WAITER_LOST, (server, a, b) -> {
                a.set("lock", "a", LEASE);
                b.set("lock", "b", LEASE);
                a.del("lock");
            },
            Check.RENEWED_BEFORE_EXPIRY, (server, a, b) -> {
                a.set("lock", "a", LEASE);
                server.clock().advance(Duration.ofSeconds(10));
            });

    @ParameterizedTest
    @EnumSource
    void aBrokenCheckMarksTheEntryThatBrokeIt(Check check) {
        journal.check(check);
        String story;
        try (var other = new Jedis(server.url())) {
            BREACHES.get(check).by(server, worker, other);
            story = assertThrows(CheckError.class, () -> journal.check(check)).getMessage();
        }
        String set = "\n  \\+0 ms #\\d+ client \\d+ 'worker' \\(jedis.*\\): SET.* lock a";
        assertTrue(Pattern.compile(set).matcher(story).find(), story);
        String marked = "\n=> *\\+\\d+ ms #\\d+ .*'lock'";
        assertEquals(1, Pattern.compile(marked).matcher(story).results().count(), story);
    }

    @Test
    void aCheckIsAboutAKeyAClientAndWhatCameAfterAnEntry() {
        worker.set("lock", "a", LEASE);
        var acquired = journal.key("lock").entries().get(1);
        assertEquals("acquired", acquired.event());
        assertEquals(2, journal.key("lock").story(10).lines().count());
        long client = acquired.client();
        long before = acquired.sequence() - 1;
        for (var broken : List.of(journal.key("l*"), journal.client(client),
                journal.client("worker"), journal.since(before))) {
            assertThrows(CheckError.class, broken::assertNoLockHeld);
        }
        for (var kept : List.of(journal.key("job:*"), journal.client(client + 100),
                journal.client("other"), journal.since(before + 1),
                journal.key("l*").client("b"))) {
            kept.assertNoLockHeld();
        }
    }

    @Test
    void aKeyThatIsOnlyPossiblyALockFailsACheckThatNamesIt() {
        server.call("SET", "idem:1", "done", "NX", "EX", "3600");
        journal.assertNoLockHeld();
        fails(journal.key("idem:*")::assertNoLockHeld, "holds the lock 'idem:1' as 'done'");
        var known = journal.knownLocks().get(0);
        assertEquals(List.of("idem:1", "token", "possible", true),
                List.of(known.key(), known.shape(), known.confidence(), known.held()));
    }

    /** Takes two keys, and returns those that are surely locks. */
    static List<String> heldKeys(LockwheelServer server) {
        server.call("FLUSHALL");
        server.call("SET", "job:1", "1", "NX", "PX", "30000");
        server.call("SET", "tmp:1", UNIQUE, "NX", "PX", "30000");
        return server.journal().locks().stream()
                .filter(lock -> !lock.confidence().equals("possible"))
                .map(Journal.Lock::key).toList();
    }

    @Test
    void keysAreDeclaredAsLocksAndAsNone() {
        assertEquals(List.of("tmp:1"), heldKeys(server));
        journal.declareLocks("job:*");
        journal.ignoreLocks("tmp:*");
        assertEquals(List.of("job:1"), heldKeys(server));

        var builder = LockwheelServer.builder().lockKeys("cron:*", "job:*");
        try (var other = builder.ignoredLockKeys("tmp:*").start()) {
            assertEquals(List.of("job:1"), heldKeys(other));
            other.reset();
            assertEquals(List.of("job:1"), heldKeys(other));
            other.restart();
            assertEquals(List.of("job:1"), heldKeys(other));
        }
    }

    @Test
    void aStoryShowsThatAReplyWasLost() {
        server.faults().add(Fault.loseAndClose(), Requests.any().command("set"));
        assertThrows(JedisConnectionException.class, () -> worker.set("lock", "token", LEASE));
        String story = journal.key("lock").story(10);
        String request = "SET lock token NX PX 10000 -> OK";
        String fault = "[fault 1: executed; reply lost; connection closed]\n";
        assertTrue(story.contains(": " + request + " " + fault), story);
        assertTrue(story.contains(": acquired 'lock' as 'token' for 10000 ms\n"), story);
    }

    @Test
    void twoHoldersAreDetectedWhenTheFirstIsUsedAgain() {
        worker.set("lock", "a", LEASE);
        server.clock().advance(Duration.ofSeconds(10));
        server.call("SET", "lock", "b", "NX", "PX", "10000");
        journal.assertNeverTwoHolders();
        worker.del("lock");
        fails(journal::assertNeverTwoHolders, "never-two-holders: ",
                "ended the lease of 'lock', held as 'a'");
    }

    private static void fails(Executable assertion, String... parts) {
        String message = assertThrows(AssertionError.class, assertion).getMessage();
        for (String part : parts) {
            assertTrue(message.contains(part), message);
        }
    }
}
