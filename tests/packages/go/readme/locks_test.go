// The README's code on lock objects.

package readme

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/locks"
	"lockwheel-go/lockwheeltest"
)

func sendInvoice(ctx context.Context, client *redis.Client) error {
	lock := locks.New(client, "invoice:7", locks.Options{
		TTL: 30 * time.Second, Wait: 5 * time.Second, Meta: "nightly run",
	})
	if err := lock.Acquire(ctx); err != nil {
		return err
	}
	defer lock.Release()
	return store(lock.Context(ctx), lock.Token()) // Storage refuses an older token.
}

func store(ctx context.Context, token int64) error {
	if token == 0 {
		return errors.New("there is no token")
	}
	return ctx.Err()
}

func TestAnInvoiceIsSentWithALock(t *testing.T) {
	server := lockwheeltest.Start(t)
	t.Cleanup(server.Journal.AssertNoLockHeld)
	if err := sendInvoice(context.Background(), connect(t, server)); err != nil {
		t.Fatal(err)
	}
}

func TestALockIsLost(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	lock := locks.New(connect(t, server), "invoice:7", locks.Options{
		TTL: 30 * time.Second, RenewEvery: 10 * time.Millisecond,
	})
	if err := lock.Acquire(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx := lock.Context(context.Background())
	server.Clock.Advance(30 * time.Second)
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), locks.ErrLost) || !errors.Is(lock.Release(), locks.ErrLost) {
		t.Error("the lock was not lost")
	}
}
