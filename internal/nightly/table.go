// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
)

// What became of a target.
const (
	passes = "passes"
	fails  = "**fails**"
)

// The table stands between these lines of its page.
const (
	first = "<!-- make nightly writes this table -->\n"
	last  = "<!-- until here -->\n"
	head  = "| command | last run | commit | date | took | figures |\n|---|---|---|---|---|---|\n"
)

// A row is what came of a target when it ran last. The zero row is of one that never did.
type row struct{ outcome, commit, date, took, figures string }

func (r row) of(target string) string {
	if r.outcome == "" {
		r.outcome = "not run"
	}
	return fmt.Sprintf("| `make %s` | %s | %s | %s | %s | %s |\n", target, r.outcome, r.commit, r.date, r.took, r.figures)
}

// split returns what stands before the table of the page, the table, and what follows it.
func split(page string) (before, table, after string, err error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return "", "", "", err
	}
	before, rest, found := strings.Cut(string(text), first)
	table, after, closed := strings.Cut(rest, last)
	if !found || !closed {
		return "", "", "", fmt.Errorf("%s: want a line %q, and later one %q", page, strings.TrimSpace(first), strings.TrimSpace(last))
	}
	return before + first, table, last + after, nil
}

// readTable returns the rows of the page, by target.
func readTable(page string) (map[string]row, error) {
	_, table, _, err := split(page)
	if err != nil {
		return nil, err
	}
	rows := map[string]row{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		target, ok := strings.CutPrefix(strings.Trim(cells[0], "`"), "make ")
		if !ok {
			continue
		}
		if len(cells) != 6 {
			return nil, fmt.Errorf("%s: want 6 cells in %q", page, line)
		}
		rows[target] = row{outcome: cells[1], commit: cells[2], date: cells[3], took: cells[4], figures: cells[5]}
	}
	return rows, nil
}

// writeRow writes the row of a target. The table then has a row for each target of all,
// in that order, and no other.
func writeRow(page string, all []string, target string, made row) error {
	before, _, after, err := split(page)
	if err != nil {
		return err
	}
	rows, err := readTable(page)
	if err != nil {
		return err
	}
	rows[target] = made
	var table strings.Builder
	table.WriteString(head)
	for _, name := range all {
		table.WriteString(rows[name].of(name))
	}
	return os.WriteFile(page, []byte(before+table.String()+after), 0o644)
}
