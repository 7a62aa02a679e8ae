// The servers from environment variables, and the tests that own the disposable ones.

package lockwheel.clients;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.net.URI;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

public final class Servers {
    private Servers() {}

    /** The main server, shared by all tests at once: never flushed, never shut down. */
    public static URI main() {
        return URI.create(variable("REDIS_URL"));
    }

    /** The main server's port for TLS; without it, its tests are skipped. */
    public static URI tls() {
        return URI.create(optional("REDIS_TLS_URL"));
    }

    /** The file with the certificate of the authority of {@link #tls}. */
    public static Path tlsAuthority() {
        return Path.of(variable("REDIS_TLS_CA"));
    }

    /** A node that owns all slots; without it, its tests are skipped. */
    public static URI cluster() {
        return URI.create(optional("REDIS_CLUSTER_URL"));
    }

    /** A sentinel that watches a master named `mymaster`; without it, its tests are skipped. */
    public static URI sentinel() {
        return URI.create(optional("REDIS_SENTINEL_URL"));
    }

    /**
     * The tests that kill servers of REDIS_SERVERS. No other test can use a killed server, so
     * every such test has its own; servers that are never killed are shared.
     */
    public enum Slice {
        /** Never killed: a quorum may count these two, which other tests use too. */
        SURVIVORS(0, 2),
        /** Killed by the test of a lock over three servers, a slice for each version. */
        REDISSON_4_OF_THREE(2, 2),
        /** Killed by the test of a lock over five servers. */
        REDISSON_4_OF_FIVE(4, 3),
        REDISSON_3_15(7, 2),
        REDISSON_3_13(9, 2),
        REDISSON_2_2(11, 2),
        /** A test flushes its scripts, which could break other tests between two steps. */
        SCRIPT_FLUSH(13, 1);

        private final int first;
        private final int count;

        Slice(int first, int count) {
            this.first = first;
            this.count = count;
        }

        public List<URI> servers() {
            return Stream.of(variable("REDIS_SERVERS").split(","))
                    .skip(first)
                    .limit(count)
                    .map(address -> URI.create(address.strip()))
                    .toList();
        }
    }

    private static String optional(String name) {
        assumeTrue(System.getenv(name) != null, name + " is not set");
        return variable(name);
    }

    private static String variable(String name) {
        var value = System.getenv(name);
        if (value == null || value.isBlank()) {
            throw new IllegalStateException(name + " is not set: the suite starts no servers");
        }
        return value;
    }
}
