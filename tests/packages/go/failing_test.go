// Tests the output of tests that fail.

package packages

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	lockwheel "lockwheel-go"
	"lockwheel-go/lockwheeltest"
)

// fails is the variable that selects one of the tests below. They all fail.
const fails = "PACKAGES_FAILS"

// failing runs one of them and returns its output.
func failing(t *testing.T, name string) string {
	t.Helper()
	program, err := os.Executable()
	no(t, err)
	command := exec.Command(program, "-test.run=^TestThatFails$/^"+name+"$", "-test.v")
	command.Env = append(os.Environ(), fails+"="+name)
	output, err := command.CombinedOutput()
	holds(t, err != nil, "it passes: %s", output)
	return string(output)
}

func TestThatFails(t *testing.T) {
	if os.Getenv(fails) == "" {
		t.Skip("it runs only in the process of another test")
	}
	t.Run("left", func(t *testing.T) {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		t.Cleanup(server.Journal.AssertNoLockHeld)
		server.Call("SET", "invoice", "token", "NX", "PX", 30_000)
	})
	t.Run("itself", func(t *testing.T) {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		server.Call("SETNX", "lock:invoice", "token")
		server.Clock.Advance(time.Second)
		server.Call("DEL", "lock:invoice")
		t.Error("its own error")
	})
	t.Run("called", func(t *testing.T) {
		server := lockwheeltest.Start(t)
		server.Clock.Advance(-time.Second) // here
	})
	t.Run("killed", func(t *testing.T) {
		server := lockwheeltest.Start(t)
		kill(t, number(t, server.Server, "process_id"))
		server.Call("PING")
	})
	t.Run("asserted", func(t *testing.T) {
		server := lockwheeltest.Start(t)
		server.Call("SETNX", "lock:invoice", "token")
		server.Journal.AssertEveryLockHasALease()
		server.Journal.AssertNoLockHeld()
	})
	t.Run("several", func(t *testing.T) {
		lockwheeltest.Start(t).Call("SET", "another", "value")
		for range 2 {
			server := lockwheeltest.Start(t)
			t.Cleanup(server.Journal.AssertNoLockHeld)
			server.Call("SET", "invoice", "token", "NX", "PX", 30_000)
		}
	})
	t.Run("readme", func(t *testing.T) {
		server := lockwheeltest.Start(t, lockwheel.Frozen())
		no(t, dial(t, server).SetNX(background, "invoice", "token", 30*time.Second).Err())
		server.Journal.AssertNoLockHeld()
	})
	t.Run("both", func(t *testing.T) {
		server := lockwheeltest.Start(t)
		t.Cleanup(server.Journal.AssertNoLockHeld)
		server.Call("SETNX", "lock:invoice", "2f1c7a90-58f4-4a6e-9d54-0f0e9f3c8a11")
		t.Fatal("its own error")
	})
}

// withoutNumbers leaves out what differs from run to run.
func withoutNumbers(output string) string {
	return regexp.MustCompile(`#\d+ `).ReplaceAllString(output, "")
}

func TestALockLeftByATestIsReported(t *testing.T) {
	t.Parallel()
	output := withoutNumbers(failing(t, "left"))
	for _, line := range []string{
		`(?m)failing_test.go:\d+: no-lock-held: client 1 holds the lock 'invoice' as 'token'$`,
		`(?m)^ +\+0 ms client 1: SET invoice token NX PX 30000 -> OK$`,
		`(?m)^ +=>\+0 ms client 1: acquired 'invoice' as 'token' for 30000 ms$`,
	} {
		matches(t, output, line)
	}
	is(t, strings.Count(output, "acquired 'invoice'"), 1)
}

func TestOnlyServersWithoutAFailedCheckLogTheirJournals(t *testing.T) {
	t.Parallel()
	output := failing(t, "several")
	is(t, strings.Count(output, "acquired 'invoice'"), 2)
	is(t, strings.Count(output, "the journal of"), 1)
	matches(t, output, `SET another value -> OK`)
}

func TestTheReadmeShowsTheMessageOfAFailedCheck(t *testing.T) {
	t.Parallel()
	differing := regexp.MustCompile(`\w+_test.go:\d+: |#\d+ |,go[0-9.]+`)
	output := differing.ReplaceAllString(failing(t, "readme"), "")
	for _, line := range strings.Split(strings.TrimSpace(blocks(t, "text")[0]), "\n") {
		line = differing.ReplaceAllString(line, "")
		holds(t, strings.Contains(output, line+"\n"), "no %s in:\n%s", line, output)
	}
}

func TestTheJournalFollowsAnErrorOfTheTestItself(t *testing.T) {
	t.Parallel()
	output := failing(t, "both")
	matches(t, output, `no-lock-held: client 1 holds the lock 'lock:invoice'`)
	matches(t, output, `the journal of the server at 127.0.0.1:\d+`)
}

func TestAFailingTestPrintsTheJournal(t *testing.T) {
	t.Parallel()
	output := withoutNumbers(failing(t, "itself"))
	for _, line := range []string{
		`(?m)failing_test.go:\d+: its own error$`,
		`(?m)the journal of the server at 127.0.0.1:\d+, at most the last \d+ entries:$`,
		`(?m)^ +\+\d+ ms client 1: SETNX lock:invoice token -> 1$`,
		`(?m)^ +\+\d+ ms client 1: acquired 'lock:invoice' as 'token' without a lease$`,
		`(?m)^ +\+1\d\d\d ms client 1: DEL lock:invoice -> 1$`,
	} {
		matches(t, output, line)
	}
}

func TestAnInvalidCallReportsTheLineOfTheTest(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("failing_test.go")
	no(t, err)
	before, _, _ := strings.Cut(string(source), "// here")
	line := itoa(int64(strings.Count(before, "\n") + 1))
	said := `: lockwheel: LOCKWHEEL CLOCK ADVANCE -1s: ERR the clock never goes back`
	matches(t, failing(t, "called"), `failing_test.go:`+line+said)
}

func TestTheEndOfAKilledServerIsReportedWithItsOutput(t *testing.T) {
	t.Parallel()
	output := failing(t, "killed")
	matches(t, output, `failing_test.go:\d+: lockwheel: PING: `)
	matches(t, output, `does not reply: `)
	matches(t, output, `The server is now ready to accept connections on port \d+`)
	matches(t, output, `the server ended: signal: killed`)
}

func TestATestContinuesAfterAnAssertion(t *testing.T) {
	t.Parallel()
	output := failing(t, "asserted")
	matches(t, output, `failing_test.go:\d+: every-lock-has-a-lease: the lock 'lock:invoice' that `)
	matches(t, output, `failing_test.go:\d+: no-lock-held: client 1 holds the lock 'lock:invoice'`)
	holds(t, !strings.Contains(output, "the journal of"), "it has the journal too: %s", output)
}

func matches(t *testing.T, output, pattern string) {
	t.Helper()
	holds(t, regexp.MustCompile(pattern).MatchString(output), "no %s in:\n%s", pattern, output)
}
