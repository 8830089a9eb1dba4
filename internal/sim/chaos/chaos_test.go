// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/sim/chaos"
	"github.com/replicakit/replicakit/internal/sim/invariant"
)

var (
	seeds = flag.String("seeds", "1-15", "the seeds to run: 1234, 1-500")
	story = flag.String("story", "", "play this story instead of the one that the seed makes up")
	soak  = flag.Duration("soak", 0, "run fresh seeds for so long")
)

// No story breaks a rule, except those in invariant.KnownToFail, and the cluster settles after all faults have ended.
// If several seeds are asked for, those in the file knownSeeds are skipped.
func TestSeeds(t *testing.T) {
	t.Parallel()
	from, to := asked(t)
	known, err := chaos.Known(knownSeeds)
	require.NoError(t, err)
	start, played := time.Now(), uint64(0)
	var sum chaos.Report
	for seed := from; seed <= to; seed++ {
		if from == to || !known.Has(seed) {
			sum.Add(play(t, seed))
			played++
		}
	}
	report(t, played, sum, time.Since(start))
}

// The workers of a pool are made from a template, which is another object: it changes, is changed back, is deleted, cannot
// be read, its cache is late or hangs, and it changes while a deletion is under way. No pass deletes a worker that the
// template wants, as it was read in this pass, and in the end all workers are of this template.
func TestSeedsWithTemplates(t *testing.T) {
	t.Parallel()
	playPools(t, chaos.Templates, "template-pool")
}

// The workers of a pool are changed in place: the pool changes in the middle of a rollout and is changed back, answers are
// lost, changes land minutes later, others change workers or undo the changes, and processes die. No change or deletion
// leaves fewer workers available than the pool allows, no worker goes back to an older generation of the pool, and in the
// end all workers are as the pool wants them.
func TestSeedsWithUpdates(t *testing.T) {
	t.Parallel()
	playPools(t, chaos.Updates, "update-pool", "changes that landed (late: false)", "changes that landed (late: true)")
}

// The workers of a pool are asked to leave by a mark, and drain: the pool is scaled down and up again, marks are lost, land
// minutes later or are refused, others take them off or set their own, and processes die. No worker that stays or drains
// is one too many or one too few, whatever is on its way, none is deleted that has not drained for the request that its mark
// names, none is created in place of one that can be taken back, and in the end none bears a mark.
func TestSeedsWithMarks(t *testing.T) {
	t.Parallel()
	playPools(t, chaos.Marks, "mark-pool", "marks that landed (late: false)", "marks that landed (late: true)", "marks taken back (late: false)")
}

// The workers of a pool are in groups: these are scaled in opposite directions, come, go, are renamed and come back, workers
// move between them, and the creations of one are refused while the others go on. No group has a worker too many or too few,
// whatever is on its way in the others, none is adopted into a group that is not listed, one of no group is not touched, and
// in the end each group has its number, and each slot one worker.
func TestSeedsWithGroups(t *testing.T) {
	t.Parallel()
	playPools(t, chaos.Groups, "divide-pool", "creations refused for one group", "changes that landed (late: false)", "marks that landed (late: false)")
}

// playPools plays the seeds that are asked for, counted from the first one of shapes with a pool of some sort. What
// these stories are for must happen in 15 of them.
func playPools(t *testing.T, first uint64, happens ...string) {
	t.Helper()
	from, to := asked(t)
	if *story != "" || from >= chaos.Templates {
		return // TestSeeds plays the given story, or this seed
	}
	start := time.Now()
	var sum chaos.Report
	for seed := from; seed <= to; seed++ {
		sum.Add(play(t, first+seed))
	}
	for _, what := range happens {
		assert.True(t, sum.Faults[what] > 0 || to-from < 14, what)
	}
	report(t, to-from+1, sum, time.Since(start))
}

// tellings is the maximum number of seeds with which each scene is played.
const tellings = 12

// TestMain makes garbage collections rarer, because a story needs little memory.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(800)
	m.Run()
}

// share adapts a number of stories to the number of seeds in the flag -seeds. For 100 seeds or more, the result is
// the given number. For fewer seeds, the result is smaller in proportion, but at least 1.
func share(t *testing.T, plays uint64) uint64 {
	t.Helper()
	from, to := asked(t)
	return max(1, plays*min(100, to-from+1)/100)
}

