// The model of a lock for porcupine.

package main

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// An operation as porcupine orders it. A request that has changed the lock is one. What may happen
// at any time of an interval (a request without an answer, the end of a lease) is two: from `opens`
// on it may happen, after `closes` no longer. Between them, the model considers both. An answer
// that has changed nothing is two as well: between them, it must have been true at some time.
// Otherwise, porcupine would try all orders of the many refusals.
type step struct {
	kind      stepKind
	operation *line
	// The number of the operation.
	number int
}

type stepKind int

const (
	changes stepKind = iota
	opens
	closes
)

// What is known of the lock between two steps.
type state struct {
	// The possible states of the lock; none if the history is impossible.
	worlds []world
	// The leases of slow operations that may end.
	ending []int
	// Equal for equal states.
	key string
}

// The model of a lock with this history.
func (history *history) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			return newState([]world{{token: math.MinInt64}}, nil)
		},
		Step: func(before, input, _ any) (bool, any) {
			after := history.step(before.(*state), input.(step))
			return len(after.worlds) > 0, after
		},
		Equal: func(one, other any) bool {
			return one.(*state).key == other.(*state).key
		},
	}
}

// The operations as porcupine orders them.
func (history *history) steps() []porcupine.Operation {
	var steps []porcupine.Operation
	for number := range history.operations {
		operation := &history.operations[number]
		add := func(kind stepKind, from, until int64) {
			input := step{kind, operation, number}
			steps = append(steps, porcupine.Operation{Input: input, Call: from, Return: until})
		}
		if operation.isAnswered() && !operation.isObservation() {
			add(changes, operation.Call, *operation.Return)
			continue
		}
		isUnknown := operation.Result == "unknown"
		if isUnknown && operation.Kind == "acquire" && history.isLast(operation) {
			// Nothing needs it: see isFinal.
			continue
		}
		add(opens, operation.Call, operation.Call)
		if operation.Return != nil {
			add(closes, *operation.Return, *operation.Return)
		}
	}
	return steps
}

// The state after a step.
func (history *history) step(before *state, step step) *state {
	operation := step.operation
	isEnd := operation.Kind == "end"
	if step.kind == opens {
		return history.open(before, step)
	}
	var worlds []world
	for _, world := range history.reachable(before) {
		switch {
		case step.kind == changes:
			if after, isPossible := history.apply(world, operation, before.ending); isPossible {
				worlds = append(worlds, after)
			}
		case operation.isObservation():
			if !slices.Contains(world.untrue, step.number) {
				worlds = append(worlds, world)
			}
		case !isEnd:
			world.pending = without(world.pending, step.number)
			worlds = append(worlds, world)
		case !slices.ContainsFunc(world.holds, holdsBy(*operation.Lease)):
			worlds = append(worlds, world)
		}
	}
	return newState(worlds, before.ending)
}

// The state after the call of an operation that may happen from now on.
func (history *history) open(before *state, step step) *state {
	ending := before.ending
	lease := step.operation.Lease
	isEnd := step.operation.Kind == "end"
	if isEnd && history.slow[*lease] {
		ending = append(slices.Clone(ending), *lease)
		slices.Sort(ending)
	}
	worlds := slices.Clone(before.worlds)
	for at := range worlds {
		world := &worlds[at]
		if step.operation.isObservation() {
			world.untrue = append(slices.Clone(world.untrue), step.number)
			slices.Sort(world.untrue)
			history.observe(world)
		} else if !isEnd {
			world.pending = append(slices.Clone(world.pending), step.number)
			slices.Sort(world.pending)
		} else if place := slices.IndexFunc(world.holds, holdsBy(*lease)); place >= 0 {
			world.holds = slices.Clone(world.holds)
			if history.isFinal(world.holds[place]) {
				world.holds = slices.Delete(world.holds, place, place+1)
				history.observe(world)
			} else {
				world.holds[place].mayEnd = true
			}
		}
	}
	return newState(worlds, ending)
}

// The possible states of the lock after all that may have happened before the next step.
func (history *history) reachable(before *state) []world {
	worlds := slices.Clone(before.worlds)
	add := func(after world) {
		if !slices.ContainsFunc(worlds, after.isCoveredBy) {
			worlds = append(worlds, after)
		}
	}
	for at := 0; at < len(worlds); at++ {
		from := worlds[at]
		for place, hold := range from.holds {
			if hold.mayEnd {
				after := from
				after.holds = slices.Delete(slices.Clone(from.holds), place, place+1)
				history.observe(&after)
				add(after)
			}
		}
		for _, number := range from.pending {
			operation := &history.operations[number]
			if after, isPossible := history.apply(from, operation, before.ending); isPossible {
				after.pending = without(from.pending, number)
				add(after)
			}
		}
	}
	return worlds
}

