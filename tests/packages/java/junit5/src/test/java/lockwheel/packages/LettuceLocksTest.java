// Tests lock objects over Lettuce.

package lockwheel.packages;

import io.github.lockwheel.locks.LettuceLocks;
import io.github.lockwheel.locks.Locks;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import java.time.Duration;
import java.util.List;

class LettuceLocksTest extends LocksContract {
    private static final ClientResources RESOURCES = ClientResources.create();

    private static Locks locks(RedisURI.Builder uri, ClientOptions.Builder options) {
        var client = RedisClient.create(RESOURCES);
        // The limits of the client do not apply to waiting.
        client.setOptions(options.timeoutOptions(
                TimeoutOptions.enabled(Duration.ofMillis(1))).build());
        return new LettuceLocks(client, uri.build());
    }

    private static RedisURI.Builder uri(int port, String name) {
        return RedisURI.builder().withHost("127.0.0.1").withPort(port).withClientName(name);
    }

    @Override
    Locks locks(int port, String name) {
        return locks(uri(port, name), ClientOptions.builder());
    }

    @Override
    Locks locks(int port, String name, String password, int database, int protocol) {
        return locks(
                uri(port, name).withPassword(password.toCharArray()).withDatabase(database),
                ClientOptions.builder().protocolVersion(
                        protocol == 2 ? ProtocolVersion.RESP2 : ProtocolVersion.RESP3));
    }

    @Override
    Class<? extends RuntimeException> replyError() {
        return RedisCommandExecutionException.class;
    }

    @Override
    List<String> otherJars() {
        return List.of("jedis", "commons-pool2");
    }

    /** Holds a lock of the server with this port. */
    public static void main(String[] arguments) throws Exception {
        hold(new LettuceLocksTest().locks(Integer.parseInt(arguments[0]), "holder"));
    }
}
