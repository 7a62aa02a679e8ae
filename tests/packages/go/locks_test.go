// Tests lock objects.

package packages

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/locks"
	"lockwheel-go/lockwheeltest"
)

// ttl does not end by the clock of a process, however slow it is.
const ttl = 10 * time.Minute

// lockOf makes a lock of the server that is released with the test. Its lease is not renewed unless
// the options say so.
func lockOf(
	t *testing.T, server *lockwheeltest.Server, key string, options locks.Options,
) *locks.Lock {
	// The limits of the client do not apply to waiting.
	client := dialed(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), ReadTimeout: time.Millisecond,
	}))
	if options.TTL == 0 {
		options.TTL = ttl
	}
	if options.RenewEvery == 0 {
		options.RenewEvery = -1
	}
	lock := locks.New(client, key, options)
	t.Cleanup(func() { _ = lock.Release() })
	return lock
}

// held is a lock that has been acquired.
func held(
	t *testing.T, server *lockwheeltest.Server, key string, options locks.Options,
) *locks.Lock {
	t.Helper()
	lock := lockOf(t, server, key, options)
	no(t, lock.Acquire(background))
	return lock
}

func isHeld(lock *locks.Lock) bool { return lock.Context(background).Err() == nil }

// until calls the condition repeatedly until it is true.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); {
		holds(t, time.Now().Before(deadline), "the condition did not become true")
	}
}

// field is a field of a reply of pairs, nil if there is none.
func field(reply any, name string) any {
	pairs, _ := reply.([]any)
	for index := 0; index+1 < len(pairs); index += 2 {
		if pairs[index] == name {
			return pairs[index+1]
		}
	}
	return nil
}

// shown is a field of the only owner of a lock, nil if there is none.
func shown(server *lockwheeltest.Server, key, name string) any {
	holders, _ := field(server.Call("LOCK.INFO", key), "holders").([]any)
	if len(holders) != 1 {
		return nil
	}
	return field(holders[0], name)
}

// queue is the number of clients that wait for a lock.
func queue(server *lockwheeltest.Server, key string) int {
	waiting, _ := field(server.Call("LOCK.INFO", key), "queue").([]any)
	return len(waiting)
}

// isError ends the test unless the error is this one.
func isError(t *testing.T, found, expected error) {
	t.Helper()
	holds(t, errors.Is(found, expected), "the error is %v and not %v", found, expected)
}

func TestALockIsHeldUntilItIsReleased(t *testing.T) {
	server := frozen(t)
	lock := lockOf(t, server, "lock", locks.Options{Meta: "job 7"})
	isError(t, lock.Release(), locks.ErrNotHeld)
	no(t, lock.Acquire(background))
	ctx := lock.Context(background)
	is(t, shown(server, "lock", "owner"), any(lock.Owner()))
	is(t, shown(server, "lock", "token"), any(lock.Token()))
	is(t, shown(server, "lock", "meta"), any("job 7"))
	is(t, shown(server, "lock", "grace"), nil)
	holds(t, strings.Contains(lock.Owner(), fmt.Sprintf(":%d:", os.Getpid())),
		"the owner is %s", lock.Owner())

	another := lockOf(t, server, "lock", locks.Options{})
	err := another.Acquire(background)
	isError(t, err, locks.ErrNotAcquired)
	matches(t, err.Error(), `"lock" \(refused\): owners 1, lease 600000 ms, queue 0`)
	holds(t, another.Owner() != lock.Owner(), "both have one owner")
	matches(t, lock.Acquire(background).Error(), "holds the lock already")

	is(t, ctx.Err(), nil)
	no(t, lock.Release())
	<-ctx.Done()
	isError(t, context.Cause(ctx), locks.ErrNotHeld)
	isError(t, lock.Renew(), locks.ErrNotHeld)
	server.Journal.AssertNoLockHeld()
}

