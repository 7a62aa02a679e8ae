// Command clients takes and releases locks with go-redis or redsync until its input ends: see
// ../README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

const (
	locks      = 5
	retryDelay = 5 * time.Millisecond
)

// Errors by which a server that does not lead refuses any request.
var refusals = []string{"LOADING ", "MASTERDOWN ", "READONLY "}

var (
	epoch      atomic.Int64
	ended      atomic.Bool
	outputLock sync.Mutex
)

func write(line string) {
	outputLock.Lock()
	defer outputLock.Unlock()
	fmt.Println(strings.ReplaceAll(line, "\n", " "))
}

// The settings of all clients.
type settings struct {
	library, servers          string
	seed, threads             int
	leastLeaseMs, mostLeaseMs int
	replyTimeout              time.Duration
}

// A lock that one owner tries to take. The answers are those of a history.
type lock interface {
	acquire(ctx context.Context) (string, error)
	renew(ctx context.Context) (string, error)
	check(ctx context.Context) (string, error)
	release(ctx context.Context) (string, error)
}

// Connects without retries: a request whose answer is lost must not be repeated unnoticed.
func connect(s settings) redis.UniversalClient {
	kind, list, found := strings.Cut(s.servers, "=")
	if !found {
		list = s.servers
	}
	addresses := strings.Split(list, ",")
	if kind == "sentinel" {
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: addresses, MaxRetries: -1,
			DialTimeout: s.replyTimeout, ReadTimeout: s.replyTimeout, WriteTimeout: s.replyTimeout,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: addresses[0], MaxRetries: -1,
		DialTimeout: s.replyTimeout, ReadTimeout: s.replyTimeout, WriteTimeout: s.replyTimeout,
	})
}

// A thread. Each round is an owner of its own.
type worker struct {
	settings
	name   string
	owner  string
	random *rand.Rand
	server redis.UniversalClient
}

func (w *worker) run() error {
	if err := w.waitUntilReady(); err != nil {
		return err
	}
	own := int64(-1)
	for round := 1; !ended.Load(); round++ {
		if now := epoch.Load(); now != own {
			own = now
			write(fmt.Sprintf("epoch %s %d", w.name, own))
		}
		w.owner = fmt.Sprintf("%s.%d", w.name, round)
		if err := w.round(own); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) round(epoch int64) error {
	leaseMs := w.leastLeaseMs + w.random.Intn(w.mostLeaseMs-w.leastLeaseMs+1)
	name := fmt.Sprintf("plain-%d-%d", epoch, w.random.Intn(locks))
	lease := time.Duration(leaseMs) * time.Millisecond
	var l lock
	if w.library == "redsync" {
		l = newMutex(w.server, name, w.owner, lease)
	} else {
		l = recipe{w.server, name, w.owner, lease}
	}
	taken, err := w.ask(name, fmt.Sprintf("acquire %dms", leaseMs), l.acquire)
	if err != nil {
		return err
	}
	if taken != "granted" {
		time.Sleep(time.Duration(w.random.Intn(10)) * time.Millisecond)
		return nil
	}
	released, err := w.hold(l, name, leaseMs)
	if err != nil || !released {
		return err
	}
	_, err = w.ask(name, "release", l.release)
	return err
}

// Holds the lock for a while. Returns whether to release it.
func (w *worker) hold(l lock, name string, leaseMs int) (bool, error) {
	longestMs := []int{3, 3, 3, 100, 100, leaseMs}
	leftMs := w.random.Intn(longestMs[w.random.Intn(len(longestMs))])
	for leftMs > 0 && !ended.Load() {
		pauseMs := min(leftMs, 1+w.random.Intn(100))
		time.Sleep(time.Duration(pauseMs) * time.Millisecond)
		leftMs -= pauseMs
		choice := w.random.Intn(4)
		answer := "held"
		var err error
		if choice == 0 {
			answer, err = w.ask(name, fmt.Sprintf("renew %dms", leaseMs), l.renew)
		}
		if err == nil && (choice == 1 || answer == "unknown") {
			// If the server was away, it must know the holder.
			answer, err = w.ask(name, "check", l.check)
		}
		if err != nil || answer == "not-owner" {
			return false, err
		}
	}
	return true, nil
}

// Writes an event. Returns the answer, `unknown` if it was lost, or nothing if the server refuses
// any request. Returns only when the server answers requests.
func (w *worker) ask(
	name, action string, request func(context.Context) (string, error),
) (string, error) {
	invokedUs := nowUs(0)
	answer, err := request(context.Background())
	late := ""
	switch {
	case err == nil:
	case isRefusal(err):
		return "", w.waitUntilReady()
	case isLost(err):
		answer, late = "unknown", "late "
	default:
		return "", err
	}
	returnedUs := nowUs(999)
	times := fmt.Sprintf("%s%d..%d", late, invokedUs, returnedUs)
	write(fmt.Sprintf("%s %s %s %s %s", times, name, w.owner, action, answer))
	if answer == "unknown" {
		return answer, w.waitUntilReady()
	}
	return answer, nil
}

func (w *worker) waitUntilReady() error {
	for !ended.Load() {
		time.Sleep(retryDelay)
		err := w.server.Ping(context.Background()).Err()
		if err == nil {
			return nil
		}
		if !isLost(err) && !isRefusal(err) {
			return err
		}
	}
	return nil
}

func isRefusal(err error) bool {
	for _, code := range refusals {
		if strings.Contains(err.Error(), code) {
			return true
		}
	}
	return false
}

// Whether it is no error that the server sent.
func isLost(err error) bool {
	var answered redis.Error
	return !errors.As(err, &answered)
}

// The monotonic clock of the system in microseconds, rounded up by so many nanoseconds.
func nowUs(roundNs int64) int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return (now.Nano() + roundNs) / 1000
}

func main() {
	numbers := make([]int, 5)
	for index := range numbers {
		number, err := strconv.Atoi(os.Args[index+3])
		if err != nil {
			panic(err)
		}
		numbers[index] = number
	}
	s := settings{
		library: os.Args[1], servers: os.Args[2], seed: numbers[0], threads: numbers[1],
		leastLeaseMs: numbers[2], mostLeaseMs: numbers[3],
		replyTimeout: time.Duration(numbers[4]) * time.Millisecond,
	}
	// Lost connections are seen by requests.
	redis.SetLogger(quiet{})
	input := bufio.NewScanner(os.Stdin)
	server := connect(s)
	var workers sync.WaitGroup
	for started := false; input.Scan(); started = true {
		number, err := strconv.ParseInt(input.Text(), 10, 64)
		if err != nil {
			panic(err)
		}
		epoch.Store(number)
		for index := 0; !started && index < s.threads; index++ {
			w := worker{
				settings: s, server: server, name: fmt.Sprintf("%s-%d", s.library, index),
				random: rand.New(rand.NewSource(int64(s.seed*1000 + index))),
			}
			workers.Go(func() {
				if err := w.run(); err != nil {
					write(fmt.Sprintf("problem %s: %v", w.name, err))
				}
			})
		}
	}
	ended.Store(true)
	workers.Wait()
}

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
