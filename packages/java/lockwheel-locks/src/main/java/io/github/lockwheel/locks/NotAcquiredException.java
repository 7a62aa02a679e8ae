// Public API: an exception of locks.

package io.github.lockwheel.locks;

/** Another owner holds the lock, or the time to wait is over. */
public final class NotAcquiredException extends LockException {
    private static final long serialVersionUID = 1;

    NotAcquiredException(String message) {
        super(message);
    }
}
