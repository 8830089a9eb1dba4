// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

var web = map[string]string{"app": "web"}

// replicaSet returns the ReplicaSet default/web, which wants n pods with the label app=web.
func replicaSet(n int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid-of-web", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: web},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
			},
		},
	}
}

func specOf(tb testing.TB, rs *appsv1.ReplicaSet) replicas.SpecOfPods {
	tb.Helper()
	spec, err := replicas.ReplicaSetSpec(rs)
	require.NoError(tb, err)
	spec.Facts.Now = podtest.Now
	return spec
}

func owned(rs *appsv1.ReplicaSet) podtest.Option {
	return podtest.OwnedBy(rs, "apps/v1", "ReplicaSet")
}

// podsOf returns n pods of the ReplicaSet, named web-000, web-001 and so on. The pods differ only in their names
// and UIDs.
func podsOf(rs *appsv1.ReplicaSet, n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = podtest.Pod(fmt.Sprintf("web-%03d", i), owned(rs))
	}
	return pods
}

func names(pods []*corev1.Pod) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

func victims(scale replicas.PodScale) []string {
	var names []string
	for _, v := range scale.Delete {
		names = append(names, v.Object.Name)
	}
	return names
}

func TestManageCounts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name                     string
		have                     int
		want                     int32
		burst                    int
		create, delete, deferred int
	}{
		{name: "B3 as many as wanted is nothing to do", have: 3, want: 3},
		{name: "B3 none wanted and none there is nothing to do"},
		{name: "B1 what is missing is created", have: 1, want: 4, create: 3},
		{name: "B1 what is in surplus is deleted", have: 5, want: 2, delete: 3},
		{name: "D1 all of them can go", have: 3, want: 0, delete: 3},
		{name: "B1 a burst caps creations, B2 the rest is deferred", want: 30, burst: 5, create: 5, deferred: 25},
		{name: "B1 a burst caps deletions, B2 the rest is deferred", have: 12, want: 0, burst: 5, delete: 5, deferred: 7},
		{name: "B1 a burst that is not reached changes nothing", want: 2, burst: 3, create: 2},
		{name: "B4 burst 0 stands for 500", want: 600, create: 500, deferred: 100},
		{name: "B1 a count far above what fits in memory is only a number", want: 2_000_000_000, create: 500, deferred: 1_999_999_500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(tt.want)
			spec := specOf(t, rs)
			spec.BurstReplicas = tt.burst
			plan, err := replicas.Manage(podsOf(rs, tt.have), spec)
			require.NoError(t, err)
			assert.Equal(t, tt.create, plan.Scale.Create)
			assert.Len(t, plan.Scale.Delete, tt.delete)
			assert.Equal(t, tt.deferred, plan.Scale.Deferred)
			assert.Len(t, plan.Claims.Owned, tt.have)

			again, err := replicas.ScaleTo(podsOf(rs, tt.have), spec)
			require.NoError(t, err)
			assert.Equal(t, plan.Scale, again, "ScaleTo is the second half of Manage")
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	plan := func(t *testing.T, want int32) replicas.PodPlan {
		t.Helper()
		plan, err := replicas.Manage(nil, specOf(t, replicaSet(want)))
		require.NoError(t, err)
		return plan
	}
	t.Run("P7 each creation has a pod of its own, which may be written to while others are made", func(t *testing.T) {
		t.Parallel()
		scale := plan(t, 16).Scale
		pods := make([]*corev1.Pod, scale.Create)
		var calls sync.WaitGroup
		for i := range pods {
			calls.Go(func() {
				pods[i], _ = scale.New(i)
				pods[i].Kind = "Pod" // encoders also set this field
				pods[i].Labels["app"] = "changed"
				pods[i].OwnerReferences[0].Name = "changed"
				pods[i].Spec.Containers[0].Image = "changed"
			})
		}
		calls.Wait()
		assert.Equal(t, plan(t, 16).Scale, scale)
		for i, p := range pods[1:] {
			assert.NotSame(t, pods[i], p)
		}
	})
	t.Run("there are as many as are created", func(t *testing.T) {
		t.Parallel()
		scale := plan(t, 2).Scale
		for i := range 2 {
			_, err := scale.New(i)
			require.NoError(t, err)
		}
		for _, i := range []int{2, -1} {
			none, err := scale.New(i)
			require.EqualError(t, err, fmt.Sprintf(`replicas: ReplicaSet "default/web": new child %d: the plan creates only 2`, i))
			assert.Nil(t, none)
		}
		for _, scale := range []replicas.PodScale{{}, {Create: 1}} {
			none, err := scale.New(0)
			require.EqualError(t, err, "replicas: new child 0: the plan creates nothing")
			assert.Nil(t, none)
		}
	})
	t.Run("plans can be compared", func(t *testing.T) {
		t.Parallel()
		one, other := plan(t, 500), plan(t, 500)
		assert.Equal(t, one, other)
	})
}

func TestAPlanForManyCostsAsMuchAsForOne(t *testing.T) { //nolint:paralleltest // it counts allocations

	one, many := specOf(t, replicaSet(1)), specOf(t, replicaSet(500))
	allocs := func(spec replicas.SpecOfPods) float64 {
		return testing.AllocsPerRun(10, func() { _, _ = replicas.Manage(nil, spec) })
	}
	assert.Less(t, allocs(many), allocs(one)+10, "a map may grow once more in one run than in another")
}

func TestManageDropsPodsThatDoNotCount(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	tests := []struct {
		name   string
		pod    *corev1.Pod
		counts bool
	}{
		{"Y6 a running pod counts", podtest.Pod("x", owned(rs)), true},
		{"Y6 a pending pod counts", podtest.Pod("x", owned(rs), podtest.Phase(corev1.PodPending)), true},
		{"Y6 a succeeded pod does not count", podtest.Pod("x", owned(rs), podtest.Phase(corev1.PodSucceeded)), false},
		{"Y6 a failed pod does not count", podtest.Pod("x", owned(rs), podtest.Phase(corev1.PodFailed)), false},
		{"Y6 a pod being deleted does not count", podtest.Pod("x", owned(rs), podtest.Deleting), false},
		{"Y6 a pod of another namespace does not count", podtest.Pod("x", owned(rs), func(p *corev1.Pod) { p.Namespace = "other" }), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pods := append(podsOf(rs, 1), tt.pod)
			plan, err := replicas.Manage(pods, specOf(t, rs))
			require.NoError(t, err)
			scale, err := replicas.ScaleTo(pods, specOf(t, rs))
			require.NoError(t, err)
			missing := 1
			if tt.counts {
				missing = 0
			}
			assert.Equal(t, missing, plan.Scale.Create)
			assert.Equal(t, missing, scale.Create)
			assert.Len(t, plan.Claims.Owned, 2-missing)
			assert.Empty(t, plan.Claims.Release)
		})
	}
	t.Run("C25 a finished or terminating pod is neither adopted nor released", func(t *testing.T) {
		t.Parallel()
		other := podtest.Labels(map[string]string{"app": "other"})
		plan, err := replicas.Manage([]*corev1.Pod{
			podtest.Pod("finished orphan", podtest.Phase(corev1.PodFailed)),
			podtest.Pod("finished and relabelled", owned(rs), other, podtest.Phase(corev1.PodSucceeded)),
			podtest.Pod("terminating and relabelled", owned(rs), other, podtest.Deleting),
		}, specOf(t, rs))
		require.NoError(t, err)
		assert.Empty(t, plan.Claims)
		assert.Equal(t, 2, plan.Scale.Create)
	})
	t.Run("C7 an owner without a namespace counts pods of any", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(2)
		rs.Namespace = ""
		elsewhere := podtest.Pod("x", func(p *corev1.Pod) { p.Namespace = "other" })
		plan, err := replicas.Manage([]*corev1.Pod{elsewhere, podtest.Pod("y")}, specOf(t, rs))
		require.NoError(t, err)
		assert.Len(t, plan.Claims.Adopt, 2)
		assert.Zero(t, plan.Scale.Create)
	})
}

