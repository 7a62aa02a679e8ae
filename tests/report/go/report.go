// Package report writes the report of a suite: one line for each behaviour of a library, appended to
// the file that SUITE_REPORT names.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// Library is a module and its displayed name.
type Library struct{ Name, Module string }

// T keeps the reason of a failure for the report.
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

// Errorf fails the test. Any goroutine may call it.
func (t *T) Errorf(format string, arguments ...any) {
	t.Helper()
	t.note(fmt.Sprintf(format, arguments...))
	t.T.Errorf(format, arguments...)
}

// Fatalf fails the test and ends the goroutine. Any goroutine may call it.
func (t *T) Fatalf(format string, arguments ...any) {
	t.Helper()
	t.Errorf(format, arguments...)
	t.FailNow()
}

// Skipf skips the test, with a reason.
func (t *T) Skipf(format string, arguments ...any) {
	t.Helper()
	t.note(fmt.Sprintf(format, arguments...))
	t.T.Skipf(format, arguments...)
}

// No fails the test if there is an error.
func (t *T) No(err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Is fails the test unless the statement is true.
func (t *T) Is(holds bool, otherwise string, arguments ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(otherwise, arguments...)
	}
}

// Behaviour runs a test of a library and reports it.
func Behaviour(t *testing.T, of Library, sentence string, test func(*T)) {
	t.Run(strings.ReplaceAll(sentence, " ", "_"), func(inner *testing.T) {
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

func report(of Library, sentence, outcome, reason string) {
	path := os.Getenv("SUITE_REPORT")
	if path == "" {
		return
	}
	reporting.Lock()
	defer reporting.Unlock()
	line, err := json.Marshal(struct {
		Library   string `json:"library"`
		Version   string `json:"version"`
		Behaviour string `json:"behaviour"`
		Outcome   string `json:"outcome"`
		Reason    string `json:"reason,omitempty"`
	}{of.Name, version(of.Module), sentence, outcome, reason})
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

var versions = map[string]string{}

// version is the version of the module that the tests are built with. Not safe for concurrent calls.
func version(module string) string {
	if known, ok := versions[module]; ok {
		return known
	}
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", module).Output()
	if err != nil {
		panic(err)
	}
	versions[module] = strings.TrimPrefix(strings.TrimSpace(string(output)), "v")
	return versions[module]
}
