// Clients of one server: two that its tests share, and others on request.

package lockwheel.clients.redisson;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import lockwheel.clients.Await;
import lockwheel.clients.Redis;
import lockwheel.clients.Servers;
import org.redisson.Config;
import org.redisson.Redisson;
import org.redisson.RedissonClient;
import org.redisson.SingleServerConfig;
import org.redisson.client.codec.StringCodec;
import org.redisson.core.RLock;
import org.redisson.core.RedissonMultiLock;
import org.redisson.core.RedissonRedLock;

final class Clients {
    private static final int ANSWER_TIMEOUT_MS = 20_000;
    private final URI server;
    private final Consumer<SingleServerConfig> configuration;
    private final RedissonClient[] shared = new RedissonClient[2];

    private Clients(URI server, Consumer<SingleServerConfig> configuration) {
        this.server = server;
        this.configuration = configuration;
    }

    /** Clients of the main server. */
    static Clients single() {
        // This version waits for an answer for one second only, which a busy machine may take.
        return new Clients(Servers.main(), config -> config.setTimeout(ANSWER_TIMEOUT_MS));
    }

    /** Clients that soon notice when their server is dead. */
    static Clients impatient(URI server) {
        return new Clients(server, config -> config.setRetryAttempts(1));
    }

    /** One of the shared clients: workers of even and of odd numbers come from different ones. */
    synchronized RedissonClient any(int worker) {
        var index = worker % shared.length;
        if (shared[index] == null) {
            shared[index] = open();
        }
        return shared[index];
    }

    /** A client of the caller's own, to be shut down by it. */
    RedissonClient open() {
        var config = new Config();
        config.setThreads(4);
        // The codec this version would choose reflects on classes that Java has closed since.
        config.setCodec(StringCodec.INSTANCE);
        configuration.accept(config.useSingleServer()
                .setAddress(server.getHost() + ":" + server.getPort()));
        return Redisson.create(config);
    }

    /** A lock of several locks of one server. */
    RedissonMultiLock multiLock(int worker, List<String> names) {
        return new RedissonMultiLock(names.stream()
                .map(name -> any(worker).getLock(name))
                .toArray(RLock[]::new));
    }

    /** A lock of the locks of one name on several servers: held with all of them. */
    static RedissonMultiLock multiLock(List<Clients> servers, int worker, String name) {
        return new RedissonMultiLock(locks(servers, worker, name));
    }

    /** A lock of the locks of one name on several servers: held with most of them. */
    static RedissonRedLock redLock(List<Clients> servers, int worker, String name) {
        return new RedissonRedLock(locks(servers, worker, name));
    }

    private static RLock[] locks(List<Clients> servers, int worker, String name) {
        return servers.stream()
                .map(client -> client.any(worker).getLock(name))
                .toArray(RLock[]::new);
    }

    /** Returns once so many wait in the queue of a fair lock besides the others: these they are. */
    List<String> awaitQueue(String name, int length, List<String> others) throws Exception {
        var queue = "redisson_lock_queue:{" + name + "}";
        var waiting = new ArrayList<String>();
        try (var redis = new Redis(server)) {
            Await.until(length + " in the queue of " + name, () -> {
                waiting.clear();
                waiting.addAll(redis.list("LRANGE", queue, "0", "-1"));
                waiting.removeAll(others);
                return waiting.size() == length;
            });
        }
        return waiting;
    }

    /** Returns once a client is subscribed to the object. */
    void awaitSubscriber(String name) throws Exception {
        try (var redis = new Redis(server)) {
            Await.until("a subscriber of " + name,
                    () -> !redis.list("PUBSUB", "CHANNELS", "*" + name + "*").isEmpty());
        }
    }
}