// Each scene is a complete story, with some of the first seeds in the flag -seeds. The seed determines the shape, which
// is the configuration of the cluster and the controllers. Consecutive scenes begin with different seeds, so they run
// in many shapes.
func TestSeedsInScenes(t *testing.T) {
	t.Parallel()
	if *story != "" {
		return // TestSeeds plays the given story
	}
	from, to := asked(t)
	first := min(tellings, to-from+1)
	start := time.Now()
	var sum chaos.Report
	for scene := range chaos.Scenes() {
		for telling := range share(t, tellings) {
			seed := from + (uint64(scene)+telling)%first
			result := chaos.Run(seed, chaos.Tell(scene, seed))
			if sum.Add(result); result.Err != nil {
				t.Errorf("scene %d, seed %d: %v\n\nagain:        make sim SEEDS=%d STORY='%s'", scene, seed, result.Err, seed, chaos.Tell(scene, seed))
			}
		}
	}
	t.Logf("figures: %d scenes, %d steps in %v", chaos.Scenes(), sum.Steps, time.Since(start).Round(time.Millisecond))
}

// asked returns the first and the last seed to run.
func asked(t *testing.T) (from, to uint64) {
	t.Helper()
	_, err := fmt.Sscanf(strings.Replace(*seeds, "-", " ", 1), "%d", &from)
	require.NoError(t, err, "-seeds")
	if _, err := fmt.Sscanf(strings.Replace(*seeds, "-", " ", 1), "%d %d", &from, &to); err != nil {
		to = from
	}
	return from, to
}

// knownSeeds is a file with the seeds that have failed in a soak.
const knownSeeds = "testdata/known-seeds.txt"

// TestSoak plays consecutive seeds from a random one on, for the duration of the flag -soak, and adds each that fails
// to the file knownSeeds. It fails if a seed harms a living child.
func TestSoak(t *testing.T) {
	t.Parallel()
	start := time.Now()
	first := uint64(rand.Uint32())
	seed := first
	var sum chaos.Report
	for ; time.Since(start) < *soak && !t.Failed(); seed++ {
		result := chaos.Run(seed, chaos.Generate(seed))
		sum.Add(result)
		if result.Err != nil {
			require.NoError(t, chaos.Keep(knownSeeds, seed, result.Err))
			t.Logf("seed %d: %v", seed, result.Err)
		}
		if chaos.Harm(result.Err) != "" {
			play(t, seed)
		}
	}
	if *soak > 0 {
		t.Logf("seeds %d-%d", first, seed-1)
		report(t, seed-first, sum, time.Since(start))
	}
}

func play(t *testing.T, seed uint64) chaos.Report {
	t.Helper()
	what := chaos.Generate(seed)
	if *story != "" {
		var err error
		what, err = chaos.Parse(*story)
		require.NoError(t, err)
	}
	result := chaos.Run(seed, what)
	if result.Err == nil {
		return result
	}
	t.Errorf("seed %d: %v\n\nagain:        make sim SEEDS=%d", seed, result.Err, seed) // logged first, because it takes long to shorten the story
	short := chaos.Shrink(what, result.Err, func(s chaos.Story) chaos.Report { return chaos.Run(seed, s) })
	takes := "what it takes"
	if !short.IsLeast {
		takes = "what it takes, or less"
	}
	t.Logf("seed %d: %s (%d of %d things): %v\n  %s\n\njust this:    make sim SEEDS=%d STORY='%s'",
		seed, takes, len(short.Story), len(what), short.Err, strings.ReplaceAll(short.Story.String(), "; ", "\n  "), seed, short.Story)
	return result
}

func report(t *testing.T, seeds uint64, sum chaos.Report, took time.Duration) {
	t.Helper()
	t.Logf("figures: %d seeds, %d steps in %v (%.1f million a minute), at most %d to settle",
		seeds, sum.Steps, took.Round(time.Millisecond), float64(sum.Steps)/took.Minutes()/1e6, sum.Settle)
	t.Logf("figures: what happened: %v", sum.Faults)
	t.Logf("figures: known to fail: %v", sum.Known)
	t.Logf("figures: calls of an owner in an hour, at most: %v", sum.Most)
}

// An example is a story, and the seed of the story's cluster.
type example struct {
	seed  uint64
	story string
}

