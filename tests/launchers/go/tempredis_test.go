package launchers

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stvp/tempredis"
)

const (
	module = "github.com/stvp/tempredis"
	// Far more than anything takes.
	patience = 20 * time.Second

	compareAndDelete = "if redis.call('get', KEYS[1]) == ARGV[1] then " +
		"return redis.call('del', KEYS[1]) else return 0 end"
)

func TestTempredis(t *testing.T) {
	behaviour(t, "starts on a unix socket of its own, and serves", func(t *testing.T) {
		server := launch(t, nil)
		use(t, "unix", server.Socket())
		no(t, server.Term())
	})
	behaviour(t, "starts on the port asked for, with a password", func(t *testing.T) {
		address := freeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		server := launch(t, tempredis.Config{"port": port, "requirepass": "secret", "save": ""})
		use(t, "tcp", address, redis.DialPassword("secret"))
		use(t, "unix", server.Socket(), redis.DialPassword("secret"))
		no(t, server.Term())
	})
	behaviour(t, "refuses a port that is taken", func(t *testing.T) {
		_, port, _ := net.SplitHostPort(freeAddress(t))
		first := launch(t, tempredis.Config{"port": port})
		second, err := tempredis.Start(tempredis.Config{"port": port})
		if err == nil {
			t.Fatal("two on one port")
		}
		if !strings.Contains(second.Stdout(), "Address already in use") {
			t.Fatalf("it says: %s", second.Stdout())
		}
		no(t, second.Kill())
		no(t, first.Term())
	})
	behaviour(t, "refuses a directive that there is not", func(t *testing.T) {
		server, err := tempredis.Start(tempredis.Config{"oops": "borked"})
		if err == nil {
			t.Fatal("it starts")
		}
		if !strings.Contains(server.Stderr(), "FATAL CONFIG FILE ERROR") {
			t.Fatalf("it says: %s", server.Stderr())
		}
		no(t, server.Kill())
	})
	behaviour(t, "ends by SIGTERM to its last word, and leaves nothing", func(t *testing.T) {
		pidfile := filepath.Join(t.TempDir(), "redis.pid")
		server := launch(t, tempredis.Config{"pidfile": pidfile})
		process := use(t, "unix", server.Socket())
		no(t, server.Term())
		if !strings.HasSuffix(server.Stdout(), "is now ready to exit, bye bye...\n") {
			t.Fatalf("it says: %s", server.Stdout())
		}
		for _, path := range []string{server.Socket(), pidfile, "/proc/" + process} {
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Fatalf("%s is left", path)
			}
		}
	})
	behaviour(t, "is killed and started again on the same port", func(t *testing.T) {
		address := freeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		for range 3 {
			server := launch(t, tempredis.Config{"port": port})
			use(t, "tcp", address)
			no(t, server.Kill())
		}
	})
}

// behaviour runs a test and reports of it.
func behaviour(t *testing.T, sentence string, test func(*testing.T)) {
	t.Run(strings.ReplaceAll(sentence, " ", "_"), func(t *testing.T) {
		defer func() {
			outcome, reason := "passed", ""
			if t.Failed() {
				outcome, reason = "failed", "its output says why"
			}
			report(sentence, outcome, reason)
		}()
		test(t)
	})
}

func report(sentence, outcome, reason string) {
	path := os.Getenv("LAUNCHERS_REPORT")
	if path == "" {
		return
	}
	line, err := json.Marshal(map[string]string{
		"library": "tempredis", "version": version(), "behaviour": sentence,
		"outcome": outcome, "reason": reason,
	})
	if err != nil {
		panic(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// version is that of the module that the tests are built with.
var version = sync.OnceValue(func() string {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		panic(err)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(output)), "v")
})

// launch returns a server that serves.
func launch(t *testing.T, config tempredis.Config) *tempredis.Server {
	t.Helper()
	server, err := tempredis.Start(config)
	no(t, err)
	return server
}

// use takes a lock and releases it. Returns the server's process number.
func use(t *testing.T, network, address string, options ...redis.DialOption) string {
	t.Helper()
	options = append(options, redis.DialConnectTimeout(patience), redis.DialReadTimeout(patience))
	connection, err := redis.Dial(network, address, options...)
	no(t, err)
	defer connection.Close()
	reply := func(command string, arguments ...any) string {
		t.Helper()
		reply, err := connection.Do(command, arguments...)
		no(t, err)
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
	is(reply("SET", "lock", "stranger", "NX", "PX", 30_000), "<nil>")
	is(reply("GET", "lock"), "token")
	is(reply("EVAL", compareAndDelete, 1, "lock", "stranger"), "0")
	is(reply("EVAL", compareAndDelete, 1, "lock", "token"), "1")
	_, info, _ := strings.Cut(reply("INFO", "server"), "process_id:")
	process, _, _ := strings.Cut(info, "\r\n")
	return process
}

// freeAddress is one of the loopback's that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	no(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func no(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
