// Public API: a gate, which holds requests.

package io.github.lockwheel;

import java.util.List;

/**
 * A gate, which holds requests before they run, so that a test can act between two steps of a
 * client.
 *
 * <p>All methods throw {@link LockwheelException} if it has been opened.
 */
public final class Gate {
    private final LockwheelServer server;
    private final String number;

    Gate(LockwheelServer server, long number) {
        this.server = server;
        this.number = Long.toString(number);
    }

    /**
     * Waits until the gate holds a client.
     *
     * @return the {@code CLIENT ID} of that client
     * @throws LockwheelException also if the gate holds no client within a minute
     */
    public long await() {
        return (Long) server.await("GATE", "AWAIT", number);
    }

    /**
     * The conditions and the counts of the gate.
     *
     * @return the state as the server lists it
     */
    public RuleState state() {
        return server.faults().listed("GATE", Long.parseLong(number));
    }

    /**
     * The clients that the gate holds now.
     *
     * @return the {@code CLIENT ID} of each
     */
    public List<Long> held() {
        return state().held();
    }

    /**
     * Removes the gate and releases its clients.
     *
     * @return their number
     */
    public long open() {
        return (Long) server.control("GATE", "OPEN", number);
    }
}
