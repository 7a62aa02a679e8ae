// Tests the journal and its assertions.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.Check;
import io.github.lockwheel.Journal;
import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.junit5.Lockwheel;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.params.SetParams;

@Lockwheel(frozen = true)
class JournalTest {
    private static final SetParams LEASE = SetParams.setParams().nx().px(10_000);

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
        assertTrue(story.contains(" 'worker': acquired 'lock' as 'one \"two\"\\n\\u{1}' for"), story);
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
        worker.set("lock", "token", LEASE);
        worker.eval("if redis.call('get', KEYS[1]) == ARGV[1] then"
                + " return redis.call('del', KEYS[1]) end", List.of("lock"), List.of("token"));
        journal.assertNoLockHeld();
        journal.assertNeverTwoHolders();
        journal.assertEveryLockHasALease();
        journal.assertReleasedOnlyByOwner();
        for (Check check : Check.values()) {
            journal.check(check);
        }
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

    @Test
    void twoHoldersAreDetectedWhenTheFirstIsUsedAgain() {
        worker.set("lock", "a", LEASE);
        server.clock().advance(Duration.ofSeconds(10));
        server.call("SET", "lock", "b", "NX", "PX", "10000");
        journal.assertNeverTwoHolders();
        worker.del("lock");
        fails(journal::assertNeverTwoHolders, "never-two-holders: ", "ended the lease of 'lock', held as 'a'");
    }

    private static void fails(Executable assertion, String... parts) {
        String message = assertThrows(AssertionError.class, assertion).getMessage();
        for (String part : parts) {
            assertTrue(message.contains(part), message);
        }
    }
}
