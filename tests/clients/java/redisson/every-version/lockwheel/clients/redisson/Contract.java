// The base of the contracts, which are written once for all versions of Redisson.

package lockwheel.clients.redisson;

import java.util.UUID;
import lockwheel.clients.Library;
import org.redisson.Redisson;

/**
 * The base of the contracts. They are written once for all versions of Redisson. Its packages have
 * changed names, so the contracts use `var` in place of types like RLock, and each module has its
 * own class Clients.
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
