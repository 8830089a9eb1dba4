// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package suite judges a run of Kubernetes' own tests against this project's
// controllers: every test passes or is a known difference, and anything else is
// news. It reads what go test and ginkgo report, and prints one table.
package suite

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// A Suite is a body of tests and what is known of them.
type Suite struct {
	// Name is how the table calls it.
	Name string
	// Specs is how many tests run; another number is news.
	Specs int
	// Differences are the tests that run and do not pass.
	Differences []Difference
	// LeftOut are the tests that do not run. They are no Specs.
	LeftOut []Difference
	// Instead says what stands in the place of Kubernetes' code, where it does something
	// else of which no test takes notice; "" if nothing does.
	Instead string
}

// A Difference is a test that does not pass, or does not run, and the reason.
type Difference struct {
	// Test is the whole name, such as "TestX/row".
	Test string
	// Says are parts of what the test prints when it fails. It is news if one of them
	// is missing, and if a line of a test file ("x_test.go:7: ...") has none of them:
	// so rows of a table that has no sub-tests are told apart. None means that any
	// failure will do.
	Says []string
	// Why is the reason, which is printed below the table.
	Why string
}

// A Result is what became of one test that ran.
type Result struct {
	Test   string
	Passed bool
	// Output is what a test that did not pass has printed.
	Output string
}

// A Verdict is a suite with what became of it.
type Verdict struct {
	Suite
	// Ran and Passed count tests.
	Ran, Passed int
	// News is what the suite does not know of: one line each, and for a new failure
	// the output below it.
	News []string
}

// Judge compares results with what is known. The order of results does not matter.
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

// news is what nobody knows of the result, or "".
func (s Suite) news(r Result) string {
	i := slices.IndexFunc(s.Differences, func(d Difference) bool { return d.Test == r.Test })
	switch {
	case i < 0 && !r.Passed:
		return r.Test + " fails:\n" + excerpt(r.Output)
	case i >= 0 && r.Passed:
		return fmt.Sprintf("%s passes; it was a known difference: %s", r.Test, s.Differences[i].Why)
	case i >= 0 && !s.Differences[i].explains(r.Output):
		return fmt.Sprintf("%s fails in another way than known, which says %q:\n%s", r.Test, s.Differences[i].Says, excerpt(r.Output))
	default:
		return ""
	}
}

// tailLines is how much of an output news shows: an API server logs hundreds of lines
// when it starts.
const tailLines = 50

// excerpt returns the last lines and, above them, the complaints of the lines before: an
// API server logs more than that when it stops, after the test has said what is wrong.
func excerpt(output string) string {
	lines := strings.SplitAfter(output, "\n")
	cut := max(0, len(lines)-tailLines)
	earlier := complaint.FindAllString(strings.Join(lines[:cut], ""), -1)
	if len(earlier) > 0 {
		earlier = append(earlier, "...")
	}
	return strings.Join(append(earlier, strings.Join(lines[cut:], "")), "\n")
}

// complaint is a line that a test file prints.
var complaint = regexp.MustCompile(`(?m)^\s+\S+_test\.go:\d+: .*$`)

// explains reports whether the output is that of the difference.
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

// Print writes the table of all verdicts, the reasons, and what is news. It
// returns an error if anything is.
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

// names lists the tests.
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
