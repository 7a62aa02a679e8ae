// Reads histories.

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// A line of a history: an operation, or the rules of the lock whose operations follow.
type line struct {
	Lock   string `json:"lock"`
	Kind   string `json:"kind"`
	Client string `json:"client"`
	Shared bool   `json:"shared"`
	Call   int64  `json:"call"`
	Return *int64 `json:"return"`
	Result string `json:"result"`
	Token  *int64 `json:"token"`
	Count  *int64 `json:"count"`
	// The lease that the operation starts, or that ends.
	Lease *int `json:"lease"`

	Reentrant bool `json:"reentrant"`
	Permits   int  `json:"permits"`
	Fair      bool `json:"fair"`
}

// The history of one lock.
type history struct {
	lock       string
	rules      line
	operations []line
	// The operations that start leases.
	starts map[int]*line
	// The leases that may end before it is known that they have started.
	slow map[int]bool
	// The last operation of each client that has changed the lock.
	last map[string]*line
}

// Reads the histories of all locks.
func read(input io.Reader) ([]*history, error) {
	var histories []*history
	locks := map[string]*history{}
	scanner := bufio.NewScanner(input)
	for number := 1; scanner.Scan(); number++ {
		decoder := json.NewDecoder(bytes.NewReader(scanner.Bytes()))
		decoder.DisallowUnknownFields()
		var read line
		if err := decoder.Decode(&read); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if read.Kind == "lock" {
			if locks[read.Lock] != nil {
				return nil, fmt.Errorf("line %d: %s has rules already", number, read.Lock)
			}
			locks[read.Lock] = &history{
				lock: read.Lock, rules: read, starts: map[int]*line{}, slow: map[int]bool{},
				last: map[string]*line{},
			}
			histories = append(histories, locks[read.Lock])
			continue
		}
		lock := locks[read.Lock]
		if lock == nil {
			return nil, fmt.Errorf("line %d: %s has no rules", number, read.Lock)
		}
		if err := lock.add(&read); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return histories, scanner.Err()
}

func (history *history) add(operation *line) error {
	if err := operation.check(); err != nil {
		return err
	}
	if operation.Lease != nil {
		start := history.starts[*operation.Lease]
		switch {
		case operation.Kind == "end" && start == nil:
			return fmt.Errorf("the lease does not start before")
		case operation.Kind == "end":
			isSlow := start.Return == nil || *start.Return >= operation.Call
			history.slow[*operation.Lease] = isSlow
		case start != nil:
			return fmt.Errorf("the lease has started already")
		default:
			history.starts[*operation.Lease] = operation
		}
	}
	last := history.last[operation.Client]
	isChange := operation.isAnswered() && !operation.isObservation()
	if isChange && (last == nil || last.Call <= operation.Call) {
		history.last[operation.Client] = operation
	}
	history.operations = append(history.operations, *operation)
	return nil
}

func (operation *line) check() error {
	results := map[string]string{
		"acquire": "granted refused unknown",
		"renew":   "granted not-owner unknown",
		"release": "released kept not-owner unknown",
		"end":     "",
	}
	known, isKnown := results[operation.Kind]
	isResult := false
	for _, result := range bytes.Split([]byte(known), []byte(" ")) {
		isResult = isResult || string(result) == operation.Result
	}
	switch {
	case !isKnown || !isResult:
		return fmt.Errorf("no operation: %q, %q", operation.Kind, operation.Result)
	case operation.Return != nil && *operation.Return < operation.Call:
		return fmt.Errorf("the return is before the call")
	case operation.Return == nil && operation.isAnswered():
		return fmt.Errorf("an answer has a time")
	case operation.Lease == nil && operation.startsLease():
		return fmt.Errorf("a grant starts a lease")
	}
	return nil
}

// Whether it is a request whose result is known.
func (operation *line) isAnswered() bool {
	return operation.Kind != "end" && operation.Result != "unknown"
}

// Whether its answer says that it has changed nothing.
func (operation *line) isObservation() bool {
	return operation.Result == "refused" || operation.Result == "not-owner"
}

// Whether it cannot succeed without a lease.
func (operation *line) startsLease() bool {
	return operation.Kind == "end" || operation.Result == "granted" ||
		operation.Result == "unknown" && operation.Kind != "release"
}

func (operation line) String() string {
	text := fmt.Sprintf("%d..", operation.Call)
	if operation.Return == nil {
		text += "?"
	} else {
		text += fmt.Sprint(*operation.Return)
	}
	text += fmt.Sprintf(" %s %s %s", operation.Client, operation.Kind, operation.Result)
	if operation.Lease != nil {
		text += fmt.Sprintf(" lease %d", *operation.Lease)
	}
	if operation.Token != nil {
		text += fmt.Sprintf(" token %d", *operation.Token)
	}
	if operation.Count != nil {
		text += fmt.Sprintf(" count %d", *operation.Count)
	}
	return text
}