func TestManageClaims(t *testing.T) {
	t.Parallel()
	rs := replicaSet(3)
	stranger := replicaSet(1)
	stranger.UID = "uid-of-stranger"
	pods := []*corev1.Pod{
		podtest.Pod("a-owned", owned(rs)),
		podtest.Pod("b-orphan"),
		podtest.Pod("c-relabelled", owned(rs), podtest.Labels(map[string]string{"app": "debug"})),
		podtest.Pod("d-stranger", podtest.OwnedBy(stranger, "apps/v1", "ReplicaSet")),
		podtest.Pod("e-other", podtest.Labels(map[string]string{"app": "other"})),
	}
	plan, err := replicas.Manage(pods, specOf(t, rs))
	require.NoError(t, err)
	t.Run("C2 owned and matching is kept", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []string{"a-owned"}, names(plan.Claims.Owned))
	})
	t.Run("C8 a matching orphan is adopted", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []string{"b-orphan"}, names(plan.Claims.Adopt))
	})
	t.Run("C4 an owned pod that stopped matching is released", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []string{"c-relabelled"}, names(plan.Claims.Release))
	})
	t.Run("C1 C5 pods of others are ignored", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []string{"d-stranger", "e-other"}, names(plan.Claims.Ignored))
	})
	t.Run("B1 what is claimed counts, what is released does not", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, 1, plan.Scale.Create)
	})
	t.Run("without adoptions, an orphan is nobody's", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		spec.NoAdoption = true
		plan, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"a-owned"}, names(plan.Claims.Owned))
		assert.Empty(t, plan.Claims.Adopt)
		assert.Equal(t, []string{"c-relabelled"}, names(plan.Claims.Release), "releases go on")
		assert.Equal(t, []string{"b-orphan", "d-stranger", "e-other"}, names(plan.Claims.Ignored))
		assert.Equal(t, 2, plan.Scale.Create)
	})
	t.Run("without adoptions, an orphan in a slot keeps its name only", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		spec.NoAdoption, spec.Slots = true, replicas.Ordinals("web")
		pods := []*corev1.Pod{podtest.Pod("web-0", owned(rs)), podtest.Pod("web-1")}
		plan, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1"}, names(plan.Claims.Ignored))
		assert.Equal(t, []string{"web-2"}, plan.Scale.Names)
		plan, err = replicas.Manage(pods[:1], spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1", "web-2"}, plan.Scale.Names)
	})
	t.Run("without adoptions, a stale view is right by chance, whatever orphans there are", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, replicaSet(1))
		spec.NoAdoption, spec.Facts.Pending = true, expectations.Expired
		plan, err := replicas.Manage(pods[:2], spec)
		require.NoError(t, err)
		assert.Zero(t, plan.Blocked)
		assert.True(t, plan.IsZero())
	})
}

