// Tests the mistakes of common lock recipes, and their corrections.

package packages

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

// Mistakes of common lock recipes. Each has two tests: the mistake, shown with the clock and the
// faults, and its correction under the same conditions. The other languages have the same tests,
// with the same names.

const (
	lease = 10 * time.Second
	year  = 365 * 24 * time.Hour
)

var (
	compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("del", KEYS[1]) else return 0 end`)
	compareAndRenew = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then
		return redis.call("pexpire", KEYS[1], ARGV[2]) else return 0 end`)
)

// frozen starts a server with a stopped clock.
func frozen(t *testing.T) *lockwheeltest.Server {
	t.Helper()
	t.Parallel()
	return lockwheeltest.Start(t, lockwheel.Frozen())
}

// take acquires the lock for ten seconds and reports whether it was granted.
func take(t *testing.T, client *redis.Client, token string) bool {
	t.Helper()
	taken, err := client.SetNX(background, "lock", token, lease).Result()
	no(t, err)
	return taken
}

// release releases the lock if it is held by the token, and reports whether it was.
func release(t *testing.T, client *redis.Client, token string) bool {
	t.Helper()
	deleted, err := compareAndDelete.Run(background, client, []string{"lock"}, token).Int()
	no(t, err)
	return deleted == 1
}

// renew renews the lock for ten seconds if it is held by the token, and reports whether it was.
func renew(t *testing.T, client *redis.Client, token string) bool {
	t.Helper()
	key, leaseMs := []string{"lock"}, lease.Milliseconds()
	renewed, err := compareAndRenew.Run(background, client, key, token, leaseMs).Int()
	no(t, err)
	return renewed == 1
}

// setNX is SETNX, a lock without a lease.
func setNX(t *testing.T, client *redis.Client, token string) bool {
	t.Helper()
	taken, err := client.SetNX(background, "lock", token, 0).Result()
	no(t, err)
	return taken
}

// lints reports whether the lint rule was violated.
func lints(server *lockwheeltest.Server, rule string) bool {
	for _, finding := range server.Journal.Lint() {
		if finding.Rule == rule {
			return true
		}
	}
	return false
}

func TestSetnxWithoutALease(t *testing.T) {
	server := frozen(t)
	a, b := dial(t, server), dial(t, server)
	is(t, setNX(t, a, "a"), true)
	no(t, a.Close()) // It dies.
	server.Clock.Advance(year)
	is(t, setNX(t, b, "b"), false)
	holds(t, server.Journal.Broken(lockwheel.EveryLockHasALease) != nil, "the check passes")
	is(t, lints(server, "lock-without-lease"), true)
}

func TestSetnxWithoutALeaseCorrected(t *testing.T) {
	server := frozen(t)
	a, b := dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	no(t, a.Close())
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	server.Journal.AssertEveryLockHasALease()
}

func TestSetnxThenExpire(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.Close, lockwheel.Requests{Command: "expire"})
	a, b := dial(t, server), dial(t, server)
	is(t, setNX(t, a, "a"), true)
	holds(t, a.Expire(background, "lock", lease).Err() != nil, "it is not cut off")
	server.Clock.Advance(year)
	is(t, setNX(t, b, "b"), false)
	holds(t, server.Journal.Broken(lockwheel.EveryLockHasALease) != nil, "the check passes")
}

func TestSetnxThenExpireCorrected(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set", Times: 1})
	a, b := dial(t, server), dial(t, server)
	holds(t, a.SetNX(background, "lock", "a", lease).Err() != nil, "it is not cut off")
	is(t, take(t, b, "b"), false) // A has it, and does not know.
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	server.Journal.AssertEveryLockHasALease()
}

func TestReleaseWithoutACheck(t *testing.T) {
	server := frozen(t)
	a, b, c := dial(t, server), dial(t, server), dial(t, server)
	is(t, take(t, a, "OK"), true)
	server.Clock.Advance(lease) // It still works ...
	is(t, take(t, b, "OK"), true)
	no(t, a.Del(background, "lock").Err()) // ... and is done.
	is(t, take(t, c, "OK"), true)          // B and C are inside.
	holds(t, server.Journal.Broken(lockwheel.ReleasedOnlyByOwner) != nil, "the check passes")
	is(t, lints(server, "delete-without-check"), true)
}

func TestReleaseWithoutACheckCorrected(t *testing.T) {
	server := frozen(t)
	a, b, c := dial(t, server), dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	is(t, release(t, a, "a"), false)
	is(t, take(t, c, "c"), false)
	is(t, release(t, b, "b"), true)
	server.Journal.AssertReleasedOnlyByOwner()
	server.Journal.AssertNoLockHeld()
}

