// Tests the README's statements on the timers and retries of libraries.

package packages

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/gomodule/redigo/redis"
	goredislib "github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

// The README's statements on the timers and retries of libraries.

// usual is a client of go-redis with default settings, but without a pause before it sends again.
func usual(t *testing.T, server *lockwheeltest.Server) *goredislib.Client {
	return dialed(t, goredislib.NewClient(&goredislib.Options{
		Addr: server.Addr(), MinRetryBackoff: -1, ReadTimeout: -1,
	}))
}

func TestGoRedisSendsALostRequestUpToThreeMoreTimes(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "incr"})
	client := usual(t, server)
	is(t, client.Options().MaxRetries, 3)
	holds(t, client.Incr(background, "number").Err() != nil, "it is answered")
	is(t, server.Call("GET", "number"), any("4"))
	holds(t, dial(t, server).Incr(background, "number").Err() != nil, "it is answered")
	is(t, server.Call("GET", "number"), any("5"))
}

func TestGoRedisGivesUpARequestInRealTime(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.Delay(time.Second), lockwheel.Requests{Command: "get"})
	hasty := dialed(t, goredislib.NewClient(&goredislib.Options{
		Addr: server.Addr(), MaxRetries: -1, ReadTimeout: time.Millisecond,
	}))
	is(t, goredislib.NewClient(&goredislib.Options{}).Options().ReadTimeout, 5*time.Second)
	var timeout net.Error
	err := hasty.Get(background, "key").Err()
	holds(t, errors.As(err, &timeout) && timeout.Timeout(), "the error is: %v", err)
}

func TestGoRedisBLPopEndsByTheServersClock(t *testing.T) {
	server := frozen(t)
	// A rule without an effect shows when the request has arrived.
	waits := server.Faults.Add(lockwheel.FlushScripts, lockwheel.Requests{Command: "blpop"})
	popped := make(chan error)
	client := dial(t, server)
	go func() { popped <- client.BLPop(background, time.Hour, "queue").Err() }()
	waits.Wait()
	server.Clock.Advance(time.Hour)
	is(t, <-popped, error(goredislib.Nil))
}

func redsyncOn(t *testing.T, client *goredislib.Client) *redsync.Redsync {
	return redsync.New(goredis.NewPool(client))
}

func TestRedsyncWaitsBetweenItsTries(t *testing.T) {
	locks := redsyncOn(t, dial(t, frozen(t)))
	no(t, locks.NewMutex("lock").TryLock())
	begin := time.Now()
	err := locks.NewMutex("lock", redsync.WithTries(2)).Lock()
	var taken *redsync.ErrTaken
	is(t, errors.As(err, &taken), true)
	holds(t, time.Since(begin) >= 50*time.Millisecond, "it waits for less")
}

func TestRedsyncComputesTheEndOfTheLeaseByItsOwnClock(t *testing.T) {
	server := frozen(t)
	mutex := redsyncOn(t, dial(t, server)).NewMutex("lock", redsync.WithExpiry(time.Hour))
	no(t, mutex.TryLock())
	server.Clock.Advance(time.Hour)
	holds(t, time.Now().Before(mutex.Until()), "it follows the server's clock")
	extended, _ := mutex.Extend()
	is(t, extended, false)
	_, err := mutex.Unlock()
	is(t, errors.Is(err, redsync.ErrLockAlreadyExpired), true)
}

func TestRedsyncCountsRealTimeAgainstTheLease(t *testing.T) {
	server := frozen(t)
	gate := server.Faults.Gate(lockwheel.Requests{Command: "set"})
	mutex := redsyncOn(t, dial(t, server)).NewMutex("lock", redsync.WithExpiry(time.Millisecond),
		redsync.WithTimeoutFactor(60_000)) // It would not even connect in a twentieth of that.
	locked := make(chan error)
	go func() { locked <- mutex.TryLock() }()
	gate.Wait()
	for begin := time.Now(); time.Since(begin) < time.Millisecond; {
		server.Clock.Now()
	}
	gate.Open()
	is(t, errors.Is(<-locked, redsync.ErrFailed), true)
}

func TestRedsyncReleasesALockWithoutAReply(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set", Times: 1})
	locks := redsyncOn(t, usual(t, server))
	holds(t, locks.NewMutex("lock").TryLock() != nil, "the lock is taken without a reply")
	server.Journal.AssertNoLockHeld()

	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set", Times: 1})
	atOnce := redsync.WithRetryDelay(0)
	no(t, locks.NewMutex("lock", redsync.WithExpiry(time.Hour), atOnce).Lock())
}

func TestRedislockRecognisesItsOwnLock(t *testing.T) {
	server := frozen(t)
	lost := server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "eval", Times: 1})
	_, err := redislock.Obtain(background, usual(t, server), "lock", time.Hour, nil)
	no(t, err)
	is(t, lost.State().Fired, 1)
}

func TestRedislockStopsWaitingWhenALeaseHasPassedInRealTime(t *testing.T) {
	server := frozen(t)
	client := dial(t, server)
	_, err := redislock.Obtain(background, client, "lock", time.Hour, nil)
	no(t, err)
	patient := &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Nanosecond)}
	_, err = redislock.Obtain(background, client, "lock", time.Millisecond, patient)
	is(t, errors.Is(err, context.DeadlineExceeded), true)
}

func TestRedigoSendsNothingTwice(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "incr", Times: 1})
	pool := &redis.Pool{
		MaxIdle: 1,
		Dial:    func() (redis.Conn, error) { return redis.Dial("tcp", server.Addr()) },
	}
	defer pool.Close()
	increment := func() (int, error) {
		connection := pool.Get()
		defer connection.Close()
		return redis.Int(connection.Do("INCR", "number"))
	}
	_, err := increment()
	holds(t, err != nil, "it is answered")
	number, err := increment()
	no(t, err)
	is(t, number, 2)

	// The next user of a closed connection gets an error.
	server.Faults.Failover(0)
	_, err = increment()
	holds(t, err != nil, "it was noticed")
	number, err = increment()
	no(t, err)
	is(t, number, 3)
}

func TestRedigoWaitsForAsLongAsItTakes(t *testing.T) {
	server := frozen(t)
	rule := server.Faults.Add(lockwheel.Delay(24*time.Hour), lockwheel.Requests{Command: "incr"})
	connection, err := redis.Dial("tcp", server.Addr())
	no(t, err)
	defer connection.Close()
	answered := make(chan error)
	go func() {
		_, err := connection.Do("INCR", "number")
		answered <- err
	}()
	rule.Wait()
	server.Clock.Advance(24 * time.Hour)
	no(t, <-answered)
}
