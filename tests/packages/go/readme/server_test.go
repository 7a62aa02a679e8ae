package readme

import (
	"context"
	"testing"

	leasehold "github.com/leasehold/leasehold-go"
	"github.com/leasehold/leasehold-go/leaseholdtest"
	"github.com/redis/go-redis/v9"
)

func TestOptions(t *testing.T) {
	server := leaseholdtest.Start(t,
		leasehold.Config("requirepass", "secret"),
		leasehold.Config("notify-keyspace-events", "Ex"),
	)
	options, err := redis.ParseURL(server.URL()) // redis://:secret@127.0.0.1:40123
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer client.Close()
	if err := client.Ping(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
}
