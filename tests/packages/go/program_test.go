// Tests how the server program is found and unpacked.

package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	lockwheel "lockwheel-go"
)

// carries is the module that carries the program.
const carries = "lockwheel-go"

func init() {
	roles["program"] = func() error {
		path, err := lockwheel.Program()
		if err != nil {
			return err
		}
		server, err := lockwheel.Start()
		if err != nil {
			return err
		}
		fmt.Println(path)
		return server.Stop()
	}
}

// cacheIn has a process keep the program below a folder.
func cacheIn(folder string) []string {
	return []string{"HOME=" + folder, "XDG_CACHE_HOME=" + folder}
}

func TestProcessesUnpackTheProgramAtTheSameTime(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	commands := make([]*exec.Cmd, 8)
	outputs := make([]bytes.Buffer, len(commands))
	for index := range commands {
		commands[index] = process(t, "program", cacheIn(cache)...)
		commands[index].Stdout, commands[index].Stderr = &outputs[index], &outputs[index]
		no(t, commands[index].Start())
	}
	for index, command := range commands {
		err := command.Wait()
		holds(t, err == nil, "%v: %s", err, &outputs[index])
		is(t, outputs[index].String(), outputs[0].String())
	}
	path := strings.TrimSpace(outputs[0].String())
	files, err := os.ReadDir(filepath.Dir(path))
	no(t, err)
	is(t, len(files), 1)

	// A damaged copy is replaced.
	no(t, os.WriteFile(path, []byte("#!/bin/sh\nexit 1\n"), 0o755))
	again, err := process(t, "program", cacheIn(cache)...).CombinedOutput()
	holds(t, err == nil, "%v: %s", err, again)
}

func TestUnpackingFailsWithTheFolderInTheError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	no(t, os.WriteFile(file, nil, 0o600))
	output, err := process(t, "program", cacheIn(file)...).CombinedOutput()
	holds(t, err != nil, "the program is unpacked")
	expected := "lockwheel: cannot unpack the program: mkdir " + file
	holds(t, strings.HasPrefix(string(output), expected), "the error is: %s", output)
	output, err = process(t, "program", "HOME=", "XDG_CACHE_HOME=").CombinedOutput()
	holds(t, err != nil, "the program is unpacked")
	expected = "lockwheel: no cache folder to unpack the program into, set LOCKWHEEL_BINARY "
	holds(t, strings.HasPrefix(string(output), expected), "the error is: %s", output)
}

func TestTheEnvironmentNamesAnotherProgram(t *testing.T) {
	program, err := lockwheel.Program()
	no(t, err)
	folder := t.TempDir()
	another, mark := filepath.Join(folder, "another"), filepath.Join(folder, "mark")
	script := fmt.Sprintf("#!/bin/sh\n: >'%s'\nexec '%s' \"$@\"\n", mark, program)
	no(t, os.WriteFile(another, []byte(script), 0o755))
	t.Setenv("LOCKWHEEL_BINARY", another)
	server, err := lockwheel.Start()
	no(t, err)
	no(t, server.Stop())
	_, err = os.Stat(mark)
	no(t, err)

	t.Setenv("LOCKWHEEL_BINARY", filepath.Join(folder, "missing"))
	_, err = lockwheel.Start()
	expected := "lockwheel: LOCKWHEEL_BINARY names no program: stat " +
		filepath.Join(folder, "missing")
	holds(t, err != nil && strings.HasPrefix(err.Error(), expected), "the error is: %v", err)
}

// The module for a platform without a program is this module without the program's files.
func TestAModuleWithoutAProgramSearchesThePath(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	module := filepath.Join(folder, "module")
	no(t, os.CopyFS(module, os.DirFS(moduleFolder(t))))
	for _, file := range glob(t, filepath.Join(module, "internal", "carried", "program_*")) {
		no(t, os.Remove(file))
	}
	write(t, filepath.Join(folder, "go.mod"), "module without\n\ngo 1.21\n"+
		"require "+carries+" v0.0.0\nreplace "+carries+" => ./module\n")
	write(t, filepath.Join(folder, "main.go"), "package main\n\nimport \"fmt\"\n"+
		"import \""+carries+"\"\n\nfunc main() { fmt.Println(lockwheel.Program()) }\n")
	for output, source := range map[string]string{"without": ".", "command": carries + "/cmd/lockwheel"} {
		build := exec.Command("go", "build", "-o", output, source)
		build.Dir = folder
		output, err := build.CombinedOutput()
		holds(t, err == nil, "%v: %s", err, output)
	}

	find := func(path string) string {
		command := exec.Command(filepath.Join(folder, "without"))
		command.Env = append(os.Environ(), "PATH="+path)
		output, err := command.CombinedOutput()
		no(t, err)
		return string(output)
	}
	expected := fmt.Sprintf(" lockwheel: no program for %s/%s: this module carries none, and "+
		"\"lockwheel\" is not on PATH; ", runtime.GOOS, runtime.GOARCH)
	holds(t, strings.HasPrefix(find(folder), expected), "the error is: %s", find(folder))
	onPath := filepath.Join(folder, "lockwheel")
	no(t, os.WriteFile(onPath, nil, 0o755))
	is(t, find(folder), onPath+" <nil>\n")

	output, err := exec.Command(filepath.Join(folder, "command")).CombinedOutput()
	holds(t, err != nil, "the command runs")
	expected = fmt.Sprintf("lockwheel: this module carries no program for %s/%s\n",
		runtime.GOOS, runtime.GOARCH)
	is(t, string(output), expected)
}

// moduleFolder is the folder of the module under test.
func moduleFolder(t *testing.T) string {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", carries).Output()
	no(t, err)
	return strings.TrimSpace(string(folder))
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	no(t, err)
	holds(t, len(found) > 0, "there is no %s", pattern)
	return found
}

func write(t *testing.T, path, text string) {
	t.Helper()
	no(t, os.WriteFile(path, []byte(text), 0o644))
}

// A later server must not inherit the pipe that keeps an earlier one running.
func TestAServerDoesNotInheritTheStandardInputOfAnother(t *testing.T) {
	t.Parallel()
	first, err := lockwheel.Start()
	no(t, err)
	second, err := lockwheel.Start()
	no(t, err)
	defer second.Stop()
	no(t, first.Stop())
}
