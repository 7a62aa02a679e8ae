package packages

import (
	"context"
	"testing"
	"time"

	leasehold "github.com/leasehold/leasehold-go"
	"github.com/leasehold/leasehold-go/leaseholdtest"
	"github.com/redis/go-redis/v9"
)

func TestALeaseEndsWhenTheClockSaysSo(t *testing.T) {
	server := leaseholdtest.Start(t, leasehold.Frozen())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	if err := client.SetNX(context.Background(), "lock", "token", 30*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	server.Clock.Advance(30 * time.Second)
	if err := client.Get(context.Background(), "lock").Err(); err != redis.Nil {
		t.Fatalf("it is still held: %v", err)
	}
}
