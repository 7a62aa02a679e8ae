// Public API: an exception of locks.

package io.github.lockwheel.locks;

/** The server does not know {@code LOCK.*}. */
public final class NoNativeLocksException extends LockException {
    private static final long serialVersionUID = 1;

    NoNativeLocksException(String message) {
        super(message);
    }
}
