// Sends the requests of a recipe with Jedis.

package lockwheel.kills;

import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.params.SetParams;

/** Jedis. */
final class JedisServer implements PlainWorker.Server {
    private final UnifiedJedis jedis;

    private JedisServer(UnifiedJedis jedis) {
        this.jedis = jedis;
    }

    /** Connects as often as needed. */
    static JedisServer connect(Settings settings) {
        while (true) {
            try {
                return new JedisServer(client(settings));
            } catch (JedisException notReady) {
                Clients.sleep(Worker.RETRY_DELAY_MS);
            }
        }
    }

    private static UnifiedJedis client(Settings settings) {
        JedisClientConfig config = DefaultJedisClientConfig.builder()
                .timeoutMillis(settings.replyTimeoutMs())
                .build();
        Set<HostAndPort> servers =
                settings.servers().stream().map(HostAndPort::from).collect(Collectors.toSet());
        if (!settings.hasSentinels()) {
            return RedisClient.builder()
                    .hostAndPort(servers.iterator().next())
                    .clientConfig(config)
                    .build();
        }
        return RedisSentinelClient.builder()
                .masterName("mymaster")
                .sentinels(servers)
                .sentinelClientConfig(config)
                .clientConfig(config)
                .build();
    }

    @Override
    public boolean setNew(String key, String value, int leaseMs) {
        return jedis.set(key, value, SetParams.setParams().nx().px(leaseMs)) != null;
    }

    @Override
    public long eval(String script, String key, String... arguments) {
        return (Long) jedis.eval(script, List.of(key), List.of(arguments));
    }

    @Override
    public String get(String key) {
        return jedis.get(key);
    }

    @Override
    public void ping() {
        jedis.ping();
    }

    /** Its pool throws the exception of all exceptions if a connection cannot be made. */
    @Override
    public boolean isLost(Exception problem) {
        return problem instanceof JedisConnectionException
                || problem.getClass() == JedisException.class;
    }

    @Override
    public boolean isRefused(Exception problem) {
        String text = String.valueOf(problem.getMessage());
        return problem instanceof JedisDataException && Refusals.isOne(text);
    }
}
