// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// A screen prints lines. On a terminal, it also shows a table below the lines, and updates the
// table in place.
type screen struct {
	mu    sync.Mutex
	out   io.Writer
	live  bool
	table []string
	drawn int // number of table lines on the terminal
	size  func() (width, height int, err error)
}

func newScreen(out io.Writer, live bool) *screen {
	return &screen{out: out, live: live, size: func() (int, int, error) { return term.GetSize(int(os.Stdout.Fd())) }}
}

// say prints lines above the table.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
	s.draw()
}

// show replaces the table.
func (s *screen) show(table []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.table = table
	s.draw()
}

func (s *screen) erase() {
	if s.drawn > 0 {
		_, _ = fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}

// draw writes the table. It cuts the table to the size of the terminal, because lines that have
// scrolled off cannot be erased.
func (s *screen) draw() {
	if !s.live || len(s.table) == 0 {
		return
	}
	width, height, err := s.size()
	if err != nil || width <= 0 || height <= 0 { // a serial line or a new pseudo-terminal has the size 0
		width, height = 80, 24
	}
	table := s.table
	if limit := max(height-3, 3); len(table) > limit {
		table = append(table[:limit-1:limit-1], fmt.Sprintf("... and %d more", len(s.table)-limit+1))
	}
	var b strings.Builder
	for _, line := range table {
		b.WriteString(line[:min(len(line), width-1)] + "\n")
	}
	_, _ = io.WriteString(s.out, b.String())
	s.drawn = len(table)
}
