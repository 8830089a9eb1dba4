// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"go/ast"
	"go/doc"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/replicakit/replicakit"

var primitives = []string{"expectations", "slowstart", "podrank", "selector", "status"}

// goList runs go list and returns the lines it prints.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	return strings.Fields(goTool(t, ".", append([]string{"list"}, args...)...))
}

// goTool runs a go command outside any workspace, so that the versions come from the module's own go.mod. The
// result is the output of the command.
func goTool(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	require.NoError(t, err, "go %s in %s", args, dir)
	return string(out)
}

func TestRootRequiresThreeModules(t *testing.T) {
	t.Parallel()
	direct := goList(t, "-m", "-f", "{{if not (or .Indirect .Main)}}{{.Path}}{{end}}", "all")
	assert.ElementsMatch(t, []string{"k8s.io/api", "k8s.io/apimachinery", "github.com/stretchr/testify"}, direct)
	mod, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	assert.Contains(t, string(mod), "\ngo 1.25.0\n", "the oldest toolchain that can build the library")
}

// If two modules use the same release of Kubernetes, they must use the same versions of the golang.org/x and
// go-openapi modules. Otherwise, the packages of Kubernetes are compiled again for each version.
func TestModulesOnOneReleaseAgree(t *testing.T) {
	t.Parallel()
	required := regexp.MustCompile(`(?m)^(?:replace)?\s+(?:\S+ => )?(golang\.org/x/\S+|github\.com/go-openapi/\S+) (v\S+)`)
	release := regexp.MustCompile(`\bk8s\.io/apimachinery (v\S+)`)
	type needed struct{ release, module string }
	first := map[needed][2]string{} // the version of the module, and the first directory that requires it
	for _, dir := range makeVariable(t, "MODULES") {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		of := release.FindStringSubmatch(string(text))
		if of == nil {
			continue
		}
		versions := map[string]string{}
		for _, m := range required.FindAllStringSubmatch(string(text), -1) {
			versions[m[1]] = m[2] // replace directives come last, so they take precedence
		}
		for name, version := range versions {
			n := needed{of[1], name}
			if first[n][0] == "" {
				first[n] = [2]string{version, dir}
			}
			assert.Equal(t, first[n][0], version, "%s in %s and in %s", name, first[n][1], dir)
		}
	}
	assert.NotEmpty(t, first)
}

// The packages below start no goroutines. Only slowstart and the packages that work with the API server may start
// goroutines.
func TestOnlySlowStartStartsGoroutines(t *testing.T) {
	t.Parallel()
	starts := regexp.MustCompile(`(?m)^\s*go (func|[a-zA-Z_.]+\()`)
	for _, name := range []string{"expectations", "podrank", "selector", "status", "replicas", "replicas/ledger", "replicas/replicastest"} {
		assertNoMatch(t, name, starts)
	}
}

// In package controller, only the file ask.go calls the client. The file ask.go also records the results in the
// ledger.
func TestOnlyAskCallsTheClient(t *testing.T) {
	t.Parallel()
	calls := regexp.MustCompile(`(?m)^[^/\n]*\b[cC]lient\.(Create|Delete|Patch|PatchStatus|Get|GetOwner|List)\b`)
	found := 0
	for _, file := range goList(t, "-f", `{{join .GoFiles "\n"}}`, "./replicas/controller") {
		n := len(calls.FindAllString(read(t, filepath.Join("replicas/controller", file)), -1))
		if file == "ask.go" {
			found = n
		} else {
			assert.Zero(t, n, file)
		}
	}
	assert.Greater(t, found, 5)
}

// The packages in internal are below the public packages, so they import only each other. The packages in
// internal/sim are above everything: they import all packages, and only tests import them.
func TestInternalImportsNothingAbove(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSpace(goTool(t, ".", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "./...")), "\n")
	internal, sim := regexp.MustCompile("^"+module+"/internal/"), regexp.MustCompile("^"+module+"/internal/sim/")
	var below, above int
	for _, line := range lines {
		imports := strings.Fields(line)
		if sim.MatchString(imports[0]) {
			above++
			continue
		}
		for _, imported := range imports[1:] {
			assert.NotRegexp(t, sim, imported, imports[0])
			if internal.MatchString(imports[0]) && strings.HasPrefix(imported, module+"/") {
				assert.Regexp(t, internal, imported, imports[0])
			}
		}
		if internal.MatchString(imports[0]) {
			below++
		}
	}
	assert.Greater(t, below, 5)
	assert.Greater(t, above, 5)
}

// assertNoMatch checks that no file of a package, except tests, matches the pattern code.
func assertNoMatch(t *testing.T, name string, code *regexp.Regexp) {
	t.Helper()
	for _, file := range goList(t, "-f", `{{join .GoFiles "\n"}}`, "./"+name) {
		source, err := os.ReadFile(filepath.Join(name, file))
		require.NoError(t, err)
		assert.NotRegexp(t, code, string(source), "%s/%s", name, file)
	}
}

// packages lists the public packages, including those in nested modules.
var packages = append([]string{
	"replicas", "replicas/ledger", "replicas/handlers", "replicas/controller", "replicas/transport", "replicas/typed", "replicas/faults", "replicas/replicastest", "replicas/clientgo", "replicas/controllerruntime",
}, primitives...)

// withoutOutput lists the examples that are compiled but not run, because they need a cluster.
var withoutOutput = map[string]bool{
	"replicas/clientgo: Example":          true,
	"replicas/controllerruntime: Example": true,
}

