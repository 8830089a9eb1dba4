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

// A trial is a defect, and the nets that are to be run on it.
type trial struct {
	defect
	nets []net
}

// fill plants the defects whose names match, and runs those nets whose names match and
// of which nothing is known.
func (t *table) fill(ctx context.Context, root string, names, nets *regexp.Regexp) error {
	for _, s := range t.suites {
		var trials []trial
		for _, d := range t.defects {
			if !names.MatchString(d.name) || !slices.Contains(s.dirs, d.dir()) {
				continue
			}
			of, known := append(slices.Clip(s.nets), testsOf(d.dir(), ownTests)), t.results.of(d)
			of = slices.DeleteFunc(of, func(n net) bool { return known.tell(n.name) || !nets.MatchString(n.name) })
			if len(of) > 0 {
				trials = append(trials, trial{d, of})
			}
		}
		if err := t.try(ctx, root, s, trials); err != nil {
			return err
		}
	}
	return nil
}

// try makes the trials of one suite, with one build. First nothing is planted: a net
// that fails anyway notices nothing.
func (t *table) try(ctx context.Context, root string, s suite, trials []trial) error {
	if len(trials) == 0 {
		return nil
	}
	defects, none := make([]defect, len(trials)), trial{defect: defect{name: "nothing " + s.title}}
	for i, trial := range trials {
		defects[i] = trial.defect
		for _, n := range trial.nets {
			if n.name == ownTests {
				n.name += " of " + n.dir
			}
			if !slices.ContainsFunc(none.nets, func(other net) bool { return other.name == n.name }) {
				none.nets = append(none.nets, n)
			}
		}
	}
	bed, err := plant(ctx, root, defects, none.nets)
	if err != nil {
		return err
	}
	defer bed.clear()
	for _, trial := range append([]trial{none}, trials...) {
		start := time.Now()
		caught, err := bed.try(ctx, trial.defect, trial.nets, t.budget.timeout)
		if err != nil {
			return err
		}
		fmt.Printf("%s (%v): %s\n", trial.name, time.Since(start).Round(time.Second), caught)
		if trial.name == none.name {
			if text := caught.String(); text != nothing {
				return fmt.Errorf("with nothing planted: %s", text)
			}
			continue
		}
		if err := t.results.put(trial.defect, caught); err != nil {
			return err
		}
	}
	return nil
}

// isKnown reports whether no net of the suite is left to be run on the defect.
func (d defect) isKnown(r *results, s suite) bool {
	caught := r.of(d)
	return !slices.ContainsFunc(s.nets, func(n net) bool { return !caught.tell(n.name) })
}

// tell reports whether a net was run, or need not be.
func (c catches) tell(net string) bool {
	_, is := c[net]
	return is || c.noticed()
}

const nothing = "nothing noticed"

// String tells what noticed the defect.
func (c catches) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if c[name] != "" {
			all = append(all, name+": "+c[name])
		}
	}
	if len(all) == 0 {
		return nothing
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
	fmt.Fprintf(&b, "\n%d of %d defects are noticed, each planted alone into %s on %s: seeds %s of the random stories, every %s corner, the models of the explorer, one after the other until one notices it.\n",
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
			said, is := caught[name]
			fmt.Fprintf(b, " %s |", cell(said, is))
		}
		b.WriteString("\n")
	}
}

// cell says that nothing was noticed, which seed or scene noticed it, or that it was noticed. It is
// empty if the net was not run.
func cell(said string, is bool) string {
	switch {
	case !is:
		return ""
	case said == "":
		return "–"
	case strings.HasPrefix(said, "seed "), strings.HasPrefix(said, "scene "), said == "no end":
		return said
	}
	return "yes"
}
