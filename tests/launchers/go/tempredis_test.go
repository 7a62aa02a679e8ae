// Tests tempredis.

package launchers

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stvp/tempredis"
	"lockwheel/report"
)

var library = report.Library{Name: "tempredis", Module: "github.com/stvp/tempredis"}

const (
	// Much longer than any step takes.
	limit = 20 * time.Second

	compareAndDelete = "if redis.call('get', KEYS[1]) == ARGV[1] then " +
		"return redis.call('del', KEYS[1]) else return 0 end"
)

func TestTempredis(t *testing.T) {
	behaviour := func(sentence string, test func(*report.T)) {
		report.Behaviour(t, library, sentence, test)
	}
	behaviour("starts on a unix socket of its own, and serves", func(t *report.T) {
		server := launch(t, nil)
		use(t, "unix", server.Socket())
		t.No(server.Term())
	})
	behaviour("starts on the port asked for, with a password", func(t *report.T) {
		address := freeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		server := launch(t, tempredis.Config{"port": port, "requirepass": "secret", "save": ""})
		use(t, "tcp", address, redis.DialPassword("secret"))
		use(t, "unix", server.Socket(), redis.DialPassword("secret"))
		t.No(server.Term())
	})
	behaviour("refuses a port that is taken", func(t *report.T) {
		_, port, _ := net.SplitHostPort(freeAddress(t))
		first := launch(t, tempredis.Config{"port": port})
		second, err := tempredis.Start(tempredis.Config{"port": port})
		t.Is(err != nil, "two on one port")
		if !strings.Contains(second.Stdout(), "Address already in use") {
			t.Fatalf("output: %s", second.Stdout())
		}
		t.No(second.Kill())
		t.No(first.Term())
	})
	behaviour("refuses an unknown directive", func(t *report.T) {
		server, err := tempredis.Start(tempredis.Config{"oops": "borked"})
		t.Is(err != nil, "it starts")
		if !strings.Contains(server.Stderr(), "FATAL CONFIG FILE ERROR") {
			t.Fatalf("output: %s", server.Stderr())
		}
		t.No(server.Kill())
	})
	behaviour("ends on SIGTERM with its last log line, and leaves no file", func(t *report.T) {
		pidfile := filepath.Join(t.TempDir(), "redis.pid")
		server := launch(t, tempredis.Config{"pidfile": pidfile})
		process := use(t, "unix", server.Socket())
		t.No(server.Term())
		if !strings.HasSuffix(server.Stdout(), "is now ready to exit, bye bye...\n") {
			t.Fatalf("output: %s", server.Stdout())
		}
		for _, path := range []string{server.Socket(), pidfile, "/proc/" + process} {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Fatalf("%s is left", path)
			}
		}
	})
	behaviour("is killed and started again on the same port", func(t *report.T) {
		address := freeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		for range 3 {
			server := launch(t, tempredis.Config{"port": port})
			use(t, "tcp", address)
			t.No(server.Kill())
		}
	})
}

// launch returns a server that serves.
func launch(t *report.T, config tempredis.Config) *tempredis.Server {
	t.Helper()
	server, err := tempredis.Start(config)
	t.No(err)
	return server
}

// use takes a lock and releases it. Returns the server's process number.
func use(t *report.T, network, address string, options ...redis.DialOption) string {
	t.Helper()
	options = append(options, redis.DialConnectTimeout(limit), redis.DialReadTimeout(limit))
	connection, err := redis.Dial(network, address, options...)
	t.No(err)
	defer connection.Close()
	reply := func(command string, arguments ...any) string {
		t.Helper()
		reply, err := connection.Do(command, arguments...)
		t.No(err)
		if bytes, ok := reply.([]byte); ok {
			return string(bytes)
		}
		return fmt.Sprint(reply)
	}
	is := func(reply, expected string) {
		t.Helper()
		if reply != expected {
			t.Fatalf("%q and not %q", reply, expected)
		}
	}
	is(reply("SET", "lock", "token", "NX", "PX", 30_000), "OK")
	is(reply("SET", "lock", "other", "NX", "PX", 30_000), "<nil>")
	is(reply("GET", "lock"), "token")
	is(reply("EVAL", compareAndDelete, 1, "lock", "other"), "0")
	is(reply("EVAL", compareAndDelete, 1, "lock", "token"), "1")
	_, info, _ := strings.Cut(reply("INFO", "server"), "process_id:")
	process, _, _ := strings.Cut(info, "\r\n")
	return process
}

// freeAddress is one of the loopback's that is free.
func freeAddress(t *report.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.No(err)
	defer listener.Close()
	return listener.Addr().String()
}
