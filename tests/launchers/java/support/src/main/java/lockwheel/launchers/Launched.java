package lockwheel.launchers;

/** A server as a launcher of Java's sees it: not started yet. */
public interface Launched {
    void start() throws Exception;

    void stop() throws Exception;

    boolean isActive();

    /** The launcher's own object, in which its process is found. */
    Object itself();
}
