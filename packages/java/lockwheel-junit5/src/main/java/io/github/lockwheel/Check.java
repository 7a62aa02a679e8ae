package io.github.lockwheel;

import java.util.Locale;

/** What must hold of all locks of a server. */
public enum Check {
    /** Nobody holds a lock any more. */
    NO_LOCK_HELD,
    /** Nobody took a lock that another came back for. */
    NEVER_TWO_HOLDERS,
    /** No lock stays if its owner dies. */
    EVERY_LOCK_HAS_A_LEASE,
    /** No lock was taken away from its owner. */
    RELEASED_ONLY_BY_OWNER;

    /** As the server calls it. */
    String word() {
        return name().toLowerCase(Locale.ROOT).replace('_', '-');
    }
}
