package io.github.lockwheel;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;

/**
 * The clock of a server, in milliseconds, which drives everything that happens there by itself. It
 * is real time until it is told otherwise.
 *
 * <p>All methods throw {@link LockwheelException} if the server refuses or has ended, and
 * {@link IllegalArgumentException} for a span that is not one of whole milliseconds.
 */
public final class Clock {
    private final LockwheelServer server;

    Clock(LockwheelServer server) {
        this.server = server;
    }

    /** Stops it. */
    public void freeze() {
        server.control("CLOCK", "FREEZE");
    }

    /** Lets it run, as fast as real time. */
    public void run() {
        server.control("CLOCK", "RUN");
    }

    /**
     * Lets it run faster or slower.
     *
     * @param rate so many times as fast as real time
     */
    public void run(double rate) {
        server.control("CLOCK", "RUN", Double.toString(rate));
    }

    /**
     * Moves it on. What is due on the way has happened when this returns, in order, each thing at
     * its own moment.
     *
     * @param span how far
     */
    public void advance(Duration span) {
        server.control("CLOCK", "ADVANCE", milliseconds(span));
    }

    /**
     * Moves it on to a moment, as {@link #advance} does. It never goes back.
     *
     * @param moment when, to the millisecond
     */
    public void set(Instant moment) {
        server.control("CLOCK", "SET", Long.toString(moment.toEpochMilli()));
    }

    /**
     * Steps it as Redis's clock may be stepped: forward ends leases early, back prolongs them.
     *
     * @param span how far; a negative one steps it back
     */
    public void jump(Duration span) {
        server.control("CLOCK", "JUMP", milliseconds(span));
    }

    /**
     * Steps the wall clock alone, that of {@code TIME} and {@code EXPIREAT}. No lease follows.
     *
     * @param span how far; a negative one steps it back
     */
    public void step(Duration span) {
        server.control("CLOCK", "STEP", milliseconds(span));
    }

    /**
     * What it shows: the time that leases run on.
     *
     * @return the moment, to the millisecond
     */
    public Instant now() {
        return Instant.ofEpochMilli((Long) shown().get("now_ms"));
    }

    /**
     * What the wall clock shows.
     *
     * @return the moment, to the millisecond
     */
    public Instant wall() {
        return Instant.ofEpochMilli((Long) shown().get("wall_ms"));
    }

    /**
     * How fast it runs.
     *
     * @return so many times as fast as real time; 0 if it stands
     */
    public double rate() {
        return ((Number) shown().get("rate")).doubleValue();
    }

    private Map<String, Object> shown() {
        return Json.object(Json.parse((String) server.control("CLOCK")));
    }

    static String milliseconds(Duration span) {
        if (span.getNano() % 1_000_000 != 0) {
            throw new IllegalArgumentException("not whole milliseconds: " + span);
        }
        return Long.toString(span.toMillis());
    }
}
