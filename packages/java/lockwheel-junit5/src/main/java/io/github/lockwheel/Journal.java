package io.github.lockwheel;

import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * What has happened on a server: what clients and their scripts called, and what became of locks,
 * which are recognised from what commands do, whatever library sends them.
 *
 * <p>All methods throw {@link LockwheelException} if the server has ended. Assertions that fail
 * throw an {@link AssertionError} that tells what happened to that lock.
 */
public final class Journal {
    private final LockwheelServer server;

    Journal(LockwheelServer server) {
        this.server = server;
    }

    /** Something that has happened. */
    public static final class Entry {
        private final Map<String, Object> fields;

        private Entry(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * Its number.
         *
         * @return they count up from 1
         */
        public long sequence() {
            return (Long) fields.get("seq");
        }

        /**
         * When, on the clock that leases run on.
         *
         * @return the moment, to the millisecond
         */
        public Instant time() {
            return Instant.ofEpochMilli((Long) fields.get("time_ms"));
        }

        /**
         * Who did it.
         *
         * @return the {@code CLIENT ID}; 0 if it happened by itself
         */
        public long client() {
            return (Long) fields.get("client");
        }

        /**
         * What it is.
         *
         * @return {@code command}, or what became of a lock: {@code acquired}, {@code renewed},
         *     {@code refused}, {@code released}, {@code released-by-stranger},
         *     {@code expired-while-held}, {@code flushed}, {@code waited},
         *     {@code released-too-late}, {@code renewed-too-late}
         */
        public String event() {
            return (String) fields.get("event");
        }

        /**
         * The keys it is about.
         *
         * @return their names
         */
        public List<String> keys() {
            return strings(fields.get("keys"));
        }

        /**
         * All of it, with what is only of its event: {@code argv} and {@code reply} of a command,
         * {@code owner} and {@code lease_ms} of a lock.
         *
         * @return the fields of the JSON that {@code LOCKWHEEL JOURNAL} returns
         */
        public Map<String, Object> fields() {
            return fields;
        }

        /** The JSON's fields, for people. */
        @Override
        public String toString() {
            return fields.toString();
        }
    }

    /** A lock that is held. */
    public static final class Lock {
        private final Map<String, Object> fields;

        private Lock(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * Its key.
         *
         * @return the name
         */
        public String key() {
            return (String) fields.get("key");
        }

        /**
         * Whose it is.
         *
         * @return the token, or the field of a hash
         */
        public String owner() {
            return (String) fields.get("owner");
        }

        /**
         * How often the owner has it.
         *
         * @return more than 1 if it was taken again
         */
        public long count() {
            return (Long) fields.get("count");
        }

        /**
         * Who took it.
         *
         * @return the {@code CLIENT ID}
         */
        public long client() {
            return (Long) fields.get("client");
        }

        /**
         * Since when it is held.
         *
         * @return the moment on the server's clock, to the millisecond
         */
        public Instant since() {
            return Instant.ofEpochMilli((Long) fields.get("since_ms"));
        }

        /**
         * For how much longer it lasts.
         *
         * @return what is left of the lease; null if it has none
         */
        public Duration lease() {
            Object lease = fields.get("lease_ms");
            return lease == null ? null : Duration.ofMillis((Long) lease);
        }

        /**
         * Who was refused it, and may be waiting for it.
         *
         * @return the {@code CLIENT ID} of each that is still connected
         */
        public List<Long> waiting() {
            return Json.list(fields.get("waiting")).stream().map(Long.class::cast)
                    .collect(Collectors.toUnmodifiableList());
        }

        /** The JSON's fields, for people. */
        @Override
        public String toString() {
            return fields.toString();
        }
    }

    /** A mistake that was made with a lock. */
    public static final class Finding {
        private final Map<String, Object> fields;

        private Finding(Map<String, Object> fields) {
            this.fields = fields;
        }

        /**
         * Which.
         *
         * @return {@code lock-without-lease}, {@code lease-in-a-second-step},
         *     {@code delete-without-check}, {@code compare-and-delete-in-two-steps},
         *     {@code lease-shorter-than-hold} or {@code renewal-after-loss}
         */
        public String rule() {
            return (String) fields.get("rule");
        }

        /**
         * The lock's key.
         *
         * @return the name
         */
        public String key() {
            return (String) fields.get("key");
        }

        /** What is wrong and what is right, in a sentence. */
        @Override
        public String toString() {
            return (String) fields.get("sentence");
        }
    }

    /**
     * What has happened.
     *
     * @return all that is remembered, in time order
     */
    public List<Entry> entries() {
        return all(Entry::new, "JOURNAL");
    }

    /**
     * What has happened to some keys.
     *
     * @param pattern which, such as {@code lock:*}
     * @return all that is remembered, in time order
     */
    public List<Entry> entries(String pattern) {
        return all(Entry::new, "JOURNAL", "KEY", pattern);
    }

    /**
     * The last of what has happened, as people read it.
     *
     * @param count no more than so many entries
     * @return they, in time order, a line for each
     */
    public String story(int count) {
        return (String) server.control("JOURNAL", "COUNT", Integer.toString(count), "TEXT");
    }

    /**
     * The locks that are held.
     *
     * @return they
     */
    public List<Lock> locks() {
        return all(Lock::new, "LOCKS");
    }

    /**
     * The usual mistakes that were made with locks.
     *
     * @return one for each kind and lock
     */
    public List<Finding> lint() {
        return all(Finding::new, "LINT");
    }

    /** Forgets what has happened. Held locks stay known. */
    public void clear() {
        server.control("JOURNAL", "CLEAR");
    }

    /** Asserts that nobody holds a lock any more. */
    public void assertNoLockHeld() {
        check(Check.NO_LOCK_HELD);
    }

    /** Asserts that nobody took a lock that another came back for. */
    public void assertNeverTwoHolders() {
        check(Check.NEVER_TWO_HOLDERS);
    }

    /** Asserts that no lock stays if its owner dies. */
    public void assertEveryLockHasALease() {
        check(Check.EVERY_LOCK_HAS_A_LEASE);
    }

    /** Asserts that no lock was taken away from its owner. */
    public void assertReleasedOnlyByOwner() {
        check(Check.RELEASED_ONLY_BY_OWNER);
    }

    /**
     * Asserts one of these.
     *
     * @param check which
     */
    public void check(Check check) {
        String verdict = (String) server.control("CHECK", check.word(), "STORY");
        Map<String, Object> told = Json.object(Json.parse(verdict));
        if (!(Boolean) told.get("holds")) {
            throw new AssertionError(told.get("text"));
        }
    }

    private <T> List<T> all(Function<Map<String, Object>, T> type, String... command) {
        return objects(Json.parse((String) server.control(command)), type);
    }

    private static <T> List<T> objects(Object list, Function<Map<String, Object>, T> type) {
        return Json.list(list).stream().map(Json::object).map(type)
                .collect(Collectors.toUnmodifiableList());
    }

    private static List<String> strings(Object list) {
        return Json.list(list).stream().map(String.class::cast)
                .collect(Collectors.toUnmodifiableList());
    }
}