// Each example must be complete in its own file, so that users can copy it into an empty module. The command make
// release-check copies each example and builds it.
func TestExamplesStandAlone(t *testing.T) {
	t.Parallel()
	for _, dir := range packages {
		examples := examplesOf(t, dir)
		assert.NotEmpty(t, examples, dir)
		for _, example := range examples {
			where := dir + ": Example" + example.Name
			if !assert.NotNil(t, example.Play, "%s needs what is not in its file", where) {
				continue
			}
			for _, spec := range example.Play.Imports {
				assert.NotContains(t, spec.Path.Value, "/internal/", where)
			}
			assert.Equal(t, withoutOutput[where], example.Output == "" && !example.EmptyOutput, "%s is not run", where)
		}
	}
}

func examplesOf(t *testing.T, dir string) (examples []*doc.Example) {
	t.Helper()
	for _, file := range parsed(t, dir) {
		if file.isTest() {
			examples = append(examples, doc.Examples(file.File)...)
		}
	}
	return examples
}

// Each exported function of the public packages must be called in an example.
func TestExamplesCallEachFunction(t *testing.T) {
	t.Parallel()
	called := map[string]bool{}
	for _, dir := range packages {
		for _, example := range examplesOf(t, dir) {
			ast.Inspect(example.Play, func(n ast.Node) bool {
				if call, ok := n.(*ast.SelectorExpr); ok {
					if pkg, ok := call.X.(*ast.Ident); ok {
						called[pkg.Name+"."+call.Sel.Name] = true
					}
				}
				return true
			})
		}
	}
	for _, dir := range packages {
		for name := range exportsOf(t, dir).functions {
			assert.True(t, called[path.Base(dir)+"."+name], "no example calls %s.%s", dir, name)
		}
	}
}

// Doc comments must not contain the ids of docs/behaviour.md, because these ids are only for people who work on
// the library.
func TestDocCommentsHaveNoIDs(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`([(]|[:,] )[A-Z][0-9]{1,2}[,)]`)
	for _, name := range append([]string{"."}, packages...) {
		for line := range strings.Lines(goTool(t, name, "doc", "-all", ".")) {
			assert.NotRegexp(t, id, line, name)
		}
	}
}

// A workflow must run each make target that README.md and test/README.md name, directly or through a target that
// needs it. Each target that a workflow runs must be in the Makefile, so that people can also run it.
func TestEachCommandIsRun(t *testing.T) {
	t.Parallel()
	makefile := read(t, "Makefile")
	rules := map[string]string{} // the prerequisites and the recipe of each target
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):(.*\n(?:\t.*\n)*)`).FindAllStringSubmatch(makefile, -1) {
		rules[m[1]] = m[2]
	}
	run := map[string]bool{}
	var mark func(target string)
	mark = func(target string) {
		rule, ok := rules[target]
		if !ok || run[target] {
			return
		}
		run[target] = true
		needs, _, _ := strings.Cut(rule, "##")
		for _, name := range append(strings.Fields(needs), makeCalls(rule)...) {
			mark(name)
		}
	}
	for _, file := range workflows(t) {
		for _, m := range regexp.MustCompile(`(?m)^ *(?:- )?run: (..+)$`).FindAllStringSubmatch(read(t, file), -1) {
			script, isFile := m[1], !strings.Contains(m[1], " ")
			if isFile {
				script = read(t, m[1])
			}
			calls := makeCalls(script)
			if strings.HasPrefix(script, "make ${{ matrix.target }}") {
				calls = weekly(t)
			}
			assert.NotEmpty(t, calls, "%s: %s", file, m[1])
			for _, name := range calls {
				assert.Contains(t, rules, name, file)
				mark(name)
			}
		}
	}
	named := 0
	for _, page := range []string{"README.md", "test/README.md"} {
		for _, m := range regexp.MustCompile("(?m)(?:`|^ +|; )make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(read(t, page), -1) {
			named++
			assert.True(t, run[m[1]], "%s names make %s, which no workflow runs", page, m[1])
		}
	}
	assert.Greater(t, named, 20)
}

// makeCalls returns the make targets that a script runs, directly or with .ci/parts.
func makeCalls(script string) (targets []string) {
	for _, m := range regexp.MustCompile(`(?:\bmake|\$\(MAKE\)|"\$MAKE")(?: --[a-z-]+)* ([a-z][a-z0-9-]*)`).FindAllStringSubmatch(script, -1) {
		targets = append(targets, m[1])
	}
	for _, m := range regexp.MustCompile(`\.ci/parts ([a-z0-9 -]+)`).FindAllStringSubmatch(script, -1) {
		targets = append(targets, strings.Fields(m[1])...)
	}
	return targets
}

func workflows(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(".github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// weekly returns the targets that the weekly workflow runs.
func weekly(t *testing.T) []string {
	t.Helper()
	matrix := regexp.MustCompile(`target: \[([^]]*)\]`).FindStringSubmatch(read(t, ".github/workflows/weekly.yml"))
	require.NotNil(t, matrix)
	return strings.FieldsFunc(matrix[1], func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// The table in test/README.md must have a row for each target of the weekly workflow, in the same order.
func TestEachLongTargetHasItsRow(t *testing.T) {
	t.Parallel()
	_, table, _ := strings.Cut(read(t, "test/README.md"), "\n| command | Kubernetes | commit | date | minutes | figures |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var rows []string
	for _, m := range regexp.MustCompile("(?m)^\\| `make ([a-z-]+)` \\|").FindAllStringSubmatch(table, -1) {
		rows = append(rows, m[1])
	}
	assert.Equal(t, weekly(t), rows)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}
