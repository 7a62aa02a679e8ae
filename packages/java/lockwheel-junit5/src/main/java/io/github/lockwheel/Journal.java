// Public API: the journal of a server, with assertions on its locks.

package io.github.lockwheel;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * The journal of a server: the commands of clients and scripts, and the events of locks. Locks are
 * recognised from the effects of commands, whatever library sends them.
 *
 * <p>All methods throw {@link LockwheelException} if the server has ended. A failed assertion throws
 * a {@link CheckError}.
 */
public final class Journal {
    private final LockwheelServer server;
    /** The options of commands that limit what they are about. */
    private final List<String> scope;

    Journal(LockwheelServer server) {
        this(server, List.of());
    }

    private Journal(LockwheelServer server, List<String> scope) {
        this.server = server;
        this.scope = scope;
    }

    /**
     * Only keys that match a pattern. Checks and lint then also consider keys that are only
     * possibly locks.
     *
     * @param pattern the pattern, such as {@code lock:*}
     * @return a journal whose entries, findings and checks are only about these keys
     */
    public Journal key(String pattern) {
        return limited("KEY", pattern);
    }

    /**
     * Only what a client has done.
     *
     * @param client its {@code CLIENT ID}, or its name
     * @return a journal whose entries, findings and checks are only about this client
     */
    public Journal client(Object client) {
        return limited("CLIENT", client.toString());
    }

    /**
     * Only what happened after an entry.
     *
     * @param sequence the number of the entry
     * @return a journal whose entries, findings and checks are only about later entries
     */
    public Journal since(long sequence) {
        return limited("SINCE", Long.toString(sequence));
    }

    private Journal limited(String option, String value) {
        return new Journal(server, Stream.concat(scope.stream(), Stream.of(option, value))
                .collect(Collectors.toUnmodifiableList()));
    }

    private String[] scoped(List<String> command, String... end) {
        return Stream.of(command, scope, List.of(end)).flatMap(List::stream).toArray(String[]::new);
    }

    /** An entry of the journal. */
    public static final class Entry {
        private final Map<String, Object> fields;

