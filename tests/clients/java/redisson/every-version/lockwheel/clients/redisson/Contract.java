package lockwheel.clients.redisson;

import java.util.UUID;
import lockwheel.clients.Library;
import org.redisson.Redisson;

/**
 * What the contracts share. They are written once for all versions of Redisson, whose packages
 * changed names: so they say `var` where they could say RLock, and each module brings its own
 * class Clients.
 */
@Library(name = "Redisson", type = Redisson.class)
interface Contract {
    /** The clients of the configuration under test. */
    Clients clients();

    /** A name that no other test uses: tests run in parallel and do not flush the server. */
    static String fresh(String what) {
        return what + "-" + UUID.randomUUID();
    }
}