func TestManageBlocked(t *testing.T) {
	t.Parallel()
	t.Run("Y10 nothing is created or deleted while expectations are pending, claims go on", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(3)
		spec := specOf(t, rs)
		spec.Facts.Pending, spec.Facts.PendingFor = expectations.Waiting, time.Minute
		plan, err := replicas.Manage([]*corev1.Pod{podtest.Pod("orphan")}, spec)
		require.NoError(t, err)
		assert.Equal(t, replicas.Blocked{Reason: replicas.ExpectationsPending, Until: spec.Facts.Now.Add(time.Minute)}, plan.Blocked)
		assert.Equal(t, []string{"orphan"}, names(plan.Claims.Adopt))
		assert.Zero(t, plan.Scale)
		scale, err := replicas.ScaleTo(nil, spec)
		require.NoError(t, err)
		assert.Zero(t, scale)
	})
	t.Run("Y10 C3 C5 an owner being deleted creates, deletes, adopts and releases nothing", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(0)
		now := metav1.NewTime(podtest.Now)
		rs.DeletionTimestamp = &now
		spec := specOf(t, rs)
		spec.Facts.Pending = expectations.Waiting
		plan, err := replicas.Manage([]*corev1.Pod{
			podtest.Pod("orphan"),
			podtest.Pod("mine", owned(rs)),
			podtest.Pod("relabelled", owned(rs), podtest.Labels(nil)),
		}, spec)
		require.NoError(t, err)
		assert.Equal(t, replicas.Blocked{Reason: replicas.OwnerDeleted}, plan.Blocked, "deletion comes before waiting: it stays")
		assert.True(t, plan.IsZero())
		assert.Equal(t, []string{"mine"}, names(plan.Claims.Owned))
		scale, err := replicas.ScaleTo(podsOf(rs, 2), spec)
		require.NoError(t, err)
		assert.Zero(t, scale)
	})
}