// shown returns a story for each rule that the controller is known to break. The story breaks this rule.
func shown() map[invariant.Rule]example {
	return map[invariant.Rule]example{
		// Lists fail while the controller has to adopt an orphan.
		invariant.HastyLists: {68, "refuse-lists 7 2 3.102s; orphan 0 11 5.282s; run 5 5 20s"},
		// The owner is scaled up, and down again before the cache shows the first change.
		invariant.MoreOldSpec: {1, "scale 2 0 0s; run 0 0 20s; scale 6 0 0s; run 0 0 50ms; scale 2 0 0s; run 0 0 1m"},
	}
}

// A story still breaks each rule in KnownToFail. A rule that is no longer broken must leave the list.
func TestKnownToFail(t *testing.T) {
	t.Parallel()
	stories := shown()
	for _, known := range invariant.KnownToFail() {
		t.Run(string(known.Rule), func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, known.Why)
			require.NotEmpty(t, known.Ends)
			what, err := chaos.Parse(stories[known.Rule].story)
			require.NoError(t, err)
			report := chaos.Run(stories[known.Rule].seed, what)
			require.NoError(t, report.Err)
			assert.Contains(t, report.Known, known.Rule, "take it off the list: %s", known.Ends)
		})
	}
	assert.Len(t, stories, len(invariant.KnownToFail()))
}

