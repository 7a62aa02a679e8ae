// Finds the server program.

package lockwheel

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"lockwheel-go/internal/carried"
)

const (
	name     = "lockwheel"
	variable = "LOCKWHEEL_BINARY"
)

// Program returns the path of the program that [Start] runs: the program named by the environment
// variable LOCKWHEEL_BINARY, else the program carried by this module, else lockwheel on PATH.
//
// The carried program is written to the user's cache folder ([os.UserCacheDir]) if it is not
// there.
func Program() (string, error) {
	if path := os.Getenv(variable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("lockwheel: %s names no program: %w", variable, err)
		}
		return path, nil
	}
	if carried.Exists() {
		return carried.Path()
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("lockwheel: no program for %s/%s: this module carries none, and %q "+
		"is not on PATH; build the program and set %s to its path",
		runtime.GOOS, runtime.GOARCH, name, variable)
}
