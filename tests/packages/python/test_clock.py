"""The clock of a server: reading and moving it."""

from datetime import datetime, timedelta, timezone

import pytest

import lockwheel as package
from waiting import until

pytestmark = pytest.mark.lockwheel(frozen=True)


def remaining_ms(server):
    """How long a lock of a minute still lasts; it is taken when there is none."""
    server.call("SET", "lock", "token", "NX", "PX", 60_000)
    return server.call("PTTL", "lock")


@pytest.mark.parametrize(
    "span, ms",
    [
        (30, 30_000),
        (0.25, 250),
        (0.0004, 0),
        (timedelta(seconds=1, milliseconds=5), 1_005),
        ("30s", 30_000),
        ("1500", 1_500),
        ("1500ms", 1_500),
    ],
)
def test_span_is_seconds_or_a_timedelta_or_a_string(lockwheel, span, ms):
    assert remaining_ms(lockwheel) == 60_000
    lockwheel.clock.advance(span)
    assert remaining_ms(lockwheel) == 60_000 - ms


def test_lease_ends_on_the_millisecond(lockwheel):
    lockwheel.call("SET", "lock", "token", "PX", 30_000)
    lockwheel.clock.advance(29.999)
    assert lockwheel.call("PTTL", "lock") == 1
    lockwheel.clock.advance(0.001)
    assert lockwheel.call("EXISTS", "lock") == 0


def test_now_has_both_clocks_and_the_rate(lockwheel):
    before = lockwheel.clock.now()
    assert before.rate == 0
    lockwheel.clock.advance("1h")
    assert lockwheel.clock.now() == (before.now_ms + 3_600_000, before.wall_ms + 3_600_000, 0)
    assert lockwheel.clock.now().now_ms == lockwheel.clock.now().now_ms, "the clock is stopped"


def test_clock_is_set_to_a_moment(lockwheel):
    moment = datetime(2100, 2, 28, 23, 59, 59, 500_000, tzinfo=timezone.utc)
    lockwheel.clock.set(moment)
    assert lockwheel.clock.now().wall_ms == moment.timestamp() * 1000
    lockwheel.clock.set(moment.timestamp() + 1)
    assert lockwheel.clock.now().wall_ms == moment.timestamp() * 1000 + 1000


def test_clock_goes_back_only_by_a_jump(lockwheel):
    with pytest.raises(package.ReplyError, match="never goes back"):
        lockwheel.clock.advance(-1)
    assert remaining_ms(lockwheel) == 60_000
    lockwheel.clock.jump(-30)
    assert remaining_ms(lockwheel) == 90_000
    lockwheel.clock.jump(timedelta(seconds=89))
    assert remaining_ms(lockwheel) == 1_000


def test_step_moves_only_the_wall_clock(lockwheel):
    before = lockwheel.clock.now()
    assert remaining_ms(lockwheel) == 60_000
    lockwheel.clock.step("-1h")
    assert lockwheel.clock.now().wall_ms == before.wall_ms - 3_600_000
    assert remaining_ms(lockwheel) == 60_000


def test_clock_runs_at_a_rate(lockwheel):
    lockwheel.clock.run(1000)
    assert lockwheel.clock.now().rate == 1000
    lockwheel.call("SET", "lock", "token", "PX", 30_000)
    lockwheel.call("BLPOP", "nothing", 30)  # Which waits for half a minute of the server's.
    assert lockwheel.call("EXISTS", "lock") == 0
    lockwheel.clock.run()
    assert lockwheel.clock.now().rate == 1
    lockwheel.clock.freeze()
    assert lockwheel.clock.now().rate == 0


def test_blocking_command_follows_the_clock(lockwheel, connect, aside):
    waits = aside(connect().blpop, "queue", 3600)
    until(lambda: "blocked_clients:1" in lockwheel.call("INFO", "clients"))
    lockwheel.clock.advance("1h")
    assert waits.result() is None
