package lockwheel

import (
	"fmt"
	"time"
)

// Faults are the rules for what goes wrong on a server, and the gates at which clients are held.
type Faults struct{ server *Server }

// Fault is what becomes of a request.
type Fault struct{ words []any }

var (
	// Drop neither runs nor answers it.
	Drop = Fault{[]any{"DROP"}}
	// Close does not run it, and closes its connection.
	Close = Fault{[]any{"CLOSE"}}
	// Lose runs it and does not answer: the client cannot know.
	Lose = Fault{[]any{"LOSE"}}
	// LoseAndClose runs it, and closes its connection instead of an answer.
	LoseAndClose = Fault{[]any{"LOSE-AND-CLOSE"}}
	// Stall reads no further until the rule is cleared.
	Stall = Fault{[]any{"STALL"}}
	// FlushScripts forgets all scripts before it is run.
	FlushScripts = Fault{[]any{"FLUSH-SCRIPTS"}}
	// Refuse closes connections as soon as they are there. It has no conditions but Nth, Times and
	// Probability.
	Refuse = Fault{[]any{"REFUSE"}}
)

// Delay holds it for so long on the server's clock, and then runs it.
func Delay(span time.Duration) Fault { return Fault{[]any{"DELAY", span}} }

// Cut runs it, and closes its connection after so many bytes of the answer.
func Cut(bytes int) Fault { return Fault{[]any{"CUT", bytes}} }

// AnswerError does not run it, and answers this error, as "LOADING Redis is loading".
func AnswerError(line string) Fault { return Fault{[]any{"ERROR", line}} }

// JumpAfter lets the clock jump when it has been run, as [Clock.Jump] does.
func JumpAfter(span time.Duration) Fault { return Fault{[]any{"JUMP", span}} }

// LoseWrites undoes the last writes when it has been answered.
func LoseWrites(writes int) Fault { return Fault{[]any{"LOSE-WRITES", writes}} }

// Requests are those that fulfil all conditions. A condition that is not set holds of any request.
type Requests struct {
	// Command is a pattern of the command's name, as "eval*", or "client|id" for a subcommand.
	Command string
	// Key is a pattern that one of its keys is like.
	Key string
	// Client is a pattern of its client's name (CLIENT SETNAME).
	Client string
	// ClientID is its client's number (CLIENT ID).
	ClientID int64
	// Nth: of all these only the n-th.
	Nth int
	// Times: no more than so many of them.
	Times int
	// Probability of each, from 0 to 1; the same Seed chooses the same ones. Without a seed the
	// server takes one.
	Probability float64
	Seed        int64
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

// Add adds a rule behind the others. The first rule that is for a request decides what becomes of
// it.
func (f Faults) Add(fault Fault, requests Requests) (Rule, error) {
	words := append([]any{"LOCKWHEEL", "FAULT", "ADD"}, fault.words...)
	for index, word := range words {
		span, isSpan := word.(time.Duration)
		if !isSpan {
			continue
		}
		if err := wholeMilliseconds(span); err != nil {
			return Rule{}, err
		}
		words[index] = span.Milliseconds()
	}
	number, err := f.server.callNumber(append(words, requests.words()...)...)
	return Rule{f.server, number}, err
}

// Gate adds a gate, at which clients are held before such requests until it is opened.
func (f Faults) Gate(requests Requests) (Gate, error) {
	words := append([]any{"LOCKWHEEL", "GATE", "ADD"}, requests.words()...)
	number, err := f.server.callNumber(words...)
	return Gate{f.server, number}, err
}

// Failover does what a failover does to a server whose replica had not heard of the last writes:
// these are undone, scripts are forgotten, everybody else is disconnected. Returns how many writes
// were undone.
func (f Faults) Failover(lose int) (int, error) {
	// Connections that are not used at the moment are somebody else's to the server.
	defer f.server.forgetIdle()
	number, err := f.server.callNumber("LOCKWHEEL", "FAILOVER", "LOSE", lose)
	return int(number), err
}

// State is how a rule or gate stands.
type State struct {
	Number int64  `json:"id"`
	Action string `json:"action"`
	// Matched is how many requests fulfilled the conditions, without Nth, Times and Probability.
	Matched int64 `json:"matched"`
	// Fired is how many requests it has decided.
	Fired int64 `json:"fired"`
	// Held are the numbers (CLIENT ID) of those that it holds.
	Held []int64 `json:"held"`
}

// List tells how all rules stand.
func (f Faults) List() (states []State, err error) {
	return states, f.server.callJSON(&states, "LOCKWHEEL", "FAULT", "LIST")
}

// Gates tells how all gates stand.
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

// Rule is a rule that was added.
type Rule struct {
	server *Server
	number int64
}

// State tells how often it has matched and fired, and whom it holds.
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

// Wait waits until the rule has fired. A request that is to be delayed is so from then on: before
// that, moving the clock would not be for it.
func (r Rule) Wait() error {
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		state, err := r.State()
		if err != nil || state.Fired > 0 {
			return err
		}
		if time.Since(begin) > replyLimit {
			return fmt.Errorf("lockwheel: no request for rule %d in %s", r.number, replyLimit)
		}
	}
}

// Clear removes the rule, and lets go whom it holds.
func (r Rule) Clear() error {
	_, err := r.server.Call("LOCKWHEEL", "FAULT", "CLEAR", r.number)
	return err
}

// Gate holds clients before their requests.
type Gate struct {
	server *Server
	number int64
}

// Wait waits until somebody is held. Returns the number of that client (CLIENT ID).
func (g Gate) Wait() (int64, error) {
	return g.server.callNumber("LOCKWHEEL", "GATE", "AWAIT", g.number)
}

// Open removes the gate and lets go whom it holds. Returns how many.
func (g Gate) Open() (int, error) {
	number, err := g.server.callNumber("LOCKWHEEL", "GATE", "OPEN", g.number)
	return int(number), err
}

// callNumber is for commands that answer a number.
func (s *Server) callNumber(arguments ...any) (int64, error) {
	reply, err := s.Call(arguments...)
	number, _ := reply.(int64)
	return number, err
}
