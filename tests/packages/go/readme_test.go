// Tests that the README's code is part of the tests, and its commands work.

package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// blocks returns the README's blocks of code in one language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(moduleFolder(t), "README.md"))
	no(t, err)
	var found []string
	pattern := regexp.MustCompile("(?s)```" + language + "\n(.*?)```")
	for _, block := range pattern.FindAllSubmatch(readme, -1) {
		found = append(found, string(block[1]))
	}
	holds(t, len(found) > 0, "the README has no block of %s", language)
	return found
}

// The README's code is code of the folder readme, or of the tests of clusters.
func TestTheCodeOfTheReadmeIsRun(t *testing.T) {
	t.Parallel()
	run := ""
	for _, file := range append(glob(t, "readme/*_test.go"), "cluster_test.go") {
		text, err := os.ReadFile(file)
		no(t, err)
		run += string(text)
	}
	for _, block := range blocks(t, "go") {
		holds(t, strings.Contains(run, block), "this is not run:\n%s", block)
	}
}

// The README's commands run in an empty project, the first test among them.
func TestTheCommandsOfTheReadmeInstallTheModule(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	run := func(script string) {
		command := exec.Command("sh", "-e", "-c", script)
		command.Dir = folder
		output, err := command.CombinedOutput()
		holds(t, err == nil, "%s\n%v: %s", script, err, output)
	}
	first := "package invoice\n\n" + blocks(t, "go")[0]
	write(t, filepath.Join(folder, "invoice_test.go"), first)
	client, err := exec.Command(
		"go", "list", "-m", "-f", "{{.Path}}@{{.Version}}", "github.com/redis/go-redis/v9").Output()
	no(t, err)
	run("go mod init example.test\ngo get " + string(client))
	scripts := blocks(t, "sh")
	is(t, scripts[0], "OUT=/tmp/lockwheel\npackages/build \"$OUT\" go\n")
	for _, script := range scripts[1:] {
		run(script)
	}
}
