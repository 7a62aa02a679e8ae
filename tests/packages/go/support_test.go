// Clients and assertions that the tests share.

package packages

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"lockwheel-go/lockwheeltest"
)

var background = context.Background()

// dial connects a client that sends each request once and waits without a limit.
func dial(t *testing.T, server *lockwheeltest.Server) *redis.Client {
	return dialed(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, ReadTimeout: -1,
	}))
}

func dialed(t *testing.T, client *redis.Client) *redis.Client {
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// no ends the test if there is an error.
func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is ends the test unless the values are equal.
func is[T comparable](t testing.TB, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("it is %v and not %v", found, expected)
	}
}

// holds ends the test unless the statement is true.
func holds(t testing.TB, statement bool, otherwise string, arguments ...any) {
	t.Helper()
	if !statement {
		t.Fatalf(otherwise, arguments...)
	}
}

// role is the variable that names the role of a process of this program.
const role = "PACKAGES_ROLE"

// roles are the functions that a process of this program runs instead of tests.
var roles = map[string]func() error{}

func TestMain(m *testing.M) {
	play := roles[os.Getenv(role)]
	if play == nil {
		os.Exit(m.Run())
	}
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is a command that runs this program in a role.
func process(t *testing.T, name string, environment ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	no(t, err)
	command := exec.Command(program)
	command.Env = append(append(os.Environ(), role+"="+name), environment...)
	return command
}

func itoa(number int64) string { return strconv.FormatInt(number, 10) }
