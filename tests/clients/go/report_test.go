package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// T remembers why a test failed, for the report.
type T struct {
	*testing.T
	mutex  sync.Mutex
	reason string
}

func (t *T) note(reason string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.reason == "" {
		t.reason = reason
	}
}

// Errorf fails the test; also from another goroutine than the test's own.
func (t *T) Errorf(format string, arguments ...any) {
	t.Helper()
	t.note(fmt.Sprintf(format, arguments...))
	t.T.Errorf(format, arguments...)
}

// Fatalf fails the test and ends the goroutine, which may be another than the test's own.
func (t *T) Fatalf(format string, arguments ...any) {
	t.Helper()
	t.Errorf(format, arguments...)
	t.FailNow()
}

// Skipf says why the test is not tried.
func (t *T) Skipf(format string, arguments ...any) {
	t.Helper()
	t.note(fmt.Sprintf(format, arguments...))
	t.T.Skipf(format, arguments...)
}

// no fails for an error.
func (t *T) no(err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// is fails unless a statement holds.
func (t *T) is(holds bool, otherwise string, arguments ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(otherwise, arguments...)
	}
}

// library is a module and what people call it.
type library struct{ name, module string }

// behaviour runs a test of a library beside the others and reports of it.
func behaviour(t *testing.T, of library, sentence string, test func(*T)) {
	t.Run(strings.ReplaceAll(sentence, " ", "_"), func(inner *testing.T) {
		inner.Parallel()
		t := &T{T: inner}
		defer func() {
			outcome := "passed"
			if t.Failed() {
				outcome = "failed"
			} else if t.Skipped() {
				outcome = "skipped"
			}
			report(of, sentence, outcome, t.reason)
		}()
		test(t)
	})
}

var reporting sync.Mutex

func report(of library, sentence, outcome, reason string) {
	path := os.Getenv("CLIENTS_REPORT")
	if path == "" {
		return
	}
	line, err := json.Marshal(struct {
		Library   string `json:"library"`
		Version   string `json:"version"`
		Behaviour string `json:"behaviour"`
		Outcome   string `json:"outcome"`
		Reason    string `json:"reason,omitempty"`
	}{of.name, versions()[of.module], sentence, outcome, reason})
	if err != nil {
		panic(err)
	}
	reporting.Lock()
	defer reporting.Unlock()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// versions are those of the modules that the tests are built with.
var versions = sync.OnceValue(func() map[string]string {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Path}} {{.Version}}",
		redsyncLibrary.module, redislockLibrary.module, goRedisLibrary.module,
		redigoLibrary.module).Output()
	if err != nil {
		panic(err)
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(output)) {
		module, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions[module] = strings.TrimPrefix(version, "v")
	}
	return versions
})
