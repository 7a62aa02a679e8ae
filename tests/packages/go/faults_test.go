// Tests fault rules and gates.

package packages

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestAFaultChangesTheEffectAndTheReplyOfARequest(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault lockwheel.Fault
		text  string
		kept  string
	}{
		{lockwheel.Close, "EOF", ""},
		{lockwheel.LoseAndClose, "EOF", "value"},
		{lockwheel.Cut(2), "EOF", "value"},
		{lockwheel.AnswerError("LOADING not yet"), "LOADING not yet", ""},
		{lockwheel.FlushScripts, "", "value"},
		{lockwheel.JumpAfter(time.Minute), "", ""},
		{lockwheel.LoseWrites(1), "", ""},
	} {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		rule := server.Faults.Add(test.fault, lockwheel.Requests{Command: "set"})
		failure := fmt.Sprint(dial(t, server).Set(background, "key", "value", time.Minute).Err())
		holds(t, strings.Contains(failure, test.text), "%v: the error is %s", test.fault, failure)
		value, _ := server.Call("GET", "key").(string)
		holds(t, value == test.kept, "%v: it is %q", test.fault, value)
		is(t, rule.State().Fired, 1)
	}
}

func TestFaultsWithoutAReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault lockwheel.Fault
		kept  any
	}{{lockwheel.Drop, nil}, {lockwheel.Lose, "value"}} {
		server := lockwheeltest.Start(t)
		rule := server.Faults.Add(test.fault, lockwheel.Requests{Command: "set", Times: 1})
		client := dial(t, server)
		go client.Set(background, "key", "value", 0)
		rule.Wait()
		is(t, server.Call("GET", "key"), test.kept)
	}
}

func TestADelayEndsByTheServersClock(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	rule := server.Faults.Add(lockwheel.Delay(2*time.Second), lockwheel.Requests{Command: "set"})
	set := make(chan error)
	client := dial(t, server)
	go func() { set <- client.Set(background, "key", "value", 0).Err() }()
	rule.Wait()
	is(t, len(rule.State().Held), 1)
	server.Clock.Advance(1999 * time.Millisecond)
	is(t, server.Call("GET", "key"), nil)
	server.Clock.Advance(time.Millisecond)
	no(t, <-set)
	is(t, server.Call("GET", "key"), any("value"))
}

func TestAStalledServerContinuesWhenTheRuleIsCleared(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	rule := server.Faults.Add(lockwheel.Stall, lockwheel.Requests{Command: "set"})
	set := make(chan error)
	client := dial(t, server)
	go func() { set <- client.Set(background, "key", "value", 0).Err() }()
	rule.Wait()
	is(t, server.Call("GET", "key"), nil)
	rule.Clear()
	no(t, <-set)
}

func TestConnectionsAreRefused(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	server.Faults.Add(lockwheel.Refuse, lockwheel.Requests{})
	client := dial(t, server)
	err := client.Ping(background).Err()
	holds(t, err != nil, "it is let in")
	// The package's own connection was there before.
	server.Faults.Clear()
	no(t, client.Ping(background).Err())
}

func TestConditionsChooseRequests(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	client := dialed(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), ClientName: "worker-1", PoolSize: 1, MaxRetries: -1,
	}))
	id, err := client.ClientID(background).Result()
	no(t, err)
	for _, requests := range []lockwheel.Requests{
		{Command: "s?t"},
		{Key: "lock:*", Command: "set"},
		{Client: "worker-*", Command: "set"},
		{ClientID: id, Command: "set"},
		{Command: "set", Nth: 1},
		{Command: "set", Times: 1},
		{Command: "set", Probability: 1, Seed: 42},
	} {
		rule := server.Faults.Add(lockwheel.AnswerError("OOPS"), requests)
		err := client.Set(background, "lock:1", "value", 0).Err()
		holds(t, err != nil && err.Error() == "OOPS", "%+v is not for it: %v", requests, err)
		rule.Clear()
	}
	for _, requests := range []lockwheel.Requests{
		{Command: "get"},
		{Key: "other"},
		{Client: "other"},
		{ClientID: id + 100},
		{Command: "set", Nth: 2},
	} {
		rule := server.Faults.Add(lockwheel.AnswerError("OOPS"), requests)
		no(t, client.Set(background, "lock:1", "value", 0).Err())
		rule.Clear()
	}
	is(t, len(server.Faults.List()), 0)
}

func TestTheSameSeedChoosesTheSameRequests(t *testing.T) {
	t.Parallel()
	chosen := func() (chosen string) {
		server := lockwheeltest.Start(t)
		server.Faults.Add(lockwheel.AnswerError("OOPS"), lockwheel.Requests{
			Command: "get", Probability: 0.5, Seed: 42,
		})
		for range 64 {
			_, err := server.Server.Call("GET", "key")
			chosen += map[bool]string{true: "x", false: "-"}[err != nil]
		}
		return chosen
	}
	first := chosen()
	holds(t, strings.Contains(first, "x") && strings.Contains(first, "-"), "it chose %s", first)
	is(t, chosen(), first)
}

func TestAGateHoldsAClientUntilItIsOpened(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	gate := server.Faults.Gate(lockwheel.Requests{Command: "del"})
	client := dial(t, server)
	id, err := client.ClientID(background).Result()
	no(t, err)
	server.Call("SET", "key", "value")
	deleted := make(chan int64)
	go func() { deleted <- client.Del(background, "key").Val() }()
	is(t, gate.Wait(), id)
	is(t, len(server.Faults.Gates()), 1)
	is(t, server.Call("GET", "key"), any("value"))
	is(t, gate.Open(), 1)
	is(t, <-deleted, 1)
	is(t, len(server.Faults.Gates()), 0)
}

func TestAClientHeldAtAGateDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	server, err := lockwheel.Start()
	no(t, err)
	defer server.Stop()
	gate, err := server.Faults.Gate(lockwheel.Requests{Command: "del"})
	no(t, err)
	held := make(chan error)
	go func() {
		_, err := gate.Wait()
		held <- err
	}()
	for range 10 {
		_, err := server.Call("PING")
		no(t, err)
	}
	go server.Call("DEL", "key")
	no(t, <-held)
}

func TestAFailoverLosesTheLastWritesAndDisconnectsClients(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	other := dial(t, server).Conn()
	no(t, other.Set(background, "kept", "value", 0).Err())
	no(t, other.Set(background, "lost", "value", 0).Err())
	is(t, server.Faults.Failover(1), 1)
	err := other.Ping(background).Err()
	holds(t, errors.Is(err, io.EOF), "the error is: %v", err)
	is(t, server.Call("EXISTS", "kept"), any(int64(1)))
	is(t, server.Call("EXISTS", "lost"), any(int64(0)))
}

func TestARuleThatWasClearedHasNoState(t *testing.T) {
	t.Parallel()
	server, err := lockwheel.Start()
	no(t, err)
	defer server.Stop()
	rule, err := server.Faults.Add(lockwheel.Drop, lockwheel.Requests{Key: "none"})
	no(t, err)
	no(t, rule.Clear())
	_, err = rule.State()
	holds(t, err != nil && strings.Contains(err.Error(), "was cleared"), "the error is: %v", err)
	_, err = server.Faults.Add(lockwheel.Delay(time.Microsecond), lockwheel.Requests{})
	holds(t, err != nil, "it is a delay")
	_, err = server.Faults.Add(lockwheel.Refuse, lockwheel.Requests{Key: "lock"})
	holds(t, err != nil, "a connection has a key")
}
