// Public API: the base class of the exceptions of locks.

package io.github.lockwheel.locks;

/** An error of a lock. The exceptions of Lettuce and Jedis are passed on as they are. */
public class LockException extends RuntimeException {
    private static final long serialVersionUID = 1;

    LockException(String message) {
        super(message);
    }

    LockException(String message, Throwable cause) {
        super(message, cause);
    }
}
