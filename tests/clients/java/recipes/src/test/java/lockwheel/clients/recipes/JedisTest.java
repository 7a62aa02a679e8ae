// Runs the lock recipes on Jedis with its default protocol.

package lockwheel.clients.recipes;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.ArrayList;
import java.util.UUID;
import lockwheel.clients.Library;
import lockwheel.clients.Servers;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.Response;
import redis.clients.jedis.params.SetParams;

@Library(name = "Jedis", type = Jedis.class)
class JedisTest implements RecipesContract {
    @Override
    public Commands open() {
        return new JedisCommands(DefaultJedisClientConfig.builder().build());
    }

    @Test
    @DisplayName("pipelined: all of 200,000 commands are sent before a reply is read")
    void pipelines() {
        var server = Servers.main();
        var config = DefaultJedisClientConfig.builder().socketTimeoutMillis(60_000).build();
        try (var jedis = new Jedis(server.getHost(), server.getPort(), config)) {
            var name = UUID.randomUUID().toString();
            var value = "x".repeat(1_000);
            jedis.set(name, value);
            var pipeline = jedis.pipelined();
            var replies = new ArrayList<Response<String>>();
            for (int count = 0; count < 200_000; count++) {
                replies.add(pipeline.get(name));
            }
            pipeline.sync();
            for (var reply : replies) {
                assertEquals(value, reply.get());
            }
        }
    }

    static final class JedisCommands implements Commands {
        private final Jedis jedis;

        JedisCommands(JedisClientConfig config) {
            jedis = new Jedis(Servers.main().getHost(), Servers.main().getPort(), config);
        }

        @Override
        public boolean setIfAbsent(String key, String value) {
            return jedis.setnx(key, value) == 1;
        }

        @Override
        public boolean setIfAbsent(String key, String value, long leaseMs) {
            return "OK".equals(jedis.set(key, value, SetParams.setParams().nx().px(leaseMs)));
        }

        @Override
        public String get(String key) {
            return jedis.get(key);
        }

        @Override
        public void set(String key, String value) {
            jedis.set(key, value);
        }

        @Override
        @SuppressWarnings("deprecation")
        public String getAndSet(String key, String value) {
            return jedis.getSet(key, value);
        }

        @Override
        public boolean delete(String key) {
            return jedis.del(key) == 1;
        }

        @Override
        public boolean expire(String key, long leaseMs) {
            return jedis.pexpire(key, leaseMs) == 1;
        }

        @Override
        public long remainingMs(String key) {
            return jedis.pttl(key);
        }

        @Override
        public long eval(String script, String key, String... arguments) {
            var words = new String[1 + arguments.length];
            words[0] = key;
            System.arraycopy(arguments, 0, words, 1, arguments.length);
            return (Long) jedis.eval(script, 1, words);
        }

        @Override
        public boolean deleteWatched(String key, String expected, Runnable meanwhile) {
            jedis.watch(key);
            if (!expected.equals(jedis.get(key))) {
                jedis.unwatch();
                return false;
            }
            meanwhile.run();
            var transaction = jedis.multi();
            transaction.del(key);
            return transaction.exec() != null;
        }

        @Override
        public void close() {
            jedis.close();
        }
    }
}
