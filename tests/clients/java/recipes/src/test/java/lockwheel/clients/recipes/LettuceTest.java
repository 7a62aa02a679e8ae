// Runs the lock recipes on Lettuce with its default protocol.

package lockwheel.clients.recipes;

import io.lettuce.core.RedisClient;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import lockwheel.clients.Library;
import lockwheel.clients.Servers;

@Library(name = "Lettuce", type = RedisClient.class)
class LettuceTest implements RecipesContract {
    private static final RedisClient CLIENT = RedisClient.create(Servers.main().toString());

    @Override
    public Commands open() {
        return new LettuceCommands(CLIENT.connect());
    }

    static final class LettuceCommands implements Commands {
        private final StatefulRedisConnection<String, String> connection;
        private final RedisCommands<String, String> redis;

        LettuceCommands(StatefulRedisConnection<String, String> connection) {
            this.connection = connection;
            redis = connection.sync();
        }

        @Override
        public boolean setIfAbsent(String key, String value) {
            return redis.setnx(key, value);
        }

        @Override
        public boolean setIfAbsent(String key, String value, long leaseMs) {
            return "OK".equals(redis.set(key, value, SetArgs.Builder.nx().px(leaseMs)));
        }

        @Override
        public String get(String key) {
            return redis.get(key);
        }

        @Override
        public void set(String key, String value) {
            redis.set(key, value);
        }

        @Override
        public String getAndSet(String key, String value) {
            return redis.getset(key, value);
        }

        @Override
        public boolean delete(String key) {
            return redis.del(key) == 1;
        }

        @Override
        public boolean expire(String key, long leaseMs) {
            return redis.pexpire(key, leaseMs);
        }

        @Override
        public long remainingMs(String key) {
            return redis.pttl(key);
        }

        @Override
        public long eval(String script, String key, String... arguments) {
            String[] keys = {key};
            return redis.<Long>eval(script, ScriptOutputType.INTEGER, keys, arguments);
        }

        @Override
        public boolean deleteWatched(String key, String expected, Runnable meanwhile) {
            redis.watch(key);
            if (!expected.equals(redis.get(key))) {
                redis.unwatch();
                return false;
            }
            meanwhile.run();
            redis.multi();
            redis.del(key);
            return !redis.exec().wasDiscarded();
        }

        @Override
        public void close() {
            connection.close();
        }
    }
}