// whileItIsReleased has A release the lock; before the last command of that its lease ends and B
// takes the lock. Returns what the release returns.
func whileItIsReleased(
	t *testing.T, server *lockwheeltest.Server, command string, releases func(*redis.Client) error,
) error {
	a, b := dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	gate := server.Faults.Gate(lockwheel.Requests{Command: command})
	released := make(chan error)
	go func() { released <- releases(a) }()
	gate.Wait()
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	gate.Open()
	return <-released
}

func TestCheckThenDelete(t *testing.T) {
	server := frozen(t)
	no(t, whileItIsReleased(t, server, "del", func(a *redis.Client) error {
		if a.Get(background, "lock").Val() != "a" {
			return errors.New("it is not A's")
		}
		return a.Del(background, "lock").Err()
	}))
	is(t, server.Call("GET", "lock"), nil) // B works, and holds nothing.
	is(t, lints(server, "compare-and-delete-in-two-steps"), true)
}

func TestCheckThenDeleteCorrected(t *testing.T) {
	t.Run("by script", func(t *testing.T) {
		server := frozen(t)
		no(t, whileItIsReleased(t, server, "evalsha", func(a *redis.Client) error {
			deleted, err := compareAndDelete.Run(background, a, []string{"lock"}, "a").Int()
			if deleted != 0 {
				return errors.New("it was B's")
			}
			return err
		}))
		is(t, server.Call("GET", "lock"), any("b"))
	})
	t.Run("by transaction", func(t *testing.T) {
		server := frozen(t)
		err := whileItIsReleased(t, server, "exec", func(a *redis.Client) error {
			return a.Watch(background, func(watching *redis.Tx) error {
				if watching.Get(background, "lock").Val() != "a" {
					return errors.New("it is not A's")
				}
				_, err := watching.TxPipelined(background, func(pipe redis.Pipeliner) error {
					return pipe.Del(background, "lock").Err()
				})
				return err
			}, "lock")
		})
		is(t, err, error(redis.TxFailedErr))
		is(t, server.Call("GET", "lock"), any("b"))
	})
}

func TestWorkLongerThanTheLease(t *testing.T) {
	server := frozen(t)
	a, b := dial(t, server), dial(t, server)
	inside := 0
	is(t, take(t, a, "a"), true)
	inside++
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	inside++
	is(t, inside, 2)
	server.Clock.Advance(5 * time.Second)
	is(t, release(t, a, "a"), false) // After fifteen seconds the release is refused.
	is(t, lints(server, "lease-shorter-than-hold"), true)
	holds(t, server.Journal.Broken(lockwheel.NeverTwoHolders) != nil, "the check passes")
}

func TestWorkLongerThanTheLeaseCorrected(t *testing.T) {
	server := frozen(t)
	a, b := dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	for range 5 {
		server.Clock.Advance((lease / 3).Truncate(time.Millisecond))
		is(t, renew(t, a, "a"), true)
		is(t, take(t, b, "b"), false)
	}
	is(t, release(t, a, "a"), true)
	is(t, take(t, b, "b"), true)
	is(t, len(server.Journal.Lint()), 0)
	server.Journal.AssertNeverTwoHolders()
}

func TestRenewalWithoutACheck(t *testing.T) {
	server := frozen(t)
	a, b, c := dial(t, server), dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	no(t, b.Close()) // Simulates a crash. No client should wait for longer than the lease.
	server.Clock.Advance(lease - time.Second)
	no(t, a.Get(background, "lock").Err()) // There is a lock ...
	is(t, a.Expire(background, "lock", lease).Val(), true)
	server.Clock.Advance(time.Second) // ... so it was renewed.
	is(t, take(t, c, "c"), false)
	is(t, lints(server, "renewal-after-loss"), true)
}

func TestRenewalWithoutACheckCorrected(t *testing.T) {
	server := frozen(t)
	a, b, c := dial(t, server), dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	server.Clock.Advance(lease)
	is(t, take(t, b, "b"), true)
	no(t, b.Close())
	server.Clock.Advance(lease - time.Second)
	is(t, renew(t, a, "a"), false) // And so it learns that it must stop.
	server.Clock.Advance(time.Second)
	is(t, take(t, c, "c"), true)
}

func TestNotReentrant(t *testing.T) {
	server := frozen(t)
	a := dial(t, server)
	is(t, take(t, a, "a"), true)
	is(t, take(t, a, "a"), false) // It waits for itself ...
	server.Clock.Advance(lease)
	is(t, take(t, a, "a"), true) // ... until it has lost what it waited for.
}

