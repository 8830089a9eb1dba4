// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos runs controllers on a simulated cluster through whatever can go
// wrong there, at random but from a seed, and cuts a story that ends badly down to
// what it takes.
//
//	story := chaos.Generate(seed)
//	if report := chaos.Run(seed, story); report.Err != nil {
//		story = chaos.Shrink(seed, story)
//		fmt.Println(story) // "scale 5; refuse 0 1; run 2.5s"
//	}
//
// The same seed and story give the same run, to the last step.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/replicakit/replicakit/replicas/replicastest/internal/invariant"
)

// A Story is what happens, one thing after the other.
type Story []Op

// An Op is one thing that happens. What N and M mean depends on it; pods are
// counted in the order of their names, and round again.
type Op struct {
	Do   string
	N, M int
	For  time.Duration
}

// String writes an Op as Parse reads it.
func (o Op) String() string { return fmt.Sprintf("%s %d %d %v", o.Do, o.N, o.M, o.For) }

// String writes a Story as Parse reads it.
func (s Story) String() string {
	lines := make([]string, len(s))
	for i, op := range s {
		lines[i] = op.String()
	}
	return strings.Join(lines, "; ")
}

// Parse reads a Story.
func Parse(text string) (Story, error) {
	var story Story
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var op Op
		var d string
		if _, err := fmt.Sscan(line, &op.Do, &op.N, &op.M, &d); err != nil {
			return nil, fmt.Errorf("chaos: %q: %w", line, err)
		}
		var err error
		if op.For, err = time.ParseDuration(d); err != nil {
			return nil, fmt.Errorf("chaos: %q: %w", line, err)
		}
		if _, ok := kinds()[op.Do]; !ok {
			return nil, fmt.Errorf("chaos: %q: no such thing", line)
		}
		story = append(story, op)
	}
	return story, nil
}

// length is how many things happen in a generated story.
const length = 60

// Generate makes up a story. Every second thing that happens is that time passes, but in
// scenes.
func Generate(seed uint64) Story {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []string
	for name, k := range kinds() {
		if shapeOf(seed).pools && strings.Contains(name, "pool") { // elsewhere it does nothing
			k.weight *= 6
		}
		all = append(all, slices.Repeat([]string{name}, k.weight)...)
	}
	slices.Sort(all)
	story := Story{{Do: "scale", N: r.IntN(8)}}
	for len(story) < length {
		if r.IntN(10) == 0 {
			told := scenes()
			story = append(story, told[r.IntN(len(told))].tell(r)...)
		}
		story = append(story, anyOp(all[r.IntN(len(all))], r),
			Op{Do: "run", For: time.Duration(r.ExpFloat64() * float64(4*time.Second)).Truncate(time.Millisecond)})
	}
	return story
}

// Shrink leaves out of a story that fails what it fails without: halves, quarters
// and so on down to single things, as long as something goes and it breaks the same
// rule.
func Shrink(seed uint64, story Story) Story {
	rule := invariant.RuleOf(Run(seed, story).Err)
	for size := len(story) / 2; size > 0; {
		shorter := shorten(seed, story, size, rule)
		if len(shorter) == len(story) {
			size /= 2
		}
		story = shorter
	}
	return story
}

func shorten(seed uint64, story Story, size int, rule invariant.Rule) Story {
	for from := 0; from+size <= len(story); {
		without := slices.Concat(story[:from], story[from+size:])
		if err := Run(seed, without).Err; err == nil || invariant.RuleOf(err) != rule {
			from += size
			continue
		}
		story = without
	}
	return story
}
