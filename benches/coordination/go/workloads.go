// The workloads, which are the same for every system.

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

type workload struct {
	name    string
	key     string
	clients int
	shared  bool
}

var workloads = []workload{
	{"1 client", "alone", 1, false},
	{"16 clients, a lock each", "apart", 16, false},
	{"16 clients, one lock", "shared", 16, true},
}

// bench measures one system.
type bench struct {
	system       system
	address      string
	round        int
	warmUp, span time.Duration
}

// times are those of one client.
type times struct{ acquire, release, handOff []time.Duration }

func (b bench) key(workload string, client int) string {
	return fmt.Sprintf("/go-%d-%s-%s-%d", b.round, b.system.name, workload, client)
}

func (b bench) workload(ctx context.Context, w workload) error {
	locks := make([]lock, w.clients)
	for client := range locks {
		key := b.key(w.key, client)
		if w.shared {
			key = b.key(w.key, 0)
		}
		opened, err := b.system.open(ctx, b.address, key, false)
		if err != nil {
			return err
		}
		locks[client] = opened
	}
	begin := time.Now().Add(b.warmUp)
	end := begin.Add(b.span)
	results, errors := make([]times, w.clients), make([]error, w.clients)
	// released is when the last holder began to release, in nanoseconds since begin.
	var released atomic.Int64
	var clients sync.WaitGroup
	for client := range locks {
		clients.Add(1)
		go func() {
			defer clients.Done()
			results[client], errors[client] = cycles(ctx, locks[client], begin, end, &released)
		}()
	}
	clients.Wait()
	var all times
	for client, result := range results {
		if errors[client] != nil {
			return errors[client]
		}
		all.acquire = append(all.acquire, result.acquire...)
		all.release = append(all.release, result.release...)
		all.handOff = append(all.handOff, result.handOff...)
		closeLock(locks[client])
	}
	if w.shared {
		report(b.system.name, w.name, "hand-off", all.handOff, b.span)
		return nil
	}
	report(b.system.name, w.name, "acquire", all.acquire, b.span)
	report(b.system.name, w.name, "release", all.release, b.span)
	return nil
}

// cycles acquires and releases the lock until the end.
func cycles(
	ctx context.Context, l lock, begin, end time.Time, released *atomic.Int64,
) (times, error) {
	var result times
	for {
		asked := time.Now()
		if asked.After(end) {
			return result, nil
		}
		if err := l.acquire(ctx); err != nil {
			return result, err
		}
		granted := time.Now()
		handOff := granted.Sub(begin) - time.Duration(released.Load())
		releasing := time.Now()
		released.Store(int64(releasing.Sub(begin)))
		if err := l.release(ctx); err != nil {
			return result, err
		}
		if asked.After(begin) {
			result.acquire = append(result.acquire, granted.Sub(asked))
			result.release = append(result.release, time.Since(releasing))
			result.handOff = append(result.handOff, handOff)
		}
	}
}

// killed measures how long a client waits for the lock of a process that is killed.
func (b bench) killed(ctx context.Context) error {
	key := b.key("killed", 0)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	holder := exec.Command(program, "hold", b.system.name, b.address, key)
	holder.Stderr = os.Stderr
	output, err := holder.StdoutPipe()
	if err != nil {
		return err
	}
	if err := holder.Start(); err != nil {
		return err
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		return fmt.Errorf("the holder: %w", err)
	}
	waiter, err := b.system.open(ctx, b.address, key, true)
	if err != nil {
		return err
	}
	defer closeLock(waiter)
	granted := make(chan error)
	go func() { granted <- waiter.acquire(ctx) }()
	select {
	case err := <-granted:
		return fmt.Errorf("the lock was not held: %w", err)
	case <-time.After(time.Second): // The waiter is in the queue.
	}
	killed := time.Now()
	if err := holder.Process.Kill(); err != nil {
		return err
	}
	if err := <-granted; err != nil {
		return err
	}
	report(b.system.name, "holder killed", "grant", []time.Duration{time.Since(killed)}, 0)
	return waiter.release(ctx)
}

func hold(ctx context.Context, name, address, key string) error {
	for _, system := range systems {
		if system.name != name {
			continue
		}
		held, err := system.open(ctx, address, key, true)
		if err == nil {
			err = held.acquire(ctx)
		}
		if err != nil {
			return err
		}
		fmt.Println("held")
		time.Sleep(time.Hour)
	}
	return fmt.Errorf("no such system: %s", name)
}

func closeLock(l lock) {
	if closer, ok := l.(interface{ close() }); ok {
		closer.close()
	}
}
