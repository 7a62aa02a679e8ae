// Clients of one configuration: two that its tests share, and others on request.

package lockwheel.clients.redisson;

import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Supplier;
import lockwheel.clients.Await;
import lockwheel.clients.Redis;
import lockwheel.clients.Servers;
import org.redisson.Redisson;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

final class Clients {
    /** The lease of watched clients, renewed each third of it: a busy machine may stall 3 s. */
    static final long WATCHDOG_MS = 5000;

    /**
     * The lease of the other clients: a busy machine may stall 6 s. Redisson 4.7.0 sometimes
     * does not wake a waiter of a ReadWriteLock, on any server; it then waits for the lease's end.
     */
    private static final long LONGER_WATCHDOG_MS = 10_000;

    private final Supplier<URI> master;
    private final String channels;
    private final Consumer<Config> configuration;
    private final RedissonClient[] shared = new RedissonClient[2];
    private RuntimeException refusal;

    /** Configured clients with locks on `master`; `channels` is the subcommand of PUBSUB. */
    Clients(Supplier<URI> master, String channels, Consumer<Config> configuration) {
        this.master = master;
        this.channels = channels;
        this.configuration = configuration;
    }

    /** Clients of one server, in Redisson's plainest configuration. */
    static Clients single(Supplier<URI> server) {
        return new Clients(server, "CHANNELS",
                config -> config.useSingleServer().setAddress(server.get().toString()));
    }

    /** Clients that soon notice when their server is dead. */
    static Clients impatient(URI server) {
        return new Clients(() -> server, "CHANNELS", config -> config.useSingleServer()
                .setAddress(server.toString())
                .setConnectionMinimumIdleSize(2)
                .setRetryAttempts(1));
    }

    /** Clients of the main server. */
    static Clients single() {
        return single(Servers::main);
    }

    /** One of the shared clients: workers of even and of odd numbers come from different ones. */
    synchronized RedissonClient any(int worker) {
        var index = worker % shared.length;
        if (refusal != null) {
            throw refusal;
        }
        if (shared[index] == null) {
            try {
                shared[index] = open();
            } catch (RuntimeException error) {
                // A server that was not to be reached once is not tried again by every test.
                refusal = error;
                throw error;
            }
        }
        return shared[index];
    }

    /** A client of the caller's own, to be shut down by it. */
    RedissonClient open() {
        return open(LONGER_WATCHDOG_MS);
    }

    /** The same, with short leases, for tests of their renewal. */
    RedissonClient openWatched() {
        return open(WATCHDOG_MS);
    }

    private RedissonClient open(long watchdogMs) {
        var config = new Config();
        config.setLockWatchdogTimeout(watchdogMs);
        // By default a client brings 48 threads; these are as many as the tests keep busy.
        config.setThreads(4);
        config.setNettyThreads(4);
        configuration.accept(config);
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
                .map(server -> server.any(worker).getLock(name))
                .toArray(RLock[]::new);
    }

    /** A bare connection to where the locks live. */
    Redis console() {
        return new Redis(master.get());
    }

    /** Returns once so many wait in the queue of a fair lock besides the others: these they are. */
    List<String> awaitQueue(String name, int length, List<String> others) throws Exception {
        var queue = "redisson_lock_queue:{" + name + "}";
        var waiting = new ArrayList<String>();
        try (var redis = console()) {
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
        try (var redis = console()) {
            Await.until("a subscriber of " + name,
                    () -> !redis.list("PUBSUB", channels, "*" + name + "*").isEmpty());
        }
    }
}
