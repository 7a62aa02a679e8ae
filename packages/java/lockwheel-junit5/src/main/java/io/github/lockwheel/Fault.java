// Public API: the effects of fault rules.

package io.github.lockwheel;

import java.time.Duration;
import java.util.List;

/** The effect of a fault rule on a request. */
public final class Fault {
    private final List<String> words;

    private Fault(String... words) {
        this.words = List.of(words);
    }

    /**
     * Holds the request for a span on the server's clock, then runs it.
     *
     * @param span the span
     * @return the fault
     */
    public static Fault delay(Duration span) {
        return new Fault("DELAY", Clock.milliseconds(span));
    }

    /**
     * Does not run the request and sends no reply.
     *
     * @return the fault
     */
    public static Fault drop() {
        return new Fault("DROP");
    }

    /**
     * Does not run the request and closes its connection.
     *
     * @return the fault
     */
    public static Fault close() {
        return new Fault("CLOSE");
    }

    /**
     * Runs the request and sends no reply.
     *
     * @return the fault
     */
    public static Fault lose() {
        return new Fault("LOSE");
    }

    /**
     * Runs the request and closes its connection without a reply.
     *
     * @return the fault
     */
    public static Fault loseAndClose() {
        return new Fault("LOSE-AND-CLOSE");
    }

    /**
     * Runs the request, sends a part of the reply and closes the connection.
     *
     * @param bytes the length of that part
     * @return the fault
     */
    public static Fault cut(int bytes) {
        return new Fault("CUT", Integer.toString(bytes));
    }

    /**
     * Stops reading from the connection until the rule is cleared.
     *
     * @return the fault
     */
    public static Fault stall() {
        return new Fault("STALL");
    }

    /**
     * Does not run the request and replies with an error.
     *
     * @param line the error, such as {@code LOADING Redis is loading the dataset in memory}
     * @return the fault
     */
    public static Fault error(String line) {
        return new Fault("ERROR", line);
    }

    /**
     * Removes all scripts, then runs the request.
     *
     * @return the fault
     */
    public static Fault flushScripts() {
        return new Fault("FLUSH-SCRIPTS");
    }

    /**
     * Runs the request, then lets the clock jump: see {@link Clock#jump}.
     *
     * @param span the distance; a negative one jumps back
     * @return the fault
     */
    public static Fault jump(Duration span) {
        return new Fault("JUMP", Clock.milliseconds(span));
    }

    /**
     * Sends the reply, then undoes the last writes.
     *
     * @param count the number of writes
     * @return the fault
     */
    public static Fault loseWrites(int count) {
        return new Fault("LOSE-WRITES", Integer.toString(count));
    }

    /**
     * Closes new connections at once.
     *
     * @return the fault
     */
    public static Fault refuse() {
        return new Fault("REFUSE");
    }

    List<String> words() {
        return words;
    }
}
