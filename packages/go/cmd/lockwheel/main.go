// Command lockwheel runs the server program that this module carries, with the same arguments.
//
// It runs the carried program only. It ignores LOCKWHEEL_BINARY and PATH, because both may name
// this command.
package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"lockwheel-go/internal/carried"
)

func main() {
	err := run()
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// run replaces this process by the program, so that signals and the exit status are those of the
// program. It returns only on failure.
func run() error {
	if !carried.Exists() {
		return fmt.Errorf("lockwheel: this module carries no program for %s/%s",
			runtime.GOOS, runtime.GOARCH)
	}
	path, err := carried.Path()
	if err != nil {
		return err
	}
	arguments := append([]string{path}, os.Args[1:]...)
	if err := syscall.Exec(path, arguments, os.Environ()); err != nil {
		return fmt.Errorf("lockwheel: cannot run %s: %w", path, err)
	}
	return nil
}
