// Package locks has an object for the native locks of a Lockwheel server (LOCK.*), over go-redis:
//
//	lock := locks.New(client, "invoice:7", locks.Options{TTL: 30 * time.Second, Wait: time.Minute})
//	if err := lock.Acquire(ctx); err != nil {
//		return err
//	}
//	defer lock.Release()
//	return write(lock.Context(ctx), invoice, lock.Token())
//
// A lock that is held renews itself. Clients that wait for it form a queue, first in first out.
//
// A lock uses a connection of its own, with the settings of the client, while it waits and while it
// is held: pools close connections that a lock is bound to.
package locks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

var (
	// ErrNotAcquired: another owner holds the lock, or the time to wait is over.
	ErrNotAcquired = errors.New("the lock was not acquired")
	// ErrNotHeld: the object does not hold the lock.
	ErrNotHeld = errors.New("the lock is not held")
	// ErrLost: the lock was lost before it was released. Another owner may have held it since.
	ErrLost = errors.New("the lock was lost")
	// ErrNoNativeLocks: the server does not know LOCK.*.
	ErrNoNativeLocks = errors.New(
		"this server has no native locks: it must be Lockwheel 0.1 or later")
)

const (
	// limit is that for connecting and for a reply, in addition to the time that a lock waits.
	limit = 10 * time.Second
	// pauseMax is the longest pause before a failed renewal is tried again.
	pauseMax = 100 * time.Millisecond
	// renewalLimitMin is the least limit for a renewal, unless the lease is too short for it.
	renewalLimitMin = time.Second
	// graceDefault is that of the server.
	graceDefault = 2 * time.Second
	// graceMin: a lock that is bound with a shorter grace is not renewed more often.
	graceMin = 300 * time.Millisecond
)

// Options are those of a lock. Spans are whole milliseconds.
type Options struct {
	// TTL is the lease, which is renewed while the lock is held.
	TTL time.Duration
	// Wait is how long Acquire waits, by the server's clock.
	Wait time.Duration
	// Owner is by default made of the host, the process and a random number. Locks with the same
	// owner may be held at the same time.
	Owner string
	// Shared: other owners may share the lock.
	Shared bool
	// Permits of a semaphore that has Of permits; 0 for a lock.
	Permits, Of int
	// Bound: the server releases the lock when its connection has ended for Grace, by default 2
	// seconds; a negative Grace is none. Until then the lock connects again and keeps what it
	// holds.
	Bound bool
	Grace time.Duration
	// Meta is a text that LOCK.INFO shows.
	Meta string
	// RenewEvery is the time between two renewals, by default a third of the lease, or of the grace
	// if that is shorter. A negative span turns them off.
	RenewEvery time.Duration
}

// Lock is a lock of one owner. Its methods may be called from any goroutine.
type Lock struct {
	key     string
	owner   string
	options Options
	// settings are those of its own client.
	settings redis.Options
	// trust is how long the lock is surely held after a request that was answered was sent, by a
	// clock that is slower than that of the server by a twentieth.
	trust, period, renewalLimit time.Duration

	mutex sync.Mutex
	own   *redis.Client
	token int64
	// life ends with the grant; its cause tells how.
	life context.Context
	end  context.CancelCauseFunc
	// trustedUntil is when the grant is over by the clock of this process; it is read without the
	// mutex, which a renewal holds while it waits.
	trustedUntil atomic.Pointer[time.Time]
}

