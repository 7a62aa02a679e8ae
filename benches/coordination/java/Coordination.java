// Measures locks of ZooKeeper and native locks of Lockwheel: see ../README.md.

import io.github.lockwheel.locks.JedisLocks;
import io.github.lockwheel.locks.NativeLock;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;
import redis.clients.jedis.Connection;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.util.SafeEncoder;

/**
 * The arguments are {@code measure ROUND WARM_UP_MS SPAN_MS ZOOKEEPER LOCKWHEEL}, which prints
 * lines as the program in Go does, or {@code hold SERVER ADDRESS KEY}, which holds a lock until the
 * process is killed.
 */
public final class Coordination {
    private static final Duration LEASE = Duration.ofSeconds(30);
    private static final Duration WAIT = Duration.ofMinutes(1);
    private static final AtomicInteger OWNERS = new AtomicInteger();

    /** A lock of one client. */
    private interface Lock {
        void acquire() throws Exception;

        void release() throws Exception;

        void close() throws Exception;
    }

    /** Makes clients, each with connections of its own. */
    private enum Server {
        ZOOKEEPER, LOCKWHEEL, LOCKWHEEL_COMMANDS;

        /** A client with a short grace does not outlive its process by much. */
        Lock open(String address, String key, boolean hasShortGrace) throws Exception {
            switch (this) {
                case ZOOKEEPER:
                    return mutex(address, key, hasShortGrace);
                case LOCKWHEEL:
                    return object(address, key, hasShortGrace);
                default:
                    return commands(address, key, hasShortGrace);
            }
        }

        String label() {
            return name().toLowerCase(Locale.ROOT).replace('_', '-');
        }
    }

    /** One kind of use of locks. */
    private enum Workload {
        ALONE("1 client", 1, false),
        APART("16 clients, a lock each", 16, false),
        SHARED("16 clients, one lock", 16, true);

        final String label;
        final int clients;
        final boolean isShared;

        Workload(String label, int clients, boolean isShared) {
            this.label = label;
            this.clients = clients;
            this.isShared = isShared;
        }
    }

    /** The times of one client, in nanoseconds. */
    private static final class Times {
        final List<Long> acquire = new ArrayList<>();
        final List<Long> release = new ArrayList<>();
        final List<Long> handOff = new ArrayList<>();
    }

    private Coordination() {}

