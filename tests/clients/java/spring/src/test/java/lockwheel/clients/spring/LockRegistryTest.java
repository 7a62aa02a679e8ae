package lockwheel.clients.spring;

import lockwheel.clients.Library;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** The registry whose waiters ask again and again. */
@Library(name = "Spring Integration", type = RedisLockRegistry.class)
@Library.Setting("spin lock")
class LockRegistryTest implements LockRegistryContract {
    @Override
    public RedisLockType type() {
        return RedisLockType.SPIN_LOCK;
    }
}