// New returns a lock that is not held yet. The client is that of one server, of [redis.NewClient],
// or finds the server that leads, by [redis.NewFailoverClient]; the latter has to stay open.
func New(client *redis.Client, key string, options Options) *Lock {
	l := &Lock{key: key, owner: options.Owner, options: options, settings: *client.Options()}
	if l.owner == "" {
		host, _ := os.Hostname()
		random := make([]byte, 8)
		_, _ = rand.Read(random) // It never fails.
		l.owner = fmt.Sprintf("%s:%d:%x", host, os.Getpid(), random)
	}
	if options.Grace == 0 {
		l.options.Grace = graceDefault
	}
	grace := options.TTL
	if options.Bound {
		l.options.Grace = max(l.options.Grace, 0)
		grace = l.options.Grace
	}
	l.trust = min(options.TTL, grace)
	l.trust -= l.trust / 20
	l.renewalLimit = min(max(l.trust/3, min(options.TTL/3, renewalLimitMin)), limit)
	l.period = options.RenewEvery
	if l.period == 0 {
		l.period = min(options.TTL, max(grace, graceMin)) / 3
	}
	// Its commands have limits of their own. A LOCK.ACQUIRE that is sent again would hold the lock
	// twice.
	l.settings.ContextTimeoutEnabled, l.settings.MaxRetries = true, -1
	// go-redis takes the limit for reading as that for writing if none is given.
	l.settings.ReadTimeout, l.settings.WriteTimeout = -1, -1
	l.settings.PoolSize, l.settings.MinIdleConns, l.settings.MaxActiveConns = 1, 0, 0
	l.settings.ConnMaxIdleTime, l.settings.ConnMaxLifetime = -1, -1
	l.settings.PushNotificationProcessor = nil // Each client needs its own.
	// Each new connection would ask for these, and log that the server has none.
	notifications := maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.settings.MaintNotificationsConfig = &notifications
	l.life, l.end = context.WithCancelCause(context.Background())
	l.end(ErrNotHeld)
	return l
}

// Owner returns the owner in the commands.
func (l *Lock) Owner() string { return l.owner }

// Token returns the fencing token of the last grant, 0 before the first. Later grants have greater
// tokens.
func (l *Lock) Token() int64 {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.token
}

// Context returns a context that ends when the lock is lost or released, or when its parent ends.
// [context.Cause] is then [ErrLost] or [ErrNotHeld].
func (l *Lock) Context(parent context.Context) context.Context {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	life := l.life
	made, cancel := context.WithCancelCause(parent)
	if life.Err() != nil {
		cancel(context.Cause(life))
	}
	context.AfterFunc(life, func() { cancel(context.Cause(life)) })
	return made
}

// Acquire acquires the lock; may wait for it. The context limits this call only; a client whose
// context ends leaves the queue. The error is [ErrNotAcquired] if another owner holds the lock.
//
// If the connection fails, the server may have granted the lock: then acquiring it again succeeds
// at once, and otherwise it is free when its lease ends.
func (l *Lock) Acquire(ctx context.Context) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.life.Err() == nil {
		return errors.New("this object holds the lock already")
	}
	settings := l.settings
	l.own = redis.NewClient(&settings)
	own, begun := l.own, time.Now()
	// go-redis does not end a request with its context.
	keeps := context.AfterFunc(ctx, func() { _ = own.Close() })
	reply, err := l.do(ctx, l.options.Wait+limit, l.acquisition()...)
	keeps()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = l.settle(reply, begun)
	}
	if err != nil {
		_ = own.Close()
		return err
	}
	l.life, l.end = context.WithCancelCause(context.Background())
	if l.trust > 0 {
		go l.expire(l.life, l.end, own)
	}
	if time.Since(begun) > l.trust/3 {
		// It is not known when in this time the lease began.
		if err := l.renew(l.life); err != nil {
			l.finish(ErrLost)
			return err
		}
	}
	if l.period > 0 {
		go l.keep(l.life)
	}
	return nil
}

func (l *Lock) acquisition() []any {
	o := l.options
	words := []any{"LOCK.ACQUIRE", l.key, l.owner, "TTL", o.TTL.Milliseconds()}
	words = append(words, "WAIT", o.Wait.Milliseconds())
	if o.Shared {
		words = append(words, "SHARED")
	}
	if o.Permits > 0 {
		words = append(words, "PERMITS", o.Permits, "OF", o.Of)
	}
	if o.Bound {
		words = append(words, "BOUND", "GRACE", o.Grace.Milliseconds())
	}
	if o.Meta != "" {
		words = append(words, "META", o.Meta)
	}
	return words
}

// settle reads the reply to a LOCK.ACQUIRE that was sent at this time.
func (l *Lock) settle(reply any, begun time.Time) error {
	fields := map[any]any{}
	switch reply := reply.(type) {
	case map[any]any: // RESP3
		fields = reply
	case []any:
		for index := 0; index+1 < len(reply); index += 2 {
			fields[reply[index]] = reply[index+1]
		}
	}
	token, granted := fields["token"].(int64)
	if !granted {
		return fmt.Errorf("%w: %q (%v): owners %v, lease %v ms, queue %v", ErrNotAcquired,
			l.key, fields["status"], fields["holders"], fields["ttl"], fields["queue"])
	}
	l.token = token
	l.trustSince(begun)
	return nil
}

