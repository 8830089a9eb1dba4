// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// A scene is a short sequence of operations that are dangerous in combination. Generate would
// rarely draw them in this order. Each string names an operation. If a string names several
// operations, separated by "|", one of them is chosen at random. Numbers after the name set the
// fields N and M, and a duration sets the field For. Values that are not given are random.
type scene []string

// scenes returns all scenes. Generate and Tell use them.
func scenes() []scene {
	const anything = "relabel|relabel|disown|force|select|scale|cost|replace|orphan|finish|delete-pod"
	return []scene{
		// A watch hangs until a live list has corrected the controller's view. The watch then resumes.
		{"hang-pods", "scale", "run 1s", "hours 400ms", anything, "run 1s", anything, "run 20s", "replay|catch-up|relist", "run 5s"},
		{"hang-pods", "relabel", "scale", "run 1s", "hours 400ms", "back", anything, "catch-up|relist|replay", anything, "run 20s"},
		{"backup", "run 1s", "hang-pods", "scale", "force", "hours 400ms", "restore", "relist", "run 20s"},
		{"scale 4", "run 20s", "hang-pods", "scale 7", "hours 400ms", "force", "force", "hours 400ms", "hours 900ms"},
		{"hang-pods", "select", "hours 400ms", "orphan", "select", "run 20s", "catch-up"},
		// Between a live list and the next event of the watch, pods are deleted or return to their
		// owner.
		{"scale 2", "run 20s", "hang-pods 0", "scale 6", "run 1s", "hours 400ms", "force 3|force 4|force 5", "run 1s", "catch-up 0", "run 20s"},
		{"scale 2", "run 20s", "hang-pods 0", "scale 6", "run 2s", "force 4", "force 5", "scale 4", "hours 400ms", "replay 0 0 8s", "run 20s"},
		{"scale 2", "run 20s", "break-pods 0", "scale 6", "run 2s", "hours 400ms", "force 3|replace 3", "force 4", "force 5", "relist 0", "run 20s"},
		{"scale 4", "run 20s", "hang-pods 0", "relabel 2 3|relabel 3 3|relabel 4 3|relabel 5 3", "scale 6", "hours 400ms", "back", "run 1s", "catch-up 0", "run 20s"},
		{"scale 2", "run 20s", "hang-pods 0", "scale 6", "hours 400ms", "relabel 3 3|relabel 4 3|relabel 5 3", "scale 7", "hours 400ms", "back", "run 1s", "catch-up 0", "run 20s"},
		{"scale 2", "run 20s", "late-pods 0 0 20s", "scale 4", "run 1s", "meddle 3 2 0s", "quick 0", "hours 400ms", "run 20s"},
		{"scale 3", "run 20s", "restart 0", "run 5s", "lag-pods 0 0 3s", "cost 3 0", "meddle 3 2 0s", "quick 0", "scale 5", "run 150ms", "no-lag 0", "run 20s"},
		// The selector changes after a live list with the old selector.
		{"scale 4", "run 20s", "select 0", "run 20s", "hang-pods 0", "scale 6", "hours 400ms", "select 1", "run 5s", "catch-up 0", "run 20s"},
		{"select 0", "run 20s", "orphan", "run 20s", "select 1", "run 20s", "orphan", "run 5s"},
		// A deletion gets no answer, and the order of victims changes before the deletion takes effect.
		{"scale 7", "run 20s", "late-delete", "scale 4", "run 100ms", "cost|high-cost", "cost|restarted", "run 1m"},
		{"scale 4", "run 20s", "refuse-again 0 8 7s", "scale 3", "run 150ms", "cost 0 0|cost 1 0|cost 2 0|cost 3 0", "run 2m"},
		// Users change, delete and replace pods while the controller is deleting pods.
		{"scale 6", "run 20s", "meddle 2", "scale 2", "run 20s"},
		{"scale 6", "run 20s", "meddle 2 1|meddle 2 3|meddle 2 8|meddle 9 1", "late-delete 0 0|quick|run 1s", "scale 2", "run 20s"},
		{"scale 6", "run 20s", "meddle 13 1 1ms", "late-delete 0 0 6s", "scale 2", "run 2m"},
		{"scale 6", "run 20s", "cost 3 0", "run 1s", "hang-pods 0", "force 3", "scale 5", "run 1s", "stir-sets 1", "run 20s", "stir-sets 0"},
		{"scale 6", "run 300ms", "meddle 2 8 1ms", "scale 2", "run 20s"},
		{"scale 6", "run 20s", "break-pods 0", "scale 2", "run 40s", "reuse 0", "relist 0", "run 20s"},
		// A fault lasts for a long time while users, pods or owners change.
		{"scale 7", "run 20s", "churn 1", "conflicts", "scale 4", "run 40s", "churn 0", "no-webhook"},
		{"churn 1", "quota 4", "scale 8", "run 40s", "churn 0", "force", "run 1s", "no-quota"},
		{"scale 6", "run 20s", "hang-pods", "force", "force", "force", "scale 2", "stir-sets 1", "run 30s", "stir-sets 0", "catch-up"},
		{"hang-pods", "scale", "refuse-lists", "hours 310ms", "stir-sets 1", "run 30s", "stir-sets 0", "catch-up"},
		{"scale 3", "run 20s", "quota 2", "scale 7", "hours 5s", "no-quota", "run 1m"},
		{"scale 3", "run 20s", "quota 2", "scale 7", "run 20s", "skew 1 0", "run 20s", "no-quota", "run 1m", "skew 0 6"},
		{"scale 3", "run 20s", "end-namespace 0", "scale 6", "run 1m"},
		{"run 20s", "refuse 0 3", "scale 7", "run 20s"},
		// The result of a creation is unknown, and then the owner wants fewer pods.
		{"run 20s", "blind 1 0 4s|blind 1 9 4s", "scale 6", "run 10ms", "scale 2", "run 1m"},
		{"scale 2", "run 20s", "lag-pods 0 0 3s", "blind 1 1", "scale 3", "run 102ms", "sudden 11", "run 20s"},
		{"scale 3", "run 20s", "hang-pods 0", "scale 4", "run 1s", "scale 3", "hours 900ms"},
		{"cut-creations 0 0|cut-creations 0 2|cut-calls", "scale 10", "run 20s", "scale 2", "run 20s", "no-cuts|run 1ms", "scale 8", "run 1m"},
		// Webhooks deny pods or change them.
		{"webhook 1 0|webhook 1 4", "orphan", "scale 6", "run 1m", "no-webhook", "run 20s"},
		{"mutate", "scale 1", "run 1s", "webhook 2", "scale 7", "run 20s", "no-webhook", "run 20s"},
		{"scale 1", "run 20s", "mutate 0", "late-pods 0 0 1s", "blind 1 1", "scale 3", "meddle 4 9 1ms", "run 10s", "no-webhook", "run 20s"},
		// Users give pods away and take them back.
		{"relabel", "race|quick", "run 100ms", "back", "run 1s"},
		{"scale 5", "quick", "meddle 1", "run 100ms", "disown", "scale 2", "run 100ms", "disown", "run 1s"},
		{"mutate 0|mutate 2", "scale 1", "run 1s", "meddle 1 7|meddle 1", "scale 7", "run 10s", "no-webhook"},
		{"scale 4", "run 20s", "relabel 2 3|relabel 3 3|relabel 4 3|relabel 5 3", "snapshot", "back", "scale 6", "behind 0 0 5s", "run 20s"},
		{"run 20s", "give", "run 20s", "give", "run 20s"},
		// An owner is deleted and created again while the controller works on it.
		{"scale 7", "meddle", "run 200ms", "replace-owner", "run 200ms", "break-sets", "replace-owner", "relist"},
		{"run 20s", "restart 0", "run 1s", "hang-pods 0", "meddle 3 10 0s|meddle 5 10 0s", "quick 0", "scale 7", "hours 400ms", "create-owner", "run 20s"},
		{"run 20s", "blind 1 9 4s", "scale 6", "run 110ms", "replace-owner", "run 1m"},
		// Pods fail shortly after their creation.
		{"scale 6", "run 3s", "finish 2", "finish 3", "finish 4", "run 20s"},
		// Workers that are not ready are deleted.
		{"scale-pool 3", "run 20s", "scale-pool 7", "run 300ms", "scale-pool 2", "run 5s"},
		// Workers end or are deleted, and other objects take their names.
		{"scale-pool 5", "run 20s", "pool-user 3 1|pool-user 3 3", "pool-user 0 1|pool-user 0 3", "run 1s", "scale-pool 7", "run 20s", "pool-user 4 1", "pool-user 4 3", "run 20s"},
		{"scale-pool 4", "run 20s", "pool-user 2 5", "pool-user 2 6", "scale-pool 8", "run 1m", "pool-calls", "scale-pool 3", "run 20s", "scale-pool 7", "run 20s"},
		{"scale-pool 6", "run 20s", "pool-watch 0", "pool-user 5 1", "pool-user 5 3", "pool-user 0 2", "run 20s", "scale-pool|pool-calls", "run 1s", "pool-watch 2|pool-watch 3", "run 20s"},
		{"scale-pool 5", "run 20s", "pool-calls", "pool-user 5 0", "pool-user 5 4", "pool-user 5 2", "run 1s", "scale-pool", "run 20s"},
		{"scale-pool 2", "run 20s", "orphan-pool 2|orphan-pool 3|orphan-pool 9", "pool-calls", "scale-pool 5", "run 300ms", "pool-user 1", "run 20s", "scale-pool 1|scale-pool 3", "run 20s"},
		// A rule requires the deletion of a pod while another pod is missing and cannot be created.
		{"scale 3", "run 20s", "webhook 0 0|webhook 0 1", "force 0", "run 1s", "must-go 0 5|must-go 1 5", "run 20s", "no-webhook", "run 20s"},
	}
}

