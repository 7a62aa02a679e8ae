// Runs the lock recipes on Jedis with RESP2.

package lockwheel.clients.recipes;

import lockwheel.clients.Library;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.RedisProtocol;

@Library.Setting("RESP2")
class JedisResp2Test extends JedisTest {
    @Override
    public Commands open() {
        var config = DefaultJedisClientConfig.builder().protocol(RedisProtocol.RESP2);
        return new JedisCommands(config.build());
    }
}