        private Entry(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * The number of the entry.
         *
         * @return the number, counted from 1
         */
        public long sequence() {
            return (Long) fields.get("seq");
        }

        /**
         * The time, on the clock that leases run on.
         *
         * @return the moment, to the millisecond
         */
        public Instant time() {
            return Instant.ofEpochMilli((Long) fields.get("time_ms"));
        }

        /**
         * The client of the command or event.
         *
         * @return the {@code CLIENT ID}; 0 if there was no client
         */
        public long client() {
            return (Long) fields.get("client");
        }

        /**
         * The kind of the entry.
         *
         * @return {@code command}, {@code fault}, {@code freed}, {@code clock},
         *     {@code connected}, {@code disconnected}, or the event of a lock: {@code acquired},
         *     {@code renewed}, {@code refused}, {@code released}, {@code released-by-non-owner},
         *     {@code expired-while-held}, {@code flushed}, {@code waited},
         *     {@code released-too-late}, {@code renewed-too-late}, {@code recognised}
         */
        public String event() {
            return (String) fields.get("event");
        }

        /**
         * The keys of the command or event.
         *
         * @return their names
         */
        public List<String> keys() {
            return strings(fields.get("keys"));
        }

        /**
         * The name of the client.
         *
         * @return the name; null if it has none
         */
        public String name() {
            return (String) fields.get("name");
        }

        /**
         * The request of a command, shortened.
         *
         * @return its words; null for an event of a lock
         */
        public List<String> argv() {
            return fields.containsKey("argv") ? strings(fields.get("argv")) : null;
        }

        /**
         * The reply to a command, shortened.
         *
         * @return the reply; null for an event of a lock
         */
        public String reply() {
            return (String) fields.get("reply");
        }

        /**
         * Whether a script called the command.
         *
         * @return whether it did
         */
        public boolean script() {
            return fields.containsKey("script");
        }

        /**
         * Whether {@code EXEC} ran the command.
         *
         * @return whether it did
         */
        public boolean transaction() {
            return fields.containsKey("transaction");
        }

        /**
         * The fault that happened to the request.
         *
         * @return what happened, such as {@code executed; reply lost; connection closed}; null
         *     without a fault
         */
        public String fault() {
            Object fault = fields.get("fault");
            return fault == null ? null : (String) Json.object(fault).get("effect");
        }

        /**
         * The rule that held a client.
         *
         * @return its number; null unless the event is {@code freed}
         */
        public Long rule() {
            return (Long) fields.get("rule");
        }

        /**
         * What happened to the clock.
         *
         * @return a sentence; null unless the event is {@code clock}
         */
        public String order() {
            return (String) fields.get("order");
        }

        /**
         * Why a key is a lock.
         *
         * @return the reason; null unless the event is {@code recognised}
         */
        public String reason() {
            return (String) fields.get("reason");
        }

        /**
         * Whether the key is only possibly a lock.
         *
         * @return whether it is
         */
        public boolean possible() {
            return fields.containsKey("possible");
        }

        /**
         * The request that the entry belongs to.
         *
         * @return its number, the same for all entries of a script or a transaction; 0 if there is
         *     none
         */
        public long request() {
            return (Long) fields.get("request");
        }

        /**
         * The library of the client.
         *
         * @return its name; null if the client has named none
         */
        public String library() {
            return (String) fields.get("library");
        }

        /**
         * The present or former owner of the lock.
         *
         * @return the token, or the field of a hash; null if the event has none
         */
        public String owner() {
            return (String) fields.get("owner");
        }

        /**
         * How many times the owner holds the lock.
         *
         * @return the number; null unless the event is {@code acquired}
         */
        public Long count() {
            return (Long) fields.get("count");
        }

        /**
         * How many holds are left.
         *
         * @return the number; null unless the event is {@code released}
         */
        public Long left() {
            return (Long) fields.get("left");
        }

        /**
         * The lease of {@code acquired} and {@code renewed}.
         *
         * @return the lease; null if there is none
         */
        public Duration lease() {
            return duration(fields.get("lease_ms"));
        }

        /**
         * The owner that was refused.
         *
         * @return the owner; null unless the event is {@code refused}
         */
        public String by() {
            return (String) fields.get("by");
        }

        /**
         * The holder of a lock that was refused, or the client that took a lost lock.
         *
         * @return the owner as a String or the {@code CLIENT ID} as a Long; null for other events
         */
        public Object holder() {
            return fields.get("holder");
        }

        /**
         * The time from the first refusal to the acquisition.
         *
         * @return the time; null unless the event is {@code waited}
         */
        public Duration waited() {
            return duration(fields.get("waited_ms"));
        }

        /**
         * The time from the loss of the lock to the late command.
         *
         * @return the time; null for other events
         */
        public Duration late() {
            return duration(fields.get("late_ms"));
        }

        /**
         * All fields.
         *
         * @return the fields of the JSON that {@code LOCKWHEEL JOURNAL} returns
         */
        public Map<String, Object> fields() {
            return fields;
        }

        /** The fields as text. */
        @Override
        public String toString() {
            return fields.toString();
        }
    }

    /** A held lock. */
    public static final class Lock {
        private final Map<String, Object> fields;

