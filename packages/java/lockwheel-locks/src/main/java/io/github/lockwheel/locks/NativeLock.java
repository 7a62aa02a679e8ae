// Public API: a native lock.

package io.github.lockwheel.locks;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;

/**
 * A lock of one owner. A {@code try} statement releases it. A thread renews it while it is held.
 * Its methods may be called from any thread.
 *
 * <p>It uses a connection of its own while it waits and while it is held. Exceptions of Lettuce and
 * Jedis are passed on.
 */
public final class NativeLock implements AutoCloseable {
    /** The limit for a reply, in addition to the time that the lock waits. */
    private static final long LIMIT_MS = 10_000;
    /** The longest pause before a failed renewal is tried again. */
    private static final long PAUSE_MAX_MS = 100;
    /** The least limit for a renewal, unless the lease is too short for it. */
    private static final long RENEWAL_LIMIT_MIN_MS = 1_000;
    /** A lock that is bound with a shorter grace is not renewed more often. */
    private static final long GRACE_MIN_MS = 300;

    private final Wire<?> wire;
    private final String key;
    private final String owner;
    private final Consumer<? super NativeLock> onLost;
    private final long waitMs;
    private final long periodMs;
    private final long renewalLimitMs;
    /** How long the server holds the lock after a request; see {@link #trust}. */
    private final long trustMs;
    private final List<String> acquisition;
    private final String ttl;
    private final boolean hasOwnerOfItsOwn;

    private final ReentrantLock mutex = new ReentrantLock();
    private final Condition ended = mutex.newCondition();
    private volatile boolean held;
    private volatile long token;
    private boolean lost;
    private volatile long trustedUntilNs;
    private String denial;
    /** Renews the present grant; null if none does. */
    private Thread keeper;

    private NativeLock(Builder options) {
        wire = options.wire;
        key = options.key;
        hasOwnerOfItsOwn = options.owner == null;
        owner = hasOwnerOfItsOwn ? newOwner() : options.owner;
        onLost = options.onLost;
        waitMs = options.wait.toMillis();
        long ttlMs = options.ttl.toMillis();
        ttl = Long.toString(ttlMs);
        long graceMs = options.grace == null ? ttlMs : options.grace.toMillis();
        trustMs = Math.min(ttlMs, graceMs);
        renewalLimitMs = Math.min(LIMIT_MS, Math.max(
                trustMs / 3, Math.min(ttlMs / 3, RENEWAL_LIMIT_MIN_MS)));
        periodMs = options.period == null
                ? Math.max(1, Math.min(ttlMs, Math.max(graceMs, GRACE_MIN_MS)) / 3)
                : options.period.toMillis();
        var words = new ArrayList<>(List.of(
                "LOCK.ACQUIRE", key, owner, "TTL", ttl, "WAIT", Long.toString(waitMs)));
        words.addAll(options.mode);
        if (options.grace != null) {
            words.addAll(List.of("BOUND", "GRACE", Long.toString(graceMs)));
        }
        if (options.meta != null) {
            words.addAll(List.of("META", options.meta));
        }
        acquisition = List.copyOf(words);
    }

    private static String newOwner() {
        String host;
        try {
            host = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            host = "localhost";
        }
        return host + ":" + ProcessHandle.current().pid() + ":" + UUID.randomUUID();
    }

    /**
     * The owner in the commands.
     *
     * @return the owner
     */
    public String owner() {
        return owner;
    }

    /**
     * The fencing token of the last grant: later grants have greater ones.
     *
     * @return the token; 0 before the first grant
     */
    public long token() {
        return token;
    }

    /**
     * Whether this object holds the lock, as far as it knows. It does not any more when the last
     * lease that the server has confirmed, or the grace of a bound lock unless it is 0, is over but
     * for a twentieth by the clock of this process.
     *
     * @return whether it does
     */
    public boolean isHeld() {
        return held && !isOver();
    }

    private boolean isOver() {
        return trustMs > 0 && System.nanoTime() - trustedUntilNs >= 0;
    }

