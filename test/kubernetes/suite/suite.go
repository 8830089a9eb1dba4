// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suite evaluates a run of Kubernetes' own tests with this project's controllers. Every test must
// either pass or be a known difference. Every other result is unexpected, and is reported in the field
// Verdict.News. The package reads the reports of go test and ginkgo, and prints one table.
package suite

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A Suite is a set of tests with their known results.
type Suite struct {
	// Name is the name of the suite in the table.
	Name string
	// Specs is the number of tests that must run. Judge reports any other number as an unexpected result.
	Specs int
	// Differences lists the tests that run but are known to fail.
	Differences []Difference
	// LeftOut lists the tests that do not run. These tests are not included in the number Specs.
	LeftOut []Difference
	// If our code differs from Kubernetes' code and no test detects the difference, the field Instead
	// describes the difference. Otherwise the field is empty.
	Instead string
}

// A Difference names a test that fails or does not run, and gives the reason.
type Difference struct {
	// Test is the full name of the test, such as "TestX/row".
	Test string
	// Says lists strings that the output of the failing test must contain. If the output lacks one of the
	// strings in Says, Judge reports the failure as unexpected. If a test file prints a line
	// ("x_test.go:7: ...") that contains none of the strings in Says, Judge also reports the failure as
	// unexpected. So the known failures of some rows of a table test without sub-tests do not hide failures
	// of other rows. If Says is empty, any failure is accepted.
	Says []string
	// The field Why contains the reason why the test fails or does not run. Print writes the reason below the
	// table.
	Why string
}

// A Result is the result of one test that ran.
type Result struct {
	Test   string
	Passed bool
	// Output is the output of a test that did not pass.
	Output string
}

// A Verdict is a suite with its results.
type Verdict struct {
	Suite
	// Ran is the number of tests that ran, and Passed is the number of tests that passed.
	Ran, Passed int
	// News lists the unexpected results. The entry of an unexpected failure includes the output of the test.
	News []string
}

// Judge compares the results of a run with the known results of the suite. The order of the results does not
// matter.
func (s Suite) Judge(results []Result) Verdict {
	v := Verdict{Suite: s, Ran: len(results)}
	seen := map[string]bool{}
	for _, r := range results {
		if seen[r.Test] {
			v.News = append(v.News, r.Test+" is reported twice")
		}
		seen[r.Test] = true
		if r.Passed {
			v.Passed++
		}
		if news := s.news(r); news != "" {
			v.News = append(v.News, news)
		}
	}
	for _, d := range s.Differences {
		if !seen[d.Test] {
			v.News = append(v.News, d.Test+" is a known difference and did not run")
		}
	}
	if v.Ran != s.Specs {
		v.News = append(v.News, fmt.Sprintf("%d tests ran, not %d", v.Ran, s.Specs))
	}
	return v
}

// news returns a description of an unexpected result, or "" for an expected result.
func (s Suite) news(r Result) string {
	i := slices.IndexFunc(s.Differences, func(d Difference) bool { return d.Test == r.Test })
	switch {
	case i < 0 && !r.Passed:
		return r.Test + " fails:\n" + excerpt(r.Output)
	case i >= 0 && r.Passed:
		return fmt.Sprintf("%s passes; it was a known difference: %s", r.Test, s.Differences[i].Why)
	case i >= 0 && !s.Differences[i].explains(r.Output):
		return fmt.Sprintf("%s fails, but its output does not match the known failure %q:\n%s", r.Test, s.Differences[i].Says, excerpt(r.Output))
	default:
		return ""
	}
}

// tailLines is the number of lines that excerpt keeps from the end of an output. The whole output can be
// long, because an API server logs hundreds of lines when it starts.
const tailLines = 50

// excerpt returns the last lines of an output, and all earlier lines that test files have printed. The error
// of a test may be in the earlier lines, because the API server stops after the test and may then log more
// than tailLines lines.
func excerpt(output string) string {
	lines := strings.SplitAfter(output, "\n")
	cut := max(0, len(lines)-tailLines)
	earlier := complaint.FindAllString(strings.Join(lines[:cut], ""), -1)
	if len(earlier) > 0 {
		earlier = append(earlier, "...")
	}
	return strings.Join(append(earlier, strings.Join(lines[cut:], "")), "\n")
}

// complaint matches a line that a test file prints.
var complaint = regexp.MustCompile(`(?m)^\s+\S+_test\.go:\d+: .*$`)

// explains reports whether the output of a failed test matches the known difference.
func (d Difference) explains(output string) bool {
	for _, said := range d.Says {
		if !strings.Contains(output, said) {
			return false
		}
	}
	return len(d.Says) == 0 || !slices.ContainsFunc(complaint.FindAllString(output, -1), func(line string) bool {
		return !slices.ContainsFunc(d.Says, func(said string) bool { return strings.Contains(line, said) })
	})
}

// Print writes the table of all verdicts, the reasons of the differences, and the unexpected results. If there
// are unexpected results, Print returns an error.
func Print(w io.Writer, verdicts []Verdict) error {
	var page strings.Builder
	page.WriteString("| suite | specs | passed | known differences | left out |\n|---|--:|--:|---|---|\n")
	for _, v := range verdicts {
		fmt.Fprintf(&page, "| %s | %d | %d | %s | %s |\n", v.Name, v.Ran, v.Passed, names(v.Differences), names(v.LeftOut))
	}
	for _, v := range verdicts {
		if v.Instead != "" {
			fmt.Fprintf(&page, "\n%s: %s", v.Name, v.Instead)
		}
		for _, d := range slices.Concat(v.Differences, v.LeftOut) {
			fmt.Fprintf(&page, "\n%s, %s: %s", v.Name, d.Test, d.Why)
		}
	}
	news := 0
	for _, v := range verdicts {
		news += len(v.News)
		for _, line := range v.News {
			fmt.Fprintf(&page, "\nNEWS %s: %s", v.Name, strings.TrimSpace(line))
		}
	}
	page.WriteString("\n\nfigures: ")
	for i, v := range verdicts {
		if i > 0 {
			page.WriteString(", ")
		}
		fmt.Fprintf(&page, "%s %d of %d", v.Name, v.Passed, v.Ran)
	}
	page.WriteString("\n")
	if _, err := io.WriteString(w, page.String()); err != nil {
		return err
	}
	if news > 0 {
		return fmt.Errorf("%d results are not in the tables of known differences", news)
	}
	return nil
}

// names returns the names of the tests, separated by commas.
func names(differences []Difference) string {
	if len(differences) == 0 {
		return "none"
	}
	tests := make([]string, len(differences))
	for i, d := range differences {
		tests[i] = d.Test
	}
	return strings.Join(tests, ", ")
}
