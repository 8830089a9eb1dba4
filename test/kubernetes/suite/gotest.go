// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// A run collects the events of one test or package.
type run struct {
	output strings.Builder
	action string
	// inner is the number of all sub-tests of this test, or of all tests of this package. inBad is the
	// number of those that did not pass.
	inner, inBad int
}

// ReadGoTest reads the output of go test -json. It returns one result for each test without sub-tests, and
// for each test that fails although all its sub-tests pass. A package can fail although no test fails, for
// example because the package does not build. Then ReadGoTest returns one result with the name of the
// package. A skipped test counts as not passed.
func ReadGoTest(r io.Reader) ([]Result, error) {
	runs := map[string]*run{}
	var order []string
	for decoder := json.NewDecoder(r); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("suite: reading go test -json: %w", err)
		}
		name := e.name()
		at, found := runs[name]
		if !found {
			at = &run{}
			runs[name] = at
			order = append(order, name)
		}
		at.output.WriteString(e.Output)
		if e.ends() {
			at.action = e.Action
		}
	}
	countInner(runs)
	return collect(runs, order), nil
}

// ends reports whether the event is the last event of its test or package.
func (e event) ends() bool { return e.Action == "pass" || e.Action == "fail" || e.Action == "skip" }

// name returns the path of the package, followed by the name of the test if the event belongs to a test.
func (e event) name() string {
	path := e.Package
	if path == "" { // the event belongs to a build
		path, _, _ = strings.Cut(e.ImportPath, " ")
	}
	if e.Test == "" {
		return path
	}
	return path + "\n" + e.Test
}

// outer returns the name of the test or package that contains a test.
func outer(name string) string {
	path, test, isTest := strings.Cut(name, "\n")
	if i := strings.LastIndex(test, "/"); i >= 0 {
		return path + "\n" + test[:i]
	}
	if isTest {
		return path
	}
	return ""
}

// countInner sets the counters inner and inBad of each test and package.
func countInner(runs map[string]*run) {
	for name, r := range runs {
		for up := outer(name); up != ""; up = outer(up) {
			above := runs[up]
			if above == nil {
				continue
			}
			above.inner++
			if r.action != "pass" {
				above.inBad++
			}
		}
	}
}

// collect returns the results of the tests without sub-tests. It also returns a result for each test or
// package that fails although everything inside it passes.
func collect(runs map[string]*run, order []string) []Result {
	var results []Result
	for _, name := range order {
		r := runs[name]
		path, test, isTest := strings.Cut(name, "\n")
		passed := r.action == "pass" || !isTest && r.action == "skip" // a package without tests
		switch {
		case !passed && r.inBad == 0 && isTest:
			results = append(results, Result{Test: test, Output: r.output.String()})
		case !passed && r.inBad == 0:
			results = append(results, Result{Test: path, Output: r.output.String()})
		case passed && isTest && r.inner == 0:
			results = append(results, Result{Test: test, Passed: true})
		}
	}
	return results
}
