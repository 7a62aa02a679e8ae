// The locks of go-redis, by a recipe, and of redsync.

package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var (
	releaseScript = redis.NewScript(
		"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0")
	renewScript = redis.NewScript(
		"if redis.call('get', KEYS[1]) == ARGV[1] then" +
			" return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0")
)

// A lock by the recipe of `SET NX PX` and of scripts that compare the owner.
type recipe struct {
	server      redis.UniversalClient
	name, owner string
	lease       time.Duration
}

func (r recipe) acquire(ctx context.Context) (string, error) {
	granted, err := r.server.SetNX(ctx, r.name, r.owner, r.lease).Result()
	return either(granted, "granted", "refused"), err
}

func (r recipe) renew(ctx context.Context) (string, error) {
	renewed, err := renewScript.Eval(
		ctx, r.server, []string{r.name}, r.owner, r.lease.Milliseconds()).Int()
	return either(renewed == 1, "granted", "not-owner"), err
}

func (r recipe) check(ctx context.Context) (string, error) {
	holder, err := r.server.Get(ctx, r.name).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	return either(holder == r.owner, "held", "not-owner"), err
}

func (r recipe) release(ctx context.Context) (string, error) {
	released, err := releaseScript.Eval(ctx, r.server, []string{r.name}, r.owner).Int()
	return either(released == 1, "released", "not-owner"), err
}

// A lock of redsync.
type mutex struct {
	recipe
	mutex *redsync.Mutex
}

func newMutex(server redis.UniversalClient, name, owner string, lease time.Duration) mutex {
	value := func() (string, error) { return owner, nil }
	sync := redsync.New(goredis.NewPool(server))
	options := []redsync.Option{
		redsync.WithExpiry(lease), redsync.WithTries(1), redsync.WithGenValueFunc(value),
		// Not less than the time-out of replies, which is the client's.
		redsync.WithTimeoutFactor(10),
	}
	return mutex{recipe{server, name, owner, lease}, sync.NewMutex(name, options...)}
}

func (m mutex) acquire(ctx context.Context) (string, error) {
	return held(m.mutex.TryLockContext(ctx), "granted", "refused")
}

func (m mutex) renew(ctx context.Context) (string, error) {
	_, err := m.mutex.ExtendContext(ctx)
	return held(err, "granted", "not-owner")
}

func (m mutex) release(ctx context.Context) (string, error) {
	_, err := m.mutex.UnlockContext(ctx)
	return held(err, "released", "not-owner")
}

// The answer that redsync hides in an error.
func held(err error, yes, no string) (string, error) {
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		return yes, nil
	case errors.As(err, &taken), errors.Is(err, redsync.ErrLockAlreadyExpired):
		return no, nil
	default:
		return "", err
	}
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
