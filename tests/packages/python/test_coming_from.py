"""The test with Lockwheel on docs/coming-from.md beside that with fakeredis."""

import pytest
import redis
from redis.exceptions import LockNotOwnedError


@pytest.mark.lockwheel(frozen=True)
def test_a_lock_ends_with_its_lease(lockwheel):
    client = redis.Redis.from_url(lockwheel.url)
    late, another = (client.lock("invoice:7", timeout=30) for _ in range(2))
    assert late.acquire(blocking=False)
    assert not another.acquire(blocking=False)
    lockwheel.clock.advance("30s")  # The lease ends here.
    assert another.acquire(blocking=False)
    with pytest.raises(LockNotOwnedError):
        late.release()