// The state of the lock after a request that has changed it.
func (history *history) apply(from world, operation *line, ending []int) (world, bool) {
	place, isHeld := from.hold(operation.Client)
	own := hold{client: operation.Client, shared: operation.Shared}
	if isHeld {
		own = from.holds[place]
	}
	isPossible := isHeld
	switch operation.Kind {
	case "acquire":
		own.count++
		isPossible = !history.isExcluded(from, operation) && (!isHeld || history.rules.Reentrant)
	case "release":
		own.count--
	}
	switch {
	case !isPossible,
		operation.Result == "released" && own.count != 0,
		operation.Result == "kept" && own.count == 0,
		operation.Count != nil && *operation.Count != own.count,
		operation.Token != nil && *operation.Token <= from.token:
		return from, false
	}
	if operation.Token != nil {
		from.token = *operation.Token
	}
	if operation.Lease != nil {
		own.lease = *operation.Lease
		own.mayEnd = slices.Contains(ending, own.lease)
	}
	from.holds = slices.Clone(from.holds)
	if isHeld {
		from.holds = slices.Delete(from.holds, place, place+1)
	}
	if own.count > 0 && !(own.mayEnd && history.isFinal(own)) {
		from.holds = slices.Insert(from.holds, place, own)
	}
	history.observe(&from)
	return from, true
}

// Whether nothing shows later that the hold has lasted, once it may end: its client does nothing
// with it, and no refusal needs it. It then ends at once, since the model would otherwise consider
// each set of such holds.
func (history *history) isFinal(hold hold) bool {
	return history.isLast(history.starts[hold.lease])
}

// Whether the client of an operation of a fair lock gets no answer to a later change.
func (history *history) isLast(operation *line) bool {
	last := history.last[operation.Client]
	return history.rules.Fair && (last == nil || last.Call <= operation.Call)
}

// Notes which answers are true now.
func (history *history) observe(world *world) {
	isTrue := func(number int) bool { return history.isTrue(*world, &history.operations[number]) }
	if slices.ContainsFunc(world.untrue, isTrue) {
		world.untrue = slices.DeleteFunc(slices.Clone(world.untrue), isTrue)
	}
}

// Whether this answer, which changes nothing, is true.
func (history *history) isTrue(world world, operation *line) bool {
	_, isHeld := world.hold(operation.Client)
	if operation.Result == "not-owner" {
		return !isHeld
	}
	if isHeld {
		return !history.rules.Reentrant
	}
	return history.rules.Fair || history.isExcluded(world, operation)
}

// Whether the holds of others exclude an acquisition.
func (history *history) isExcluded(from world, operation *line) bool {
	others := 0
	for _, hold := range from.holds {
		if hold.client != operation.Client && !(hold.shared && operation.Shared) {
			others++
		}
	}
	return others >= history.rules.Permits
}

func newState(worlds []world, ending []int) *state {
	var kept []world
	for at, one := range worlds {
		isCovered := slices.ContainsFunc(kept, one.isCoveredBy) ||
			slices.ContainsFunc(worlds[at+1:], one.isCoveredBy)
		if !isCovered {
			kept = append(kept, one)
		}
	}
	var keys []string
	for _, world := range kept {
		keys = append(keys, world.key())
	}
	slices.Sort(keys)
	return &state{kept, ending, strings.Join(keys, " ")}
}

// A possible state of the lock.
type world struct {
	// The holds, sorted by client.
	holds []hold
	// The last fencing token.
	token int64
	// The requests without an answer that may still happen, and the answers that were not true
	// yet; by their numbers, sorted.
	pending, untrue []int
}

type hold struct {
	client string
	shared bool
	count  int64
	lease  int
	// Whether the lease may end now.
	mayEnd bool
}

// The place of the hold of a client, and whether there is one.
func (world world) hold(client string) (int, bool) {
	compare := func(hold hold, client string) int { return strings.Compare(hold.client, client) }
	return slices.BinarySearchFunc(world.holds, client, compare)
}

// Whether all that is possible after this state is possible after the other one as well.
func (one world) isCoveredBy(other world) bool {
	return one.token == other.token && slices.Equal(one.holds, other.holds) &&
		contains(other.pending, one.pending) && contains(one.untrue, other.untrue)
}

// Whether the numbers are some of all.
func contains(all, numbers []int) bool {
	isMissing := func(number int) bool {
		_, isPresent := slices.BinarySearch(all, number)
		return !isPresent
	}
	return !slices.ContainsFunc(numbers, isMissing)
}

func (world world) key() string {
	key := strconv.AppendInt(nil, world.token, 10)
	for _, hold := range world.holds {
		key = strconv.AppendInt(append(key, ' '), int64(hold.lease), 10)
		key = strconv.AppendInt(append(key, 'x'), hold.count, 10)
		key = append(append(key, hold.client...), strconv.FormatBool(hold.mayEnd)...)
	}
	for _, numbers := range [][]int{world.pending, world.untrue} {
		key = append(key, ';')
		for _, number := range numbers {
			key = strconv.AppendInt(append(key, ' '), int64(number), 10)
		}
	}
	return string(key)
}

func holdsBy(lease int) func(hold) bool {
	return func(hold hold) bool { return hold.lease == lease }
}

func without(numbers []int, number int) []int {
	return slices.DeleteFunc(slices.Clone(numbers), func(other int) bool {
		return other == number
	})
}
