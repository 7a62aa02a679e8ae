"""A server as a test has it: it starts, it is asked, and it ends with whoever started it."""

import redis


def test_first(leasehold):
    client = redis.Redis.from_url(leasehold.url)
    assert client.set("lock", "token", nx=True, px=30_000)
    leasehold.clock.freeze()
    leasehold.clock.advance(30)
    assert client.get("lock") is None
    client.close()
