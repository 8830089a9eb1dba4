// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// results holds the medians of all benchmarks. The rows have the same order as benchstat's output.
type results struct {
	config map[string]string // settings of all runs, such as "kubernetes" and "cpu"
	rows   []*row
}

// A row holds the results of one kind of work at one size, on both fleets.
type row struct {
	work, size string
	medians    map[string]map[of]value // by unit
}

// An of says whose result it is.
type of struct{ fleet, side string }

type value struct {
	median float64
	spread string // in the format of benchstat, such as "3%"
}

// read reads benchstat's comma-separated values. The input contains one table for each unit. The first line of
// a table contains the names of the sides, for example "kubernetes" and "ours". The second line contains the
// unit. Each of the other lines contains the results of one benchmark, except the line "geomean", which is
// ignored.
func read(r io.Reader) (*results, error) {
	lines := csv.NewReader(r)
	lines.FieldsPerRecord = -1
	all := &results{config: make(map[string]string)}
	var sides, units []string
	for {
		fields, err := lines.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		case len(fields) == 1:
			key, text, _ := strings.Cut(fields[0], ": ")
			all.config[key] = text
		case fields[0] == "" && units == nil && sides != nil:
			units = fields
		case fields[0] == "":
			sides, units = fields, nil
		case fields[0] != "geomean":
			if err := all.add(fields, sides, units); err != nil {
				return nil, err
			}
		}
	}
}

func (r *results) add(fields, sides, units []string) error {
	row, fleet, err := r.row(fields[0])
	if err != nil {
		return err
	}
	for i, side := range sides {
		if side == "" || i+1 >= len(fields) || fields[i] == "" {
			continue
		}
		median, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", fields[0], err)
		}
		if row.medians[units[i]] == nil {
			row.medians[units[i]] = make(map[of]value)
		}
		row.medians[units[i]][of{fleet, side}] = value{median: median, spread: fields[i+1]}
	}
	return nil
}

var benchmark = regexp.MustCompile(`^(?:Work|Memory)/(\w+)/(?:fleet=(\w+)/)?(.*?)(?:-\d+)?$`)

// row returns the row of a benchmark. A work without a fleet counts as one on the healthy fleet.
func (r *results) row(name string) (_ *row, fleet string, err error) {
	match := benchmark.FindStringSubmatch(name)
	if match == nil {
		return nil, "", fmt.Errorf("benchmark %q: no work or no size", name)
	}
	work, fleet, size := match[1], cmp.Or(match[2], healthy), match[3]
	for _, row := range r.rows {
		if row.work == work && row.size == size {
			return row, fleet, nil
		}
	}
	added := &row{work: work, size: size, medians: make(map[string]map[of]value)}
	r.rows = append(r.rows, added)
	return added, fleet, nil
}

// medianOf looks up a median. The second result reports whether this median
// exists.
func (r *row) medianOf(whose of, unit string) (median float64, ok bool) {
	v, ok := r.medians[unit][whose]
	return v.median, ok
}

// ratio divides Kubernetes' time on a fleet by ours. The second result reports whether this is possible.
func (r *row) ratio(fleet string) (ratio float64, ok bool) {
	theirs, theirsOK := r.medianOf(of{fleet, kubernetes}, seconds)
	mine, mineOK := r.medianOf(of{fleet, ours}, seconds)
	if !theirsOK || !mineOK || mine == 0 {
		return 0, false
	}
	return theirs / mine, true
}

const (
	kubernetes = "kubernetes"
	ours       = "ours"

	healthy = "healthy"
	mixed   = "mixed"

	seconds = "sec/op"
	allocs  = "allocs/op"
)

// text returns the size as a string, for example "5,000 pods" or "1 owner, 2 goroutines".
func (r *row) text() string {
	var parts []string
	for part := range strings.SplitSeq(r.size, "/") {
		name, value, _ := strings.Cut(part, "=")
		if value == "1" {
			name = strings.TrimSuffix(name, "s")
		}
		parts = append(parts, thousands(value)+" "+name)
	}
	return strings.Join(parts, ", ")
}

// thousands writes 1234567 as 1,234,567.
func thousands(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