    /**
     * Acquires the lock as {@link #tryAcquire} does, for a {@code try} statement.
     *
     * @return this lock
     * @throws NotAcquiredException if another owner holds the lock
     * @throws InterruptedException if the thread is interrupted while it waits
     */
    public NativeLock acquire() throws InterruptedException {
        mutex.lockInterruptibly();
        try {
            if (!tryAcquire()) {
                throw new NotAcquiredException(denial);
            }
            return this;
        } finally {
            mutex.unlock();
        }
    }

    /**
     * Acquires the lock; may wait for it.
     *
     * <p>If the connection fails, the server may have granted the lock: then acquiring it again
     * succeeds at once, and otherwise it is free when its lease ends.
     *
     * @return whether the lock is held
     * @throws InterruptedException if the thread is interrupted while it waits; the server forgets
     *     this client then
     */
    public boolean tryAcquire() throws InterruptedException {
        mutex.lockInterruptibly();
        try {
            if (held && isOver()) {
                end(true);
            }
            if (held) {
                throw new LockException("this object holds the lock '" + key + "' already");
            }
            if (isAcquired()) {
                held = true;
                lost = false;
                if (periodMs > 0) {
                    keeper = new Thread(this::keep, "lockwheel-lock");
                    keeper.setDaemon(true);
                    keeper.start();
                }
            }
            return held;
        } finally {
            if (!held) {
                wire.close();
            }
            mutex.unlock();
        }
    }

