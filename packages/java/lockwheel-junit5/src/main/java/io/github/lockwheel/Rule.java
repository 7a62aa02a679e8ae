// Public API: a fault rule that was added to a server.

package io.github.lockwheel;

import java.util.Objects;

/**
 * A fault rule on a server.
 *
 * <p>All methods but {@link #number} throw {@link LockwheelException} if it has been cleared.
 */
public final class Rule {
    private final LockwheelServer server;
    private final long number;

    Rule(LockwheelServer server, long number) {
        this.server = server;
        this.number = number;
    }

    /**
     * The number of the rule.
     *
     * @return the number that {@code LOCKWHEEL FAULT LIST} shows
     */
    public long number() {
        return number;
    }

    /**
     * The action, the conditions and the counts of the rule.
     *
     * @return the state as the server lists it
     */
    public RuleState state() {
        return server.faults().listed("FAULT", number);
    }

    /**
     * The action of the rule.
     *
     * @return the action, such as {@code lose-and-close}
     */
    public String action() {
        return state().action();
    }

    /**
     * The number of requests that matched the conditions on the request.
     *
     * @return the number
     */
    public long matched() {
        return state().matched();
    }

    /**
     * The number of requests that the rule was applied to.
     *
     * @return the number
     */
    public long fired() {
        return state().fired();
    }

    /** Removes the rule. */
    public void clear() {
        server.control("FAULT", "CLEAR", Long.toString(number));
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Rule && ((Rule) other).server == server
                && ((Rule) other).number == number;
    }

    @Override
    public int hashCode() {
        return Objects.hash(System.identityHashCode(server), number);
    }
}
