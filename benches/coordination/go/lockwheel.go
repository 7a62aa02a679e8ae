// Native locks of Lockwheel over go-redis: lock objects, and commands on one connection.

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"lockwheel-go/locks"
)

const (
	lease = 30 * time.Second
	wait  = time.Minute
)

// withoutNotices keeps go-redis from asking every connection for messages that no server sends that
// is not one of Redis Enterprise.
var withoutNotices = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// object is a lock object, which makes a connection for each acquisition.
type object struct {
	client *redis.Client
	lock   *locks.Lock
}

func openObject(_ context.Context, address, key string, short bool) (lock, error) {
	client := redis.NewClient(&redis.Options{
		Addr: address, MaintNotificationsConfig: withoutNotices,
	})
	options := locks.Options{TTL: lease, Wait: wait, Bound: true}
	if short {
		options.Grace = -1
	}
	return &object{client, locks.New(client, key, options)}, nil
}

func (o *object) acquire(ctx context.Context) error { return o.lock.Acquire(ctx) }
func (o *object) release(context.Context) error     { return o.lock.Release() }
func (o *object) close()                            { _ = o.client.Close() }

// commands are sent on one connection.
type commands struct {
	client  *redis.Client
	acquiry []any
	key     string
	owner   string
}

var owners int

func openCommands(ctx context.Context, address, key string, short bool) (lock, error) {
	client := redis.NewClient(&redis.Options{
		Addr: address, MaintNotificationsConfig: withoutNotices, PoolSize: 1,
		ReadTimeout: -1, ConnMaxIdleTime: -1, MaxRetries: -1,
	})
	owners++
	owner := fmt.Sprintf("%d:%d", os.Getpid(), owners)
	words := []any{"LOCK.ACQUIRE", key, owner, "TTL", lease.Milliseconds(),
		"WAIT", wait.Milliseconds(), "BOUND"}
	if short {
		words = append(words, "GRACE", 0)
	}
	return &commands{client, words, key, owner}, client.Ping(ctx).Err()
}

func (c *commands) acquire(ctx context.Context) error {
	reply, err := c.client.Do(ctx, c.acquiry...).Result()
	if fields, ok := reply.(map[any]any); err == nil && (!ok || fields["status"] != "acquired") {
		return fmt.Errorf("not acquired: %v", reply)
	}
	return err
}

func (c *commands) release(ctx context.Context) error {
	return c.client.Do(ctx, "LOCK.RELEASE", c.key, c.owner).Err()
}

func (c *commands) close() { _ = c.client.Close() }
