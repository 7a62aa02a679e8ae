// Tests the clock.

package packages

import (
	"fmt"
	"strings"
	"testing"
	"time"

	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestTheFrozenClockMovesOnlyOnRequest(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	begin := server.Clock.Now()
	is(t, server.Clock.Rate(), 0)
	left := func() any { return server.Call("PTTL", "lock") }
	server.Call("SET", "lock", "token", "PX", 60_000)
	is(t, left(), any(int64(60_000)))

	server.Clock.Advance(1500 * time.Millisecond)
	is(t, left(), any(int64(58_500)))
	server.Clock.Set(begin.Add(10 * time.Second))
	is(t, left(), any(int64(50_000)))
	is(t, server.Clock.Now(), begin.Add(10*time.Second))

	server.Clock.Jump(20 * time.Second)
	is(t, left(), any(int64(30_000)))
	server.Clock.Jump(-10 * time.Second)
	is(t, left(), any(int64(40_000)))

	wall := server.Clock.Wall()
	server.Clock.Step(time.Hour)
	is(t, left(), any(int64(40_000)))
	is(t, server.Clock.Wall(), wall.Add(time.Hour))

	server.Clock.Run(1_000_000)
	is(t, server.Clock.Rate(), 1_000_000)
	// It waits until the lease ends, which is soon.
	server.Call("BLPOP", "nothing", 40)
	is(t, left(), any(int64(-2)))
	server.Clock.Freeze()
	is(t, server.Clock.Now(), server.Clock.Now())
}

func TestTheClockRefusesInvalidTimes(t *testing.T) {
	t.Parallel()
	server, err := lockwheel.Start(lockwheel.Frozen())
	no(t, err)
	defer server.Stop()
	shown, err := server.Clock.Now()
	no(t, err)
	past := fmt.Sprintf("the clock shows %d, in milliseconds since 1970, and never goes back",
		shown.UnixMilli())
	for _, test := range []struct {
		err  error
		text string
	}{
		{server.Clock.Advance(-time.Second), "the clock never goes back"},
		{server.Clock.Advance(1500 * time.Microsecond), "span is not whole milliseconds with a unit"},
		{server.Clock.Jump(30), "CLOCK JUMP 30ns: ERR span is not whole milliseconds with a unit"},
		{server.Clock.Set(shown.Add(-time.Millisecond)), past},
		{server.Clock.Run(-1), "rate is not a number"},
	} {
		holds(t, test.err != nil && strings.Contains(test.err.Error(), test.text), "%v", test.err)
	}
	now, err := server.Clock.Now()
	no(t, err)
	is(t, now, shown)
}

func TestTheClockBeginsAtTheChosenTime(t *testing.T) {
	t.Parallel()
	begin := time.UnixMilli(1_000_000_000_000)
	frozen := lockwheeltest.Start(t, lockwheel.Frozen(), lockwheel.ClockStart(begin))
	is(t, frozen.Clock.Now(), begin)
	is(t, frozen.Clock.Wall(), begin)
	running := lockwheeltest.Start(t, lockwheel.ClockStart(begin))
	is(t, running.Clock.Rate(), 1)
	running.Clock.Set(begin.Add(24 * time.Hour))
}
