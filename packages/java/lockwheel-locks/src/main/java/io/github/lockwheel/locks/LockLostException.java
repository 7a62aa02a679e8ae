// Public API: an exception of locks.

package io.github.lockwheel.locks;

/** The lock was lost before it was released: another owner may have held it since. */
public final class LockLostException extends LockException {
    private static final long serialVersionUID = 1;

    LockLostException(String message) {
        super(message);
    }
}
