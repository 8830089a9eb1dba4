// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/chaos"
	"github.com/replicakit/replicakit/internal/sim/invariant"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

type (
	podController = replicastest.Controller[*appsv1.ReplicaSet, *corev1.Pod]
	podPass       = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]
)

// podFor returns a pod that a controller could have created for the owner.
func podFor(rs *appsv1.ReplicaSet) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *rs.Spec.Template.ObjectMeta.DeepCopy(), Spec: *rs.Spec.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = rs.Namespace, "web-x"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(rs, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	return p
}

// A syncFunc runs a pass.
type syncFunc = func(context.Context, types.NamespacedName) (time.Duration, error)

// around returns a change of a controller, which then calls the function instead of each pass. The function may run the
// pass.
func around(do func(c *podController, pass syncFunc, ctx context.Context, key types.NamespacedName) (time.Duration, error)) func(*podController) {
	return func(c *podController) {
		pass := c.Sync
		c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
			return do(c, pass, ctx, key)
		}
	}
}

// first returns a change of a controller, which then calls the function before each pass for web, if web exists and is
// in the controller's cache.
func first(do func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet)) func(*podController) {
	return around(func(c *podController, pass syncFunc, ctx context.Context, key types.NamespacedName) (time.Duration, error) {
		_, shown := c.View.OwnerWatch.Get(key.Namespace, key.Name)
		if rs, err := c.Client.GetOwner(ctx, key.Namespace, key.Name); key.Name == "web" && err == nil && shown {
			do(ctx, c, rs)
		}
		return pass(ctx, key)
	})
}

// forgetful makes a controller report success for a pass even if a call was forbidden or the context has ended.
var forgetful = around(func(_ *podController, pass syncFunc, ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	again, err := pass(ctx, key)
	if ctx.Err() != nil || err != nil && strings.Contains(err.Error(), "is forbidden") {
		return 0, nil
	}
	return again, err
})

// believing makes a controller trust its cache: it creates a pod before each pass for which the cache shows too few.
// The first controllers of a story, in its first ten seconds, are left as they are.
func believing(c *podController) {
	if inside.Of[*inside.Controller[podPass, *corev1.Pod]](c).Now().Before(time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)) {
		return
	}
	first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
		if shownOf(c, rs) < int(*rs.Spec.Replicas) {
			_, _ = c.Client.Create(ctx, podFor(rs))
		}
	})(c)
}

// shownOf counts the pods of an owner in a controller's cache.
func shownOf(c *podController, rs *appsv1.ReplicaSet) (n int) {
	for _, p := range c.View.ChildWatch.In(rs.Namespace) {
		if metav1.IsControlledBy(p, rs) {
			n++
		}
	}
	return n
}

// repeating makes a controller create a pod before a pass if web wants three and the cache shows none, but not the
// first time.
func repeating(c *podController) {
	looks := 0
	first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
		if *rs.Spec.Replicas != 3 || shownOf(c, rs) > 0 {
			return
		}
		if looks++; looks > 1 {
			_, _ = c.Client.Create(ctx, podFor(rs))
		}
	})(c)
}

// deaf makes a controller notice deletions only from lists.
func deaf(c *podController) {
	deleted := c.View.ChildWatch.OnDelete
	c.View.ChildWatch.OnDelete = func(obj any) error {
		if _, is := obj.(replicastest.Tombstone); !is {
			return nil
		}
		return deleted(obj)
	}
}

// blinkered makes a controller ignore a change of an owner's spec if the number of replicas stays the same.
func blinkered(c *podController) {
	updated := c.View.OwnerWatch.OnUpdate
	c.View.OwnerWatch.OnUpdate = func(old, obj any) error {
		if was, is := old.(*appsv1.ReplicaSet), obj.(*appsv1.ReplicaSet); was.Generation != is.Generation && *was.Spec.Replicas == *is.Spec.Replicas {
			return nil
		}
		return updated(old, obj)
	}
}

