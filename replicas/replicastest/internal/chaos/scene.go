// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// A scene is a few things that are dangerous together, and that hardly meet at random.
// Each line names a thing, or some of which one is drawn. Numbers and a time behind it
// stand for N, M and For, and what is not said is drawn too.
type scene []string

// scenes come in stories between single things.
func scenes() []scene {
	const anything = "relabel|relabel|disown|force|select|scale|cost|replace|orphan|finish|delete-pod"
	return []scene{
		// A watch hangs until a live list has corrected its cache, and then goes on.
		{"hang-pods", "scale", "run 1s", "hours 400ms", anything, "run 1s", anything, "run 20s", "replay|catch-up|relist", "run 5s"},
		{"hang-pods", "relabel", "scale", "run 1s", "hours 400ms", "back", anything, "catch-up|relist|replay", anything, "run 20s"},
		{"backup", "run 1s", "hang-pods", "scale", "force", "hours 400ms", "restore", "relist", "run 20s"},
		{"scale 4", "run 20s", "hang-pods", "scale 7", "hours 400ms", "force", "force", "hours 400ms", "hours 900ms"},
		{"hang-pods", "select", "hours 400ms", "orphan", "select", "run 20s", "catch-up"},
		// A deletion has no answer, and the order changes before it lands.
		{"scale 7", "run 20s", "late-delete", "scale 4", "run 100ms", "cost|high-cost", "cost|restarted", "run 1m"},
		{"scale 6", "run 20s", "meddle 2", "scale 2", "run 20s"},
		{"scale 6", "run 20s", "meddle 2 1|meddle 2 3|meddle 2 8|meddle 7 1", "late-delete 0 0|quick|run 1s", "scale 2", "run 20s"},
		// Something lasts while everything changes.
		{"scale 7", "run 20s", "churn 1", "conflicts", "scale 4", "run 40s", "churn 0", "no-webhook"},
		{"churn 1", "quota 4", "scale 8", "run 40s", "churn 0", "force", "run 1s", "no-quota"},
		{"scale 6", "run 20s", "hang-pods", "force", "force", "force", "scale 2", "stir-sets 1", "run 30s", "stir-sets 0", "catch-up"},
		{"hang-pods", "scale", "refuse-lists", "hours 310ms", "stir-sets 1", "run 30s", "stir-sets 0", "catch-up"},
		// Pods are given away, and back.
		{"relabel", "race|quick", "run 100ms", "back", "run 1s"},
		{"scale 5", "quick", "meddle 1", "run 100ms", "disown", "scale 2", "run 100ms", "disown", "run 1s"},
		{"mutate 2", "scale 1", "run 1s", "meddle 1 7|meddle 1", "scale 7", "run 10s", "no-webhook"},
		// Owners end in the middle of their work.
		{"scale 7", "meddle", "run 200ms", "replace-owner", "run 200ms", "break-sets", "replace-owner", "relist"},
	}
}

// tell tells a scene.
func (s scene) tell(r *rand.Rand) (story Story) {
	for _, line := range s {
		all := strings.Split(line, "|")
		name, is, _ := strings.Cut(all[r.IntN(len(all))], " ")
		op := anyOp(name, r)
		for i, word := range strings.Fields(is) {
			if n, err := strconv.Atoi(word); err != nil {
				op.For, _ = time.ParseDuration(word)
			} else if i == 0 {
				op.N = n
			} else {
				op.M = n
			}
		}
		story = append(story, op)
	}
	return story
}

// anyOp is a thing of which only the name is said.
func anyOp(name string, r *rand.Rand) Op {
	return Op{Do: name, N: r.IntN(12), M: r.IntN(12), For: time.Duration(r.IntN(8000)) * time.Millisecond}
}
