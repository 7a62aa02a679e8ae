// Package carried unpacks the server program that the module carries.
package carried

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const name = "lockwheel"

// program is the server program for this platform, nil if the module carries none. The build
// script adds one file per platform, which sets it.
var program []byte

// Exists reports whether the module carries a program for this platform.
func Exists() bool { return program != nil }

// Path returns the path of the carried program. It writes the program to the user's cache folder
// ([os.UserCacheDir]) unless an identical copy is there.
var Path = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("lockwheel: no cache folder to unpack the program into, "+
			"set LOCKWHEEL_BINARY to the path of a program: %w", err)
	}
	path := filepath.Join(cache, name, fmt.Sprintf("%x", sha256.Sum256(program)), name)
	if err := unpack(path); err != nil {
		return "", fmt.Errorf("lockwheel: cannot unpack the program: %w", err)
	}
	return path, nil
})

// unpack makes path a copy of the carried program. Several processes may do this at the same
// time: each writes a file of its own and renames it.
func unpack(path string) error {
	if isCopy(path) {
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
	if !isCopy(path) {
		return fmt.Errorf("%s differs from the program just written to it", path)
	}
	return nil
}

func isCopy(path string) bool {
	found, err := os.ReadFile(path)
	return err == nil && bytes.Equal(found, program)
}

// writeExecutable writes the carried program to a new file in the folder and returns its path.
func writeExecutable(folder string) (string, error) {
	// A child process that is forked while the file is open for writing keeps it open until it
	// calls exec. A file that is open for writing cannot be executed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	file, err := os.CreateTemp(folder, name+"-*")
	if err != nil {
		return "", err
	}
	_, err = file.Write(program)
	return file.Name(), errors.Join(err, file.Chmod(0o755), file.Close())
}
