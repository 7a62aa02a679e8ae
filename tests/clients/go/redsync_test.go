// Tests redsync, on one server and on several.

package clients

import (
	"context"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	pool "github.com/go-redsync/redsync/v4/redis/redigo"
	"github.com/gomodule/redigo/redis"
	"lockwheel/report"
)

var redsyncLibrary = report.Library{Name: "redsync", Module: "github.com/go-redsync/redsync/v4"}

// redsyncContender locks on most of several servers.
type redsyncContender struct{ redsync *redsync.Redsync }

type redsyncLock struct{ mutex *redsync.Mutex }

func (c redsyncContender) tryLock(key string, lease time.Duration) held {
	// The default limit, a twentieth of the lease for a call, is too short for a busy machine.
	mutex := c.redsync.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTimeoutFactor(0.9))
	if mutex.TryLock() != nil {
		return nil
	}
	return redsyncLock{mutex}
}

func (l redsyncLock) unlock() bool {
	ok, _ := l.mutex.Unlock()
	return ok
}

func (l redsyncLock) extend() bool {
	ok, _ := l.mutex.Extend()
	return ok
}

// overGoRedis returns contenders on these servers that use go-redis.
func overGoRedis(t *T, protocol int, addresses ...string) func() contender {
	return func() contender {
		var pools []redsyncredis.Pool
		for _, address := range addresses {
			pools = append(pools, goredis.NewPool(dial(t, address, protocol)))
		}
		return redsyncContender{redsync.New(pools...)}
	}
}

// overRedigo returns contenders on these servers that use redigo.
func overRedigo(t *T, addresses ...string) func() contender {
	return func() contender {
		var pools []redsyncredis.Pool
		for _, address := range addresses {
			pools = append(pools, pool.NewPool(redigoPool(t, address)))
		}
		return redsyncContender{redsync.New(pools...)}
	}
}

func redigoPool(t *T, address string) *redis.Pool {
	pool := &redis.Pool{
		MaxIdle: 4,
		Dial:    func() (redis.Conn, error) { return redis.Dial("tcp", address) },
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

func TestRedsync(t *testing.T) {
	test := func(sentence string, test func(*T)) {
		behaviour(t, redsyncLibrary, sentence, test)
	}
	test("one server: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("redsync"), overGoRedis(t, 3, mainServer()))
	})
	test("one server, redigo: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("redsync"), overRedigo(t, mainServer()))
	})
	test("one server, RESP2: a lease ends at its time, not before", func(t *T) {
		expires(t, unique("redsync"), overGoRedis(t, 2, mainServer()))
	})
	test("one server, RESP3: a lease ends at its time, not before", func(t *T) {
		expires(t, unique("redsync"), overGoRedis(t, 3, mainServer()))
	})
	test("one server, redigo: a late release takes nothing from the next holder", func(t *T) {
		refusesLateRelease(t, unique("redsync"), overRedigo(t, mainServer()))
	})
	three := disposable(ofRedsyncWithAll)
	test("three servers: of many contenders one holds the lock", func(t *T) {
		excludes(t, unique("redsync"), overGoRedis(t, 3, three...))
	})
	test("three servers: a lease ends at its time, not before", func(t *T) {
		expires(t, unique("redsync"), overGoRedis(t, 3, three...))
	})
	test("three servers: a released lock is free at once", func(t *T) {
		releases(t, unique("redsync"), overGoRedis(t, 3, three...))
	})
	test("three servers: a late release takes nothing from the next holder", func(t *T) {
		refusesLateRelease(t, unique("redsync"), overGoRedis(t, 3, three...))
	})
	test("three servers: an extended lease ends at its new time", func(t *T) {
		extends(t, unique("redsync"), overGoRedis(t, 3, three...))
	})
	test("three servers: a lock that ended is not extended, but with SetNXOnExtend taken again",
		func(t *T) { redsyncTakesAgain(t, three) })
	test("three servers: a waiter gets the lock when it is released, and not before",
		func(t *T) { redsyncWaits(t, three) })
	test("three servers, one dead: two of three still make a lock", redsyncOneDead)
	test("three servers, two dead: no lock is granted, and one that is held is lost",
		redsyncWithoutQuorum)
	test("five servers, two dead: three of five still make a lock", func(t *T) {
		five := disposable(ofRedsyncWithFiveAndTwo)
		end(t, five[1])
		end(t, five[4])
		excludes(t, unique("redsync"), overGoRedis(t, 3, five...))
		expires(t, unique("redsync"), overGoRedis(t, 3, five...))
	})
}

