// Locks of etcd's package concurrency: a client, a session and a mutex for each lock.

package main

import (
	"context"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type etcdLock struct {
	client  *etcd.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func openEtcd(_ context.Context, address, key string, short bool) (lock, error) {
	client, err := etcd.New(etcd.Config{
		Endpoints: []string{address}, DialTimeout: 10 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	var options []concurrency.SessionOption // The default is a TTL of 60 seconds.
	if short {
		// The server makes a lease that is shorter as long as this.
		options = append(options, concurrency.WithTTL(2))
	}
	session, err := concurrency.NewSession(client, options...)
	if err != nil {
		return nil, err
	}
	return &etcdLock{client, session, concurrency.NewMutex(session, key)}, nil
}

func (l *etcdLock) acquire(ctx context.Context) error { return l.mutex.Lock(ctx) }
func (l *etcdLock) release(ctx context.Context) error { return l.mutex.Unlock(ctx) }

func (l *etcdLock) close() {
	_ = l.session.Close()
	_ = l.client.Close()
}