func TestTokensOfALockGrow(t *testing.T) {
	server := frozen(t)
	lock, last := lockOf(t, server, "lock", locks.Options{}), int64(0)
	for range 3 {
		no(t, lock.Acquire(background))
		holds(t, lock.Token() > last, "%d follows %d", lock.Token(), last)
		last = lock.Token()
		no(t, lock.Release())
	}
}

func TestOwnersShareALockAndPermits(t *testing.T) {
	server := frozen(t)
	for range 2 {
		held(t, server, "lock", locks.Options{Shared: true})
	}
	isError(t, lockOf(t, server, "lock", locks.Options{}).Acquire(background), locks.ErrNotAcquired)
	two := locks.Options{Permits: 2, Of: 3}
	held(t, server, "jobs", two)
	is(t, shown(server, "jobs", "permits"), any(int64(2)))
	isError(t, lockOf(t, server, "jobs", two).Acquire(background), locks.ErrNotAcquired)
}

func TestLocksOfOneOwnerAreHeldAtTheSameTime(t *testing.T) {
	server := frozen(t)
	mine := locks.Options{Owner: "me"}
	first, second := held(t, server, "lock", mine), held(t, server, "lock", mine)
	is(t, first.Token(), second.Token())
	no(t, first.Release())
	is(t, shown(server, "lock", "count"), any(int64(1)))
	no(t, second.Release())
	is(t, server.Call("LOCK.INFO", "lock"), nil)
}

func TestWaitersGetALockInOrder(t *testing.T) {
	server := frozen(t)
	holds := held(t, server, "lock", locks.Options{})
	var waiters []*locks.Lock
	var acquired []chan error
	for count := range 3 {
		waiter := lockOf(t, server, "lock", locks.Options{Wait: time.Minute})
		result := make(chan error, 1)
		waiters, acquired = append(waiters, waiter), append(acquired, result)
		go func() { result <- waiter.Acquire(background) }()
		until(t, func() bool { return queue(server, "lock") == count+1 })
	}
	for index, waiter := range waiters {
		no(t, holds.Release())
		no(t, <-acquired[index])
		is(t, shown(server, "lock", "owner"), any(waiter.Owner()))
		holds = waiter
	}
}

// waiting waits for the held lock on another goroutine.
func waiting(t *testing.T, server *lockwheeltest.Server, ctx context.Context) chan error {
	waiter := lockOf(t, server, "lock", locks.Options{Wait: time.Minute})
	result := make(chan error, 1)
	go func() { result <- waiter.Acquire(ctx) }()
	until(t, func() bool { return queue(server, "lock") == 1 })
	return result
}

func TestAWaitEndsByTheServersClock(t *testing.T) {
	server := frozen(t)
	held(t, server, "lock", locks.Options{})
	result := waiting(t, server, background)
	server.Clock.Advance(time.Minute - time.Millisecond)
	is(t, queue(server, "lock"), 1)
	server.Clock.Advance(time.Millisecond)
	isError(t, <-result, locks.ErrNotAcquired)
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	server := frozen(t)
	held(t, server, "lock", locks.Options{})
	ctx, cancel := context.WithCancel(background)
	result := waiting(t, server, ctx)
	cancel()
	isError(t, <-result, context.Canceled)
	until(t, func() bool { return queue(server, "lock") == 0 })
}

func TestALeaseIsRenewed(t *testing.T) {
	server := frozen(t)
	lock := held(t, server, "lock", locks.Options{RenewEvery: time.Millisecond})
	for range 3 {
		server.Clock.Advance(ttl - time.Second)
		until(t, func() bool { return shown(server, "lock", "ttl") == ttl.Milliseconds() })
	}
	no(t, lock.Release())
	server.Journal.AssertRenewedBeforeExpiry()
}

func TestALockRenewsItselfByDefault(t *testing.T) {
	for name, options := range map[string]locks.Options{
		"lease": {TTL: 300 * time.Millisecond},
		"grace": {TTL: ttl, Bound: true, Grace: 300 * time.Millisecond},
		"none":  {TTL: ttl, Bound: true, Grace: -1},
	} {
		t.Run(name, func(t *testing.T) {
			server := frozen(t)
			// A rule without an effect shows when the request has arrived.
			renewal := server.Faults.Add(
				lockwheel.FlushScripts, lockwheel.Requests{Command: "lock.renew"})
			lock := locks.New(dial(t, server), "lock", options)
			no(t, lock.Acquire(background))
			defer lock.Release()
			renewal.Wait()
		})
	}
}

