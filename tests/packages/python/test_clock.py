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
        (timedelta(seconds=1, milliseconds=5), 1_005),
        (timedelta(0), 0),
        ("30s", 30_000),
        ("250ms", 250),
        ("0.5m", 30_000),
        ("0m29.5s", 29_500),
    ],
)
def test_span_is_a_timedelta_or_text_with_a_unit(lockwheel, span, ms):
    assert remaining_ms(lockwheel) == 60_000
    lockwheel.clock.advance(span)
    assert remaining_ms(lockwheel) == 60_000 - ms
    lockwheel.clock.jump(timedelta(milliseconds=-ms))
    assert remaining_ms(lockwheel) == 60_000


@pytest.mark.parametrize(
    "span", [30, 0.25, "1500", "soon", timedelta(microseconds=500), timedelta(microseconds=-500)]
)
def test_span_without_a_unit_or_of_fractions_is_refused(lockwheel, span):
    before = lockwheel.clock.now()
    for order in (
        lockwheel.clock.advance,
        lockwheel.clock.jump,
        lockwheel.clock.step,
        lambda span: lockwheel.faults.add("delay", span),
        lambda span: lockwheel.faults.add("jump", span),
    ):
        with pytest.raises(package.ReplyError, match="whole milliseconds with a unit, such as 250ms"):
            order(span)
    assert lockwheel.clock.now() == before


def test_lease_ends_on_the_millisecond(lockwheel):
    lockwheel.call("SET", "lock", "token", "PX", 30_000)
    lockwheel.clock.advance("29s999ms")
    assert lockwheel.call("PTTL", "lock") == 1
    lockwheel.clock.advance("1ms")
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
    with pytest.raises(TypeError, match="a moment is a datetime, not 4000000000"):
        lockwheel.clock.set(4_000_000_000)


def test_clock_is_not_set_to_the_past(lockwheel):
    shown = lockwheel.clock.now()
    past = datetime.fromtimestamp(shown.now_ms / 1000 - 1, tz=timezone.utc)
    with pytest.raises(package.ReplyError, match=f"shows {shown.now_ms}, .* never goes back"):
        lockwheel.clock.set(past)
    assert lockwheel.clock.now() == shown


START = datetime(2001, 9, 9, 1, 46, 40, tzinfo=timezone.utc)


@pytest.mark.lockwheel(clock_start=START)
def test_clock_begins_at_the_chosen_time(lockwheel, lockwheel_factory):
    assert lockwheel.clock.now() == (1_000_000_000_000, 1_000_000_000_000, 0)
    other = lockwheel_factory(frozen=False, clock_start=START + timedelta(days=1))
    now = other.clock.now()
    assert now.now_ms >= 1_000_086_400_000 and now.rate == 1
    other.clock.set(START + timedelta(days=2))


def test_clock_goes_back_only_by_a_jump(lockwheel):
    with pytest.raises(package.ReplyError, match="never goes back"):
        lockwheel.clock.advance("-1s")
    assert remaining_ms(lockwheel) == 60_000
    lockwheel.clock.jump("-30s")
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
