// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// The page's table stands between these.
const (
	begin = "<!-- make planted writes this table -->\n"
	end   = "<!-- until here -->\n"
)

// A table is what became of each defect.
type table struct {
	suites  []suite
	defects []defect
	results *results
	commit  string
	day     time.Time
	budget  budget
}

// fill plants the defects whose names match, and runs those nets whose names match and
// of which nothing is known. First it plants none: a net that fails anyway notices
// nothing.
func (t *table) fill(ctx context.Context, root string, names, nets *regexp.Regexp) error {
	for _, d := range t.defects {
		if !names.MatchString(d.name) {
			continue
		}
		s, err := suiteOf(t.suites, d.dir())
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		s.nets = slices.DeleteFunc(s.nets, func(n net) bool { return !nets.MatchString(n.name) })
		healthy := defect{name: "nothing in " + d.dir()}
		if !d.isKnown(t.results, s) && !healthy.isKnown(t.results, s) {
			if err = t.try(ctx, root, s, healthy); err != nil {
				return err
			}
		}
		if caught := t.results.of(healthy); caught.noticed() || caught[ownTests] != "" {
			return fmt.Errorf("with nothing planted: %s", caught)
		}
		if err = t.try(ctx, root, s, d); err != nil {
			return err
		}
	}
	return nil
}

// try runs the nets that are not known to notice the defect, or not to.
func (t *table) try(ctx context.Context, root string, s suite, d defect) error {
	known := t.results.of(d)
	s.nets = slices.DeleteFunc(slices.Clone(s.nets), func(n net) bool { _, ok := known[n.name]; return ok })
	if len(s.nets) == 0 {
		return nil
	}
	start := time.Now()
	caught, err := s.try(ctx, root, d, t.budget)
	if err != nil {
		return err
	}
	fmt.Printf("%s (%v): %s\n", d.name, time.Since(start).Round(time.Second), caught)
	return t.results.put(d, caught)
}

// isKnown reports whether all nets of the suite were run on the defect.
func (d defect) isKnown(r *results, s suite) bool {
	caught := r.of(d)
	return !slices.ContainsFunc(s.nets, func(n net) bool { _, ok := caught[n.name]; return !ok })
}

// String tells what noticed the defect.
func (c catches) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] != "" {
			all = append(all, name+": "+c[name])
		}
	}
	if len(all) == 0 {
		return "nothing noticed"
	}
	return strings.Join(all, ", ")
}

// noticed reports whether a net noticed it, the package's own tests left aside.
func (c catches) noticed() bool {
	for name, said := range c {
		if said != "" && name != ownTests {
			return true
		}
	}
	return false
}

// verdict is an error if a defect is not noticed without a reason, or noticed although
// there is a reason why not. It says nothing of defects that some net was not run on.
func (t *table) verdict() error {
	var errs []error
	for _, d := range t.defects {
		s, err := suiteOf(t.suites, d.dir())
		if err != nil {
			return err
		}
		switch caught := t.results.of(d); {
		case caught.noticed() && d.why != "":
			errs = append(errs, fmt.Errorf("%s: its file says why nothing notices it, but something did: %s", d.name, caught))
		case !caught.noticed() && d.why == "" && s.why == "" && d.isKnown(t.results, s):
			errs = append(errs, fmt.Errorf("%s: nothing noticed it, and its file does not say why", d.name))
		}
	}
	return errors.Join(errs...)
}

// insert puts the table into the page.
func (t *table) insert(page string) error {
	written, err := t.markdown()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: no place for the table: %q and %q are wanted", page, begin, end)
	}
	return os.WriteFile(page, []byte(before+begin+written+end+after), 0o644)
}

// markdown is the whole table. It is an error if something was not tried.
func (t *table) markdown() (string, error) {
	var b strings.Builder
	noticed := 0
	defer func() { fmt.Printf("figures: %d of %d defects are noticed\n", noticed, len(t.defects)) }()
	for _, d := range t.defects {
		s, err := suiteOf(t.suites, d.dir())
		if err != nil {
			return "", err
		}
		if !d.isKnown(t.results, s) {
			return "", fmt.Errorf("no table without %s: it was not planted, or some net was not run", d.name)
		}
		if t.results.of(d).noticed() {
			noticed++
		}
	}
	fmt.Fprintf(&b, "\n%d of %d defects are noticed, each planted alone into %s on %s: seeds %s of the random stories, every %s corner, the models of the explorer.\n",
		noticed, len(t.defects), t.commit, t.day.Format(time.DateOnly), t.budget.seeds, ordinal(t.budget.every))
	for _, s := range t.suites {
		t.rows(&b, s)
	}
	b.WriteString("\n")
	return b.String(), nil
}

func ordinal(n int) string {
	switch n {
	case 1:
		return "single"
	case 2:
		return "second"
	case 3:
		return "third"
	}
	return fmt.Sprintf("%dth", n)
}

// rows writes the defects of one suite.
func (t *table) rows(b *strings.Builder, s suite) {
	names := make([]string, 0, len(s.nets)+1)
	for _, n := range s.nets {
		names = append(names, n.name)
	}
	names = append(names, ownTests)
	if s.why != "" {
		b.WriteString("\n" + s.why + "\n")
	}
	fmt.Fprintf(b, "\n| %s | what it breaks | %s |\n|---|---|%s\n", s.title, strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, d := range t.defects {
		if !slices.Contains(s.dirs, d.dir()) {
			continue
		}
		caught := t.results.of(d)
		breaks := d.breaks
		if d.why != "" {
			breaks += " *Not noticed: " + d.why + "*"
		}
		fmt.Fprintf(b, "| %s | %s |", d.name, strings.ReplaceAll(breaks, "|", `\|`))
		for _, name := range names {
			fmt.Fprintf(b, " %s |", cell(caught[name]))
		}
		b.WriteString("\n")
	}
}

// cell says that nothing was noticed, which seed noticed it, or that it was noticed.
func cell(said string) string {
	switch {
	case said == "":
		return "–"
	case strings.HasPrefix(said, "seed "), said == "no end":
		return said
	}
	return "yes"
}
