// Tests one lock with a hundred clients at the same time, each with 25 connections.

package lockwheel.clients.redisson;

import static java.util.concurrent.TimeUnit.NANOSECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ThreadLocalRandom;
import lockwheel.clients.Actor;
import lockwheel.clients.Contention;
import lockwheel.clients.Contention.Guard;
import lockwheel.clients.Redis;
import lockwheel.clients.Servers;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

@Isolated("the machine is busy enough")
class ManyClientsTest implements Contract {
    private static final int CLIENTS = 100;
    private static final int SOCKETS_PER_CLIENT = 25;
    private static final int ROUNDS = 50;
    /** The pause of a client between two acquisitions. */
    private static final int MOST_PAUSE_MS = 400;
    /** A client opens its connections one after another; so many clients do so at once. */
    private static final int OPENERS = 8;

    @Override
    public Clients clients() {
        return Clients.single();
    }

    @Test
    @Timeout(150)
    @DisplayName("RLock: 100 clients with 2,500 connections take one lock 5,000 times")
    void manyClients() throws Exception {
        var loops = new MultiThreadIoEventLoopGroup(4, NioIoHandler.newFactory());
        var executor = Executors.newFixedThreadPool(8);
        var start = System.nanoTime();
        var clients = open(loops, executor);
        var opened = System.nanoTime();
        try (var redis = new Redis(Servers.main())) {
            var connections = redis.call("CLIENT", "LIST").toString().lines().count();
            assertTrue(connections >= CLIENTS * SOCKETS_PER_CLIENT, () -> "only " + connections);
        }
        var name = Contract.fresh("crowded");
        Contention.exclusive(CLIENTS, ROUNDS, worker -> {
            var lock = clients.get(worker).getLock(name);
            return Guard.of(
                    () -> {
                        // If all clients were always waiting, each unlock would wake a hundred of them.
                        Thread.sleep(ThreadLocalRandom.current().nextInt(MOST_PAUSE_MS));
                        lock.lock(LockContract.LONG_LEASE_SECONDS, SECONDS);
                    },
                    lock::unlock);
        });
        var done = System.nanoTime();
        System.out.printf("%d connections in %d ms, %d acquisitions in %d ms%n",
                CLIENTS * SOCKETS_PER_CLIENT, NANOSECONDS.toMillis(opened - start),
                CLIENTS * ROUNDS, NANOSECONDS.toMillis(done - opened));
        clients.forEach(client -> client.shutdown(0, 1, SECONDS));
        loops.shutdownGracefully();
        executor.shutdown();
    }

    /** The clients share their threads, which would otherwise occupy a machine with two cores. */
    private static List<RedissonClient> open(EventLoopGroup loops, ExecutorService executor)
            throws Exception {
        var openers = new ArrayList<Actor>();
        for (var opener = 0; opener < OPENERS; opener++) {
            openers.add(new Actor());
        }
        var opening = new ArrayList<Actor.Result<RedissonClient>>();
        for (var client = 0; client < CLIENTS; client++) {
            opening.add(openers.get(client % OPENERS).begin(() -> {
                var config = new Config();
                config.setEventLoopGroup(loops);
                config.setExecutor(executor);
                config.useSingleServer().setAddress(Servers.main().toString());
                return Redisson.create(config);
            }));
        }
        var clients = new ArrayList<RedissonClient>();
        for (var client : opening) {
            clients.add(client.get());
        }
        openers.forEach(Actor::close);
        assertEquals(CLIENTS, clients.size());
        return clients;
    }
}
