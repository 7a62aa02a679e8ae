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

// dial is a client that tries nothing twice and waits for as long as it takes, so that a test sees
// what becomes of each request.
func dial(t *testing.T, server *lockwheeltest.Server) *redis.Client {
	return dialed(t, redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, ReadTimeout: -1,
	}))
}

func dialed(t *testing.T, client *redis.Client) *redis.Client {
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// no ends the test for an error.
func no(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails the test unless both are the same.
func is[T comparable](t testing.TB, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("it is %v and not %v", found, expected)
	}
}

// holds fails the test unless a statement holds.
func holds(t testing.TB, statement bool, otherwise string, arguments ...any) {
	t.Helper()
	if !statement {
		t.Fatalf(otherwise, arguments...)
	}
}

// role names what a process of this program does instead of running tests.
const role = "PACKAGES_ROLE"

// roles are told apart from tests by the environment, so that a test can see a process end.
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

// process is this program once more, in another role.
func process(t *testing.T, name string, environment ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	no(t, err)
	command := exec.Command(program)
	command.Env = append(append(os.Environ(), role+"="+name), environment...)
	return command
}

func itoa(number int64) string { return strconv.FormatInt(number, 10) }
