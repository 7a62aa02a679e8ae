// Public API: locks over Jedis.

package io.github.lockwheel.locks;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Executor;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.commons.pool2.PooledObjectFactory;
import redis.clients.jedis.Connection;
import redis.clients.jedis.ConnectionFactory;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.KeyValue;
import redis.clients.jedis.util.SafeEncoder;

/** Locks over Jedis, 7.2 or later. */
public final class JedisLocks extends Locks {
    /** Makes connections to the server that the client uses at the time. */
    private final Supplier<PooledObjectFactory<Connection>> connections;

    /**
     * The locks of a server. They have connections of their own, with the settings of the client,
     * that are not in its pool.
     *
     * @param client the client
     */
    public JedisLocks(RedisClient client) {
        var factory = client.getPool().getFactory();
        connections = () -> factory;
    }

    /**
     * The locks of a cluster of Lockwheel, or of the master of a Sentinel.
     *
     * @param client finds the server that leads, until it is closed
     * @param settings those of connections to that server, which cannot be read from the client
     */
    public JedisLocks(RedisSentinelClient client, JedisClientConfig settings) {
        connections = () -> new ConnectionFactory(client.getCurrentMaster(), settings);
    }

    @Override
    Wire<?> wire() {
        return new JedisWire();
    }

    private final class JedisWire extends Wire<Connection> {
        /** Jedis blocks a thread, which does not notice that it is interrupted. */
        private final Executor threads = task -> {
            var thread = new Thread(task, "lockwheel-jedis");
            thread.setDaemon(true);
            thread.start();
        };

        @Override
        CompletionStage<Connection> connect() {
            return CompletableFuture.supplyAsync(() -> {
                try {
                    var connection = connections.get().makeObject().getObject();
                    connection.setSoTimeout(0);
                    return connection;
                } catch (Exception error) {
                    throw new CompletionException(error);
                }
            }, threads);
        }

        @Override
        CompletionStage<List<Object>> send(Connection connection, List<String> words) {
            return CompletableFuture.supplyAsync(() -> {
                byte[] name = SafeEncoder.encode(words.get(0));
                synchronized (connection) {
                    if (connection.isBroken()) { // Jedis would open it again.
                        throw new JedisConnectionException("the connection was closed");
                    }
                    connection.sendCommand(
                            () -> name, words.stream().skip(1).toArray(String[]::new));
                }
                return decoded(connection.getOne());
            }, threads);
        }

        private List<Object> decoded(Object reply) {
            Object decoded = SafeEncoder.encodeObject(reply);
            var list = decoded instanceof List
                    ? (List<?>) decoded : Collections.singletonList(decoded);
            return list.stream().flatMap(this::words).collect(Collectors.toList());
        }

        /** The name and the value of an entry of a map. */
        private Stream<Object> words(Object each) {
            if (!(each instanceof KeyValue)) {
                return Stream.of(each);
            }
            var entry = (KeyValue<?, ?>) each;
            return Stream.of(entry.getKey(), entry.getValue());
        }

        @Override
        void disconnect(Connection connection) {
            try {
                synchronized (connection) {
                    connection.forceDisconnect();
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        @Override
        boolean isReply(Throwable error) {
            return error instanceof JedisDataException;
        }
    }
}
