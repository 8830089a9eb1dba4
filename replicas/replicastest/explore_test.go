// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"flag"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var full = flag.Bool("full", false, "all seeds and sizes, and the large models instead of the small ones: minutes")

// some returns the number of seeds that a test uses. If the flag -full is set, the result is n, and otherwise a
// sixth of n.
func some(n uint64) uint64 {
	if *full {
		return n
	}
	return n / 6
}

// sizes returns all sizes if the flag -full is set, and only the first size otherwise.
func sizes(all ...int32) []int32 {
	if *full {
		return all
	}
	return all[:1]
}

// small returns the models that are explored if the flag -full is not set.
func small() map[string]model {
	return map[string]model{
		"1 replica, 1 fault":             {Replicas: 1, Faults: 1},
		"1 replica, 2 orphans, 1 jump":   {Replicas: 1, Orphans: 2, Jumps: 1},
		"1 replica, a sibling, 1 orphan": {Replicas: 1, Orphans: 1, Sibling: true},
	}
}

// large returns the models that are explored if the flag -full is set. These models take minutes. Use make
// explore to explore them.
func large() map[string]model {
	return map[string]model{
		"2 replicas, 1 fault":                      {Replicas: 2, Faults: 1},
		"3 replicas, 1 fault":                      {Replicas: 3, Faults: 1},
		"2 replicas, 2 orphans, 1 fault":           {Replicas: 2, Orphans: 2, Faults: 1},
		"1 replica, 1 change":                      {Replicas: 1, Most: 2, Changes: 1},
		"2 replicas, 1 restore":                    {Replicas: 2, Restores: 1},
		"1 replica that runs, 1 pause":             {Replicas: 1, Kubelet: true, Pauses: 1},
		"1 replica, 1 fault, 1 jump":               {Replicas: 1, Faults: 1, Jumps: 1},
		"1 replica, 2 changes":                     {Replicas: 1, Most: 1, Changes: 2},
		"1 replica that runs, 1 fault":             {Replicas: 1, Kubelet: true, Faults: 1},
		"1 replica that runs, 1 change":            {Replicas: 1, Kubelet: true, Most: 2, Changes: 1},
		"1 replica, 2 faults":                      {Replicas: 1, Faults: 2},
		"2 replicas, 2 faults":                     {Replicas: 2, Faults: 2},
		"2 replicas, 1 orphan, a sibling, 1 fault": {Replicas: 2, Orphans: 1, Sibling: true, Faults: 1},
		"3 replicas, 1 orphan, a sibling, 1 jump":  {Replicas: 3, Orphans: 1, Sibling: true, Jumps: 1},
		"3 replicas, 1 orphan, 1 change":           {Replicas: 3, Orphans: 1, Most: 3, Changes: 1},
		"2 replicas, 1 orphan, 1 change, 1 fault":  {Replicas: 2, Orphans: 1, Most: 3, Changes: 1, Faults: 1},
		"2 replicas, 1 orphan, 1 restore, 1 fault": {Replicas: 2, Orphans: 1, Restores: 1, Faults: 1},
		"1 replica that runs, 1 change, 1 pause":   {Replicas: 1, Kubelet: true, Most: 1, Changes: 1, Pauses: 1},
		"2 replicas that run, 1 pause":             {Replicas: 2, Kubelet: true, Pauses: 1},
		"2 replicas that run, 1 orphan, 1 fault":   {Replicas: 2, Orphans: 1, Kubelet: true, Faults: 1},
	}
}

// The invariants hold in every state. From every state, each path without further faults leads to the wanted
// state.
func TestExplore(t *testing.T) {
	t.Parallel()
	all := small()
	if *full {
		all = large()
	}
	var mu sync.Mutex
	var sum report
	t.Cleanup(func() {
		t.Logf("figures: %d states, %d ways between them, at most %d deep in %d models", sum.States, sum.Edges, sum.Depth, len(all))
	})
	for name, model := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			r := explore(model)
			require.NoError(t, r.Err, "after %d states; the way there:\n%s", r.States, strings.Join(r.Path, "\n"))
			mu.Lock()
			defer mu.Unlock()
			sum.States, sum.Edges, sum.Depth = sum.States+r.States, sum.Edges+r.Edges, max(sum.Depth, r.Depth)
			t.Logf("%s: %d states, %d edges, %d ends, at most %d deep, %v", name, r.States, r.Edges, r.Ends, r.Depth, time.Since(start).Round(time.Millisecond))
		})
	}
}
