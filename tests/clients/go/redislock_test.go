// Tests redislock.

package clients

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"lockwheel/report"
)

var redislockLibrary = report.Library{Name: "bsm/redislock", Module: "github.com/bsm/redislock"}

type redislockContender struct {
	t      *T
	client *redislock.Client
}

type redislockLock struct {
	t     *T
	lock  *redislock.Lock
	lease time.Duration
}

func (c redislockContender) tryLock(key string, lease time.Duration) held {
	lock, err := c.client.Obtain(context.Background(), key, lease, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil
	}
	c.t.No(err)
	return redislockLock{c.t, lock, lease}
}

func (l redislockLock) unlock() bool {
	err := l.lock.Release(context.Background())
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return false
	}
	l.t.No(err)
	return true
}

func (l redislockLock) extend() bool {
	err := l.lock.Refresh(context.Background(), l.lease, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return false
	}
	l.t.No(err)
	return true
}

func redislockOver(t *T, protocol int) func() contender {
	return func() contender {
		return redislockContender{t, redislock.New(dial(t, mainServer(), protocol))}
	}
}

func TestRedislock(t *testing.T) {
	test := func(sentence string, test func(*T)) {
		behaviour(t, redislockLibrary, sentence, test)
	}
	test("RESP2: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("redislock"), redislockOver(t, 2))
	})
	test("RESP3: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("redislock"), redislockOver(t, 3))
	})
	test("a lease ends at its time, not before", func(t *T) {
		expires(t, unique("redislock"), redislockOver(t, 3))
	})
	test("a released lock is free at once", func(t *T) {
		releases(t, unique("redislock"), redislockOver(t, 3))
	})
	test("a late release takes nothing from the next holder", func(t *T) {
		refusesLateRelease(t, unique("redislock"), redislockOver(t, 2))
	})
	test("a refreshed lease ends at its new time", func(t *T) {
		extends(t, unique("redislock"), redislockOver(t, 3))
	})
	test("only the owner of the token takes the lock again", redislockReenters)
	test("TTL tells what is left, and nothing when it has ended", redislockReturnsTheRemainingLease)
	test("a waiter gets the lock when it is released, and not before", redislockWaits)
}

func redislockReenters(t *T) {
	client, key := redislock.New(dial(t, mainServer(), 3)), unique("redislock")
	mine := &redislock.Options{Token: "mine-mine-mine-mine-22", Metadata: "first"}
	first, err := client.Obtain(context.Background(), key, short, mine)
	t.No(err)
	before := time.Now()
	again := &redislock.Options{Token: mine.Token, Metadata: "second"}
	second, err := client.Obtain(context.Background(), key, short*2, again)
	t.No(err)
	t.Is(second.Token() == first.Token() && second.Metadata() == "second", "it is another's")
	_, err = client.Obtain(context.Background(), key, short, nil)
	granted := !errors.Is(err, redislock.ErrNotObtained)
	t.Is(!granted || time.Since(before) >= short*2, "it was granted twice")
	isGranted(t, redislockOver(t, 3)(), key, before, short*2)
}

func redislockReturnsTheRemainingLease(t *T) {
	client, key := redislock.New(dial(t, mainServer(), 3)), unique("redislock")
	before := time.Now()
	lock, err := client.Obtain(context.Background(), key, short, nil)
	t.No(err)
	rest, err := lock.TTL(context.Background())
	t.No(err)
	t.Is(rest > 0 || time.Since(before) >= short, "nothing is left of %v", short)
	t.Is(rest <= short, "%v are left of %v", rest, short)
	wait(t, redislockOver(t, 3)(), key, long)
	rest, err = lock.TTL(context.Background())
	t.No(err)
	t.Is(rest == 0, "%v are left of a lock that another holds", rest)
}

func redislockWaits(t *T) {
	holder, waiter := redislockOver(t, 3)(), redislock.New(dial(t, mainServer(), 3))
	key := unique("redislock")
	lock := holder.tryLock(key, long)
	t.Is(lock != nil, "it is free")
	acquired := make(chan time.Time)
	go func() {
		patient := &redislock.Options{RetryStrategy: redislock.LinearBackoff(5 * time.Millisecond)}
		if _, err := waiter.Obtain(context.Background(), key, long, patient); err != nil {
			t.Errorf("%v", err)
		}
		acquired <- time.Now()
	}()
	time.Sleep(short)
	released := time.Now()
	t.Is(lock.unlock(), "it was the holder's")
	t.Is((<-acquired).After(released), "two held it")
}
