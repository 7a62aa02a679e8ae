// Figures: percentiles of a measurement, and their medians over the rounds.

package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report prints a line: system, workload, operation, p50 and p99 in microseconds, operations in a
// second.
func report(system, workload, operation string, spans []time.Duration, span time.Duration) {
	slices.Sort(spans)
	at := func(share float64) float64 {
		if len(spans) == 0 {
			return 0
		}
		index := min(int(share*float64(len(spans))), len(spans)-1)
		return float64(spans[index].Nanoseconds()) / 1000
	}
	rate := 0.0
	if span > 0 {
		rate = float64(len(spans)) / span.Seconds()
	}
	fmt.Printf("Go\t%s\t%s\t%s\t%.1f\t%.1f\t%.0f\n",
		system, workload, operation, at(0.5), at(0.99), rate)
}

// summary prints the medians of lines with the same four first columns, and the range of the p50.
func summary(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var names []string
	figures := map[string][3][]float64{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		columns := strings.Split(lines.Text(), "\t")
		if len(columns) != 7 {
			return fmt.Errorf("not a line of a measurement: %q", lines.Text())
		}
		name := strings.Join(columns[:4], " | ")
		of, known := figures[name]
		if !known {
			names = append(names, name)
		}
		for index := range of {
			value, err := strconv.ParseFloat(columns[4+index], 64)
			if err != nil {
				return err
			}
			of[index] = append(of[index], value)
		}
		figures[name] = of
	}
	slices.Sort(names)
	fmt.Println("| Runtime | System | Workload | Operation | p50, us | range of p50 | p99, us | /s |")
	fmt.Println("|---|---|---|---|---:|---:|---:|---:|")
	for _, name := range names {
		of := figures[name]
		for index := range of {
			slices.Sort(of[index])
		}
		half := len(of[0]) / 2
		fmt.Printf("| %s | %.0f | %.0f..%.0f | %.0f | %.0f |\n", name, of[0][half],
			of[0][0], of[0][len(of[0])-1], of[1][half], of[2][half])
	}
	return lines.Err()
}