// Renew renews the lease now. The error is [ErrLost] or [ErrNotHeld] if the lock is not held any
// more; after another error it still is.
func (l *Lock) Renew() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.renew(l.life)
}

// renew renews the lease of one grant.
func (l *Lock) renew(life context.Context) error {
	if life.Err() != nil {
		return context.Cause(life)
	}
	begun := time.Now()
	reply, err := l.again(l.renewalLimit,
		"LOCK.RENEW", l.key, l.owner, "TTL", l.options.TTL.Milliseconds(), "TOKEN", l.token)
	if life.Err() != nil {
		return context.Cause(life)
	}
	if err == nil && reply == int64(1) {
		l.trustSince(begun)
		return nil
	}
	if err != nil && time.Now().Before(*l.trustedUntil.Load()) {
		return err
	}
	l.finish(ErrLost)
	return ErrLost
}

// Release releases the lock. The error is [ErrLost] or [ErrNotHeld] if it was not held any more.
func (l *Lock) Release() error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.life.Err() != nil {
		return context.Cause(l.life)
	}
	words := []any{"LOCK.RELEASE", l.key, l.owner, "TOKEN", l.token}
	send := func() (any, error) { return l.do(context.Background(), limit, words...) }
	if l.options.Owner == "" {
		// Its owner holds the lock once, also if the reply to a grant was lost. With another owner,
		// a release that is sent again may be that of another object.
		words = append(words, "ALL")
		send = func() (any, error) { return l.again(limit, words...) }
	}
	reply, err := send()
	if err == nil && reply == nil {
		err = ErrLost
	}
	if err == ErrLost {
		l.finish(ErrLost)
	} else {
		l.finish(ErrNotHeld)
	}
	return err
}

// finish ends the grant.
func (l *Lock) finish(cause error) {
	l.end(cause)
	_ = l.own.Close()
}

// trustSince notes that the server has confirmed the lease to a command that was sent then.
func (l *Lock) trustSince(begun time.Time) {
	until := begun.Add(l.trust)
	l.trustedUntil.Store(&until)
}

// expire ends one grant when it is over by the clock, whatever a renewal waits for.
func (l *Lock) expire(life context.Context, end context.CancelCauseFunc, own *redis.Client) {
	for {
		select {
		case <-life.Done():
			return
		case <-time.After(time.Until(*l.trustedUntil.Load())):
		}
		if !time.Now().Before(*l.trustedUntil.Load()) {
			end(ErrLost)
			_ = own.Close()
			return
		}
	}
}

// keep renews the lease of one grant until it ends.
func (l *Lock) keep(life context.Context) {
	pause := l.period
	for {
		select {
		case <-life.Done():
			return
		case <-time.After(pause):
		}
		l.mutex.Lock()
		err := l.renew(life)
		l.mutex.Unlock()
		pause = l.period
		if err != nil {
			pause = min(pause, pauseMax)
		}
	}
}

// again sends a command, and once more if the connection has ended.
func (l *Lock) again(limit time.Duration, words ...any) (any, error) {
	reply, err := l.do(context.Background(), limit, words...)
	var answered redis.Error
	if err == nil || errors.As(err, &answered) || errors.Is(err, ErrNoNativeLocks) {
		return reply, err
	}
	return l.do(context.Background(), limit, words...)
}

// do sends a command; a reply of nil is no error.
func (l *Lock) do(ctx context.Context, limit time.Duration, words ...any) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := l.own.Do(ctx, words...).Result()
	var answered redis.Error
	switch {
	case err == redis.Nil:
		return nil, nil
	case errors.As(err, &answered) && strings.Contains(err.Error(), "unknown command"):
		return nil, ErrNoNativeLocks
	case redis.HasErrorPrefix(err, "READONLY"):
		return nil, fmt.Errorf("%w: a lock needs the client of the server that leads: that of "+
			"redis.NewClient, or of redis.NewFailoverClient without ReplicaOnly", err)
	}
	return reply, err
}
