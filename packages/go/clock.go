package lockwheel

import (
	"encoding/json"
	"fmt"
	"time"
)

// Clock is the clock that a server's leases end by, and its blocking commands, pauses and timeouts.
// It shows real time until it is told otherwise. Spans are whole milliseconds.
//
// The timers of a client library are its own: no server moves them.
type Clock struct{ server *Server }

// Freeze stops the clock.
func (c Clock) Freeze() error { return c.order("FREEZE") }

// Run lets the clock run again, so many times as fast as real time.
func (c Clock) Run(times float64) error { return c.order("RUN", times) }

// Advance moves the clock on. What is due on the way happens in order, each thing at its own
// moment, and has happened when Advance returns.
func (c Clock) Advance(span time.Duration) error { return c.orderSpan("ADVANCE", span) }

// Set moves the clock on to a moment, as [Clock.Advance] does. It never goes back.
func (c Clock) Set(moment time.Time) error { return c.order("SET", moment.UnixMilli()) }

// Jump steps the clock as Redis's may be stepped: forward ends leases early, back (a negative span)
// lets them last longer.
func (c Clock) Jump(span time.Duration) error { return c.orderSpan("JUMP", span) }

// Step steps the wall clock alone, that of TIME and EXPIREAT. No lease follows.
func (c Clock) Step(span time.Duration) error { return c.orderSpan("STEP", span) }

// Now is what the clock shows.
func (c Clock) Now() (time.Time, error) {
	shown, err := c.show()
	return time.UnixMilli(shown.NowMs), err
}

// Wall is what the wall clock shows, that of TIME and EXPIREAT.
func (c Clock) Wall() (time.Time, error) {
	shown, err := c.show()
	return time.UnixMilli(shown.WallMs), err
}

// Rate is how many times as fast as real time the clock runs; 0 if it stands.
func (c Clock) Rate() (float64, error) {
	shown, err := c.show()
	return shown.Rate, err
}

type shownClock struct {
	NowMs  int64   `json:"now_ms"`
	WallMs int64   `json:"wall_ms"`
	Rate   float64 `json:"rate"`
}

func (c Clock) show() (shown shownClock, err error) {
	return shown, c.server.callJSON(&shown, "LOCKWHEEL", "CLOCK")
}

func (c Clock) order(order string, arguments ...any) error {
	_, err := c.server.Call(append([]any{"LOCKWHEEL", "CLOCK", order}, arguments...)...)
	return err
}

func (c Clock) orderSpan(order string, span time.Duration) error {
	if err := wholeMilliseconds(span); err != nil {
		return err
	}
	return c.order(order, span.Milliseconds())
}

func wholeMilliseconds(span time.Duration) error {
	if span%time.Millisecond != 0 {
		return fmt.Errorf("lockwheel: %s is not a number of whole milliseconds", span)
	}
	return nil
}

// callJSON decodes the reply of a command that answers JSON.
func (s *Server) callJSON(decoded any, arguments ...any) error {
	reply, err := s.Call(arguments...)
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	return json.Unmarshal([]byte(text), decoded)
}
