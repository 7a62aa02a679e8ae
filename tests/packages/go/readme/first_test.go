// Package readme contains the code of the module's README: each of its blocks is a part of a file.
package readme

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestALeaseEnds(t *testing.T) {
	server := lockwheeltest.Start(t, lockwheel.Frozen())
	client := connect(t, server)

	client.SetNX(context.Background(), "invoice", "token", 30*time.Second)
	server.Clock.Advance(30 * time.Second) // The lease ends here.

	if client.Exists(context.Background(), "invoice").Val() != 0 {
		t.Error("the lease has not ended")
	}
}

func connect(t *testing.T, server *lockwheeltest.Server) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}