// mended returns stories that broke a rule in the past, by rule.
func mended() map[invariant.Rule][]example {
	return map[invariant.Rule][]example{
		invariant.Cost: {
			// Creations get no answer, and their pods are then released. The controller's lists do not show these
			// pods.
			{1, "scale 7 0 0s; end-context 11 5 0s; run 0 0 1s; select 0 0 0s"},
			// One webhook changes the labels of new pods, and another webhook denies their deletion.
			{288, "mutate 6 4 0s; run 0 0 196ms; webhook 2 3 0s; scale 7 4 0s; run 6 1 20s; scale 4 10 0s; run 1 0 1m"},
			// The watch of owners is broken, so the controller reads the owner in its passes. The process has no
			// lease, so all its writes fail.
			{1000, "run 0 0 1.617s; break-sets 4 3 3.948s; pause 3 0 5.147s; scale 4 6 1.073s; hours 5 8 3.733s"},
			// The server is restored from a backup, and the watch of owners is late. The cache still shows a newer
			// version of the owner from before the restore.
			{6710, "late-owners 8 6 4.404s; run 0 0 12.499s; orphan 5 7 6.695s; backup 11 1 1.03s; run 5 2 1s; hang-pods 6 8 5.641s; scale 1 3 940ms; force 3 6 7.114s; hours 8 0 400ms; restore 6 6 6.824s; relist 9 8 459ms; run 0 0 12.351s"},
			// The server is restored to the state that the cache shows. Only a status write an hour later reveals
			// the restore.
			{7711, "lag-owners 2 1 6.475s; run 8 8 5.208s; backup 5 4 3.701s; orphan 1 7 3.756s; late-call 10 5 4.418s; break-sets 1 4 3.694s; hours 0 0 370ms; restore 2 0 4.395s"},
			// A webhook has changed the labels of a new pod. The pod no longer exists, but the cache still shows
			// it.
			{56, "mutate 0 1 4.015s; limbo 2 7 2.599s; late-delete 0 0 6s; run 6 3 2m0s"},
			// Deletions get no answer. An hour later, the controller deletes other pods.
			{1, "scale 4 0 0s; run 0 0 20s; late-delete 0 6 0s; scale 1 0 0s; run 0 0 101ms; scale 4 0 0s"},
			{1, "scale 5 0 0s; run 0 0 20s; late-delete 0 9 0s; scale 1 0 0s; run 0 0 101ms; scale 5 0 0s"},
		},
		// Two pods have had the same name. Both pods no longer exist when the controller tries to delete the first
		// pod, so the call fails with NotFound. The cache shows the second pod only after this call.
		invariant.Futile: {{500002901, "scale 6 0 0s; orphan 11 7 2.143s; run 0 0 1.541s; limbo 5 8 1.188s; run 0 0 1.904s; veto 9 2 1.081s; delete-pod 11 11 1.727s; second 2 0 3.821s; run 0 0 4.001s; veto 8 10 4.326s; run 0 0 7.67s"}},
		// A creation gets no answer. The controller's clock then goes back by hours, and the namespace of the
		// owner is deleted.
		invariant.Leak: {{1, "delete-owner 7 8 2.433s; run 0 0 2.508s; late-call 6 10 3.45s; run 0 0 1.158s; replace 3 9 3.885s; run 0 0 450ms; skew 11 2 0s; end-namespace 0 0 0s"}},
		// A user removes the owner reference of a terminating pod.
		invariant.Asleep: {
			{27, "scale 0 0 0s; run 0 0 14s; scale-db 8 4 0s; run 0 0 245ms; delete-pod 4 11 0s; run 0 0 4s; disown 10 6 0s; run 0 0 525ms"},
			// A restore undoes a status write that the cache has not shown yet. The watch of owners also breaks.
			{159, "run 11 3 2.762s; min-ready 7 9 4.275s; run 7 9 903ms; backup 7 2 6.971s; hang-sets 8 4 7.976s; hours 0 0 627ms; restore 0 5 2.849s"},
		},
		// A new process makes a live list. At that time, two pods cannot be released, and an orphan cannot be
		// adopted.
		invariant.Fewer: {{1, "scale 7 0 0s; run 0 0 20s; policy 0 1 0s; relabel 3 3 0s; relabel 4 3 0s; run 0 0 3s; restart 0 0 0s; disown 6 0 0s; run 0 0 1s"}},
		// Deletions fail with Conflicts, and then another pod becomes the first in the deletion order. A pass
		// chooses its victims before the new order appears in the live list of the pass. The pass still deletes
		// the chosen victims.
		invariant.Plan: {
			{8, "run 0 0 20s; conflicts 0 0 0s; orphan 0 0 0s; run 0 0 4s; orphan 0 0 0s; run 0 0 1s; lag-pods 0 0 9s; high-cost 4 0 0s; run 0 0 7s"},
		},
		// A deletion gets no answer, and the server refuses the repeated deletions. After the first deletion call,
		// another pod becomes the first in the deletion order.
		invariant.FewerInFlight: {
			{1, "scale 4 0 0s; run 0 0 20s; refuse-again 0 8 7s; scale 3 0 0s; run 0 0 150ms; cost 2 0 0s; run 0 0 2m"},
			// Two deletions take effect late, the pods terminate slowly, and the cache is late. The controller
			// looks for the pods after five minutes, and finds them terminating.
			{1, "scale 4 0 0s; run 0 0 20s; hold 4 0 0s; hold 5 0 0s; run 0 0 1s; late-delete 0 3 7s; scale 2 0 0s; run 0 0 101ms; scale 4 0 0s; late-pods 0 0 7.5s; high-cost 2 0 0s; hours 0 0 302ms; scale 3 0 0s; run 0 0 1s"},
		},
		// Three pods disappear while the watch hangs. The deletion of a pod gets no answer, so the controller
		// looks for this pod in a live list. The list lacks all three pods.
		invariant.FewerListed: {
			{6151, "scale 10 0 5.18s; run 0 0 7.48s; unseen 3 2 2.984s; late-delete 8 10 344ms; scale 6 7 7.412s; run 0 0 8.032s"},
			// After a restore, the cache still shows pods that were created after the backup. These pods have
			// newer versions than the pods in a live list.
			{1, "late-pods 0 0 1s; run 0 0 500ms; backup 0 0 0s; scale 8 0 0s; hours 0 0 400ms; restore 0 0 0s; relist 0 0 0s; run 0 0 20s"},
		},
		// Two pods of the same name were created, and the first one no longer exists.
		invariant.FewerSameName: {{765, "refuse-again 3 1 4.375s; run 0 0 840ms; limbo 2 8 3.354s; force 7 6 4.907s; run 0 0 304ms"}},
		// A webhook has changed the labels of a new pod, and the answer to the creation is lost. The controller
		// finds the pod and has to release it, but the pod no longer exists.
		invariant.RestlessPatch: {{4114, "run 0 0 661ms; mutate 6 10 637ms; lag-owners 3 1 7.998s; late-pods 3 8 6.408s; blind 5 1 2.777s; scale 10 4 6.321s; run 0 0 12.992s; limbo 1 3 791ms; run 0 0 3.458s"}},
		// The deletion of an adopted pod gets no answer, so the controller reads the pod. By then, the pod has no
		// owner, and the cache has not shown the adoption yet.
		invariant.Anothers: {
			{914001577, "meddle 9 3 6.767s; run 0 0 4.835s; orphan 4 0 5.396s; late-delete 1 7 5.272s; run 0 0 3.797s"},
			// A user removes the owner reference of an adopted pod, and neither the cache nor a read shows this.
			// The pod is not ready, so the controller deletes it with only the UID as a precondition.
			{5, "run 0 0 4.8s; lag-pods 0 0 1s; webhook 2 0 0s; orphan 2 0 0s; run 0 0 1.12s; disown 2 0 0s; no-webhook 0 0 0s; run 0 0 1s"},
			// The watch hangs, and a live list shows a pod that is not ready. After the list, another controller
			// releases the pod.
			{1855748977, "scale 0 0 0s; second 9 6 148ms; run 0 0 3.458s; unready 8 1 6.106s; hang-pods 10 9 286ms; relabel 10 9 6.868s; scale 5 11 4.611s; hours 11 6 400ms; relabel 0 7 2.669s; run 2 6 20s; scale 1 7 6.038s; run 2 6 1s"},
		},
		// The watch hangs while the label of a pod changes, so a live list does not show the pod. Then the watch
		// continues.
		invariant.AnothersListed: {{1, "scale 3 0 0s; run 0 0 150ms; hang-pods 0 0 0s; run 0 0 20s; relabel 3 3 0s; hours 0 0 645ms; replay 0 0 8s; run 0 0 1m"}},
		// The controller has sent a creation twice with the same name. When the watch continues, another pod
		// without an owner has this name.
		invariant.AsleepPassed: {{1188, "scale 5 0 0s; late-owners 4 10 1.073s; relist 3 5 4.404s; run 0 0 9.831s; refuse 20 8 5.108s; break-pods 7 5 1.826s; no-lag 8 9 5.284s; run 0 0 36.867s; replace 4 10 7.675s"}},
		// The story is like that of AsleepPassed, but another controller creates the missing pod.
		invariant.FewerPassed: {{1188, "scale 5 0 0s; late-owners 4 10 1.073s; relist 3 5 4.404s; run 0 0 9.831s; refuse 20 8 5.108s; break-pods 7 5 1.826s; no-lag 8 9 5.284s; run 0 0 36.867s; replace 4 10 7.675s; relist 0 0 0s; second 6 6 0s; run 0 0 1m"}},
		// The watch breaks, and a live list shows all pods. Then one of these pods is replaced, and the watch
		// lists again.
		invariant.AsleepUnversioned: {
			{1, "break-pods 0 0 0s; hours 0 0 3.284s; replace 6 10 0s; relist 0 0 0s; run 0 0 5s"},
			// One watch hangs and the other is broken when the server is restored. Only reads of the owner reveal
			// the restore.
			{1, "scale 3 0 0s; run 0 0 150ms; break-sets 0 0 0s; hang-pods 0 0 0s; backup 0 0 0s; cost 0 0 0s; cost 0 0 0s; cost 0 0 0s; cost 0 0 0s; hours 0 0 400ms; restore 0 0 0s; force 2 0 0s; run 0 0 1m"},
			// Before a restore, a live list has shown a pod. After the restore, this pod dies before the cache
			// reaches the version of the live list.
			{6765, "scale 8 2 5.367s; late-pods 8 9 1.439s; run 9 0 1.323s; backup 5 4 2.687s; run 5 2 7.425s; hang-pods 3 5 123ms; hang-sets 7 8 1.766s; hours 0 0 665ms; restore 3 3 5.892s; force 0 11 6.308s; run 0 0 1m0s"},
		},
		// The watch breaks, and a live list shows all pods. Then two pods are deleted and the owner is scaled
		// down, before the watch lists again.
		invariant.FewerUnversioned: {{1, "scale 6 0 0s; run 0 0 20s; break-pods 0 0 0s; scale 8 0 0s; hours 0 0 345ms; force 3 0 0s; force 2 0 0s; scale 6 0 0s; relist 0 0 0s; run 0 0 5s"}},
		// After a Conflict, a live list shows a terminating pod. The watch hangs until the pod no longer exists.
		invariant.UnsettledUnversioned: {{2859, "scale 3 0 0s; hang-pods 10 3 5.443s; run 0 0 2.174s; scale-db 8 4 83ms; hours 10 2 4.644s; delete-pod 8 9 337ms; scale-db 10 5 1.61s; run 0 0 30.383s"}},
		// The owner is scaled down, and up again before the cache shows the first change.
		invariant.FewerOldSpec:    {{1, "scale 6 0 0s; run 0 0 20s; scale 2 0 0s; run 0 0 50ms; scale 6 0 0s; run 0 0 1m"}},
		invariant.FewerOldUnready: {{1, "scale 6 0 0s; run 0 0 1s; scale 2 0 0s; run 0 0 50ms; scale 6 0 0s; run 0 0 1m"}},
		// The watch of owners hangs when the owner is scaled. The controller sees the change in a read before an
		// adoption.
		invariant.FewerReadSpec: {{1, "scale 2 0 0s; run 0 0 20s; hang-sets 0 0 0s; scale 6 0 0s; orphan 0 0 0s; run 0 0 1m"}},
		invariant.MoreReadSpec: {
			{1, "scale 4 0 0s; run 0 0 20s; hang-sets 0 0 0s; scale 2 0 0s; relabel 2 3 0s; relabel 3 3 0s; orphan 0 0 0s; run 0 0 1m"},
			// The controller has read the owner before a restore. The restored owner wants fewer pods.
			{1076, "backup 0 0 0s; hang-pods 0 0 0s; scale 10 0 0s; hours 0 0 400ms; restore 0 0 0s; run 0 0 10m"},
			// The restored owner wants fewer pods than the cached owner. After a status write, the version of the
			// restored owner is still older than the version of the cached owner.
			{500000266, "scale 3 0 0s; late-owners 10 1 3.688s; run 0 0 4.106s; run 0 0 13.827s; run 0 0 7.356s; run 9 1 20s; run 11 0 20s; backup 4 6 7ms; hang-pods 9 1 4.684s; scale 9 5 7.777s; hours 2 4 400ms; restore 5 6 6.001s; relist 9 7 3.338s; scale 6 10 5.407s; run 3 7 20s; run 11 6 2m0s; run 0 0 13.623s"},
			// The restored owner wants fewer pods than the cached one. The server has reached the version of the
			// cached owner again.
			{5102, "orphan 11 10 5.755s; run 6 3 1.986s; min-ready 3 9 6.057s; backup 2 7 5.8s; run 5 4 1.519s; scale 7 1 4.736s; run 0 6 707ms; restore 9 6 5.674s; second 10 0 2.205s; force 7 11 1.355s; run 0 0 1m0s"},
			{7674, "scale 10 0 2.657s; lag-owners 1 9 7.821s; backup 10 9 3.721s; hours 0 0 569ms; restore 6 11 4.887s; relist 4 1 1.119s; run 10 6 300ms; scale 5 10 6.579s; run 0 0 1m0s"},
			// The restored owner wants fewer pods, and the controller has read this owner. The cache then goes
			// back to an older version. The owner in the cache differs from the owner that the controller has
			// read.
			{500000266, "scale 3 0 0s; late-owners 10 1 3.688s; run 0 0 13.827s; run 0 0 7.356s; run 9 1 20s; run 11 0 20s; backup 4 6 7ms; run 4 6 1s; hang-pods 9 1 4.684s; scale 9 5 7.777s; hours 2 4 400ms; restore 5 6 6.001s; relist 9 7 3.338s; scale 6 10 5.407s; run 3 7 20s; scale 2 3 4.718s; run 11 6 2m0s; run 0 0 13.623s"},
		},
		// The watch of owners hangs when the owner is deleted. The garbage collector deletes each pod that the
		// controller still creates for this owner.
		invariant.CostGone: {{2, "scale 4 0 0s; run 0 0 20s; hang-sets 0 0 0s; delete-owner 0 0 0s; run 0 0 1h"}},
		// The first list of a new process is outdated. It shows pods that no longer exist, or does not show new
		// pods.
		invariant.FewerNewProcess: {{1, "scale 6 0 0s; run 0 0 20s; scale 4 0 0s; snapshot 0 0 0s; force 5 0 0s; force 4 0 0s; run 0 0 20s; behind 0 0 5s; run 0 0 1m"}},
		invariant.MoreNewProcess:  {{1, "scale 2 0 0s; run 0 0 20s; scale 6 0 0s; run 0 0 60ms; snapshot 0 0 0s; run 0 0 20s; behind 0 0 5s; run 0 0 1m"}},
		// The first list of a new process shows an outdated owner. The owner wants fewer pods by then.
		invariant.MoreOldProcess: {{1, "scale 2 0 0s; run 0 0 20s; scale 6 0 0s; run 0 0 60ms; snapshot 0 0 0s; scale 2 0 0s; run 0 0 20s; behind 0 0 5s; run 0 0 1m"}},
		// The controller sends a creation three times with the same name. The second request takes effect, and its
		// pod is deleted. The first request takes effect when the controller no longer waits for it.
		invariant.MoreLanded: {{1, "run 0 0 4.375s; late-call 6 11 4.52s; limbo 9 1 4.973s; hang-pods 1 3 4.348s; scale 5 3 2.949s; run 0 0 35.2s; replay 10 10 4.665s; run 0 0 2.5s"}},
		// Each creation is sent twice, because the first request is lost. Then pods are deleted, so their names are open
		// again, and the owner wants some of them back.
		invariant.Missing: {
			{1, "cut-creations 0 0 0s; scale 10 0 0s; run 0 0 1m; scale 2 0 0s; run 0 0 1m; scale 8 0 0s; run 0 0 1m"},
			{2, "cut-creations 0 0 0s; scale 10 0 0s; run 0 0 1m; no-cuts 0 0 0s; scale 2 0 0s; run 0 0 1m; scale 5 0 0s; run 0 0 1m"},
		},
		invariant.MoreInFlight: {
			// A creation arrives late at the server. By then, another object has the name of the new pod.
			{1, "scale 6 0 0s; late-call 9 0 7.915s; run 0 0 2.007s; replace 2 9 6.31s; run 0 0 1s"},
			// Creations get no answer. The owner then wants fewer pods, and later more. The controller sends one
			// of the creations again. Another creation takes effect after the controller has looked for its pod.
			{1192, "run 0 7 30s; late-call 11 2 5.472s; scale 5 5 2.545s; run 0 0 4.303s; scale 2 2 1.689s; run 2 3 20s; scale 6 0 1.941s"},
		},
		invariant.More: {
			// Pods that were being deleted are back after a restore. A read of the owner reveals the restore.
			{5, "lose-node 0 0 0s; run 0 0 2s; conflicts 0 0 0s; run 0 0 2.4s; scale 10 0 0s; run 0 0 3.2s; backup 0 0 0s; hang-pods 0 0 0s; scale 2 0 0s; hours 0 0 400ms; restore 0 0 0s; run 0 0 6.253s"},
			// After a restore, a new pod has an older version than a list from before the restore.
			{914003059, "scale 7 0 0s; late-call 10 1 5.458s; run 0 0 2.327s; scale 1 0 0s; run 0 0 4.96s; break-sets 0 0 0s; backup 0 0 0s; hang-pods 0 0 0s; hours 0 0 400ms; restore 0 0 0s; run 0 0 7s; delete-pod 2 0 0s"},
			// After a restore, the version of a new pod is not newer than the version of a list from before the
			// restore. Nothing reveals the restore to the controller.
			{7907, "lag-owners 7 11 5.4s; backup 8 6 5.567s; run 11 1 2.616s; restore 5 9 1.582s; second 0 7 6.507s; relist 0 11 4.846s; run 7 2 5.685s"},
		},
		// Two creations get no answer, and one of them takes effect. By then, the owner wants only one of the two
		// pods.
		invariant.MoreUnanswered: {{1, "scale 0 0 0s; run 0 0 1m; hang-pods 0 0 0s; blind 7 5 0s; scale 3 0 0s; run 0 0 102ms; scale 2 0 0s; replay 0 0 8s; run 0 0 1m"}},
	}
}

