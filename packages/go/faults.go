// Fault rules, and gates that hold requests.

package lockwheel

import (
	"fmt"
	"time"
)

// Faults are the fault rules and gates of a server.
type Faults struct{ server *Server }

// Fault is the effect of a rule on a request.
type Fault struct{ words []any }

var (
	// Drop does not run the request and sends no reply.
	Drop = Fault{[]any{"DROP"}}
	// Close does not run the request and closes its connection.
	Close = Fault{[]any{"CLOSE"}}
	// Lose runs the request and sends no reply.
	Lose = Fault{[]any{"LOSE"}}
	// LoseAndClose runs the request and closes its connection without a reply.
	LoseAndClose = Fault{[]any{"LOSE-AND-CLOSE"}}
	// Stall stops reading from the connection until the rule is cleared.
	Stall = Fault{[]any{"STALL"}}
	// FlushScripts removes all scripts, then runs the request.
	FlushScripts = Fault{[]any{"FLUSH-SCRIPTS"}}
	// Refuse closes new connections at once. Its conditions can only be Nth, Times and
	// Probability.
	Refuse = Fault{[]any{"REFUSE"}}
)

// Delay holds the request for a span on the server's clock, then runs it.
func Delay(span time.Duration) Fault { return Fault{[]any{"DELAY", span}} }

// Cut runs the request, sends this many bytes of the reply, and closes the connection.
func Cut(bytes int) Fault { return Fault{[]any{"CUT", bytes}} }

// AnswerError does not run the request and replies with this error: "LOADING Redis is loading".
func AnswerError(line string) Fault { return Fault{[]any{"ERROR", line}} }

// JumpAfter runs the request, then lets the clock jump, as [Clock.Jump] does.
func JumpAfter(span time.Duration) Fault { return Fault{[]any{"JUMP", span}} }

// LoseWrites sends the reply, then undoes the last writes.
func LoseWrites(writes int) Fault { return Fault{[]any{"LOSE-WRITES", writes}} }

// Requests are conditions, all of which a request must match. Unset conditions match any request.
type Requests struct {
	// Command is a pattern of the command's name: "eval*", or "client|id" for a subcommand.
	Command string `json:"command"`
	// Key is a pattern of one of the request's keys.
	Key string `json:"key"`
	// Client is a pattern of the client's name (CLIENT SETNAME).
	Client string `json:"client"`
	// ClientID is the CLIENT ID of the client.
	ClientID int64 `json:"client_id"`
	// Nth selects only the n-th of the matching requests.
	Nth int `json:"nth"`
	// Times is the maximal number of requests.
	Times int `json:"times"`
	// Probability is that of each request, from 0 to 1. The same Seed selects the same requests.
	// Without a seed the server chooses one.
	Probability float64 `json:"probability"`
	Seed        int64   `json:"seed"`
}

func (r Requests) words() []any {
	var words []any
	add := func(isSet bool, word string, value any) {
		if isSet {
			words = append(words, word, value)
		}
	}
	add(r.Command != "", "COMMAND", r.Command)
	add(r.Key != "", "KEY", r.Key)
	add(r.Client != "", "CLIENT", r.Client)
	add(r.ClientID != 0, "ID", r.ClientID)
	add(r.Nth != 0, "NTH", r.Nth)
	add(r.Times != 0, "TIMES", r.Times)
	add(r.Probability != 0, "PROBABILITY", r.Probability)
	add(r.Seed != 0, "SEED", r.Seed)
	return words
}

// Add adds a rule after the others. The first matching rule applies to a request.
func (f Faults) Add(fault Fault, requests Requests) (Rule, error) {
	words := append([]any{"LOCKWHEEL", "FAULT", "ADD"}, fault.words...)
	number, err := f.server.callNumber(append(words, requests.words()...)...)
	return Rule{f.server, number}, err
}

// Gate adds a gate, which holds matching requests before they run, until it is opened.
func (f Faults) Gate(requests Requests) (Gate, error) {
	words := append([]any{"LOCKWHEEL", "GATE", "ADD"}, requests.words()...)
	number, err := f.server.callNumber(words...)
	return Gate{f.server, number}, err
}

