// The test with Lockwheel on docs/coming-from.md beside that with miniredis.

package packages

import (
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestALockEndsWithItsLease(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locks := redsync.New(goredis.NewPool(client))
	late := locks.NewMutex("invoice:7", redsync.WithExpiry(30*time.Second))
	another := locks.NewMutex("invoice:7", redsync.WithExpiry(30*time.Second))

	if err := late.TryLock(); err != nil {
		t.Fatal(err)
	}
	if err := another.TryLock(); err == nil {
		t.Fatal("the lock was granted twice")
	}
	server.Clock.Advance(30 * time.Second) // The lease ends here.
	if err := another.TryLock(); err != nil {
		t.Fatalf("the lease did not end: %v", err)
	}
	if released, _ := late.Unlock(); released {
		t.Error("the late owner released the lock of another")
	}
}
