package packages

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's code is that of the folder readme, whose tests run.
func TestTheCodeOfTheReadmeIsRun(t *testing.T) {
	t.Parallel()
	run := ""
	for _, file := range glob(t, "readme/*_test.go") {
		text, err := os.ReadFile(file)
		no(t, err)
		run += string(text)
	}
	readme, err := os.ReadFile(filepath.Join(moduleFolder(t), "README.md"))
	no(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	holds(t, len(blocks) > 0, "there is no code in the README")
	for _, block := range blocks {
		holds(t, strings.Contains(run, string(block[1])), "this is not run:\n%s", block[1])
	}
}