// rollouts returns the scenes of shapes with updates.
func rollouts() []scene {
	const someTime = "run 20s|run 1m|run 90s|run 2m|run 4m"
	return []scene{
		// The last change of a rollout has no answer, or the cache does not show it yet, when the pool is changed back. The other
		// workers must wait for that one, although the cache says that it is the only one that needs no change.
		{"scale-pool 4", "run 30s", "update-pool 0 1 0s", someTime, "pool-calls 1 0 4s|pool-calls 2 0 4s|pool-calls 3 4 4s|pool-calls 6 4 4s", "run 40s", "update-pool 0 0 0s", "run 3m"},
		{"scale-pool 4", "run 30s", "update-pool 0 1 0s", someTime, "pool-watch 0|pool-watch 1 0 8s", "run 10s|run 40s", "update-pool 0 0 0s", "run 20s", "pool-watch 3", "run 2m"},
		{"scale-pool 4", "run 30s", "update-pool 0 1 0s", someTime, "pool-calls 6 0 4s|pool-calls 7 4 4s", "run 40s", "update-pool 0 0 0s", "update-pool 10 1", "run 3m"},
		// A new process lists from a server that still has the workers and the pool of before.
		{"scale-pool 3", "run 30s", "update-pool 0 7 0s|update-pool 0 8 0s", someTime, "update-pool 10 3 8s", "run 1m"},
		{"scale-pool 3", "run 30s", "update-pool 9 0", "update-pool 0 1 0s", "update-pool 10 4 6s", "update-pool 1 0 4s", "run 90s", "update-pool 9 3"},
		// A deletion or a crash meets a change.
		{"scale-pool 5", "run 30s", "update-pool 0 2 0s", "run 5s|run 20s", "scale-pool 3|update-pool 11", "pool-calls 2 2 2s|run 1s", "run 1m", "scale-pool 6", "run 1m"},
		// The server or another client undoes each change, while passes come all the time.
		{"scale-pool 2", "run 30s", "update-pool 6 1 8s|update-pool 6 2 8s", "update-pool 1 0 8s", "update-pool 0 1 0s", "run 2m"},
		// Changes have no answer for long, while passes come all the time.
		{"scale-pool 3", "run 30s", "pool-calls 3 4 8s|pool-calls 7 7 8s", "update-pool 1 0 8s", "update-pool 0 2 0s", "run 4m"},
	}
}

