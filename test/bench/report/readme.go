// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// The README's table stands between these.
const (
	begin = "<!-- make bench writes this table -->\n"
	end   = "<!-- until here -->\n"
)

// shown are the rows of the README's table.
var shown = []struct{ work, size, title string }{
	{"Choose", "fleet=cached/pods=5000", "choose 500 of 5,000 cached pods"},
	{"Choose", "fleet=lean/pods=5000", "choose 500 of 5,000 pods"},
	{"Manage", "fleet=cached/pods=5000", "plan: 500 of 5,000 cached pods go"},
	{"Manage", "fleet=lean/pods=5000", "plan: 500 of 5,000 pods go"},
	{"Hold", "fleet=cached/pods=10000", "plan: all of 10,000 cached pods stay"},
	{"Hold", "fleet=lean/pods=10000", "plan: all of 10,000 pods stay"},
	{"Pass", "fleet=cached/pods=10000", "a whole pass, 10,000 cached pods, nothing to do"},
	{"Pass", "fleet=cached/pods=100", "a whole pass, 100 cached pods, nothing to do"},
	{"Claim", "fleet=cached/pods=10000", "claim 10,000 cached pods"},
	{"Claim", "fleet=lean/pods=10000", "claim 10,000 pods"},
	{"Status", "fleet=cached/pods=10000", "status of 10,000 cached pods"},
	{"Status", "fleet=lean/pods=10000", "status of 10,000 pods"},
	{"SlowStart", "calls=500", "slow start of 500 calls"},
	{"ObserveAndCheck", "owners=1000/goroutines=2", "observe and check, 2 goroutines"},
}

// highlights is the table of the README.
func (r *results) highlights() string {
	var b strings.Builder
	b.WriteString("| work | Kubernetes | ours | | allocations |\n|---|--:|--:|--:|--:|\n")
	for _, want := range shown {
		if row := r.find(want.work, want.size); row != nil {
			fmt.Fprintf(&b, "| %s | %s | %s | **%s** | %s → %s |\n", want.title,
				row.short(kubernetes), row.short(ours), row.times(kubernetes, ours), row.number(kubernetes, allocs), row.number(ours, allocs))
		}
	}
	return b.String()
}

func (r *results) find(work, size string) *row {
	for _, row := range r.rows {
		if row.work == work && row.size == size {
			return row
		}
	}
	return nil
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
