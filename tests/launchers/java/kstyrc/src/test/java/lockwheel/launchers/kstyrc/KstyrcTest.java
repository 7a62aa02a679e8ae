// Runs the contract on the original embedded-redis of kstyrc.

package lockwheel.launchers.kstyrc;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import lockwheel.launchers.OriginalApiContract;
import org.junit.jupiter.api.BeforeEach;

class KstyrcTest extends OriginalApiContract {
    /** It waits for words that Redis has not said since 4.0, and waits for ever. */
    @BeforeEach
    void saysWhatItWaitsFor() throws Exception {
        var version = new ProcessBuilder(program().getPath(), "--version").start();
        var line = new String(version.getInputStream().readAllBytes(), UTF_8);
        assumeTrue(line.contains("lockwheel=") || line.matches("(?s)Redis server v=[23]\\..*"),
                "waits for words that this server does not say");
    }

    @Override
    protected String vendor() {
        return "kstyrc";
    }
}
