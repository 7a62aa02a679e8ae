// Runs the contract of RedisLockRegistry with waiting by polling.

package lockwheel.clients.spring;

import lockwheel.clients.Library;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** The registry with polling waiters. */
@Library(name = "Spring Integration", type = RedisLockRegistry.class)
@Library.Setting("spin lock")
class LockRegistryTest implements LockRegistryContract {
    @Override
    public RedisLockType type() {
        return RedisLockType.SPIN_LOCK;
    }
}
