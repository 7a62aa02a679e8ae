// Public API: the clock of a server.

package io.github.lockwheel;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * The clock of a server, in milliseconds. Leases and the timeouts of blocking commands follow it.
 * It runs in real time until a test changes it.
 *
 * <p>All methods throw {@link LockwheelException} if the server refuses or has ended, and
 * {@link IllegalArgumentException} for a span that is not one of whole milliseconds.
 */
public final class Clock {
    private final LockwheelServer server;

    Clock(LockwheelServer server) {
        this.server = server;
    }

    /** Stops the clock. */
    public void freeze() {
        server.control("CLOCK", "FREEZE");
    }

    /** Runs the clock in real time. */
    public void run() {
        server.control("CLOCK", "RUN");
    }

    /**
     * Runs the clock at a multiple of real time.
     *
     * @param rate the factor
     */
    public void run(double rate) {
        server.control("CLOCK", "RUN", Double.toString(rate));
    }

    /**
     * Moves the clock forward. Everything due on the way has happened when this returns, in order,
     * at its own time.
     *
     * @param span the distance
     */
    public void advance(Duration span) {
        server.control("CLOCK", "ADVANCE", milliseconds(span));
    }

    /**
     * Moves the clock forward to a moment, as {@link #advance} does.
     *
     * @param moment the moment, to the millisecond
     * @throws LockwheelException if it is in the past, since the clock never goes back
     */
    public void set(Instant moment) {
        server.control("CLOCK", "SET", Long.toString(moment.toEpochMilli()));
    }

    /**
     * Simulates a step of Redis's clock: forward ends leases early, back prolongs them.
     *
     * @param span the distance; a negative one steps the clock back
     */
    public void jump(Duration span) {
        server.control("CLOCK", "JUMP", milliseconds(span));
    }

    /**
     * Steps only the wall clock, that of {@code TIME} and {@code EXPIREAT}. Leases do not change.
     *
     * @param span the distance; a negative one steps the clock back
     */
    public void step(Duration span) {
        server.control("CLOCK", "STEP", milliseconds(span));
    }

    /**
     * The time that leases run on.
     *
     * @return the moment, to the millisecond
     */
    public Instant now() {
        return Instant.ofEpochMilli((Long) shown().get("now_ms"));
    }

    /**
     * The time of the wall clock.
     *
     * @return the moment, to the millisecond
     */
    public Instant wall() {
        return Instant.ofEpochMilli((Long) shown().get("wall_ms"));
    }

    /**
     * The rate of the clock.
     *
     * @return the multiple of real time; 0 if the clock is stopped
     */
    public double rate() {
        return ((Number) shown().get("rate")).doubleValue();
    }

    private Map<String, Object> shown() {
        return Json.object(Json.parse((String) server.control("CLOCK")));
    }

    /** The span in the syntax of the server. */
    static String milliseconds(Duration span) {
        if (span.getNano() % 1_000_000 != 0) {
            throw new IllegalArgumentException("not a whole number of milliseconds: " + span);
        }
        return span.toMillis() + "ms";
    }
}
