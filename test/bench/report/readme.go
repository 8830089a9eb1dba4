// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// The README's table stands between these.
const (
	begin = "<!-- make bench writes this table -->\n"
	end   = "<!-- until here -->\n"
)

// highlights is the table of what the chart shows.
func (r *results) highlights() string {
	var b strings.Builder
	b.WriteString("| work | Kubernetes | ours | | allocations |\n|---|--:|--:|--:|--:|\n")
	for _, want := range slices.Backward(shown) {
		if row := r.find(want.work, want.size); row != nil {
			fmt.Fprintf(&b, "| %s | %s | %s | **%s** | %s → %s |\n", want.title,
				row.short(kubernetes), row.short(ours), row.times(kubernetes, ours), row.number(kubernetes, allocs), row.number(ours, allocs))
		}
	}
	return b.String()
}

func (r *row) short(side string) string {
	median, ok := r.of(side, seconds)
	if !ok {
		return "–"
	}
	return duration(median)
}

// insert puts the table into the README.
func (r *results) insert(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s: no place for the table: %q and %q are wanted", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+r.highlights()+end+after), 0o644)
}
