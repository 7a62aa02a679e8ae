// Runs the contract of RedisLockRegistry with waiting by pub/sub.

package lockwheel.clients.spring;

import lockwheel.clients.Library;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

@Library.Setting("pub/sub lock")
class LockRegistryPubSubTest extends LockRegistryTest {
    @Override
    public RedisLockType type() {
        return RedisLockType.PUB_SUB_LOCK;
    }
}
