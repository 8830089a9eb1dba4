// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package chaos runs controllers on a simulated cluster with random faults of all kinds. A seed
// determines the faults. If a story fails, the package can reduce it to the operations that cause
// the failure.
//
//	story := chaos.Generate(seed)
//	if report := chaos.Run(seed, story); report.Err != nil {
//		short := chaos.Shrink(story, report.Err, func(s chaos.Story) chaos.Report { return chaos.Run(seed, s) })
//		fmt.Println(short.Story) // "scale 5; refuse 0 1; run 2.5s"
//	}
//
// The same seed and story always give exactly the same run.
package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/replicakit/replicakit/internal/sim/invariant"
)

// A Story is a sequence of operations.
type Story []Op

// An Op is one operation. The meaning of N and M depends on Do. A number that selects a pod is an index into the pods
// sorted by name, and wraps around after the last one.
type Op struct {
	Do   string
	N, M int
	For  time.Duration
}

// String returns the Op in the form that Parse reads.
func (o Op) String() string { return fmt.Sprintf("%s %d %d %v", o.Do, o.N, o.M, o.For) }

// String returns the Story in the form that Parse reads.
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
			return nil, fmt.Errorf("chaos: %q: unknown operation", line)
		}
		story = append(story, op)
	}
	return story, nil
}

// ofTemplates returns how often each operation is drawn in shapes with templates. Pods are not disturbed there.
func ofTemplates() map[string]int {
	return map[string]int{"template-pool": 6, "scale-pool": 3, "pool-user": 3, "pool-calls": 2, "pool-watch": 2, "orphan-pool": 1}
}

// ofUpdates returns how often each operation is drawn in shapes with updates.
func ofUpdates() map[string]int {
	return map[string]int{"update-pool": 12, "scale-pool": 3, "pool-user": 3, "pool-calls": 4, "pool-watch": 3, "orphan-pool": 1}
}

// ofMarks returns how often each operation is drawn in shapes with marks.
func ofMarks() map[string]int {
	return map[string]int{"mark-pool": 8, "update-pool": 5, "scale-pool": 5, "pool-user": 3, "pool-calls": 4, "pool-watch": 3, "orphan-pool": 1}
}

// ofGroups returns how often each operation is drawn in shapes with groups.
func ofGroups() map[string]int {
	return map[string]int{"divide-pool": 10, "update-pool": 4, "mark-pool": 2, "scale-pool": 6, "pool-user": 3, "pool-calls": 6, "pool-watch": 3, "orphan-pool": 3}
}

// length is the minimum number of operations in a generated story.
const length = 60

// Generate returns a random story for a seed. Time passes after each operation, except within a scene.
func Generate(seed uint64) Story {
	r, shape := rand.New(rand.NewPCG(seed, 1)), shapeOf(seed)
	var all []string
	for name, k := range kinds() {
		if shape.pools && strings.Contains(name, "pool") {
			// In shapes without pools, these operations do nothing.
			k.weight *= 6
		}
		switch {
		case shape.templates:
			k.weight = ofTemplates()[name]
		case shape.groups:
			k.weight = ofGroups()[name]
		case shape.marks:
			k.weight = ofMarks()[name]
		case shape.updates:
			k.weight = ofUpdates()[name]
		}
		all = append(all, slices.Repeat([]string{name}, k.weight)...)
	}
	slices.Sort(all)
	story := Story{{Do: "scale", N: r.IntN(8)}}
	for len(story) < length {
		if r.IntN(10) == 0 && !shape.templates {
			told := scenes()
			if shape.updates {
				told = rollouts()
			}
			if shape.marks {
				told = drains()
			}
			if shape.groups {
				told = append(told, splits()...)
			}
			story = append(story, told[r.IntN(len(told))].tell(r)...)
		}
		story = append(story, anyOp(all[r.IntN(len(all))], r), Op{Do: "run", For: between(r, shape)})
	}
	if shape.templates || shape.updates {
		return story
	}
	return beset(story, seed)
}

// between returns how long a generated story runs between two operations.
func between(r *rand.Rand, shape shape) time.Duration {
	d := time.Duration(r.ExpFloat64() * float64(4*time.Second)).Truncate(time.Millisecond)
	if shape.updates && r.IntN(4) == 0 {
		// A changed worker takes up to a minute to be ready again, so a rollout needs a while now and then.
		d *= 20
	}
	return d
}

// shrinkSteps is the number of steps after which Shrink gives up, about a minute's worth. Most stories need fewer, but
// one that never ends reaches mostSteps each time it is played.
const shrinkSteps = 1_000_000

// A Shrunk is a failing story from which Shrink has removed unnecessary operations.
type Shrunk struct {
	Story   Story
	Err     error // the error of the shortened story
	IsLeast bool  // all remaining operations are needed; false if Shrink gave up

	steps int // number of steps played so far
}

// Shrink shortens a story that failed with err. It tries to remove halves of the story, then quarters, and so on down
// to single operations, each size again and again until nothing of it can be removed. A part is removed if the rest
// still breaks the same rule. Shrink gives up after a total of more than shrinkSteps steps.
func Shrink(story Story, err error, play func(Story) Report) Shrunk {
	s := Shrunk{Story: story, Err: err}
	for size := len(story) / 2; size > 0; {
		before := len(s.Story)
		if s.shorten(size, play); s.steps > shrinkSteps {
			return s
		}
		if len(s.Story) == before {
			size /= 2
		}
	}
	s.IsLeast = true
	return s
}

// shorten tries to remove each part of the given size.
func (s *Shrunk) shorten(size int, play func(Story) Report) {
	for from := 0; from+size <= len(s.Story) && s.steps <= shrinkSteps; {
		without := slices.Concat(s.Story[:from], s.Story[from+size:])
		report := play(without)
		s.steps += report.Steps
		if report.Err == nil || invariant.RuleOf(report.Err) != invariant.RuleOf(s.Err) {
			// Another failure is another story.
			from += size
			continue
		}
		s.Story, s.Err = without, report.Err
	}
}
