// Judges histories of locks, with porcupine. README.md says how.

package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Operations that are shown of an order.
const shown = 12

func main() {
	limit := flag.Duration("limit", time.Minute, "the longest search for an order, of each lock")
	wrong := flag.Bool("wrong", false, "whether each group of locks must have a violation")
	flag.Parse()
	status := 0
	for _, path := range flag.Args() {
		status = max(status, judgeFile(path, *limit, *wrong))
	}
	os.Exit(status)
}

// Judges a file: 0 if all is as it must be, 1 if a history is not, 2 if that is not decided.
func judgeFile(path string, limit time.Duration, wrong bool) int {
	file, err := os.Open(path)
	if err != nil {
		fmt.Println(err)
		return 2
	}
	defer file.Close()
	histories, err := read(file)
	if err != nil {
		fmt.Printf("%s: %v\n", path, err)
		return 2
	}
	operations := 0
	results := map[porcupine.CheckResult]int{}
	groups := map[string]bool{}
	for _, history := range histories {
		operations += len(history.operations)
		result, story := history.judge(limit)
		results[result]++
		group, _, _ := strings.Cut(history.lock, "/")
		groups[group] = groups[group] || result == porcupine.Illegal
		if result == porcupine.Unknown || result == porcupine.Illegal && !wrong {
			fmt.Printf("%s: %s: %s\n%s", path, history.lock, verdict(result), story)
		}
	}
	violations, undecided := results[porcupine.Illegal], results[porcupine.Unknown]
	fmt.Printf("%s: %d locks, %d operations: %d violations, %d not decided\n",
		path, len(histories), operations, violations, undecided)
	if operations == 0 {
		return 2
	}
	if wrong {
		return judgeGroups(path, groups)
	}
	switch {
	case violations > 0:
		return 1
	case undecided > 0:
		return 2
	}
	return 0
}

// Checks that each group has a violation.
func judgeGroups(path string, groups map[string]bool) int {
	status := 0
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if !groups[group] {
			fmt.Printf("%s: %s: no violation is found\n", path, group)
			status = 1
		}
	}
	fmt.Printf("%s: %d groups\n", path, len(groups))
	return status
}

func verdict(result porcupine.CheckResult) string {
	if result == porcupine.Illegal {
		return "no lock gives these answers"
	}
	return "not decided"
}

// Judges a history. If no order of it is possible, shows the end of the longest one that is, and
// the operation that has to come next.
func (history *history) judge(limit time.Duration) (porcupine.CheckResult, string) {
	model, steps := history.model(), history.steps()
	result, info := porcupine.CheckOperationsVerbose(model, steps, limit)
	if result != porcupine.Illegal {
		return result, ""
	}
	var longest []porcupine.Operation
	for _, order := range info.PartialLinearizationsOperations()[0] {
		if len(order) > len(longest) {
			longest = order
		}
	}
	story := ""
	for _, operation := range longest[max(0, len(longest)-shown):] {
		story += fmt.Sprintf("    %s\n", operation.Input)
	}
	ordered := map[step]bool{}
	for _, operation := range longest {
		ordered[operation.Input.(step)] = true
	}
	var next *porcupine.Operation
	for at, operation := range steps {
		isOrdered := ordered[operation.Input.(step)]
		if !isOrdered && (next == nil || operation.Return < next.Return) {
			next = &steps[at]
		}
	}
	return result, story + fmt.Sprintf("    impossible now: %s\n", next.Input)
}

func (step step) String() string {
	switch step.kind {
	case opens:
		return fmt.Sprintf("%s, may happen", step.operation)
	case closes:
		return fmt.Sprintf("%s, must have ended", step.operation)
	}
	return step.operation.String()
}