        private Lock(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * The key of the lock.
         *
         * @return the key
         */
        public String key() {
            return (String) fields.get("key");
        }

        /**
         * The database of the lock.
         *
         * @return its number
         */
        public long database() {
            return (Long) fields.get("database");
        }

        /**
         * The owner of the lock.
         *
         * @return the token, or the field of a hash
         */
        public String owner() {
            return (String) fields.get("owner");
        }

        /**
         * The name of the client that took the lock.
         *
         * @return the name; null if it has none
         */
        public String name() {
            return (String) fields.get("name");
        }

        /**
         * How many times the owner holds it.
         *
         * @return more than 1 after a reentrant acquisition
         */
        public long count() {
            return (Long) fields.get("count");
        }

        /**
         * The client that took the lock.
         *
         * @return the {@code CLIENT ID}
         */
        public long client() {
            return (Long) fields.get("client");
        }

        /**
         * The time of the acquisition.
         *
         * @return the moment on the server's clock, to the millisecond
         */
        public Instant since() {
            return Instant.ofEpochMilli((Long) fields.get("since_ms"));
        }

        /**
         * The rest of the lease.
         *
         * @return the rest; null if the lock has no lease
         */
        public Duration lease() {
            return duration(fields.get("lease_ms"));
        }

        /**
         * The clients that were refused the lock and may be waiting for it.
         *
         * @return the {@code CLIENT ID} of each that is still connected
         */
        public List<Long> waiting() {
            return Json.list(fields.get("waiting")).stream().map(Long.class::cast)
                    .collect(Collectors.toUnmodifiableList());
        }

        /**
         * How the lock is stored.
         *
         * @return {@code token}, {@code owners} or {@code semaphore}
         */
        public String shape() {
            return (String) fields.get("shape");
        }

        /**
         * How sure it is that the key is a lock.
         *
         * @return {@code certain}, {@code likely} or {@code possible}
         */
        public String confidence() {
            return (String) fields.get("confidence");
        }

        /**
         * Why it is a lock.
         *
         * @return the reason
         */
        public String reason() {
            return (String) fields.get("reason");
        }

        /** The fields as text. */
        @Override
        public String toString() {
            return fields.toString();
        }
    }

    /** A key that is or was a lock, possibly. */
    public static final class KnownLock {
        private final Map<String, Object> fields;

        private KnownLock(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * The key of the lock.
         *
         * @return the key
         */
        public String key() {
            return (String) fields.get("key");
        }

        /**
         * The database of the lock.
         *
         * @return its number
         */
        public long database() {
            return (Long) fields.get("database");
        }

        /**
         * How the lock is stored.
         *
         * @return {@code token}, {@code owners} or {@code semaphore}
         */
        public String shape() {
            return (String) fields.get("shape");
        }

        /**
         * How sure it is that the key is a lock.
         *
         * @return {@code certain}, {@code likely} or {@code possible}
         */
        public String confidence() {
            return (String) fields.get("confidence");
        }

        /**
         * Why it is a lock.
         *
         * @return the reason
         */
        public String reason() {
            return (String) fields.get("reason");
        }

        /**
         * Whether it is held now.
         *
         * @return whether it is
         */
        public boolean held() {
            return (Boolean) fields.get("held");
        }

        /** The fields as text. */
        @Override
        public String toString() {
            return fields.toString();
        }
    }

    /** A common mistake in the use of a lock. */
    public static final class Finding {
        private final Map<String, Object> fields;

        private Finding(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * The rule that found the mistake.
         *
         * @return {@code lock-without-lease}, {@code lease-in-a-second-step},
         *     {@code delete-without-check}, {@code compare-and-delete-in-two-steps},
         *     {@code lease-shorter-than-hold} or {@code renewal-after-loss}
         */
        public String rule() {
            return (String) fields.get("rule");
        }

        /**
         * The key of the lock.
         *
         * @return the key
         */
        public String key() {
            return (String) fields.get("key");
        }

        /**
         * The problem and its correction.
         *
         * @return one sentence
         */
        public String sentence() {
            return (String) fields.get("sentence");
        }

        /**
         * How many times the mistake was made.
         *
         * @return the number
         */
        public long count() {
            return (Long) fields.get("count");
        }

        /**
         * The entries of the first occurrence.
         *
         * @return those that are still kept, in time order
         */
        public List<Entry> entries() {
            return objects(fields.get("entries"), Entry::new);
        }

        /** The problem and its correction. */
        @Override
        public String toString() {
            return sentence();
        }
    }

    /**
     * All entries.
     *
     * @return the kept entries, in time order
     */
    public List<Entry> entries() {
        return all(Entry::new, scoped(List.of("JOURNAL")));
    }