// Failover simulates a failover to a replica that lacks the last writes: it undoes them, removes all
// scripts and disconnects all other clients. It returns the number of undone writes.
func (f Faults) Failover(lose int) (int, error) {
	// The failover disconnects the idle connections of this package.
	defer f.server.closeIdle()
	number, err := f.server.callNumber("LOCKWHEEL", "FAILOVER", "LOSE", lose)
	return int(number), err
}

// State is the state of a rule or gate.
type State struct {
	Number int64 `json:"id"`
	// Action is "delay", "lose-and-close", "gate" and so on.
	Action string `json:"action"`
	// The arguments of [Delay], [Cut], [AnswerError], [JumpAfter] and [LoseWrites].
	DelayMs int64  `json:"delay_ms"`
	Bytes   int64  `json:"bytes"`
	Line    string `json:"line"`
	JumpMs  int64  `json:"jump_ms"`
	Writes  int64  `json:"writes"`
	// Requests are the conditions.
	Requests
	// Matched is the number of requests that matched, Nth, Times and Probability aside.
	Matched int64 `json:"matched"`
	// Fired is the number of requests that it was applied to.
	Fired int64 `json:"fired"`
	// Held are the CLIENT IDs of the clients that it holds.
	Held []int64 `json:"held"`
}

// List returns the states of all rules.
func (f Faults) List() (states []State, err error) {
	return states, f.server.callJSON(&states, "LOCKWHEEL", "FAULT", "LIST")
}

// Gates returns the states of all gates.
func (f Faults) Gates() (states []State, err error) {
	return states, f.server.callJSON(&states, "LOCKWHEEL", "GATE", "LIST")
}

// Clear removes all rules and opens all gates.
func (f Faults) Clear() error {
	if _, err := f.server.Call("LOCKWHEEL", "FAULT", "CLEAR"); err != nil {
		return err
	}
	gates, err := f.Gates()
	for _, gate := range gates {
		if _, err := (Gate{f.server, gate.Number}).Open(); err != nil {
			return err
		}
	}
	return err
}

// Rule is a fault rule.
type Rule struct {
	server *Server
	number int64
}

// State returns the counts of the rule and the clients that it holds.
func (r Rule) State() (State, error) {
	states, err := r.server.Faults.List()
	for _, state := range states {
		if state.Number == r.number {
			return state, err
		}
	}
	if err == nil {
		err = fmt.Errorf("lockwheel: rule %d was cleared", r.number)
	}
	return State{}, err
}

// Wait waits until the rule has fired. Call it before the clock is moved for a [Delay]: an earlier
// move has no effect on the delay.
func (r Rule) Wait() error {
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		state, err := r.State()
		if err != nil || state.Fired > 0 {
			return err
		}
		if time.Since(begin) > replyLimit {
			return fmt.Errorf("lockwheel: no request for rule %d within %s", r.number, replyLimit)
		}
	}
}

// Clear removes the rule and releases the requests that it holds.
func (r Rule) Clear() error {
	_, err := r.server.Call("LOCKWHEEL", "FAULT", "CLEAR", r.number)
	return err
}

// Gate holds requests before they run.
type Gate struct {
	server *Server
	number int64
}

// Wait waits until the gate holds a client. It returns its CLIENT ID.
func (g Gate) Wait() (int64, error) {
	return g.server.callNumber("LOCKWHEEL", "GATE", "AWAIT", g.number)
}

// Open removes the gate and releases its clients. It returns their number.
func (g Gate) Open() (int, error) {
	number, err := g.server.callNumber("LOCKWHEEL", "GATE", "OPEN", g.number)
	return int(number), err
}

// callNumber runs a command with an integer reply.
func (s *Server) callNumber(arguments ...any) (int64, error) {
	reply, err := s.Call(arguments...)
	number, _ := reply.(int64)
	return number, err
}