func TestScaleToChoosesVictims(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	pods := []*corev1.Pod{
		podtest.Pod("a", owned(rs), podtest.On("node-1")),
		podtest.Pod("b", owned(rs), podtest.On("node-2")),
		podtest.Pod("c", owned(rs), podtest.On("node-2"), podtest.NotReady),
	}
	crowd := []*corev1.Pod{podtest.Pod("x", podtest.On("node-1")), podtest.Pod("y", podtest.On("node-1")), nil}
	t.Run("D2 the first in the order of deletion go", func(t *testing.T) {
		t.Parallel()
		scale, err := replicas.ScaleTo(pods, specOf(t, rs))
		require.NoError(t, err)
		assert.Equal(t, []string{"c", "a"}, victims(scale), "not ready first, then by UID: nothing else tells a and b apart")
	})
	t.Run("D1 when all go they are still in order", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		spec.Replicas = 0
		scale, err := replicas.ScaleTo(pods, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"c", "a", "b"}, victims(scale))
	})
	t.Run("D3 nothing in surplus is an empty scale", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		spec.Replicas = 3
		scale, err := replicas.ScaleTo(pods, spec)
		require.NoError(t, err)
		assert.Zero(t, scale)
	})
	t.Run("L2 without related pods nothing is co-located", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		spec.Replicas = 2
		scale, err := replicas.ScaleTo(pods, spec)
		require.NoError(t, err)
		assert.Equal(t, "not-ready", scale.Delete[0].Criterion)
	})
	t.Run("L5 related pods count on their nodes, the owned ones with them", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		spec.Facts.Related = func() []*corev1.Pod { return crowd }
		scale, err := replicas.ScaleTo(pods[:2], spec)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, victims(scale))
		assert.Equal(t, "colocation", scale.Delete[0].Criterion)
		assert.Equal(t, "3", scale.Delete[0].Values.Victim, "x, y and a itself")
		assert.Equal(t, "1", scale.Delete[0].Values.Survivor, "b itself")
	})
	t.Run("L2 no related pods are no ranking, whether the list is nil or empty", func(t *testing.T) {
		t.Parallel()
		ready := append(slices.Clone(pods[:2]), podtest.Pod("d", owned(rs), podtest.On("node-2")))
		spec := specOf(t, rs)
		without, err := replicas.ScaleTo(ready, spec)
		require.NoError(t, err)
		spec.Facts.Related = func() []*corev1.Pod { return nil }
		scale, err := replicas.ScaleTo(ready, spec)
		require.NoError(t, err)
		assert.Equal(t, without, scale)
		assert.Equal(t, []string{"a", "b"}, victims(scale))
	})
	t.Run("L3 L5 a pod both owned and related, or related twice, by UID, counts once", func(t *testing.T) {
		t.Parallel()
		spec := specOf(t, rs)
		all := append([]*corev1.Pod{pods[0].DeepCopy(), pods[1].DeepCopy(), crowd[0].DeepCopy()}, crowd...)
		spec.Facts.Related = func() []*corev1.Pod { return all }
		scale, err := replicas.ScaleTo(pods[:2], spec)
		require.NoError(t, err)
		assert.Equal(t, "3", scale.Delete[0].Values.Victim)
	})
}

func TestManageWithoutUIDs(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	rs.UID = ""
	other := replicaSet(1)
	other.Name, other.UID = "other", ""
	unknown := podtest.UID("")
	pods := []*corev1.Pod{
		podtest.Pod("a", unknown, owned(rs)), podtest.Pod("b", unknown, owned(rs)), podtest.Pod("b", unknown, owned(rs)),
		podtest.Pod("c", unknown), podtest.Pod("d", unknown, owned(other)), podtest.Pod("e", unknown, owned(rs), podtest.Labels(nil)),
	}
	plan, err := replicas.Manage(pods, specOf(t, rs))
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "b"}, names(plan.Claims.Owned), "kind and name say whose a pod is, and no two are one")
	assert.Equal(t, []string{"c"}, names(plan.Claims.Adopt))
	assert.Equal(t, []string{"e"}, names(plan.Claims.Release))
	assert.Equal(t, []string{"d"}, names(plan.Claims.Ignored))
	assert.Len(t, plan.Scale.Delete, 3)
}

