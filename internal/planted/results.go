// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
)

// results are what the nets noticed, kept in a file if there is one.
type results struct {
	run  string // commit and budget
	file *os.File
	all  map[string]catches
}

// A line of the file is what some nets noticed of one defect.
type line struct {
	Of, Defect, Text string // Text is the sum of the defect's edits
	Caught           catches
}

// openResults reads what is known already of the same commit, with the same budget.
func openResults(name, commit string, b budget) (*results, error) {
	r := &results{run: fmt.Sprintf("%s, %s, %d, %v", commit, b.seeds, b.every, b.timeout), all: map[string]catches{}}
	if name == "" {
		return r, nil
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	r.file = file
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var l line
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if l.Of == r.run {
			r.add(l.Defect+l.Text, l.Caught)
		}
	}
	return r, lines.Err()
}

func (r *results) add(key string, caught catches) {
	if r.all[key] == nil {
		r.all[key] = catches{}
	}
	maps.Copy(r.all[key], caught)
}

// of returns what is known of a defect.
func (r *results) of(d defect) catches { return r.all[d.name+sum(d)] }

func (r *results) put(d defect, caught catches) error {
	r.add(d.name+sum(d), caught)
	if r.file == nil {
		return nil
	}
	return json.NewEncoder(r.file).Encode(line{r.run, d.name, sum(d), caught})
}

func (r *results) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}

func sum(d defect) string { return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", d.edits))) }
