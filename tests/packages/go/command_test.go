// Tests the command that `go install` installs.

package packages

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"lockwheel-go/lockwheeltest"
)

// installed returns the path of the command that `go install` puts into a folder.
func installed(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	install := exec.Command("go", "install", carries+"/cmd/lockwheel")
	install.Env = append(os.Environ(), "GOBIN="+folder)
	output, err := install.CombinedOutput()
	holds(t, err == nil, "%v: %s", err, output)
	return filepath.Join(folder, "lockwheel")
}

func TestTheInstalledCommandIsTheProgram(t *testing.T) {
	t.Parallel()
	command := installed(t)
	output, err := exec.Command(command, "--version").Output()
	no(t, err)
	holds(t, strings.Contains(string(output), " lockwheel="), "the version is: %s", output)

	output, err = exec.Command(command, "run", "--", "sh", "-c", "echo $REDIS_URL; exit 7").Output()
	var exit *exec.ExitError
	holds(t, errors.As(err, &exit) && exit.ExitCode() == 7, "the status is: %v", err)
	holds(t, strings.HasPrefix(string(output), "redis://127.0.0.1:"), "the URL is: %s", output)
}

func TestTheInstalledCommandRunsTheCompatibilitySuite(t *testing.T) {
	t.Parallel()
	server := lockwheeltest.Start(t)
	compat := exec.Command(installed(t), "compat", server.URL(), "--only", "SET NX refuses")
	output, err := compat.CombinedOutput()
	holds(t, err == nil, "%v: %s", err, output)
}

func TestSignalsReachTheProgramOfTheInstalledCommand(t *testing.T) {
	t.Parallel()
	// The shell prints the id of its parent, which is the process that the test started.
	command := exec.Command(installed(t), "run", "--", "sh", "-c", "echo $PPID; kill -TERM $PPID; read _")
	stdin, err := command.StdinPipe()
	no(t, err)
	defer stdin.Close()
	output, err := command.Output()
	holds(t, err != nil, "the command succeeds")
	is(t, strings.TrimSpace(string(output)), strconv.Itoa(command.Process.Pid))
}
