package lockwheel

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

const (
	name     = "lockwheel"
	variable = "LOCKWHEEL_BINARY"
)

// carried is the program for this system, nil if the module was made without one. A file of each
// system sets it.
var carried []byte

// Program is the path of the program that [Start] starts: what the environment variable
// LOCKWHEEL_BINARY names, else the one that the module carries, else lockwheel on PATH.
//
// The carried one is written to the user's cache folder ([os.UserCacheDir]) when it is not there.
func Program() (string, error) {
	if path := os.Getenv(variable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("lockwheel: %s names no program: %w", variable, err)
		}
		return path, nil
	}
	if carried != nil {
		return unpacked()
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("lockwheel: no program for %s/%s: this module carries none, and no %q "+
		"is on PATH; build it (cargo install lockwheel) and set %s to its path",
		runtime.GOOS, runtime.GOARCH, name, variable)
}

var unpacked = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("lockwheel: nowhere to unpack the server, set %s to its path: %w",
			variable, err)
	}
	path := filepath.Join(cache, name, fmt.Sprintf("%x", sha256.Sum256(carried)), name)
	if err := unpack(path); err != nil {
		return "", fmt.Errorf("lockwheel: the server cannot be unpacked: %w", err)
	}
	return path, nil
})

// unpack sees to it that a file is the carried program. Other processes may do so at the same
// time: each writes a file of its own and moves it to its place whole.
func unpack(path string) error {
	if isCarried(path) {
		return nil
	}
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	written, err := writeExecutable(folder)
	if err == nil {
		err = os.Rename(written, path)
	}
	if err != nil {
		_ = os.Remove(written)
		return err
	}
	if !isCarried(path) {
		return fmt.Errorf("%s was written and is another", path)
	}
	return nil
}

func isCarried(path string) bool {
	found, err := os.ReadFile(path)
	return err == nil && bytes.Equal(found, carried)
}

// writeExecutable writes the carried program to a new file of the folder and returns its path.
func writeExecutable(folder string) (string, error) {
	// A process that is forked while the file is open for writing would keep it so until it runs
	// its own program, and nobody can execute a file that is open for writing.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := os.CreateTemp(folder, name+"-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(carried)
	return file.Name(), errors.Join(err, file.Chmod(0o755), file.Close())
}