    /**
     * The entries of some keys.
     *
     * @param pattern the pattern, such as {@code lock:*}
     * @return the kept entries, in time order
     */
    public List<Entry> entries(String pattern) {
        return key(pattern).entries();
    }

    /**
     * The last entries as text.
     *
     * @param count at most this many entries
     * @return one line for each, in time order
     */
    public String story(int count) {
        var command = List.of("JOURNAL", "COUNT", Integer.toString(count));
        return (String) server.control(scoped(command, "TEXT"));
    }

    /**
     * The held locks.
     *
     * @return the locks
     */
    public List<Lock> locks() {
        return all(Lock::new, "JOURNAL", "HOLDERS");
    }

    /**
     * The keys that are or were locks, also those that are only possibly locks.
     *
     * @return the keys, in order
     */
    public List<KnownLock> knownLocks() {
        return all(KnownLock::new, "JOURNAL", "KNOWN");
    }

    /**
     * Declares that keys that match a pattern are locks, however they are made.
     *
     * @param pattern the pattern
     */
    public void declareLocks(String pattern) {
        server.control("JOURNAL", "DECLARE", pattern);
    }

    /**
     * Declares that keys that match a pattern are no locks.
     *
     * @param pattern the pattern
     */
    public void ignoreLocks(String pattern) {
        server.control("JOURNAL", "IGNORE", pattern);
    }

    /**
     * Common mistakes in the use of locks.
     *
     * @return one for each rule and lock
     */
    public List<Finding> lint() {
        return all(Finding::new, scoped(List.of("LINT")));
    }

    /** Removes all entries. Held locks stay recognised. */
    public void clear() {
        server.control("JOURNAL", "CLEAR");
    }

    /** Asserts that no client holds a lock. */
    public void assertNoLockHeld() {
        check(Check.NO_LOCK_HELD);
    }

    /** Asserts that no lock was taken while a former holder still used it. */
    public void assertNeverTwoHolders() {
        check(Check.NEVER_TWO_HOLDERS);
    }

    /** Asserts that every lock has a lease. */
    public void assertEveryLockHasALease() {
        check(Check.EVERY_LOCK_HAS_A_LEASE);
    }

    /** Asserts that no client released the lock of another. */
    public void assertReleasedOnlyByOwner() {
        check(Check.RELEASED_ONLY_BY_OWNER);
    }

    /** Asserts that no client was refused a lock that holds its own token. */
    public void assertNotRefusedByOwnToken() {
        check(Check.REFUSED_BY_OWN_TOKEN);
    }

    /** Asserts that every client that was refused a lock has acquired it since. */
    public void assertNoWaiterLost() {
        check(Check.NO_WAITER_LOST);
    }

    /** Asserts that no lease expired. */
    public void assertRenewedBeforeExpiry() {
        check(Check.RENEWED_BEFORE_EXPIRY);
    }

    /**
     * Runs a check.
     *
     * @param check the check
     */
    public void check(Check check) {
        String[] command = scoped(List.of("CHECK", check.word()), "STORY");
        String json = (String) server.control(command);
        Map<String, Object> verdict = Json.object(Json.parse(json));
        if (!(Boolean) verdict.get("holds")) {
            throw new CheckError((String) verdict.get("text"), server);
        }
    }

    private <T> List<T> all(Function<Map<String, Object>, T> type, String... command) {
        return objects(Json.parse((String) server.control(command)), type);
    }

    private static <T> List<T> objects(Object list, Function<Map<String, Object>, T> type) {
        return Json.list(list).stream().map(Json::object).map(type)
                .collect(Collectors.toUnmodifiableList());
    }

    private static Duration duration(Object milliseconds) {
        return milliseconds == null ? null : Duration.ofMillis((Long) milliseconds);
    }

    private static List<String> strings(Object list) {
        return Json.list(list).stream().map(String.class::cast)
                .collect(Collectors.toUnmodifiableList());
    }
}
