// The properties that the tests of all Go libraries share.

package clients

import (
	"sync"
	"sync/atomic"
	"time"
)

// The properties of every lock: mutual exclusion, the lease to the millisecond, release
// and extension by the owner alone.

const (
	// long is a lease that does not end within a test.
	long = 60 * time.Second
	// short is one that ends within a test.
	short = 600 * time.Millisecond
	// generous is how late a lease may end or a waiter be woken on a slow and busy machine.
	generous = 10 * time.Second

	// near is the time before the end of a lease in which a test polls without pauses.
	near = 30 * time.Millisecond

	workers = 8
	rounds  = 10
)

// contender acquires locks, on its own connections.
type contender interface {
	// tryLock acquires the lock if it is free, else returns nil.
	tryLock(key string, lease time.Duration) held
}

// held is a held lock.
type held interface {
	// unlock releases the lock and reports whether it was still held.
	unlock() bool
	// extend starts a new lease now and reports whether the lock was still held.
	extend() bool
}

// excludes lets many contenders read a counter, wait, and write the incremented value: if two hold
// the lock at the same time, an increment is lost.
func excludes(t *T, key string, make func() contender) {
	var number, inside atomic.Int64
	var all sync.WaitGroup
	for range workers {
		contender := make()
		all.Go(func() {
			for range rounds {
				lock := wait(t, contender, key, long)
				if inside.Add(1) != 1 {
					t.Errorf("two hold the lock")
				}
				read := number.Load()
				time.Sleep(time.Millisecond)
				number.Store(read + 1)
				inside.Add(-1)
				t.Is(lock.unlock(), "the lock was lost while it was held")
			}
		})
	}
	all.Wait()
	t.Is(number.Load() == workers*rounds, "%d of %d additions", number.Load(), workers*rounds)
}

// expires: the lock is granted when its lease has ended, and not before.
func expires(t *T, key string, make func() contender) {
	holder, other := make(), make()
	_, before := taken(t, holder, key, short)
	isGranted(t, other, key, before, short)
}

// releases: a released lock is free at once, however long its lease was.
func releases(t *T, key string, make func() contender) {
	holder, other := make(), make()
	lock := holder.tryLock(key, long)
	t.Is(lock != nil, "it is free")
	t.Is(other.tryLock(key, long) == nil, "it was granted twice")
	t.Is(lock.unlock(), "it was the holder's")
	t.Is(other.tryLock(key, long) != nil, "it was not released")
}

// refusesLateRelease: a release after the end of the lease changes nothing for the next holder.
func refusesLateRelease(t *T, key string, make func() contender) {
	late, next, third := make(), make(), make()
	ended, _ := taken(t, late, key, short)
	kept := wait(t, next, key, long)
	t.Is(!ended.extend(), "a lock that another holds was extended")
	t.Is(!ended.unlock(), "the release by the late holder succeeded")
	t.Is(third.tryLock(key, long) == nil, "the late release freed the lock of the next holder")
	t.Is(kept.unlock(), "the next holder had lost it")
}

// extends checks that an extended lease counts from the extension.
func extends(t *T, key string, make func() contender) {
	holder, other := make(), make()
	before := extended(t, holder, key, short*2)
	isGranted(t, other, key, before, short*2)
}

// taken acquires a free lock and returns the time before the request. Some libraries discard a lock
// if acquiring it took most of the lease. If the machine stalled for that long, this tries again
// after the end of the lease that may have been granted.
func taken(t *T, contender contender, key string, lease time.Duration) (held, time.Time) {
	for {
		before := time.Now()
		if lock := contender.tryLock(key, lease); lock != nil {
			return lock, before
		}
		t.Is(time.Since(before) >= lease*8/10, "it is free")
		time.Sleep(lease)
	}
}

// extended acquires a lock and extends it later, and returns the time before the extension. An
// extension after the end of the lease is refused: if the machine stalled for that long, both are
// repeated.
func extended(t *T, contender contender, key string, lease time.Duration) time.Time {
	for {
		lock, begin := taken(t, contender, key, lease)
		time.Sleep(lease / 4)
		before := time.Now()
		if lock.extend() {
			return before
		}
		t.Is(time.Since(begin) >= lease*8/10, "it was the holder's to extend")
		time.Sleep(lease)
	}
}

// isGranted waits for a lock with a lease that began after `before`; it polls without pauses near
// its end, and fails if the lock is granted too early.
func isGranted(t *T, contender contender, key string, before time.Time, lease time.Duration) {
	time.Sleep(lease - near - time.Since(before))
	for contender.tryLock(key, long) == nil {
		t.Is(time.Since(before) < lease+generous, "the lease did not end")
	}
	isDue(t, time.Since(before), lease)
}

// wait tries until the lock is granted.
func wait(t *T, contender contender, key string, lease time.Duration) held {
	for begin := time.Now(); ; {
		if lock := contender.tryLock(key, lease); lock != nil {
			return lock
		}
		t.Is(time.Since(begin) < 3*generous, "the lock never came free")
		time.Sleep(2 * time.Millisecond)
	}
}

// isDue fails if a lease ended early or far too late.
func isDue(t *T, elapsed, lease time.Duration) {
	t.Is(elapsed >= lease, "a lease of %v ended after %v", lease, elapsed)
	t.Is(elapsed < lease+generous, "a lease of %v still held after %v", lease, elapsed)
}
