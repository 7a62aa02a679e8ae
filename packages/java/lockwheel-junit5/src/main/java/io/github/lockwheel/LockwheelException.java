// Public API: the exception of this package.

package io.github.lockwheel;

/** A server could not be started or reached, or replied with an error. */
public final class LockwheelException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LockwheelException(String message) {
        super(message);
    }

    LockwheelException(String message, Throwable cause) {
        super(message, cause);
    }
}