func TestALeaseIsRenewedByHand(t *testing.T) {
	server := frozen(t)
	lock := held(t, server, "lock", locks.Options{})
	server.Clock.Advance(ttl - time.Second)
	no(t, lock.Renew())
	is(t, shown(server, "lock", "ttl"), any(ttl.Milliseconds()))
	server.Clock.Advance(ttl)
	isError(t, lock.Renew(), locks.ErrLost)
	isError(t, lock.Renew(), locks.ErrLost)
	isError(t, lock.Release(), locks.ErrLost)
}

func TestTheContextOfALostLockEnds(t *testing.T) {
	for name, lose := range map[string]func(*lockwheeltest.Server, *locks.Lock){
		"lease": func(server *lockwheeltest.Server, _ *locks.Lock) { server.Clock.Advance(ttl) },
		"force": func(server *lockwheeltest.Server, _ *locks.Lock) {
			server.Call("LOCK.FORCE", "lock")
		},
		// Another grant to the same owner is not this one.
		"other": func(server *lockwheeltest.Server, lock *locks.Lock) {
			server.Call("LOCK.FORCE", "lock")
			server.Call("LOCK.ACQUIRE", "lock", lock.Owner(), "TTL", ttl.Milliseconds())
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := frozen(t)
			lock := held(t, server, "lock", locks.Options{RenewEvery: time.Millisecond})
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			ctx = lock.Context(ctx)
			lose(server, lock)
			<-ctx.Done()
			isError(t, context.Cause(ctx), locks.ErrLost)
			isError(t, context.Cause(lock.Context(background)), locks.ErrLost)
			isError(t, lock.Release(), locks.ErrLost)
			token := lock.Token()
			server.Call("LOCK.FORCE", "lock")
			no(t, lock.Acquire(background))
			holds(t, lock.Token() > token && isHeld(lock), "it is not held again")
		})
	}
}

func TestALossIsNoticedAtTheRelease(t *testing.T) {
	server := frozen(t)
	lock := held(t, server, "lock", locks.Options{})
	ctx := lock.Context(background)
	server.Call("LOCK.FORCE", "lock")
	isError(t, lock.Release(), locks.ErrLost)
	<-ctx.Done()
	isError(t, context.Cause(ctx), locks.ErrLost)
}

func TestALockOfAnUnreachableServerIsLostWithItsLease(t *testing.T) {
	server := frozen(t)
	lock := lockOf(t, server, "lock", locks.Options{
		TTL: 300 * time.Millisecond, RenewEvery: time.Millisecond,
	})
	no(t, lock.Acquire(background))
	client := shown(server, "lock", "client").(int64)
	server.Faults.Add(lockwheel.Refuse, lockwheel.Requests{})
	server.Faults.Add(lockwheel.Close, lockwheel.Requests{ClientID: client})
	ctx := lock.Context(background)
	<-ctx.Done()
	isError(t, context.Cause(ctx), locks.ErrLost)
	holds(t, shown(server, "lock", "owner") != nil, "the clock of the server has moved")
}

func TestALockThatIsNotRenewedIsLostByTheClockOfItsProcess(t *testing.T) {
	short := 500 * time.Millisecond
	for name, options := range map[string]locks.Options{
		"lease": {TTL: short},
		"grace": {Bound: true, Grace: short},
	} {
		t.Run(name, func(t *testing.T) {
			server := frozen(t)
			lock := lockOf(t, server, "lock", options)
			no(t, lock.Acquire(background))
			ctx := lock.Context(background)
			<-ctx.Done()
			isError(t, context.Cause(ctx), locks.ErrLost)
			isError(t, lock.Release(), locks.ErrLost)
			holds(t, shown(server, "lock", "owner") != nil, "the clock of the server has moved")
		})
	}
}

