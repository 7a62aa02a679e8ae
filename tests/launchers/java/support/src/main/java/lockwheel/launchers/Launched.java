// The interface of a server that a Java launcher has not started yet.

package lockwheel.launchers;

public interface Launched {
    void start() throws Exception;

    void stop() throws Exception;

    boolean isActive();

    /** The launcher's own object, in which its process is found. */
    Object itself();
}
