// The clock of a server.

package lockwheel

import (
	"encoding/json"
	"time"
)

// Clock is the clock of a server. Leases, pauses and the timeouts of blocking commands follow it. It
// runs in real time until a test changes it. The server refuses spans that are not whole
// milliseconds.
//
// The timers of client libraries do not follow it.
type Clock struct{ server *Server }

// Freeze stops the clock.
func (c Clock) Freeze() error { return c.order("FREEZE") }

// Run runs the clock at a multiple of real time.
func (c Clock) Run(times float64) error { return c.order("RUN", times) }

// Advance moves the clock forward. Everything due on the way happens in order, at its own time, and
// has happened when Advance returns.
func (c Clock) Advance(span time.Duration) error { return c.order("ADVANCE", span) }

// Set moves the clock forward to a moment, to the millisecond, as [Clock.Advance] does. It returns
// an error for a moment in the past, since the clock never goes back.
func (c Clock) Set(moment time.Time) error { return c.order("SET", moment.UnixMilli()) }

// Jump simulates a step of Redis's clock: a positive span ends leases early, a negative span
// prolongs them.
func (c Clock) Jump(span time.Duration) error { return c.order("JUMP", span) }

// Step steps only the wall clock, that of TIME and EXPIREAT. Leases do not change.
func (c Clock) Step(span time.Duration) error { return c.order("STEP", span) }

// Now returns the time of the clock.
func (c Clock) Now() (time.Time, error) {
	shown, err := c.show()
	return time.UnixMilli(shown.NowMs), err
}

// Wall returns the time of the wall clock, that of TIME and EXPIREAT.
func (c Clock) Wall() (time.Time, error) {
	shown, err := c.show()
	return time.UnixMilli(shown.WallMs), err
}

// Rate returns the multiple of real time that the clock runs at; 0 if it is stopped.
func (c Clock) Rate() (float64, error) {
	shown, err := c.show()
	return shown.Rate, err
}

type reading struct {
	NowMs  int64   `json:"now_ms"`
	WallMs int64   `json:"wall_ms"`
	Rate   float64 `json:"rate"`
}

func (c Clock) show() (shown reading, err error) {
	return shown, c.server.callJSON(&shown, "LOCKWHEEL", "CLOCK")
}

func (c Clock) order(order string, arguments ...any) error {
	_, err := c.server.Call(append([]any{"LOCKWHEEL", "CLOCK", order}, arguments...)...)
	return err
}

// callJSON runs a command and decodes its JSON reply.
func (s *Server) callJSON(decoded any, arguments ...any) error {
	reply, err := s.Call(arguments...)
	if err != nil {
		return err
	}
	text, _ := reply.(string)
	return json.Unmarshal([]byte(text), decoded)
}
