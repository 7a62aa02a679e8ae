// Package lockwheel starts Lockwheel, a lock server that speaks the Redis protocol, for tests that
// control its clock and faults.
//
// Tests use [lockwheel-go/lockwheeltest], which fails the test instead of returning errors.
// This package is for code without a [testing.TB], such as TestMain, and documents the methods.
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
	// A server starts and stops within milliseconds. These limits are for stalled machines: the
	// error comes before the limit of the test.
	startLimit = 30 * time.Second
	stopLimit  = 10 * time.Second
)

// Server is a running server. Several goroutines may call its methods at once.
type Server struct {
	// Clock is the clock that leases follow.
	Clock Clock
	// Faults are the fault rules and gates.
	Faults Faults
	// Journal is the journal of commands and locks.
	Journal Journal

	program  string
	port     int
	settings settings
	command  *exec.Cmd
	stdin    io.Closer
	log      *log
	ended    chan struct{}
	stopping *sync.Once
	stopped  error

	mutex sync.Mutex
	idle  []*connection
}

type settings struct {
	password  string
	arguments []string
}

// Option is a setting of a server.
type Option func(*settings)

// Frozen starts the server with a stopped clock.
func Frozen() Option { return Config("clock-frozen", "yes") }

// ClockStart sets the time of the clock at the start, to the millisecond. It is the current time by
// default.
func ClockStart(begin time.Time) Option {
	return Config("clock-start", strconv.FormatInt(begin.UnixMilli(), 10))
}

// LockKeys declares that keys that match one of the patterns are locks, however they are made.
func LockKeys(patterns ...string) Option { return Config("lock-keys", strings.Join(patterns, " ")) }

// IgnoredLockKeys declares that keys that match one of the patterns are no locks.
func IgnoredLockKeys(patterns ...string) Option {
	return Config("ignored-lock-keys", strings.Join(patterns, " "))
}

// Config sets a directive of redis.conf: Config("requirepass", "secret").
func Config(name string, values ...string) Option {
	return func(settings *settings) {
		if name == "requirepass" && len(values) == 1 {
			settings.password = values[0]
		}
		settings.arguments = append(append(settings.arguments, "--"+name), values...)
	}
}

// Start starts a server on a free port of 127.0.0.1 and returns when it accepts connections. The
// server ends on [Server.Stop], or when this process ends for any reason. The error contains the
// output of the server.
func Start(options ...Option) (*Server, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	server := &Server{program: program}
	server.Clock, server.Faults, server.Journal = Clock{server}, Faults{server}, Journal{server}
	for _, option := range options {
		option(&server.settings)
	}
	if err := server.start(); err != nil {
		return nil, err
	}
	return server, nil
}

// Restart stops the server, if it runs, and starts it again on the same port, as at the first start:
// all connections end, and all keys are lost unless Config("appendonly", "yes") keeps them. No other
// method may run at the same time.
func (s *Server) Restart() error {
	if err := s.Stop(); err != nil {
		return err
	}
	return s.start("--port", strconv.Itoa(s.port))
}

// start starts the program, with more arguments after those of the settings.
func (s *Server) start(more ...string) error {
	s.log, s.ended, s.stopping = newLog(), make(chan struct{}), new(sync.Once)
	if err := s.launch(more); err != nil {
		return fmt.Errorf("lockwheel: %s does not start: %w", s.program, err)
	}
	// Fail here if the server refuses the connection, for example because of the password.
	if _, err := s.Clock.Now(); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

func (s *Server) launch(more []string) error {
	arguments := []string{
		"--port", "0", "--bind", host, "--enable-test-commands", "local", "--end-with-stdin", "yes",
	}
	arguments = append(append(arguments, s.settings.arguments...), more...)
	s.command = exec.Command(s.program, arguments...)
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
		return fmt.Errorf("%s; its output:\n%s", s.command.ProcessState, s.log)
	case <-time.After(startLimit):
		_ = s.command.Process.Kill()
		<-s.ended
		return fmt.Errorf("it does not accept connections after %s; its output:\n%s", startLimit, s.log)
	}
}

// isSetting reports whether a variable sets an option of a server. Only the test may set options.
func isSetting(variable string) bool { return strings.HasPrefix(variable, "LOCKWHEEL_") }

// URL is the URL for clients, with the password if the server has one:
// redis://127.0.0.1:6379.
func (s *Server) URL() string {
	address := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.settings.password != "" {
		address.User = url.UserPassword("", s.settings.password)
	}
	return address.String()
}

// Addr is the host and port: 127.0.0.1:6379.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host(), strconv.Itoa(s.port)) }

// Host is 127.0.0.1.
func (s *Server) Host() string { return host }

// Port is the port that the server listens on.
func (s *Server) Port() int { return s.port }

// Log returns the last lines of the log.
func (s *Server) Log() string { return s.log.String() }

// Reset restores the state after the start, for a server shared by several tests: no keys, scripts,
// functions, fault rules, gates or names of clients, an empty journal, the settings of the start, and
// a clock that runs, or is stopped if the server was started with [Frozen]. The connections of
// clients and the time of the clock stay.
func (s *Server) Reset() error {
	_, err := s.Call("LOCKWHEEL", "RESET")
	s.closeIdle()
	return err
}

// Stop ends the server and waits until it has ended. It may be called again. It returns an error if
// the server had to be killed or had failed.
func (s *Server) Stop() error {
	s.stopping.Do(func() { s.stopped = s.stop() })
	return s.stopped
}

func (s *Server) stop() error {
	s.closeIdle()
	// The server ends at the end of its standard input.
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(stopLimit):
		_ = s.command.Process.Kill()
		<-s.ended
	}
	if state := s.command.ProcessState; !state.Success() {
		return fmt.Errorf("lockwheel: the server ended: %s; its output:\n%s", state, s.log)
	}
	return nil
}
