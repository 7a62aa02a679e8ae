package io.github.lockwheel;

import java.util.Objects;

/**
 * A fault that was added.
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
     * Its number.
     *
     * @return as {@code LOCKWHEEL FAULT LIST} shows it
     */
    public long number() {
        return number;
    }

    /**
     * What it does.
     *
     * @return such as {@code lose-and-close}
     */
    public String action() {
        return (String) server.faults().told("FAULT", number).get("action");
    }

    /**
     * How many requests it was for, as far as the conditions about the request say.
     *
     * @return so many
     */
    public long matched() {
        return (Long) server.faults().told("FAULT", number).get("matched");
    }

    /**
     * With how many requests something went wrong.
     *
     * @return so many
     */
    public long fired() {
        return (Long) server.faults().told("FAULT", number).get("fired");
    }

    /** Removes it. */
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