// Shows L17, L18.
func TestALockCountsFromWhenItsRequestWasSent(t *testing.T) {
	server, grace := frozen(t), 2*time.Second
	lock := held(t, server, "lock", locks.Options{Bound: true, Grace: grace})
	renewals := lockwheel.Requests{Command: "lock.renew"}
	gate := server.Faults.Gate(renewals)
	renewed := make(chan error, 1)
	go func() { renewed <- lock.Renew() }()
	gate.Wait()
	sent := time.Now() // Or before.
	time.Sleep(grace / 3)
	gate.Open()
	<-renewed
	server.Faults.Add(lockwheel.Close, renewals)
	for {
		now := time.Now()
		if errors.Is(lock.Renew(), locks.ErrLost) {
			return
		}
		holds(t, now.Sub(sent) < grace-grace/20, "it counts from the reply")
	}
}

func TestAFailedRenewalIsTriedAgain(t *testing.T) {
	for name, fault := range map[string]lockwheel.Fault{
		"close": lockwheel.Close,
		"lose":  lockwheel.LoseAndClose,
		"error": lockwheel.AnswerError("ERR not now"),
	} {
		t.Run(name, func(t *testing.T) {
			server := frozen(t)
			lock := held(t, server, "lock", locks.Options{RenewEvery: time.Millisecond})
			rule := server.Faults.Add(fault, lockwheel.Requests{Command: "lock.renew", Times: 3})
			until(t, func() bool { return rule.State().Fired == 3 })
			server.Clock.Advance(ttl - time.Second)
			until(t, func() bool { return shown(server, "lock", "ttl") == ttl.Milliseconds() })
			no(t, lock.Release())
		})
	}
}

func TestABoundLockSurvivesItsConnection(t *testing.T) {
	server := frozen(t)
	lock := held(t, server, "lock", locks.Options{
		Bound: true, Grace: time.Minute, RenewEvery: time.Millisecond,
	})
	first := shown(server, "lock", "client")
	server.Call("CLIENT", "KILL", "ID", first)
	until(t, func() bool {
		client := shown(server, "lock", "client")
		return client != first && client != int64(0)
	})
	server.Clock.Advance(ttl - time.Second)
	is(t, shown(server, "lock", "owner"), any(lock.Owner()))
	no(t, lock.Release())
}

func TestALockIsHeldOverAUnixSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "socket")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	no(t, err)
	_, port, err := net.SplitHostPort(free.Addr().String())
	no(t, err)
	no(t, free.Close())
	// Without a number of a port a server with a socket listens on no port.
	server := lockwheeltest.Start(t, lockwheel.Frozen(), lockwheel.Config("port", port),
		lockwheel.Config("unixsocket", socket))
	client := dialed(t, redis.NewClient(&redis.Options{Network: "unix", Addr: socket}))
	lock := locks.New(client, "lock", locks.Options{
		TTL: ttl, Bound: true, Grace: time.Minute, RenewEvery: time.Millisecond,
	})
	no(t, lock.Acquire(background))
	first := shown(server, "lock", "client")
	server.Call("CLIENT", "KILL", "ID", first)
	until(t, func() bool {
		client := shown(server, "lock", "client")
		return client != first && client != int64(0)
	})
	is(t, shown(server, "lock", "owner"), any(lock.Owner()))
	no(t, lock.Release())
}

func TestABoundLockIsReleasedOverANewConnection(t *testing.T) {
	server := frozen(t)
	lock := held(t, server, "lock", locks.Options{Bound: true})
	server.Call("CLIENT", "KILL", "ID", shown(server, "lock", "client"))
	no(t, lock.Release())
	is(t, server.Call("LOCK.INFO", "lock"), nil)
}

func init() {
	roles["holder"] = func() error {
		client := redis.NewClient(&redis.Options{Addr: os.Getenv("ADDRESS")})
		lock := locks.New(client, "lock", locks.Options{
			TTL: ttl, Bound: true, Grace: 5 * time.Second,
		})
		if err := lock.Acquire(background); err != nil {
			return err
		}
		fmt.Println("held")
		_, err := io.ReadAll(os.Stdin)
		return err
	}
}