// No story of mended breaks its rule.
func TestMended(t *testing.T) {
	t.Parallel()
	for rule, stories := range mended() {
		for i, story := range stories {
			t.Run(fmt.Sprintf("%s %d", rule, i), func(t *testing.T) {
				t.Parallel()
				what, err := chaos.Parse(story.story)
				require.NoError(t, err)
				report := chaos.Run(story.seed, what)
				require.NoError(t, report.Err)
				assert.NotContains(t, report.Known, rule)
			})
		}
	}
}

// A creation takes effect late, and the new pod is deleted before the controller sends the creation again. The
// second request creates a second pod. Whatever the watch shows of the first pod, and whenever the watch shows it,
// the controller creates no further pod.
func TestLimbo(t *testing.T) {
	t.Parallel()
	for i := range share(t, 60) {
		seed := i * 60 / share(t, 60)
		text := fmt.Sprintf("scale 2 0 0s; run 0 0 8s; lag-pods 0 0 3s; limbo 0 %d %dms; scale 3 0 0s; run 0 0 20s", seed%12, 200+100*seed)
		what, err := chaos.Parse(text)
		require.NoError(t, err)
		require.NoError(t, chaos.Run(seed, what).Err, "seed %d: %s", seed, text)
	}
}

// In an upgrade, a new process takes over from the old one. Calls of the old process may take effect after the
// takeover, or both processes may work for a while. In both cases, the cluster settles.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for name, upgrade := range map[string]string{
		"creations land late": "late-call 0 %d %dms; scale 8 0 0s; run 0 0 150ms; restart 0 0 0s; run 0 0 1m",
		"deletions land late": "late-delete 0 %d %dms; scale 3 0 0s; run 0 0 150ms; restart 0 0 0s; run 0 0 1m",
		"both are at work":    "second 0 0 0s; run 0 0 1s; lag-pods 0 %d %dms; scale 8 0 0s; run 0 0 20s; scale 3 0 0s; run 0 0 20s; restart 0 0 0s; run 0 0 1m; second 0 0 0s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sum chaos.Report
			for i := range share(t, 30) {
				seed := i * 30 / share(t, 30)
				text := fmt.Sprintf("scale 6 0 0s; run 0 0 20s; "+upgrade, seed%12, 200+100*seed)
				what, err := chaos.Parse(text)
				require.NoError(t, err)
				report := chaos.Run(seed, what)
				require.NoError(t, report.Err, "seed %d: %s", seed, text)
				sum.Add(report)
			}
			assert.GreaterOrEqual(t, sum.Faults["failed calls"]+sum.Faults["second"], int(share(t, 30)), "what was to go wrong did")
		})
	}
}

