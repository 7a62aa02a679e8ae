// Public API: the locks of a server.

package io.github.lockwheel.locks;

import java.time.Duration;

/** The locks of a server: {@link LettuceLocks} or {@link JedisLocks}. */
public abstract class Locks {
    Locks() {}

    /**
     * A lock, which is not held yet.
     *
     * @param key its key
     * @param ttl the lease, which is renewed while the lock is held; all spans are whole
     *     milliseconds
     * @return its options
     */
    public final NativeLock.Builder lock(String key, Duration ttl) {
        return new NativeLock.Builder(wire(), key, ttl);
    }

    /** A connection for a lock of its own: pools close connections that a lock is bound to. */
    abstract Wire<?> wire();
}