func TestABoundLockOfAnEndedProcessIsReleasedAfterItsGrace(t *testing.T) {
	server := frozen(t)
	holder := process(t, "holder", "ADDRESS="+server.Addr())
	input, err := holder.StdinPipe()
	no(t, err)
	output, err := holder.StdoutPipe()
	no(t, err)
	no(t, holder.Start())
	line, err := bufio.NewReader(output).ReadString('\n')
	no(t, err)
	is(t, line, "held\n")
	result := waiting(t, server, background)
	no(t, input.Close())
	no(t, holder.Wait())
	until(t, func() bool { return shown(server, "lock", "client") == int64(0) })
	server.Clock.Advance(5*time.Second - time.Millisecond)
	is(t, queue(server, "lock"), 1)
	server.Clock.Advance(time.Millisecond)
	no(t, <-result)
}

func TestAcquiringAgainAfterALostReplyHoldsTheLockOnce(t *testing.T) {
	server := frozen(t)
	server.Faults.Add(lockwheel.LoseAndClose, lockwheel.Requests{Command: "lock.acquire", Nth: 1})
	lock := lockOf(t, server, "lock", locks.Options{})
	holds(t, lock.Acquire(background) != nil && !isHeld(lock), "the reply was not lost")
	no(t, lock.Acquire(background))
	is(t, shown(server, "lock", "count"), any(int64(2)))
	no(t, lock.Release())
	is(t, server.Call("LOCK.INFO", "lock"), nil)
}

func TestALockHasTheSettingsOfItsClientAndAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t, lockwheel.Config("requirepass", "secret"))
	for _, protocol := range []int{2, 3} {
		client := dialed(t, redis.NewClient(&redis.Options{
			Addr: server.Addr(), Password: "secret", DB: 3, Protocol: protocol, PoolSize: 1,
			ClientName: "worker",
		}))
		lock := locks.New(client, "lock", locks.Options{TTL: ttl})
		no(t, lock.Acquire(background))
		is(t, client.DBSize(background).Val(), 1)
		found := server.Journal.Locks()
		is(t, len(found), 1)
		is(t, found[0].Name, "worker")
		is(t, found[0].Database, 3)
		no(t, lock.Release())
	}
}

func TestAServerWithoutNativeLocksIsAClearError(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("there is no redis-server")
	}
	folder := t.TempDir()
	socket := filepath.Join(folder, "socket")
	plain := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "")
	plain.Dir = folder
	no(t, plain.Start())
	defer func() { _, _ = plain.Process.Kill(), plain.Wait() }()
	client := dialed(t, redis.NewClient(&redis.Options{Network: "unix", Addr: socket}))
	until(t, func() bool { return client.Ping(background).Err() == nil })
	err = locks.New(client, "lock", locks.Options{TTL: ttl}).Acquire(background)
	isError(t, err, locks.ErrNoNativeLocks)
	matches(t, err.Error(), "it must be Lockwheel 0.1 or later")
}

func TestOtherErrorsOfTheServerArePassedOn(t *testing.T) {
	server := frozen(t)
	server.Call("SET", "lock", "value")
	err := lockOf(t, server, "lock", locks.Options{}).Acquire(background)
	matches(t, err.Error(), "^WRONGTYPE")
}

func TestNoConnectionOfALockStaysBehind(t *testing.T) {
	server := frozen(t)
	held(t, server, "lock", locks.Options{})
	clients := func() int { return strings.Count(server.Call("CLIENT", "LIST").(string), "id=") }
	before := clients()
	another := lockOf(t, server, "another", locks.Options{})
	refused := lockOf(t, server, "lock", locks.Options{})
	for range 3 {
		no(t, another.Acquire(background))
		no(t, another.Release())
		isError(t, refused.Acquire(background), locks.ErrNotAcquired)
	}
	until(t, func() bool { return clients() == before })
}
