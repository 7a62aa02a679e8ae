// Measures locks of etcd and native locks of Lockwheel: see ../README.md.
//
//	coordination measure --etcd HOST:PORT --lockwheel HOST:PORT ... > LINES
//	coordination hold SYSTEM HOST:PORT KEY     holds a lock until it is killed
//	coordination flush FOLDER                  times writes and flushes of the disk
//	coordination ports COUNT                   prints free ports of the loopback
//	coordination summary FILE                  prints medians of the lines in the file
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"time"
)

// A lock of one client.
type lock interface {
	acquire(ctx context.Context) error
	release(ctx context.Context) error
}

// A system makes clients, each with connections of its own; keys differ between workloads.
type system struct {
	name string
	// open connects. A client that must not outlive its process by much uses the shortest span
	// that the system allows.
	open func(ctx context.Context, address, key string, short bool) (lock, error)
}

var systems = []system{
	{"etcd", openEtcd},
	{"lockwheel", openObject},
	{"lockwheel-commands", openCommands},
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "coordination:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("no command: see the top of main.go")
	}
	rest := arguments[1:]
	switch command := arguments[0]; {
	case command == "measure":
		return measure(ctx, rest)
	case command == "hold" && len(rest) == 3:
		return hold(ctx, rest[0], rest[1], rest[2])
	case command == "flush" && len(rest) == 1:
		return flush(rest[0])
	case command == "ports" && len(rest) == 1:
		return ports(rest[0])
	case command == "summary" && len(rest) == 1:
		return summary(rest[0])
	}
	return fmt.Errorf("unknown command: %q", arguments)
}

func measure(ctx context.Context, arguments []string) error {
	flags := flag.NewFlagSet("measure", flag.ExitOnError)
	addresses := map[string]*string{
		"etcd":      flags.String("etcd", "", "address of etcd"),
		"lockwheel": flags.String("lockwheel", "", "address of Lockwheel"),
	}
	addresses["lockwheel-commands"] = addresses["lockwheel"]
	round := flags.Int("round", 0, "number of the round; every other is in reverse order")
	warmUp := flags.Duration("warm-up", time.Second, "time before each measurement")
	span := flags.Duration("span", 3*time.Second, "time of each measurement")
	_ = flags.Parse(arguments)

	ordered := slices.Clone(systems)
	if *round%2 == 1 {
		slices.Reverse(ordered)
	}
	for _, workload := range workloads {
		for _, system := range ordered {
			b := bench{system, *addresses[system.name], *round, *warmUp, *span}
			if err := b.workload(ctx, workload); err != nil {
				return fmt.Errorf("%s, %s: %w", system.name, workload.name, err)
			}
		}
	}
	for _, system := range ordered {
		b := bench{system, *addresses[system.name], *round, 0, 0}
		if err := b.killed(ctx); err != nil {
			return fmt.Errorf("%s, killed: %w", system.name, err)
		}
	}
	return nil
}

// flush times a write of 200 bytes and its flush to the disk.
func flush(folder string) error {
	file, err := os.CreateTemp(folder, "flush")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	var spans []time.Duration
	for begun := time.Now(); time.Since(begun) < 2*time.Second; {
		before := time.Now()
		if _, err := file.Write(make([]byte, 200)); err != nil {
			return err
		}
		if err := flushData(file); err != nil {
			return err
		}
		spans = append(spans, time.Since(before))
	}
	report("disk", "write", "flush", spans, 2*time.Second)
	return nil
}

func ports(count string) error {
	number, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for range number {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close() // After all are known, so that they differ.
		fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	}
	return nil
}