func TestPlanPrints(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	pods := []*corev1.Pod{
		podtest.Pod("a", owned(rs)),
		podtest.Pod("b", podtest.NotReady),
		podtest.Pod("c", owned(rs), podtest.Labels(nil)),
	}
	plan, err := replicas.Manage(pods, specOf(t, rs))
	require.NoError(t, err)
	assert.Equal(t, "adopt 1: default/b; release 1: default/c; delete 1: default/b (not ready)", plan.String())
	assert.Equal(t, plan.String(), fmt.Sprintf("%v", plan), "plans print as themselves")

	data, err := json.Marshal(plan)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"owned":   [{"namespace": "default", "name": "a", "uid": "uid-a"}],
		"adopt":   [{"namespace": "default", "name": "b", "uid": "uid-b"}],
		"release": [{"namespace": "default", "name": "c", "uid": "uid-c"}],
		"scale": {
			"create": 0,
			"delete": [{"namespace": "default", "name": "b", "uid": "uid-b", "criterion": "not-ready",
				"value": "not ready", "survivor": "ready", "reason": "not ready"}]
		}
	}`, string(data))

	assert.Equal(t, "nothing to do", replicas.PodPlan{}.String())
	assert.Equal(t, "delete 1: no object (none)", replicas.PodScale{Delete: []replicas.Deletion[*corev1.Pod]{{}}}.String(), "victims that nobody chose")
	assert.True(t, replicas.PodPlan{}.IsZero())
	assert.Equal(t, "blocked: owner is being deleted", replicas.PodPlan{Blocked: replicas.Blocked{Reason: replicas.OwnerDeleted}}.String())

	spec := specOf(t, replicaSet(900))
	plan, err = replicas.Manage(nil, spec)
	require.NoError(t, err)
	assert.Equal(t, "create 500; 400 more later", plan.String())

	spec = specOf(t, replicaSet(0))
	plan, err = replicas.Manage(podsOf(rs, 30), spec)
	require.NoError(t, err)
	assert.Contains(t, plan.String(), "delete 30: default/web-000")
	assert.Contains(t, plan.String(), "and 20 more")

	plan, err = replicas.Manage(podsOf(rs, 10), spec)
	require.NoError(t, err)
	assert.NotContains(t, plan.String(), "more")
}

// randomUIDs returns n different UIDs. Each UID consists of length random characters of the alphabet.
func randomUIDs(r *rand.Rand, n, length int, alphabet string) []types.UID {
	seen := map[types.UID]bool{}
	var uids []types.UID
	for len(uids) < n {
		var b strings.Builder
		for range length {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		if uid := types.UID(b.String()); !seen[uid] {
			seen[uid] = true
			uids = append(uids, uid)
		}
	}
	return uids
}

func TestPlansAreInTheOrderOfTheList(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	const hexadecimal = "0123456789abcdef"
	for name, list := range map[string][]types.UID{
		"as the API server makes them": randomUIDs(r, 3000, 36, hexadecimal),
		"of few digits":                randomUIDs(r, 200, 4, hexadecimal),
		"beginning alike":              append(randomUIDs(r, 300, 12, "01"), "0", "00", "000"),
		"a single one":                 {"00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(0)
			var pods []*corev1.Pod
			var mine, orphans []types.UID
			for i, uid := range list {
				if i%5 == 1 {
					pods = append(pods, podtest.Pod(fmt.Sprintf("web-%d", i), podtest.UID(uid)))
					orphans = append(orphans, uid)
				} else {
					pods = append(pods, podtest.Pod(fmt.Sprintf("web-%d", i), podtest.UID(uid), owned(rs)))
					mine = append(mine, uid)
				}
			}
			plan, err := replicas.Manage(pods, specOf(t, rs))
			require.NoError(t, err)
			assert.Equal(t, mine, uids(plan.Claims.Owned))
			assert.Equal(t, orphans, uids(plan.Claims.Adopt))

			again := len(pods) / 2
			_, err = replicas.Manage(append(pods, pods[again].DeepCopy()), specOf(t, rs))
			require.EqualError(t, err, fmt.Sprintf("replicas: ReplicaSet %q: child %q (%s) is listed twice", "default/web", "default/"+pods[again].Name, list[again]))
		})
	}
}