    /** Runs a command. */
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("hold")) {
            Server.valueOf(arguments[1]).open(arguments[2], arguments[3], true).acquire();
            System.out.println("held");
            Thread.sleep(3_600_000);
        }
        int round = Integer.parseInt(arguments[1]);
        var servers = new ArrayList<>(Arrays.asList(Server.values()));
        if (round % 2 == 1) {
            Collections.reverse(servers);
        }
        for (Workload workload : Workload.values()) {
            for (Server server : servers) {
                measure(server, workload, arguments);
            }
        }
        for (Server server : servers) {
            measureKilled(server, address(server, arguments), key(round, server, "killed"));
        }
        System.exit(0);
    }

    private static String address(Server server, String[] arguments) {
        return arguments[server == Server.ZOOKEEPER ? 4 : 5];
    }

    private static String key(int round, Server server, String rest) {
        return "/java-" + round + "-" + server.label() + "-" + rest;
    }

    private static Lock mutex(String address, String key, boolean hasShortGrace) throws Exception {
        var builder = CuratorFrameworkFactory.builder().connectString(address)
                .retryPolicy(new RetryOneTime(1000));
        if (hasShortGrace) { // The server raises it to twice its tickTime.
            builder.sessionTimeoutMs(1000);
        }
        CuratorFramework client = builder.build();
        client.start();
        client.blockUntilConnected();
        var mutex = new InterProcessMutex(client, key);
        return new Lock() {
            @Override
            public void acquire() throws Exception {
                mutex.acquire();
            }

            @Override
            public void release() throws Exception {
                mutex.release();
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }

    private static Lock object(String address, String key, boolean hasShortGrace) {
        var client = RedisClient.builder().hostAndPort(HostAndPort.from(address)).build();
        var options = new JedisLocks(client).lock(key, LEASE).waitFor(WAIT);
        NativeLock lock =
                (hasShortGrace ? options.bound(Duration.ZERO) : options.bound()).build();
        return new Lock() {
            @Override
            public void acquire() throws Exception {
                lock.acquire();
            }

            @Override
            public void release() {
                lock.release();
            }

            @Override
            public void close() {
                client.close();
            }
        };
    }

    /** Commands on one connection. */
    private static Lock commands(String address, String key, boolean hasShortGrace) {
        var settings = DefaultJedisClientConfig.builder().socketTimeoutMillis(0).build();
        var connection = new Connection(HostAndPort.from(address), settings);
        String owner = ProcessHandle.current().pid() + ":" + OWNERS.incrementAndGet();
        var words = new ArrayList<>(List.of(key, owner, "TTL", "" + LEASE.toMillis(),
                "WAIT", "" + WAIT.toMillis(), "BOUND"));
        if (hasShortGrace) {
            words.addAll(List.of("GRACE", "0"));
        }
        String[] acquisition = words.toArray(String[]::new);
        byte[] acquire = SafeEncoder.encode("LOCK.ACQUIRE");
        byte[] release = SafeEncoder.encode("LOCK.RELEASE");
        return new Lock() {
            @Override
            public void acquire() {
                connection.sendCommand(() -> acquire, acquisition);
                Object reply = SafeEncoder.encodeObject(connection.getOne());
                if (!reply.toString().contains("acquired")) {
                    throw new IllegalStateException("not acquired: " + reply);
                }
            }

            @Override
            public void release() {
                connection.sendCommand(() -> release, key, owner);
                connection.getOne();
            }

            @Override
            public void close() {
                connection.close();
            }
        };
    }

    private static void measure(Server server, Workload workload, String[] arguments)
            throws Exception {
        long spanMs = Long.parseLong(arguments[3]);
        String start = key(Integer.parseInt(arguments[1]), server, workload.name());
        var locks = new ArrayList<Lock>();
        for (int client = 0; client < workload.clients; client++) {
            String key = workload.isShared ? start : start + "-" + client;
            locks.add(server.open(address(server, arguments), key, false));
        }
        long beginNs = System.nanoTime()
                + TimeUnit.MILLISECONDS.toNanos(Long.parseLong(arguments[2]));
        long endNs = beginNs + TimeUnit.MILLISECONDS.toNanos(spanMs);
        // When the last holder began to release.
        var releasedNs = new AtomicLong(beginNs);
        ExecutorService threads = Executors.newFixedThreadPool(workload.clients);
        var tasks = new ArrayList<Callable<Times>>();
        for (Lock lock : locks) {
            tasks.add(() -> cycles(lock, beginNs, endNs, releasedNs));
        }
        var all = new Times();
        for (Future<Times> result : threads.invokeAll(tasks)) {
            all.acquire.addAll(result.get().acquire);
            all.release.addAll(result.get().release);
            all.handOff.addAll(result.get().handOff);
        }
        threads.shutdown();
        for (Lock lock : locks) {
            lock.close();
        }
        if (workload.isShared) {
            report(server, workload.label, "hand-off", all.handOff, spanMs);
            return;
        }
        report(server, workload.label, "acquire", all.acquire, spanMs);
        report(server, workload.label, "release", all.release, spanMs);
    }

    /** Acquires and releases the lock until the end. */
    private static Times cycles(Lock lock, long beginNs, long endNs, AtomicLong releasedNs)
            throws Exception {
        var times = new Times();
        while (true) {
            long askedNs = System.nanoTime();
            if (askedNs - endNs >= 0) {
                return times;
            }
            lock.acquire();
            long grantedNs = System.nanoTime();
            long handOffNs = grantedNs - releasedNs.get();
            long releasingNs = System.nanoTime();
            releasedNs.set(releasingNs);
            lock.release();
            if (askedNs - beginNs >= 0) {
                times.acquire.add(grantedNs - askedNs);
                times.release.add(System.nanoTime() - releasingNs);
                times.handOff.add(handOffNs);
            }
        }
    }

    /** Measures how long a client waits for the lock of a process that is killed. */
    private static void measureKilled(Server server, String address, String key)
            throws Exception {
        String java = ProcessHandle.current().info().command().orElse("java");
        Process holder = new ProcessBuilder(java, "-cp",
                System.getProperty("java.class.path"), "Coordination",
                "hold", server.name(), address, key)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            new BufferedReader(new InputStreamReader(holder.getInputStream())).readLine();
            Lock waiter = server.open(address, key, true);
            var granted = CompletableFuture.runAsync(() -> {
                try {
                    waiter.acquire();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            try {
                granted.get(1, TimeUnit.SECONDS);
                throw new IllegalStateException("the lock was not held");
            } catch (TimeoutException expected) {
                // The waiter is in the queue.
            }
            long killedNs = System.nanoTime();
            holder.destroyForcibly();
            granted.get();
            long waitedNs = System.nanoTime() - killedNs;
            report(server, "holder killed", "grant", List.of(waitedNs), 0);
        } finally {
            holder.destroyForcibly().waitFor();
        }
    }

    private static void report(
            Server server, String workload, String operation, List<Long> spansNs, long spanMs) {
        var sorted = new ArrayList<>(spansNs);
        Collections.sort(sorted);
        double rate = spanMs > 0 ? sorted.size() * 1000.0 / spanMs : 0;
        System.out.printf(Locale.ROOT, "Java\t%s\t%s\t%s\t%.1f\t%.1f\t%.0f%n",
                server.label(), workload, operation, at(sorted, 0.5), at(sorted, 0.99), rate);
    }

    /** A percentile in microseconds. */
    private static double at(List<Long> sorted, double share) {
        int index = Math.min((int) (share * sorted.size()), sorted.size() - 1);
        return sorted.isEmpty() ? 0 : sorted.get(index) / 1000.0;
    }
}
