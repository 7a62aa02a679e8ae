// Public API: the journal of a server, with assertions on its locks.

package io.github.lockwheel;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * The journal of a server: the commands of clients and scripts, and the events of locks. Locks are
 * recognised from the effects of commands, whatever library sends them.
 *
 * <p>All methods throw {@link LockwheelException} if the server has ended. A failed assertion throws
 * an {@link AssertionError} with the entries of that lock.
 */
public final class Journal {
    private final LockwheelServer server;

    Journal(LockwheelServer server) {
        this.server = server;
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
         * @return {@code command}, or the event of a lock: {@code acquired}, {@code renewed},
         *     {@code refused}, {@code released}, {@code released-by-non-owner},
         *     {@code expired-while-held}, {@code flushed}, {@code waited},
         *     {@code released-too-late}, {@code renewed-too-late}
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
        return all(Entry::new, "JOURNAL");
    }

    /**
     * The entries of some keys.
     *
     * @param pattern the pattern, such as {@code lock:*}
     * @return the kept entries, in time order
     */
    public List<Entry> entries(String pattern) {
        return all(Entry::new, "JOURNAL", "KEY", pattern);
    }

    /**
     * The last entries as text.
     *
     * @param count at most this many entries
     * @return one line for each, in time order
     */
    public String story(int count) {
        return (String) server.control("JOURNAL", "COUNT", Integer.toString(count), "TEXT");
    }

    /**
     * The held locks.
     *
     * @return the locks
     */
    public List<Lock> locks() {
        return all(Lock::new, "LOCKS");
    }

    /**
     * Common mistakes in the use of locks.
     *
     * @return one for each rule and lock
     */
    public List<Finding> lint() {
        return all(Finding::new, "LINT");
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

    /**
     * Runs a check.
     *
     * @param check the check
     */
    public void check(Check check) {
        String json = (String) server.control("CHECK", check.word(), "STORY");
        Map<String, Object> verdict = Json.object(Json.parse(json));
        if (!(Boolean) verdict.get("holds")) {
            throw new AssertionError(verdict.get("text"));
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
