// Package lockwheel starts Lockwheel, a Redis-compatible lock server for tests, whose clock stops
// and moves, and which breaks where a test tells it to.
//
// In tests it is used through [lockwheel-go/lockwheeltest], whose methods fail
// the test instead of returning errors. This package is for whatever has no [testing.TB], as
// TestMain, and says what each thing does.
package lockwheel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	host = "127.0.0.1"
	// A server starts and ends in milliseconds. These are for machines that stand still, so that a
	// test says what it waits for before its own limit ends it.
	startLimit = 30 * time.Second
	stopLimit  = 10 * time.Second
)

// Server is a running server. Its methods may be called by several goroutines at once.
type Server struct {
	// Clock is what its leases end by.
	Clock Clock
	// Faults are what is to go wrong.
	Faults Faults
	// Journal is what has happened.
	Journal Journal

	port     int
	settings settings
	command  *exec.Cmd
	stdin    io.Closer
	log      *log
	ended    chan struct{}
	stopping sync.Once
	stopped  error

	mutex sync.Mutex
	idle  []*connection
}

type settings struct {
	frozen    bool
	password  string
	arguments []string
}

// Option is how a server is started.
type Option func(*settings)

// Frozen lets the clock stand still from the start, until it is moved.
func Frozen() Option {
	return func(settings *settings) { settings.frozen = true }
}

// Config is a directive of redis.conf, as Config("requirepass", "secret").
func Config(name string, values ...string) Option {
	return func(settings *settings) {
		if name == "requirepass" && len(values) == 1 {
			settings.password = values[0]
		}
		settings.arguments = append(append(settings.arguments, "--"+name), values...)
	}
}

// Start starts a server on a free port of the loopback and returns when it serves. It ends by
// [Server.Stop], or with this process, however that ends. The error says what the server said.
func Start(options ...Option) (*Server, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	server := &Server{log: newLog(), ended: make(chan struct{})}
	server.Clock, server.Faults, server.Journal = Clock{server}, Faults{server}, Journal{server}
	for _, option := range options {
		option(&server.settings)
	}
	if err := server.launch(program); err != nil {
		return nil, fmt.Errorf("lockwheel: %s does not start: %w", program, err)
	}
	if err := server.setUp(); err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return server, nil
}

func (s *Server) launch(program string) error {
	arguments := []string{
		"--port", "0", "--bind", host, "--enable-test-commands", "local", "--end-with-stdin", "yes",
	}
	s.command = exec.Command(program, append(arguments, s.settings.arguments...)...)
	s.command.Env = slices.DeleteFunc(os.Environ(), isSetting)
	s.command.Stdout, s.command.Stderr = s.log, s.log
	stdin, err := s.command.StdinPipe()
	if err != nil {
		return err
	}
	s.stdin = stdin
	if err := s.command.Start(); err != nil {
		return err
	}
	go func() {
		_ = s.command.Wait()
		close(s.ended)
	}()
	select {
	case s.port = <-s.log.port:
		return nil
	case <-s.ended:
		return fmt.Errorf("%s; it said:\n%s", s.command.ProcessState, s.log)
	case <-time.After(startLimit):
		_ = s.command.Process.Kill()
		<-s.ended
		return fmt.Errorf("it does not serve after %s; it said:\n%s", startLimit, s.log)
	}
}

// isSetting says that a variable is a directive to a server. What a test's server does is said by
// the test alone.
func isSetting(variable string) bool { return strings.HasPrefix(variable, "LOCKWHEEL_") }

func (s *Server) setUp() error {
	if s.settings.frozen {
		return s.Clock.Freeze()
	}
	// So that what the server refuses, as a password of ours, is told here.
	_, err := s.Clock.Now()
	return err
}

// URL is the server's address for clients that take one, with the password if it has one:
// redis://127.0.0.1:6379.
func (s *Server) URL() string {
	address := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.settings.password != "" {
		address.User = url.UserPassword("", s.settings.password)
	}
	return address.String()
}

// Addr is the server's address for clients that take host and port: 127.0.0.1:6379.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host(), strconv.Itoa(s.port)) }

// Host is 127.0.0.1.
func (s *Server) Host() string { return host }

// Port is the port that the server listens at.
func (s *Server) Port() int { return s.port }

// Log is the last that the server has written to its log.
func (s *Server) Log() string { return s.log.String() }

// Reset makes the server as it was at its start, for the next of those who share it: it forgets
// faults, gates, keys and the journal, and its clock runs, or stands if it was started so. What the
// clock shows stays, since it never goes back.
func (s *Server) Reset() error {
	clock := func() error { return s.Clock.Run(1) }
	if s.settings.frozen {
		clock = s.Clock.Freeze
	}
	flush := func() error {
		_, err := s.Call("FLUSHALL")
		return err
	}
	for _, step := range []func() error{s.Faults.Clear, clock, flush, s.Journal.Clear} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends the server and waits until it has ended. It may be called again. The error is for a
// server that had to be killed, or had failed.
func (s *Server) Stop() error {
	s.stopping.Do(func() { s.stopped = s.stop() })
	return s.stopped
}

func (s *Server) stop() error {
	s.forgetIdle()
	// The server ends when its standard input does.
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		_ = s.command.Process.Kill()
		<-s.ended
	}
	if state := s.command.ProcessState; !state.Success() {
		return fmt.Errorf("lockwheel: the server ended: %s; it said:\n%s", state, s.log)
	}
	return nil
}