    private boolean isAcquired() throws InterruptedException {
        long begunNs = System.nanoTime();
        if (!isGranted(wire.callInterruptibly(waitMs + LIMIT_MS, acquisition))) {
            return false;
        }
        trust(begunNs);
        long elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - begunNs);
        denial = "the lock '" + key + "' was acquired, and lost at once";
        // It is not known when in this time the lease began.
        return elapsedMs <= trustMs / 3 || isRenewed();
    }

    /** Reads the reply to {@code LOCK.ACQUIRE}. */
    private boolean isGranted(List<Object> reply) {
        Map<Object, Object> fields = new HashMap<>();
        for (int index = 0; index + 1 < reply.size(); index += 2) {
            fields.put(reply.get(index), reply.get(index + 1));
        }
        if (!(fields.get("token") instanceof Long)) {
            denial = "the lock '" + key + "' was not acquired (" + fields.get("status")
                    + "): owners " + fields.get("holders") + ", lease " + fields.get("ttl")
                    + " ms, queue " + fields.get("queue");
            return false;
        }
        token = (Long) fields.get("token");
        return true;
    }

    /** The server has granted a request of this time. Its clock may be faster by a twentieth. */
    private void trust(long sinceNs) {
        trustedUntilNs = sinceNs + TimeUnit.MILLISECONDS.toNanos(trustMs) / 20 * 19;
    }

    /**
     * Renews the lease now. After an exception the lock is still held.
     *
     * @return whether it is still held
     */
    public boolean renew() {
        mutex.lock();
        try {
            if (!held || isRenewed()) {
                return held;
            }
        } finally {
            mutex.unlock();
        }
        onLost.accept(this); // Without the mutex, since it may wait for another thread.
        return false;
    }

    private boolean isRenewed() {
        long begunNs = System.nanoTime();
        boolean renewed = false;
        try {
            renewed = List.of(1L).equals(wire.callAgain(renewalLimitMs,
                    List.of("LOCK.RENEW", key, owner, "TTL", ttl, "TOKEN", Long.toString(token))));
        } catch (RuntimeException error) {
            if (System.nanoTime() - trustedUntilNs < 0) {
                throw error;
            }
        }
        if (renewed) {
            trust(begunNs);
        } else {
            end(true);
        }
        return renewed;
    }

    /** The end of a grant. */
    private void end(boolean isLost) {
        held = false;
        lost = isLost;
        keeper = null;
        ended.signalAll();
        wire.close();
    }

    /** Renews the lease until it is released or lost. */
    private void keep() {
        long pauseMs = periodMs;
        boolean kept = true;
        while (kept) {
            mutex.lock();
            try {
                ended.await(pauseMs, TimeUnit.MILLISECONDS);
                if (keeper != Thread.currentThread()) {
                    return;
                }
                kept = isRenewed();
                pauseMs = periodMs;
            } catch (InterruptedException | RuntimeException error) {
                pauseMs = Math.min(periodMs, PAUSE_MAX_MS);
            } finally {
                mutex.unlock();
            }
        }
        onLost.accept(this);
    }

    /**
     * Releases the lock.
     *
     * @return whether it was held until now
     */
    public boolean release() {
        mutex.lock();
        try {
            if (!held) {
                return false;
            }
            var words = new ArrayList<>(List.of(
                    "LOCK.RELEASE", key, owner, "TOKEN", Long.toString(token)));
            held = false;
            List<Object> reply;
            if (hasOwnerOfItsOwn) {
                // Such an owner holds the lock once, also if the reply to a grant was lost.
                words.add("ALL");
                reply = wire.callAgain(LIMIT_MS, words);
            } else {
                // A release that is sent again may be that of another object with this owner.
                reply = wire.call(LIMIT_MS, words);
            }
            lost = reply.get(0) == null;
            return !lost;
        } finally {
            end(lost);
            mutex.unlock();
        }
    }

    /**
     * Releases the lock if it is held.
     *
     * @throws LockLostException if the lock was lost
     */
    @Override
    public void close() {
        mutex.lock();
        try {
            if (!release() && lost) {
                throw new LockLostException(
                        "the lock '" + key + "' with the token " + token + " was lost");
            }
        } finally {
            mutex.unlock();
        }
    }

    /** The options of a lock. */
    public static final class Builder {
        private final Wire<?> wire;
        private final String key;
        private final Duration ttl;
        private Duration wait = Duration.ZERO;
        private String owner;
        private List<String> mode = List.of();
        private Duration grace;
        private String meta;
        private Duration period;
        private Consumer<? super NativeLock> onLost = lock -> {};

        Builder(Wire<?> wire, String key, Duration ttl) {
            this.wire = wire;
            this.key = key;
            this.ttl = ttl;
        }

        /**
         * How long to wait for the lock, by the server's clock; otherwise it is not waited for.
         *
         * @param wait the span
         * @return this builder
         */
        public Builder waitFor(Duration wait) {
            this.wait = wait;
            return this;
        }

        /**
         * The owner, by default made of the host, the process and a random number. Locks with the
         * same owner may be held at the same time.
         *
         * @param owner the owner
         * @return this builder
         */
        public Builder owner(String owner) {
            this.owner = owner;
            return this;
        }

        /**
         * Other owners may share the lock.
         *
         * @return this builder
         */
        public Builder shared() {
            mode = List.of("SHARED");
            return this;
        }

        /**
         * Makes the lock a semaphore.
         *
         * @param permits so many permits
         * @param of of a semaphore that has so many
         * @return this builder
         */
        public Builder permits(int permits, int of) {
            mode = List.of("PERMITS", Integer.toString(permits), "OF", Integer.toString(of));
            return this;
        }

        /**
         * The server releases the lock when its connection has ended for two seconds. Until then
         * the lock connects again and keeps what it holds.
         *
         * @return this builder
         */
        public Builder bound() {
            return bound(Duration.ofSeconds(2));
        }

        /**
         * The server releases the lock some time after its connection has ended. Until then the
         * lock connects again and keeps what it holds.
         *
         * @param grace the time
         * @return this builder
         */
        public Builder bound(Duration grace) {
            this.grace = grace;
            return this;
        }

        /**
         * A text that {@code LOCK.INFO} shows.
         *
         * @param meta the text
         * @return this builder
         */
        public Builder meta(String meta) {
            this.meta = meta;
            return this;
        }

        /**
         * The time between two renewals, by default a third of the lease, or of the grace if that
         * is shorter.
         *
         * @param period the time; zero turns renewals off
         * @return this builder
         */
        public Builder renewEvery(Duration period) {
            this.period = period;
            return this;
        }

        /**
         * What to do when a renewal finds that the lock is lost.
         *
         * @param onLost is called with the lock, by the thread that renews it
         * @return this builder
         */
        public Builder onLost(Consumer<? super NativeLock> onLost) {
            this.onLost = onLost;
            return this;
        }

        /**
         * Makes the lock, which is not held yet.
         *
         * @return the lock
         */
        public NativeLock build() {
            return new NativeLock(this);
        }
    }
}