// drains returns the scenes that are only told in shapes with marks.
func drains() []scene {
	const someTime = "run 1s|run 5s|run 20s|run 1m"
	return []scene{
		// Fewer are wanted, and the old number again: at once, while the mark has no answer, or while the cache is behind.
		{"mark-pool 5 3", "scale-pool 5", "run 30s", "mark-pool 0 0 2s|mark-pool 0 1 1s|mark-pool 1 5 2s", "run 20s", "scale-pool 3", "run 2m"},
		{"mark-pool 5 3", "scale-pool 4", "run 30s", "pool-calls 1 0 4s|pool-calls 2 0 4s|pool-calls 3 4 4s|pool-calls 6 4 4s", "scale-pool 2", someTime, "update-pool 11 8|update-pool 11 9|scale-pool 4", "run 3m"},
		{"mark-pool 5 3", "scale-pool 5", "run 30s", "pool-watch 0", "scale-pool 3", someTime, "scale-pool 5|scale-pool 2", "run 40s", "pool-watch 3", "run 2m"},
		{"mark-pool 5 3", "scale-pool 5", "run 30s", "scale-pool 3", "run 1s", "pool-calls 3 4 8s|pool-calls 6 0 4s", "scale-pool 5|scale-pool 4", "run 1s|run 10s", "scale-pool 3|update-pool 11 8|update-pool 11 9", "run 5m"},
		// Another client takes marks off, undoes each of them, or sets its own.
		{"scale-pool 4", "run 30s", "mark-pool 4 1 8s|mark-pool 4 2 8s", "update-pool 1 0 8s", "scale-pool 2", "run 3m"},
		{"mark-pool 5 3", "scale-pool 4", "run 30s", "scale-pool 3", "run 1s|run 20s", "mark-pool 2", someTime, "mark-pool 3", "run 3m"},
		// Another client takes off the mark of a worker that has drained, which the cache does not show. It is asked again.
		{"mark-pool 5 1", "scale-pool 4", "run 30s", "scale-pool 3", "run 3s", "pool-watch 0", "run 10s", "mark-pool 2", "pool-watch 3", "run 3m"},
		// One must go while another leaves.
		{"mark-pool 5 3", "scale-pool 5", "run 30s", "mark-pool 6", "run 2s|run 20s", "scale-pool 3", someTime, "scale-pool 5", "run 3m"},
		// A new process, or an old server.
		{"mark-pool 5 3", "scale-pool 4", "run 30s", "update-pool 0 7 0s", "scale-pool 2", someTime, "update-pool 10 1|update-pool 10 3 8s|update-pool 10 0", "scale-pool 4", "run 3m"},
	}
}

