package io.github.lockwheel;

import java.time.Duration;
import java.util.List;

/** What goes wrong with a request. */
public final class Fault {
    private final List<String> words;

    private Fault(String... words) {
        this.words = List.of(words);
    }

    /**
     * It is held for so long on the server's clock, and then run.
     *
     * @param span how long
     * @return the fault
     */
    public static Fault delay(Duration span) {
        return new Fault("DELAY", Clock.milliseconds(span));
    }

    /**
     * It is neither run nor answered.
     *
     * @return the fault
     */
    public static Fault drop() {
        return new Fault("DROP");
    }

    /**
     * It is not run, and its connection is closed.
     *
     * @return the fault
     */
    public static Fault close() {
        return new Fault("CLOSE");
    }

    /**
     * It is run and not answered: the client cannot know.
     *
     * @return the fault
     */
    public static Fault lose() {
        return new Fault("LOSE");
    }

    /**
     * It is run, and its connection is closed instead of an answer.
     *
     * @return the fault
     */
    public static Fault loseAndClose() {
        return new Fault("LOSE-AND-CLOSE");
    }

    /**
     * It is run, and after so many bytes of the answer the connection is closed.
     *
     * @param bytes how many come
     * @return the fault
     */
    public static Fault cut(int bytes) {
        return new Fault("CUT", Integer.toString(bytes));
    }

    /**
     * The server reads no further until the rule is cleared.
     *
     * @return the fault
     */
    public static Fault stall() {
        return new Fault("STALL");
    }

    /**
     * It is not run, and answered with an error.
     *
     * @param line the error, such as {@code LOADING Redis is loading the dataset in memory}
     * @return the fault
     */
    public static Fault error(String line) {
        return new Fault("ERROR", line);
    }

    /**
     * Scripts are forgotten when it comes.
     *
     * @return the fault
     */
    public static Fault flushScripts() {
        return new Fault("FLUSH-SCRIPTS");
    }

    /**
     * The clock jumps when it has been run: see {@link Clock#jump}.
     *
     * @param span how far; a negative one jumps back
     * @return the fault
     */
    public static Fault jump(Duration span) {
        return new Fault("JUMP", Clock.milliseconds(span));
    }

    /**
     * When it has been answered, the last writes are undone.
     *
     * @param count how many
     * @return the fault
     */
    public static Fault loseWrites(int count) {
        return new Fault("LOSE-WRITES", Integer.toString(count));
    }

    /**
     * Connections are closed as soon as they are there.
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
