// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// unit is the unit of a measured value. The unit determines how the value is formatted.
type unit uint8

const (
	number unit = iota
	wall
	cpu
	memory
)

// A figure is one measured value.
type figure struct {
	measure string
	unit    unit
	value   float64
}

// A sample holds the measured values of one run of a scenario.
type sample []figure

func (s sample) String() string {
	var parts []string
	for _, f := range s {
		if f.value != 0 {
			parts = append(parts, f.measure+" "+f.unit.text(f.value))
		}
	}
	return strings.Join(parts, ", ")
}

// text formats a value of this unit, for example as "0.50 s" or "12 MiB".
func (u unit) text(v float64) string {
	switch u {
	case wall, cpu:
		return strconv.FormatFloat(v, 'f', 2, 64) + " s"
	case memory:
		return strconv.FormatFloat(v/(1<<20), 'f', 0, 64) + " MiB"
	}
	return grouped(int(math.Round(v)))
}

// grouped writes 1234567 as 1,234,567.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// results holds the measured values of all runs.
type results struct {
	runs int
	size size
	rows []*row
}

// A row of the table holds all values of one measured quantity in one scenario.
type row struct {
	scenario, measure string
	unit              unit
	values            map[string][]float64 // by side
}

func (r *results) add(scenario, side string, s sample) {
	for _, f := range s {
		row := r.row(scenario, f)
		row.values[side] = append(row.values[side], f.value)
	}
}

func (r *results) row(scenario string, f figure) *row {
	for _, row := range r.rows {
		if row.scenario == scenario && row.measure == f.measure {
			return row
		}
	}
	added := &row{scenario, f.measure, f.unit, make(map[string][]float64)}
	r.rows = append(r.rows, added)
	return added
}

// table returns the results as a Markdown table.
func (r *results) table() string {
	var b strings.Builder
	b.WriteString("| scenario | measure | Kubernetes | ours | ours / Kubernetes |\n|---|---|--:|--:|--:|\n")
	last := ""
	for _, s := range scenarios {
		for _, row := range r.rows {
			if row.scenario != s.name || !row.isTold() {
				continue
			}
			title := ""
			if s.name != last {
				title, last = s.title(r.size), s.name
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", title, row.measure,
				row.text(kubernetes), row.text(ours), row.ratio())
		}
	}
	return b.String()
}

func (r *row) isTold() bool {
	for _, values := range r.values {
		if slices.ContainsFunc(values, func(v float64) bool { return v != 0 }) {
			return true
		}
	}
	return false
}

// text formats the median of one program's values. If the formatted values differ between the runs, the
// lowest and highest values follow in parentheses.
func (r *row) text(side string) string {
	values := r.values[side]
	if len(values) == 0 {
		return "–"
	}
	middle := r.unit.text(median(values))
	least, most := r.unit.text(slices.Min(values)), r.unit.text(slices.Max(values))
	if least == most {
		return middle
	}
	return fmt.Sprintf("%s (%s – %s)", middle, least, most)
}

// ratio returns our median divided by the median of Kubernetes.
func (r *row) ratio() string {
	if len(r.values[ours]) == 0 || len(r.values[kubernetes]) == 0 {
		return "–"
	}
	ratio := median(r.values[ours]) / median(r.values[kubernetes])
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return strconv.FormatFloat(ratio, 'f', 2, 64)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// mark is the last line of the page before the results.
const mark = "<!-- make bench-cluster writes what is below -->\n"

// into returns the given page with these results in place of everything after the mark.
func (r *results) into(page []byte) ([]byte, error) {
	before, _, found := strings.Cut(string(page), mark)
	if !found {
		return nil, fmt.Errorf("the page has no line %q", mark)
	}
	return fmt.Appendf(nil, "%s%s\nRuns of each side: %d; figures are medians, in parentheses the least and the most. Run with %s on %s/%s, %d cores.\n\n%s",
		before, mark, r.runs, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), r.table()), nil
}