// impatient makes a controller delete another pod while an earlier deletion may still take effect.
var impatient = first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
	for _, call := range inside.Of[*inside.Client[replicastest.Call]](c.Client).InFlight() {
		pods := c.View.ChildWatch.In(rs.Namespace)
		i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return p.Name != call.Name && metav1.IsControlledBy(p, rs) })
		if call.Verb == "delete" && i >= 0 {
			_ = c.Client.Delete(ctx, pods[i], metav1.DeleteOptions{})
		}
	}
})

// Each kind of fault reveals a defect, which the story without the fault does not reveal.
func TestEachKindFindsSomething(t *testing.T) {
	t.Parallel()
	for kind, tc := range map[string]struct {
		seed  uint64
		story string
		spoil func(*podController) // plants the defect; nil if the real controller breaks the rule
		want  invariant.Rule
	}{
		"behind":       {1, "scale 2 0 0s; run 0 0 20s; scale 6 0 0s; run 0 0 60ms; snapshot 0 0 0s; run 0 0 20s; behind 0 0 5s; run 0 0 1m", believing, invariant.MoreNewProcess},
		"snapshot":     {1, "scale 2 0 0s; run 0 0 20s; scale 6 0 0s; run 0 0 60ms; snapshot 0 0 0s; run 0 0 20s; behind 0 0 5s; run 0 0 1m", believing, invariant.MoreNewProcess},
		"replay":       {1, "scale 2 0 0s; run 0 0 20s; hang-pods 0 0 0s; force 2 0 0s; replay 0 0 8s; run 0 0 1m", deaf, invariant.Asleep},
		"replay-sets":  {1, "scale 2 0 0s; run 0 0 20s; hang-sets 0 0 0s; scale 6 0 0s; scale 2 0 0s; replay-sets 0 0 8s; run 0 0 1m", nil, invariant.MoreOldSpec},
		"refuse-again": {1, "scale 4 0 0s; run 0 0 20s; refuse-again 0 0 7s; scale 3 0 0s; run 0 0 2m", impatient, invariant.FewerInFlight},
		"blind":        {1, "scale 0 0 0s; run 0 0 1m; hang-pods 0 0 0s; blind 7 4 0s; scale 3 0 0s; run 0 0 102ms; replay 0 0 8s; run 0 0 1m", repeating, invariant.MoreUnanswered},
		"end-context":  {1, "scale 2 0 0s; run 0 0 10m; end-context 0 0 0s; scale 6 0 0s; run 0 0 1m", forgetful, invariant.Asleep},
		"unseen":       {2, "scale 2 0 0s; run 0 0 20s; unseen 2 1 0s; catch-up 0 0 0s; run 0 0 1m", func(c *podController) { c.View.ChildWatch.OnDelete = nil }, invariant.Asleep},
		"select":       {2, "scale 2 0 0s; run 0 0 20s; select 3 0 0s; run 0 0 1m", blinkered, invariant.Asleep},
		"template":     {2, "scale 2 0 0s; run 0 0 20s; template 3 0 0s; run 0 0 1m", blinkered, invariant.Asleep},
		"break-spec":   {2, "scale 2 0 0s; run 0 0 20s; break-spec 0 0 0s; run 0 0 1s; force 3 0 0s; run 0 0 20s; mend-spec 0 0 0s; run 0 0 1m", blinkered, invariant.Asleep},
		"must-go": {5, "scale 2 0 0s; run 0 0 20s; must-go 3 11 0s; run 0 0 1m", func(c *podController) {
			updated := c.View.ChildWatch.OnUpdate
			c.View.ChildWatch.OnUpdate = func(old, obj any) error {
				if old.(*corev1.Pod).Labels["go"] != obj.(*corev1.Pod).Labels["go"] {
					return nil
				}
				return updated(old, obj)
			}
		}, invariant.Asleep},
		"must-stay": {5, "scale 2 0 0s; run 0 0 20s; must-stay 3 11 0s; run 0 0 1m", first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
			for _, p := range c.View.ChildWatch.In(rs.Namespace) {
				if p.Labels["stay"] != "" {
					_ = c.Client.Delete(ctx, p, metav1.DeleteOptions{})
				}
			}
		}), invariant.Ruled},
		"disown": {2, "scale 2 0 0s; run 0 0 20s; disown 3 0 0s; run 0 0 1m", func(c *podController) {
			updated := c.View.ChildWatch.OnUpdate
			c.View.ChildWatch.OnUpdate = func(old, obj any) error {
				if len(old.(*corev1.Pod).OwnerReferences) != len(obj.(*corev1.Pod).OwnerReferences) {
					return nil
				}
				return updated(old, obj)
			}
		}, invariant.Asleep},
		"veto": {2, "scale 2 0 0s; run 0 0 20s; veto 0 0 0s; run 0 0 1m", first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
			if rs.Annotations["example.com/vetoed"] != "" {
				_, _ = c.Client.Create(ctx, podFor(rs))
			}
		}), invariant.Ruled},
		"noted": {2, "scale 2 0 0s; run 0 0 20s; noted 3 0 0s; run 0 0 1m", first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
			if rs.Annotations["example.com/note"] == "3" {
				_, _ = c.Client.Create(ctx, podFor(rs))
			}
		}), invariant.More},
		"refuse-other": {3, "scale 2 0 0s; run 0 0 20s; refuse-other 0 0 0s; scale 6 0 0s; run 0 0 1m", forgetful, invariant.Asleep},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			story, err := chaos.Parse(tc.story)
			require.NoError(t, err)
			assert.Contains(t, broken(tc.seed, story, tc.spoil), tc.want)
			without := slices.DeleteFunc(slices.Clone(story), func(op chaos.Op) bool { return op.Do == kind })
			require.Less(t, len(without), len(story))
			assert.NotContains(t, broken(tc.seed, without, tc.spoil), tc.want, "without it")
		})
	}
}