func redsyncTakesAgain(t *T, servers []string) {
	holder := overGoRedis(t, 3, servers...)().(redsyncContender)
	key := unique("redsync")
	ended, _ := taken(t, holder, key, short)
	time.Sleep(short + 50*time.Millisecond)
	t.Is(!ended.extend(), "a lock that had ended was extended")
	again := redsyncLock{holder.redsync.NewMutex(key, redsync.WithExpiry(short),
		redsync.WithTimeoutFactor(0.9), redsync.WithSetNXOnExtend())}
	// As in `taken`, the library may refuse the lock.
	before := time.Now()
	for again.mutex.TryLock() != nil {
		t.Is(time.Since(before) >= short*8/10, "it is free")
		time.Sleep(short)
		before = time.Now()
	}
	time.Sleep(short + 50*time.Millisecond)
	before = time.Now()
	for !again.extend() {
		t.Is(time.Since(before) >= short*8/10, "a free lock was not taken again")
		time.Sleep(short)
		before = time.Now()
	}
	isGranted(t, overGoRedis(t, 3, servers...)(), key, before, short)
}

func redsyncWaits(t *T, servers []string) {
	holder, waiter := overGoRedis(t, 3, servers...)(), overGoRedis(t, 3, servers...)()
	key := unique("redsync")
	lock := holder.tryLock(key, long)
	t.Is(lock != nil, "it is free")
	acquired := make(chan time.Time)
	go func() {
		patient := []redsync.Option{redsync.WithTries(2000), redsync.WithExpiry(long),
			redsync.WithRetryDelay(5 * time.Millisecond)}
		if err := waiter.(redsyncContender).redsync.NewMutex(key, patient...).Lock(); err != nil {
			t.Errorf("%v", err)
		}
		acquired <- time.Now()
	}()
	time.Sleep(short)
	released := time.Now()
	t.Is(lock.unlock(), "it was the holder's")
	t.Is((<-acquired).After(released), "two held it")
}

func redsyncOneDead(t *T) {
	three := disposable(ofRedsyncWithOneDead)
	make, key := overGoRedis(t, 3, three...), unique("redsync")
	lock := make().tryLock(key, long)
	t.Is(lock != nil, "it is free")
	end(t, three[0])
	t.Is(make().tryLock(key, long) == nil, "it was granted twice")
	t.Is(lock.extend(), "two are most of three")
	t.Is(lock.unlock(), "two are most of three")
	releases(t, unique("redsync"), make)
	excludes(t, unique("redsync"), make)
}

func redsyncWithoutQuorum(t *T) {
	three := disposable(ofRedsyncWithoutQuorum)
	make, key := overGoRedis(t, 3, three...), unique("redsync")
	lock := make().tryLock(key, long)
	t.Is(lock != nil, "it is free")
	end(t, three[0])
	end(t, three[2])
	t.Is(!lock.extend(), "one is not most of three")
	t.Is(make().tryLock(unique("redsync"), long) == nil, "one is not most of three")
	// It has removed the key that it set on the reachable server.
	survivor := dial(t, three[1], 3)
	keys, err := survivor.DBSize(context.Background()).Result()
	t.No(err)
	t.Is(keys == 1, "%d keys are left, not the holder's alone", keys)
}
