package io.github.lockwheel;

import java.util.List;
import java.util.stream.Collectors;

/**
 * Where clients are held before a request, so that a test can write down what comes between two
 * steps of theirs.
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
     * Waits until somebody is held here.
     *
     * @return the {@code CLIENT ID} of who is
     * @throws LockwheelException if nobody comes within a minute, too: nobody will
     */
    public long await() {
        return (Long) server.await("GATE", "AWAIT", number);
    }

    /**
     * Who is held here now.
     *
     * @return the {@code CLIENT ID} of each
     */
    public List<Long> held() {
        var gate = server.faults().told("GATE", Long.parseLong(number));
        return Json.list(gate.get("held")).stream().map(Long.class::cast)
                .collect(Collectors.toUnmodifiableList());
    }

    /**
     * Lets everybody go, and is no more.
     *
     * @return how many were held
     */
    public long open() {
        return (Long) server.control("GATE", "OPEN", number);
    }
}