// broken returns the rules that a controller breaks in a story.
func broken(seed uint64, story chaos.Story, spoil func(*podController)) []invariant.Rule {
	report := chaos.RunSpoiled(seed, story, spoil)
	rules := slices.Collect(maps.Keys(report.Known))
	if report.Err != nil {
		rules = append(rules, invariant.RuleOf(report.Err))
	}
	return rules
}

// The judges of changes in place, of marks and of groups notice a controller that takes too many workers, puts a worker
// back to an older generation of its pool, patches without end, takes a mark for what it is not, or mixes its groups.
// Without the defect, the same story breaks no rule.
func TestPlantedUpdatesAreNoticed(t *testing.T) {
	t.Parallel()
	const rollout = "scale-pool 4 0 0s; run 0 0 20s; update-pool 0 1 0s; run 0 0 2m"
	for name, tc := range map[string]struct {
		plant chaos.Plant
		story string
		want  string
		seed  uint64 // 0 means one of a shape that only has updates
	}{
		"a changed worker is ready at once":              {chaos.ReadyAtOnce, rollout, "a patch of worker pool-bbbbd leaves 2 available, want 3", 0},
		"the limit is forgotten":                         {chaos.NoLimit, rollout, "a patch of worker pool-bbbbd leaves 2 available, want 3", 0},
		"each pass changes all workers":                  {chaos.Impatient, rollout, "a patch of worker pool-bbbbd leaves 2 available, want 3", 0},
		"a late patch meets a newer worker":              {chaos.Unversioned, "scale-pool 1 0 0s; run 0 0 20s; pool-calls 6 0 1s; update-pool 0 1 0s; run 0 0 10s; update-pool 0 2 0s; run 0 0 2m", "is changed back to generation", 0},
		"an old pool is taken for the live one":          {chaos.OldOwner, "scale-pool 2 0 0s; run 0 0 20s; update-pool 0 7 0s; run 0 0 3m; update-pool 10 3 8s; run 0 0 2m", "is changed back to generation", 0},
		"a webhook is not heeded":                        {chaos.Impatient, "scale-pool 1 0 0s; run 0 0 20s; update-pool 6 1 1m; update-pool 0 1 0s; update-pool 1 0 1m; run 0 0 20m", "times in an hour", 0},
		"a marked worker counts":                         {chaos.MarkIgnored, "mark-pool 5 3 0s; scale-pool 4 0 0s; run 0 0 20s; scale-pool 1 0 0s; run 0 0 5m", "is asked to leave again, but it bears the mark", chaos.Marks + 60},
		"one that must go is taken back":                 {chaos.Regretful, "scale-pool 4 0 0s; run 0 0 20s; mark-pool 6 0 0s; run 0 0 1m", "is taken back, but must go", chaos.Marks + 60},
		"any drain will do":                              {chaos.AnyRequest, "mark-pool 5 1 0s; scale-pool 4 0 0s; run 0 0 30s; scale-pool 3 0 0s; run 0 0 3s; pool-watch 0 0 0s; run 0 0 10s; mark-pool 2 0 0s; pool-watch 3 0 0s; run 0 0 3m", "has neither ended nor drained for the request", chaos.Marks + 60},
		"no mark is taken back":                          {chaos.NoRecall, "mark-pool 5 3 0s; scale-pool 4 0 0s; run 0 0 20s; scale-pool 3 0 0s; run 0 0 5s; scale-pool 4 0 0s; run 0 0 1m", "is created, and 5 stay or could be taken back, want 4", chaos.Marks + 60},
		"a name counts for a group by its first letters": {chaos.ByPrefix, "scale-pool 5 0 0s; run 0 0 30s; divide-pool 6 1 8s; scale-pool 4 0 0s; run 0 0 5s; scale-pool 6 0 0s; run 0 0 1m", `created in group "gpu"`, chaos.Groups + 79},
		"a group that went is kept":                      {chaos.KeepsGone, "scale-pool 4 0 0s; run 0 0 30s; divide-pool 1 1 0s; run 0 0 1m", "workers in gpu-big, want 0", chaos.Groups + 79},
		"an orphan of no listed group":                   {chaos.AdoptsAll, "scale-pool 3 0 0s; run 0 0 20s; orphan-pool 0 3 0s; run 0 0 1m", `is adopted into group "gpu-big-2"`, chaos.Groups + 79},
		"the refusal of one group stops all":             {chaos.OneForAll, "scale-pool 3 0 0s; run 0 0 20s", "workers in cpu, want", chaos.Groups + 139},
		"a late mark meets a newer worker":               {chaos.Unversioned, "scale-pool 4 0 0s; run 0 0 20s; pool-calls 6 0 2s; scale-pool 3 0 0s; run 0 0 5s; scale-pool 4 0 0s; update-pool 3 1 0s; run 0 0 2m", "leaves 3 that stay, want 4 (late: true)", chaos.Marks + 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story, err := chaos.Parse(tc.story)
			require.NoError(t, err)
			seed := cmp.Or(tc.seed, chaos.Updates+5)
			require.NoError(t, chaos.RunPlanted(seed, story, chaos.Nothing).Err)
			require.ErrorContains(t, chaos.RunPlanted(seed, story, tc.plant).Err, tc.want)
		})
	}
}