// splits returns the scenes that are only told in shapes with groups.
func splits() []scene {
	const someTime = "run 1s|run 5s|run 20s|run 1m"
	return []scene{
		// Creations have no answer in two groups, whose names begin with the same letters, and one of them shrinks.
		{"scale-pool 2", "run 30s", "pool-calls 0 4 3s|pool-calls 1 9 3s|pool-calls 2 5 3s", "pool-watch 0|pool-watch 1 0 4s", "scale-pool 5|scale-pool 8", "run 200ms|run 2s", "scale-pool 1|scale-pool 9", "run 20s", "pool-watch 3", "run 1m"},
		// A group is taken off the list while its creations or deletions are under way, and is back.
		{"scale-pool 4", "run 30s", "pool-calls 0 4 3s|pool-calls 1 9 3s|update-pool 9 0", "divide-pool 1|divide-pool 3", someTime, "orphan-pool", "divide-pool 2", someTime, "update-pool 9 3", "run 1m"},
		// Workers move between groups while these are scaled.
		{"scale-pool 5", "run 30s", "pool-watch 0|pool-watch 1 0 6s", "divide-pool 4", "divide-pool 4", "scale-pool 2", someTime, "pool-watch 3", "run 1m"},
		// One group cannot grow while the others do.
		{"divide-pool 6 0 8s|divide-pool 6 1 8s", "scale-pool 6|scale-pool 0", "run 1m", "scale-pool 2", "run 2m"},
	}
}

// Scenes returns the number of scenes.
func Scenes() int { return len(scenes()) }

// Tell returns a story that consists of one scene.
func Tell(scene int, seed uint64) Story {
	r := rand.New(rand.NewPCG(seed, 3+uint64(scene)))
	return append(scenes()[scene].tell(r), Op{Do: "run", For: 20 * time.Second})
}

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

// anyOp returns the named operation with random values.
func anyOp(name string, r *rand.Rand) Op {
	return Op{Do: name, N: r.IntN(12), M: r.IntN(12), For: time.Duration(r.IntN(8000)) * time.Millisecond}
}
