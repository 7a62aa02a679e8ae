// Public API: the error of a failed check.

package io.github.lockwheel;

/**
 * A check failed. The message names what broke the rule, and contains the entries of the lock.
 */
public final class CheckError extends AssertionError {
    private static final long serialVersionUID = 1;

    private final transient LockwheelServer server;

    CheckError(String message, LockwheelServer server) {
        super(message);
        this.server = server;
    }

    /**
     * The server whose journal was checked.
     *
     * @return the server; null if the error was serialised
     */
    public LockwheelServer server() {
        return server;
    }
}
