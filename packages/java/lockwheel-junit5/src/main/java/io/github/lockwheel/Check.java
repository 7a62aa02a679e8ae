// The checks of the journal.

package io.github.lockwheel;

import java.util.Locale;

/** A check of all locks of a server. */
public enum Check {
    /** No client holds a lock. */
    NO_LOCK_HELD,
    /** No lock was taken while a former holder still used it. */
    NEVER_TWO_HOLDERS,
    /** Every lock has a lease. */
    EVERY_LOCK_HAS_A_LEASE,
    /** No client released the lock of another. */
    RELEASED_ONLY_BY_OWNER,
    /** No client was refused a lock that holds its own token. */
    REFUSED_BY_OWN_TOKEN,
    /** Every client that was refused a lock has acquired it since. */
    NO_WAITER_LOST,
    /** No lease expired. */
    RENEWED_BEFORE_EXPIRY;

    /** The name on the server. */
    String word() {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
