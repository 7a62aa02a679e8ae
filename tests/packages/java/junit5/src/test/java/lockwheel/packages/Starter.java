// A program that starts a server, prints its address, and runs until its input ends.

package lockwheel.packages;

import io.github.lockwheel.LockwheelException;
import io.github.lockwheel.LockwheelServer;
import java.io.IOException;

public final class Starter {
    private Starter() {}

    /** Prints the port and the program, or the error. */
    public static void main(String[] arguments) throws IOException {
        try {
            var server = LockwheelServer.start();
            var process = ProcessHandle.of(server.pid()).orElseThrow();
            System.out.println(server.port() + " " + process.info().command().orElseThrow());
        } catch (LockwheelException error) {
            System.out.println(error.getMessage());
        }
        System.in.read();
    }
}
