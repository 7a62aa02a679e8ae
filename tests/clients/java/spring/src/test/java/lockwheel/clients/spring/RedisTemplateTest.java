// Tests locks made with a RedisTemplate.

package lockwheel.clients.spring;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import lockwheel.clients.Library;
import lockwheel.clients.recipes.Commands;
import lockwheel.clients.recipes.RecipesContract;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.core.RedisOperations;
import org.springframework.data.redis.core.RedisTemplate;
import org.springframework.data.redis.core.SessionCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.data.redis.core.script.DefaultRedisScript;

@Library(name = "Spring Data Redis", type = RedisTemplate.class)
class RedisTemplateTest implements RecipesContract {
    private static final RedisConnectionFactory CONNECTIONS = Connections.open();

    @Override
    public Commands open() {
        return new TemplateCommands(new StringRedisTemplate(CONNECTIONS));
    }

    private record TemplateCommands(StringRedisTemplate template) implements Commands {
        @Override
        public boolean setIfAbsent(String key, String value) {
            return Boolean.TRUE.equals(template.opsForValue().setIfAbsent(key, value));
        }

        @Override
        public boolean setIfAbsent(String key, String value, long leaseMs) {
            var lease = Duration.ofMillis(leaseMs);
            return Boolean.TRUE.equals(template.opsForValue().setIfAbsent(key, value, lease));
        }

        @Override
        public String get(String key) {
            return template.opsForValue().get(key);
        }

        @Override
        public void set(String key, String value) {
            template.opsForValue().set(key, value);
        }

        @Override
        public String getAndSet(String key, String value) {
            return template.opsForValue().getAndSet(key, value);
        }

        @Override
        public boolean delete(String key) {
            return template.delete(key);
        }

        @Override
        public boolean expire(String key, long leaseMs) {
            return Boolean.TRUE.equals(template.expire(key, leaseMs, TimeUnit.MILLISECONDS));
        }

        @Override
        public long remainingMs(String key) {
            return template.getExpire(key, TimeUnit.MILLISECONDS);
        }

        @Override
        public long eval(String script, String key, String... arguments) {
            var redisScript = new DefaultRedisScript<>(script, Long.class);
            return template.execute(redisScript, List.of(key), (Object[]) arguments);
        }

        @Override
        public boolean deleteWatched(String key, String expected, Runnable meanwhile) {
            return template.execute(new SessionCallback<Boolean>() {
                @Override
                @SuppressWarnings("unchecked")
                public <K, V> Boolean execute(RedisOperations<K, V> session) {
                    session.watch((K) key);
                    if (!expected.equals(session.opsForValue().get(key))) {
                        session.unwatch();
                        return false;
                    }
                    meanwhile.run();
                    session.multi();
                    session.delete((K) key);
                    // Empty where the transaction was broken.
                    return !session.exec().isEmpty();
                }
            });
        }

        @Override
        public void close() {}
    }
}
