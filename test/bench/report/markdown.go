// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
)

//go:embed intro.md
var intro string

// titles contains a title for each kind of work.
var titles = map[string]string{
	"Choose":          "choose a tenth of the pods",
	"ChooseComposed":  "the same by an order composed of the same criteria",
	"Claim":           "claim pods that are owned",
	"Status":          "calculate the status",
	"Manage":          "all of it: filter, claim, choose",
	"Hold":            "the same, where nothing has to go",
	"Pass":            "a whole pass with nothing to do",
	"EachOwner":       "a pass for each owner of ten pods, with nothing to do",
	"EachPod":         "an event of each pod",
	"Indexed":         "a small pod in the cache",
	"Passed":          "an owner of ten pods, after a pass",
	"SlowStart":       "slow start of calls that do nothing",
	"ObserveAndCheck": "one observation, one check",
	"Owners":          "an owner that expects a creation",
	"TrackedPods":     "a pod whose deletion is expected",
}

func (r *results) markdown() []byte {
	var b strings.Builder
	b.WriteString(intro)
	fmt.Fprintf(&b, "\nRun at %s with Kubernetes %s and %s on %s/%s, %d cores, %s.\n",
		r.config["commit"], r.config["kubernetes"], runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), r.config["cpu"])
	b.WriteString("\n## On the two fleets\n\n" +
		"| work | size | Kubernetes | ours | ratio | allocations | mixed: Kubernetes | ours | ratio | allocations |\n" +
		"|---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	r.times(&b, func(row *row) bool { return row.isOn(mixed) }, healthy, mixed)
	b.WriteString("\n## Other work\n\n" +
		"| work | size | Kubernetes | ours | ratio | allocations |\n|---|---|--:|--:|--:|--:|\n")
	r.times(&b, func(row *row) bool { return !row.isOn(mixed) }, healthy)
	b.WriteString("\n## Memory\n\nBytes that are kept. Only the last two rows include objects in the caches.\n\n" +
		"| kept | number | Kubernetes | ours |\n|---|---|--:|--:|\n")
	for _, row := range r.rows {
		for _, unit := range []string{"B/owner", "B/pod"} {
			if len(row.medians[unit]) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", titles[row.work], row.text(),
					row.number(of{healthy, kubernetes}, unit), row.number(of{healthy, ours}, unit))
			}
		}
	}
	return []byte(b.String())
}

// times writes a line for each row that belongs, with the times on the given fleets.
func (r *results) times(b *strings.Builder, belongs func(*row) bool, fleets ...string) {
	last := ""
	for _, row := range r.rows {
		if len(row.medians[seconds]) == 0 || !belongs(row) {
			continue
		}
		title := "" // only the first row of each kind of work has a title
		if row.work != last {
			title = titles[row.work]
		}
		last = row.work
		fmt.Fprintf(b, "| %s | %s", title, row.text())
		for _, fleet := range fleets {
			theirs, mine := of{fleet, kubernetes}, of{fleet, ours}
			fmt.Fprintf(b, " | %s | %s | %s | %s → %s", row.time(theirs), row.time(mine), row.ratioText(fleet), row.number(theirs, allocs), row.number(mine, allocs))
		}
		b.WriteString(" |\n")
	}
}

func (r *row) isOn(fleet string) bool {
	_, ok := r.medianOf(of{fleet, ours}, seconds)
	return ok
}

func (r *row) time(whose of) string {
	v, ok := r.medians[seconds][whose]
	if !ok {
		return "–"
	}
	return duration(v.median) + " ±" + v.spread
}

func (r *row) ratioText(fleet string) string {
	ratio, ok := r.ratio(fleet)
	if !ok {
		return "–"
	}
	return strconv.FormatFloat(ratio, 'f', 1, 64) + "x"
}

func (r *row) number(whose of, unit string) string {
	median, ok := r.medianOf(whose, unit)
	if !ok {
		return "–"
	}
	return thousands(strconv.FormatFloat(median, 'f', 0, 64))
}

// duration converts a number of seconds to a string with about three digits and a suitable unit.
func duration(s float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if s >= unit.seconds {
			return digits(s/unit.seconds) + " " + unit.name
		}
	}
	return digits(s/1e-9) + " ns"
}

// digits converts a number to a string with at least three digits.
func digits(v float64) string {
	after := 2 - int(math.Floor(math.Log10(max(v, 1))))
	return strconv.FormatFloat(v, 'f', max(after, 0), 64)
}