// While two controllers see different pods, they overwrite each other's status, but at most once a minute. They stop
// when they see all pods.
func TestDispute(t *testing.T) {
	t.Parallel()
	what, err := chaos.Parse("second 0 0 0s; run 0 0 20s; hang-pods 0 0 0s; unready 0 0 0s; unready 1 0 0s; unready 2 0 0s; run 0 0 20s; hours 0 0 8s")
	require.NoError(t, err)
	report := chaos.Run(2, what)
	require.NoError(t, report.Err)
	assert.Zero(t, report.Faults["hours cut short"])
	assert.Less(t, report.Most["status ReplicaSet"], 200)
}

// Shrink removes all operations that the failure does not need, but stops early if the search takes too many steps.
func TestShrink(t *testing.T) {
	t.Parallel()
	story := chaos.Generate(7)
	story[41].Do = "the cause"
	// shrunk calls Shrink for the story. Each play of the story takes the given number of steps.
	shrunk := func(steps int) (short chaos.Shrunk, plays int) {
		short = chaos.Shrink(story, errors.New("at first"), func(s chaos.Story) chaos.Report {
			plays++
			if !slices.Contains(s, story[41]) {
				return chaos.Report{Steps: steps}
			}
			return chaos.Report{Steps: steps, Err: errors.New("in the end")}
		})
		return short, plays
	}
	least, _ := shrunk(250)
	assert.Equal(t, story[41:42], least.Story)
	assert.True(t, least.IsLeast)
	require.EqualError(t, least.Err, "in the end")
	long, plays := shrunk(400_001)
	assert.Equal(t, 3, plays)
	assert.False(t, long.IsLeast)
	assert.Contains(t, long.Story, story[41])
	assert.Less(t, len(long.Story), len(story))
}

func TestStoryText(t *testing.T) {
	t.Parallel()
	want := chaos.Generate(7)
	got, err := chaos.Parse(want.String())
	require.NoError(t, err)
	assert.Equal(t, want, got)
	for _, bad := range []string{"scale", "scale 1 2 x", "dance 1 2 3s"} {
		_, err := chaos.Parse(bad)
		require.Error(t, err, bad)
	}
}

func TestSameSeedSameRun(t *testing.T) {
	t.Parallel()
	first := chaos.Run(5, chaos.Generate(5))
	again := chaos.Run(5, chaos.Generate(5))
	assert.Equal(t, first, again)
}
