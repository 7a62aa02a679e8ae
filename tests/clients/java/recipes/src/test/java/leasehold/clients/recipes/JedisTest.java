package leasehold.clients.recipes;

import leasehold.clients.Library;
import leasehold.clients.Servers;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.params.SetParams;

/** The recipes on Jedis, in the protocol it chooses itself. */
@Library(name = "Jedis", type = Jedis.class)
class JedisTest implements RecipesContract {
    @Override
    public Commands open() {
        return new JedisCommands(DefaultJedisClientConfig.builder().build());
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