// The lock of Redisson: a hash of the owner and its count.
var (
	lockAgain = redis.NewScript(`
		if (redis.call('exists', KEYS[1]) == 0) then
			redis.call('hincrby', KEYS[1], ARGV[2], 1);
			redis.call('pexpire', KEYS[1], ARGV[1]);
			return nil;
		end;
		if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then
			redis.call('hincrby', KEYS[1], ARGV[2], 1);
			redis.call('pexpire', KEYS[1], ARGV[1]);
			return nil;
		end;
		return redis.call('pttl', KEYS[1]);`)
	unlockOnce = redis.NewScript(`
		if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then
			return nil;
		end;
		local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1);
		if (counter > 0) then
			redis.call('pexpire', KEYS[1], ARGV[2]);
			return 0;
		else
			redis.call('del', KEYS[1]);
			redis.call('publish', KEYS[2], ARGV[1]);
			return 1;
		end;
		return nil;`)
)

func TestNotReentrantCorrected(t *testing.T) {
	server := frozen(t)
	a, b := dial(t, server), dial(t, server)
	lock := func(client *redis.Client, owner string) error {
		key, leaseMs := []string{"lock"}, lease.Milliseconds()
		return lockAgain.Run(background, client, key, leaseMs, owner).Err()
	}
	unlock := func() any {
		keys, leaseMs := []string{"lock", "released"}, lease.Milliseconds()
		return unlockOnce.Run(background, a, keys, 0, leaseMs, "a:1").Val()
	}
	is(t, lock(a, "a:1"), error(redis.Nil))
	is(t, lock(a, "a:1"), error(redis.Nil))
	is(t, a.HGet(background, "lock", "a:1").Val(), "2")
	is(t, unlock(), any(int64(0)))
	is(t, a.HGet(background, "lock", "a:1").Val(), "1")
	is(t, lock(b, "b:1"), nil) // The reply is the time to wait: A still holds the lock.
	is(t, unlock(), any(int64(1)))
	is(t, lock(b, "b:1"), error(redis.Nil))
	server.Journal.AssertReleasedOnlyByOwner()
}

// listen returns a confirmed subscription.
func listen(t *testing.T, client *redis.Client, channels ...string) *redis.PubSub {
	t.Helper()
	subscription := client.Subscribe(background, channels...)
	t.Cleanup(func() { _ = subscription.Close() })
	for range channels {
		_, err := subscription.Receive(background)
		no(t, err)
	}
	return subscription
}

func TestWaitingForTheReleaseMessageAlone(t *testing.T) {
	server := frozen(t)
	a, b := dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	messages := listen(t, b, "released")
	is(t, take(t, b, "b"), false)
	no(t, a.Close()) // A crashed holder does not publish.
	server.Clock.Advance(year)
	is(t, server.Call("EXISTS", "lock"), any(int64(0)))
	// The lock is free, and B waits: the first message that it receives is from this test.
	is(t, server.Call("PUBLISH", "released", "a year later"), any(int64(1)))
	message, err := messages.ReceiveMessage(background)
	no(t, err)
	is(t, message.Payload, "a year later")
}

func TestWaitingForTheReleaseMessageAloneCorrected(t *testing.T) {
	server := frozen(t)
	server.Call("CONFIG", "SET", "notify-keyspace-events", "Ex")
	a, b := dial(t, server), dial(t, server)
	is(t, take(t, a, "a"), true)
	messages := listen(t, b, "released", "__keyevent@0__:expired")
	is(t, take(t, b, "b"), false)
	remaining, err := b.PTTL(background, "lock").Result()
	no(t, err)
	no(t, a.Close())
	server.Clock.Advance(remaining)
	message, err := messages.ReceiveMessage(background)
	no(t, err)
	is(t, message.Payload, "lock")
	is(t, take(t, b, "b"), true)
}

func TestLostReply(t *testing.T) {
	server := frozen(t)
	lost := server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set", Times: 1})
	// By default go-redis sends a lost request again.
	a := dialed(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), MinRetryBackoff: -1, ReadTimeout: -1,
	}))
	is(t, take(t, a, "a1"), false) // The reply is that another client has the lock.
	is(t, lost.State().Fired, 1)
	for _, token := range []string{"a2", "a3", "a4"} {
		is(t, take(t, a, token), false) // Its own lock keeps it out.
		server.Clock.Advance(3 * time.Second)
	}
	is(t, server.Call("GET", "lock"), any("a1"))
	server.Clock.Advance(time.Second)
	is(t, take(t, a, "a5"), true)
}

func TestLostReplyCorrected(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "set", Times: 1})
	a := dialed(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), MinRetryBackoff: -1, ReadTimeout: -1,
	}))
	// A refused client checks whether the lock is its own.
	is(t, take(t, a, "a") || a.Get(background, "lock").Val() == "a", true)
	is(t, renew(t, a, "a"), true) // From now on for the whole lease.
	is(t, release(t, a, "a"), true)
	server.Journal.AssertNoLockHeld()
}

func TestFailoverLosesTheLock(t *testing.T) {
	server := frozen(t)
	is(t, take(t, dial(t, server), "a"), true)
	is(t, server.Faults.Failover(1), 1)
	is(t, take(t, dial(t, server), "b"), true) // Both are inside.
}

