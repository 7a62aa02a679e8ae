// The README's code on the options of a server.

package readme

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

func TestOptions(t *testing.T) {
	server := lockwheeltest.Start(t,
		lockwheel.Config("requirepass", "secret"),
		lockwheel.Config("notify-keyspace-events", "Ex"),
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
