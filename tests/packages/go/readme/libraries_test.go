// The README's code on lock libraries.

package readme

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/gomodule/redigo/redis"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestRedsyncWaitsByTheServersClock(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	locks := redsync.New(goredis.NewPool(connect(t, server)))
	if err := locks.NewMutex("invoice", redsync.WithExpiry(time.Hour)).Lock(); err != nil {
		t.Fatal(err)
	}

	advance := redsync.WithRetryDelayFunc(func(tries int) time.Duration {
		server.Clock.Advance(20 * time.Minute) // in place of the wait
		return 0
	})
	if err := locks.NewMutex("invoice", advance).Lock(); err != nil {
		t.Errorf("the lease did not end: %v", err)
	}
}

func TestRedsyncOnFiveServers(t *testing.T) {
	var all []pools.Pool
	for range 5 {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		all = append(all, goredis.NewPool(connect(t, server)))
		if len(all) > 3 {
			server.Faults.Add(lockwheel.Refuse, lockwheel.Requests{}) // Two of five are unreachable.
		}
	}
	mutex := redsync.New(all...).NewMutex("invoice", redsync.WithExpiry(time.Hour))
	if err := mutex.TryLock(); err != nil {
		t.Error(err)
	}
}

// advance is a redislock.RetryStrategy.
type advance struct{ clock lockwheeltest.Clock }

func (a advance) NextBackoff() time.Duration {
	a.clock.Advance(10 * time.Second) // in place of the wait
	return time.Nanosecond
}

func TestRedislockWaitsByTheServersClock(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := connect(t, server)
	ctx := context.Background()
	if _, err := redislock.Obtain(ctx, client, "invoice", 30*time.Second, nil); err != nil {
		t.Fatal(err)
	}

	patient := &redislock.Options{RetryStrategy: advance{server.Clock}}
	lock, err := redislock.Obtain(ctx, client, "invoice", time.Minute, patient)
	if err != nil {
		t.Fatalf("the lease did not end: %v", err)
	}
	server.Clock.Advance(50 * time.Second)
	if left, _ := lock.TTL(ctx); left != 10*time.Second {
		t.Errorf("%s of the lease are left", left)
	}
}

func TestRedigo(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client, err := redis.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()

	client.Do("SET", "invoice", "token", "NX", "PX", 30_000)
	server.Clock.Advance(30 * time.Second)
	if _, err := redis.String(client.Do("GET", "invoice")); err != redis.ErrNil {
		t.Errorf("the lease did not end: %v", err)
	}
}