// majority is a set of independent servers; a lock is held on most of them.
type majority []*lockwheeltest.Server

func ofThree(t *testing.T) (servers majority) {
	t.Helper()
	t.Parallel()
	for range 3 {
		servers = append(servers, lockwheeltest.Start(t, lockwheel.Frozen()))
	}
	return servers
}

// dial is a client of each.
func (m majority) dial(t *testing.T) (clients []*redis.Client) {
	for _, server := range m {
		clients = append(clients, dial(t, server))
	}
	return clients
}

// advance moves the clocks, the last first: a client that uses the servers in order then finds each
// clock moved.
func (m majority) advance(span time.Duration) {
	for _, server := range slices.Backward(m) {
		server.Clock.Advance(span)
	}
}

// mutex is redsync's lock on these servers. It counts real time against the lease, which is so long
// that this makes no difference on a busy machine.
func (m majority) mutex(t *testing.T) *redsync.Mutex {
	var all []pools.Pool
	for _, client := range m.dial(t) {
		all = append(all, goredis.NewPool(client))
	}
	return redsync.New(all...).NewMutex("lock", redsync.WithExpiry(time.Hour))
}

// takeOn takes the lock on the servers in order, and returns the number that confirmed it.
func takeOn(clients []*redis.Client, token string) (taken int) {
	for _, client := range clients {
		if client.SetNX(background, "lock", token, lease).Val() {
			taken++
		}
	}
	return taken
}

func TestFailoverLosesTheLockCorrected(t *testing.T) {
	servers := ofThree(t)
	a, b := servers.mutex(t), servers.mutex(t)
	no(t, a.TryLock())
	is(t, servers[1].Faults.Failover(1), 1)
	holds(t, b.TryLock() != nil, "one of three is most of them")
	released, err := a.Unlock()
	holds(t, released, "it was lost: %v", err)
}

// takeSlowly takes the lock while each server needs four seconds for it. Returns on how many, and
// how long it took.
func takeSlowly(t *testing.T, servers majority, token string) (int, time.Duration) {
	begin := servers[0].Clock.Now()
	var slow []lockwheeltest.Rule
	for _, server := range servers {
		once := lockwheel.Requests{Command: "set", Times: 1}
		slow = append(slow, server.Faults.Add(lockwheel.Delay(4*time.Second), once))
	}
	taken := make(chan int)
	clients := servers.dial(t)
	go func() { taken <- takeOn(clients, token) }()
	for _, rule := range slow {
		rule.Wait()
		servers.advance(4 * time.Second)
	}
	return <-taken, servers[0].Clock.Now().Sub(begin)
}

func TestSlowMajority(t *testing.T) {
	servers := ofThree(t)
	taken, _ := takeSlowly(t, servers, "a")
	is(t, taken, 3) // So it believes that it holds the lock, for ten seconds.
	servers.advance(6 * time.Second)
	is(t, takeOn(servers.dial(t), "b"), 2) // B holds it as well.
}

func TestSlowMajorityCorrected(t *testing.T) {
	servers := ofThree(t)
	taken, elapsed := takeSlowly(t, servers, "a")
	is(t, taken, 3)
	holds(t, lease-elapsed <= 0, "%s of the lease are left", lease-elapsed)
	for _, client := range servers.dial(t) {
		release(t, client, "a")
	}
	is(t, takeOn(servers.dial(t), "b"), 3)
}

// loseMost loses the replies of two of the three servers to acquisitions.
func (m majority) loseMost() {
	for _, server := range m[1:] {
		once := lockwheel.Requests{Command: "set", Times: 1}
		server.Faults.Add(lockwheel.LoseAndClose, once)
	}
}

func TestLeftoversOfAFailedMajority(t *testing.T) {
	servers := ofThree(t)
	servers.loseMost()
	a := servers.dial(t)
	is(t, takeOn(a, "a"), 1)               // It gives up ...
	is(t, release(t, a[0], "a"), true)     // ... what it knows that it has.
	is(t, takeOn(servers.dial(t), "b"), 1) // No client holds the lock, and none can take it.
	servers[1].Journal.AssertReleasedOnlyByOwner()
	holds(t, servers[1].Journal.Broken(lockwheel.NoLockHeld) != nil, "the check passes")
}

func TestLeftoversOfAFailedMajorityCorrected(t *testing.T) {
	servers := ofThree(t)
	servers.loseMost()
	a, b := servers.mutex(t), servers.mutex(t)
	holds(t, a.TryLock() != nil, "it got two of three")
	for _, server := range servers {
		server.Journal.AssertNoLockHeld() // redsync has released it everywhere.
	}
	no(t, b.TryLock())
}