// saying returns a patch that sets one field of a status.
func saying(field string, n int32) selector.Patch {
	return selector.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"status":{%q:%d}}`, field, n)}
}

// The Checker notices a controller that makes too many calls or breaks another rule, even in a story with few or
// no faults.
func TestWhatCostsTooMuchIsNoticed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		story string
		spoil func(*podController)
		want  invariant.Rule
	}{
		"one as it is": {"min-ready 11 0 0s; scale 6 0 0s; run 0 0 1h", nil, ""},
		"one that reads its owner all the time": {"scale 6 0 0s; run 0 0 1h", first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
			for range 3000 {
				_, _ = c.Client.GetOwner(ctx, rs.Namespace, rs.Name)
			}
		}), invariant.Cost},
		"one that writes each status twice": {"scale 6 0 0s; run 0 0 1h", first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
			_, _ = c.Client.PatchStatus(ctx, rs, saying("replicas", rs.Status.Replicas))
		}), invariant.Needless},
		"one that says too early that pods are available": {"min-ready 11 0 0s; scale 6 0 0s; run 0 0 10s; cost 3 0 0s; run 0 0 10s", first(func(ctx context.Context, c *podController, rs *appsv1.ReplicaSet) {
			if rs.Status.AvailableReplicas < rs.Status.ReadyReplicas {
				_, _ = c.Client.PatchStatus(ctx, rs, saying("availableReplicas", rs.Status.ReadyReplicas))
			}
		}), invariant.Status},
		"one that is told to wait, and does not": {"run 0 0 20s; refuse 0 3 0s; scale 6 0 0s; run 0 0 1h", func(c *podController) {
			pass, failed := c.Sync, false
			c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				if key.Name == "web" && failed {
					_, _ = c.Client.Create(ctx, podFor(inside.Of[*inside.Controller[podPass, *corev1.Pod]](c).Passing.Owner))
				}
				again, err := pass(ctx, key)
				if failed = err != nil; failed {
					again = time.Millisecond
				}
				return again, err
			}
		}, invariant.Hasty},
		"one that forgets nobody": {"scale 2 0 0s; run 0 0 1m", func(c *podController) {
			c.View.OwnerWatch.OnDelete = nil
			pass := c.Sync
			c.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				if _, is := c.View.OwnerWatch.Get(key.Namespace, key.Name); !is {
					return 0, nil
				}
				return pass(ctx, key)
			}
		}, invariant.Leak},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story, err := chaos.Parse(tc.story)
			require.NoError(t, err)
			report := chaos.RunSpoiled(2, story, tc.spoil)
			if tc.want == "" {
				require.NoError(t, report.Err)
				return
			}
			require.Error(t, report.Err)
			assert.Equal(t, tc.want, invariant.RuleOf(report.Err), report.Err)
		})
	}
}

// Without faults, the controller makes only the necessary calls. The test counts the calls for the owner web and
// for the owner db, which wants two pods.
func TestWithoutFaultsTheCallsAreExact(t *testing.T) {
	t.Parallel()
	const create, remove, patch, list, version, read, update = "create Pod", "delete Pod", "patch Pod", "list Pod", "list ReplicaSet", "get ReplicaSet", "status ReplicaSet"
	type calls = map[string]int
	for _, tc := range []struct {
		story             string
		without, versions calls // for caches that do not report their resourceVersion, and for caches that do
	}{
		{"run 0 0 1h", calls{create: 4, list: 2, version: 1, read: 1, update: 6}, calls{create: 4, list: 3, version: 1, read: 1, update: 4}},
		{"run 0 0 1m; scale 6 0 0s; run 0 0 1h", calls{create: 8, list: 2, version: 1, read: 1, update: 9}, calls{create: 8, list: 3, version: 1, read: 1, update: 6}},
		{
			"run 0 0 1m; scale 6 0 0s; run 0 0 1m; scale 2 0 0s; run 0 0 1h",
			calls{create: 8, list: 2, remove: 4, version: 1, read: 2, update: 12},
			calls{create: 8, list: 3, remove: 4, version: 1, read: 5, update: 14},
		},
		{
			"run 0 0 1m; orphan 0 0 0s; run 0 0 1h",
			calls{create: 4, list: 2, patch: 1, version: 1, read: 2, remove: 1, update: 8},
			calls{create: 4, list: 3, patch: 1, version: 1, read: 2, remove: 1, update: 4},
		},
		{"run 0 0 1m; relabel 3 3 0s; run 0 0 1h", calls{create: 5, list: 2, patch: 1, version: 1, read: 1, update: 9}, calls{create: 5, list: 3, patch: 1, version: 1, read: 1, update: 6}},
	} {
		for seed, want := range map[uint64]calls{1: tc.without, 2: tc.versions} {
			story, err := chaos.Parse(tc.story)
			require.NoError(t, err)
			report := chaos.Run(seed, story)
			require.NoError(t, report.Err)
			assert.Empty(t, report.Known)
			assert.Equal(t, want, report.Calls, "seed %d: %s", seed, tc.story)
		}
	}
}
