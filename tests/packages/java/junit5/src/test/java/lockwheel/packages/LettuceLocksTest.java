// Tests lock objects over Lettuce.

package lockwheel.packages;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.lockwheel.LockwheelServer;
import io.github.lockwheel.locks.LettuceLocks;
import io.github.lockwheel.locks.Locks;
import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TimeoutOptions;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.resource.ClientResources;
import io.lettuce.core.resource.EpollProvider;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

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

    @Test
    void aLockIsHeldOverAUnixSocket(@TempDir Path folder) throws Exception {
        Assumptions.assumeTrue(EpollProvider.isAvailable(), "the library is for Linux on x86_64");
        var socket = folder.resolve("socket").toString();
        String port;
        try (var free = new ServerSocket(0)) {
            port = Integer.toString(free.getLocalPort());
        }
        // Without a number of a port a server with a socket listens on no port.
        var builder = LockwheelServer.builder().options("--port", port, "--unixsocket", socket);
        try (var server = builder.start()) {
            var locks = locks(RedisURI.Builder.socket(socket), ClientOptions.builder());
            var lock = locks.lock("lock", TTL).bound(Duration.ofMinutes(1))
                    .renewEvery(Duration.ofMillis(1)).build().acquire();
            var client = client(server);
            server.call("CLIENT", "KILL", "ID", client);
            Later.eventually("it connects again", () ->
                    !List.of(client, "0").contains(client(server)));
            assertTrue(server.call("LOCK.INFO", "lock").toString().contains(lock.owner()));
            assertTrue(lock.release());
        }
    }

    /** The connection of the only owner of the lock. */
    private static String client(LockwheelServer server) {
        var info = server.call("LOCK.INFO", "lock").toString();
        return info.replaceAll(".*client, (\\d+),.*", "$1");
    }

    /** Holds a lock of the server with this port. */
    public static void main(String[] arguments) throws Exception {
        hold(new LettuceLocksTest().locks(Integer.parseInt(arguments[0]), "holder"));
    }
}
