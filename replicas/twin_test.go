// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// fleet returns n random pods for the ReplicaSet. Many pods are equal in most criteria of the deletion order. Some
// pods are orphans, some have lost their labels, and some are being deleted.
func fleet(rs *appsv1.ReplicaSet, n int, seed uint64) []*corev1.Pod {
	r := rand.New(rand.NewPCG(seed, 1))
	pods := podtest.Fleet(n, 5, seed)
	for i, p := range pods {
		switch r.IntN(8) {
		case 0: // an orphan
		case 1:
			owned(rs)(p)
			p.Labels = nil
		default:
			owned(rs)(p)
		}
		if r.IntN(10) == 0 {
			podtest.Deleting(pods[i])
		}
	}
	return pods
}

func TestManageDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rs := replicaSet(10)
		pods := fleet(rs, 40, seed)
		spec := specOf(t, rs)
		crowd := podtest.Fleet(20, 5, seed+1000)
		spec.Facts.Related = func() []*corev1.Pod { return crowd }
		want, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		r := rand.New(rand.NewPCG(seed, 2))
		for range 5 {
			r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
			r.Shuffle(len(crowd), func(i, j int) { crowd[i], crowd[j] = crowd[j], crowd[i] })
			got, err := replicas.Manage(pods, spec)
			require.NoError(t, err)
			require.Equal(t, want.Scale, got.Scale, "seed %d", seed)
			for list, same := range map[*[]*corev1.Pod]*[]*corev1.Pod{
				&want.Claims.Owned: &got.Claims.Owned, &want.Claims.Adopt: &got.Claims.Adopt,
				&want.Claims.Release: &got.Claims.Release, &want.Claims.Ignored: &got.Claims.Ignored,
			} {
				require.ElementsMatch(t, uids(*list), uids(*same), "seed %d", seed)
			}
		}
	}
}

func TestManageTouchesNothing(t *testing.T) {
	t.Parallel()
	t.Run("Y14 D4 W36 owner, pods and their order stay as they were", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(10)
		pods := fleet(rs, 40, 1)
		spec := specOf(t, rs)
		crowd := podtest.Fleet(20, 5, 2)
		spec.Facts.Related = func() []*corev1.Pod { return crowd }
		rsBefore, before, relatedBefore := rs.DeepCopy(), deepCopies(pods), deepCopies(crowd)
		order := slices.Clone(pods)
		plan, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		assert.NotEmpty(t, plan.Scale.Delete)
		assert.Equal(t, rsBefore, rs)
		assert.Equal(t, before, pods)
		assert.Equal(t, relatedBefore, crowd)
		for i := range pods {
			assert.Same(t, order[i], pods[i])
		}
	})
}

// If plans are carried out one after another, the number of pods becomes the wanted number.
func TestPlansLeadToTheWantedCount(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		rs := replicaSet(int32(r.IntN(60)))
		pods := fleet(rs, r.IntN(80), seed)
		spec := specOf(t, rs)
		spec.BurstReplicas = 1 + r.IntN(20)
		for pass := 0; ; pass++ {
			require.Less(t, pass, 100, "seed %d: no end", seed)
			plan, err := replicas.Manage(pods, spec)
			require.NoError(t, err)
			if plan.IsZero() {
				assert.Len(t, plan.Claims.Owned, int(*rs.Spec.Replicas), "seed %d", seed)
				break
			}
			require.LessOrEqual(t, plan.Scale.Create, spec.BurstReplicas)
			require.LessOrEqual(t, len(plan.Scale.Delete), spec.BurstReplicas)
			pods = apply(plan, pods, rs, pass)
		}
	}
}

// apply changes the list of pods as if the plan had been carried out, and returns the new list.
func apply(plan replicas.PodPlan, pods []*corev1.Pod, rs *appsv1.ReplicaSet, pass int) []*corev1.Pod {
	gone := map[types.UID]bool{}
	for _, v := range plan.Scale.Delete {
		gone[v.Object.UID] = true
	}
	pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return gone[p.UID] })
	for _, p := range plan.Claims.Adopt {
		owned(rs)(p)
	}
	for _, p := range plan.Claims.Release {
		p.OwnerReferences = nil
	}
	for i := range plan.Scale.Create {
		p, _ := plan.Scale.New(i)
		p.Name = fmt.Sprintf("new-%d-%d", pass, i)
		p.UID = types.UID(p.Name)
		pods = append(pods, p)
	}
	return pods
}

// manageTwin computes the expected adoptions, releases and surplus independently of Manage.
func manageTwin(pods []*corev1.Pod, rs *appsv1.ReplicaSet) (adopt, release []types.UID, surplus int) {
	count := 0
	for _, p := range pods {
		if p.DeletionTimestamp != nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		mine := len(p.OwnerReferences) == 1 && p.OwnerReferences[0].UID == rs.UID
		orphan := len(p.OwnerReferences) == 0
		matches := p.Labels["app"] == "web"
		switch {
		case mine && matches:
			count++
		case mine:
			release = append(release, p.UID)
		case orphan && matches:
			adopt = append(adopt, p.UID)
			count++
		}
	}
	return adopt, release, count - int(*rs.Spec.Replicas)
}

func TestManageAgreesWithItsTwin(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rs := replicaSet(int32(seed % 40))
		pods := fleet(rs, 30, seed)
		plan, err := replicas.Manage(pods, specOf(t, rs))
		require.NoError(t, err)
		adopt, release, surplus := manageTwin(pods, rs)
		assert.ElementsMatch(t, adopt, uids(plan.Claims.Adopt), "seed %d", seed)
		assert.ElementsMatch(t, release, uids(plan.Claims.Release), "seed %d", seed)
		assert.Equal(t, surplus, len(plan.Scale.Delete)-plan.Scale.Create, "seed %d", seed)
	}
}

// If Update returns no change, a plan is the one without Update, with and without limits, slots and calls in flight.
func TestUpdateThatChangesNothing(t *testing.T) {
	t.Parallel()
	updates := []func(*corev1.Pod) replicas.Change[*corev1.Pod]{
		func(*corev1.Pod) replicas.Change[*corev1.Pod] { return replicas.Change[*corev1.Pod]{} },
		func(p *corev1.Pod) replicas.Change[*corev1.Pod] {
			return replicas.Change[*corev1.Pod]{To: p.DeepCopy()}
		},
	}
	two, some := intstr.FromInt32(2), intstr.FromString("20%")
	for seed := range uint64(100) {
		rs := replicaSet(int32(seed % 40))
		pods := fleet(rs, 30, seed)
		spec := specOf(t, rs)
		spec.Facts.Related = func() []*corev1.Pod { return pods }
		spec.Rules.MustGo = func(p *corev1.Pod) bool { return seed%3 > 0 && p.Spec.NodeName == "node-1" }
		if seed%2 > 0 {
			spec.MaxUnavailable, spec.MaxSurge = &two, &some
		}
		want, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		for _, update := range updates {
			spec.Update = update
			plan, err := replicas.Manage(pods, spec)
			require.NoError(t, err)
			require.Equal(t, want, plan, "seed %d", seed)
		}
	}
	for seed := range uint64(300) {
		for _, slots := range []bool{false, true} {
			plan := func(update func(*worker) replicas.Change[*worker]) replicas.Scale[*worker] {
				c := newCrowd(seed, slots) // anew, because its names are counted
				c.spec.New, c.spec.Update = nil, update
				if seed%3 > 0 {
					c.spec.MaxUnavailable = &two
					c.spec.Rules.Ready = func(w *worker) bool { return w.CreationTimestamp.Minute()%2 == 0 }
				}
				scale, err := replicas.ScaleTo(c.children, c.spec)
				require.NoError(t, err)
				return scale
			}
			want := plan(nil)
			require.Equal(t, want, plan(func(*worker) replicas.Change[*worker] { return replicas.Change[*worker]{Free: true} }), "seed %d", seed)
			require.Equal(t, want, plan(func(w *worker) replicas.Change[*worker] {
				changed := *w
				return replicas.Change[*worker]{To: &changed}
			}), "seed %d", seed)
		}
	}
}

func FuzzManage(f *testing.F) {
	f.Add(uint64(1), int32(3), 10, 0, "app", "web")
	f.Add(uint64(2), int32(-1), 0, -1, "", "")
	f.Add(uint64(3), int32(2_000_000_000), 40, 7, "app", "\x00")
	// The fuzzer found these inputs.
	f.Add(uint64(2), int32(-1), 2, -26, "", "")
	f.Add(uint64(76), int32(-1), 69, -1, "0", "0")
	f.Add(uint64(81), int32(-73), 94, 100, " ", "0")
	f.Add(uint64(54), rune('/'), 125, 0, "app", "web")
	f.Add(uint64(86), rune('\x00'), 66, -46, "⨻", "0")
	f.Add(uint64(237), rune('7'), 75, 56, "app", "web")
	f.Add(uint64(0), int32(2000000028), 5, 68, "0", "0")
	f.Add(uint64(2), int32(-1), 0, -1, "000000 ", "000 ")
	f.Add(uint64(2), int32(-1), 20, -1, "00000000A/", "0")
	f.Add(uint64(230), rune('\x16'), 133, 301, "app", "web")
	f.Add(uint64(5), int32(2000000128), -56, -6, "\v\v\v\v\v\v\v\v", "0")
	f.Add(uint64(47), int32(-166), 60, -1, "00000000000000000000000000000000000000000000000000000000000000000", "d")
	f.Fuzz(func(t *testing.T, seed uint64, want int32, have, burst int, key, value string) {
		rs := replicaSet(want)
		rs.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
		pods := fleet(rs, min(max(have, 0), 100), seed)
		spec, err := replicas.ReplicaSetSpec(rs)
		if err != nil {
			return
		}
		spec.Facts.Now, spec.BurstReplicas = podtest.Now, burst
		plan, err := replicas.Manage(pods, spec)
		if err != nil {
			assert.Zero(t, plan)
			return
		}
		assert.LessOrEqual(t, plan.Scale.Create, max(burst, replicas.DefaultBurstReplicas))
		assert.False(t, plan.Scale.Create > 0 && len(plan.Scale.Delete) > 0)
		now := len(plan.Claims.Owned) + len(plan.Claims.Adopt)
		step := plan.Scale.Create + plan.Scale.Deferred
		if len(plan.Scale.Delete) > 0 {
			step = -len(plan.Scale.Delete) - plan.Scale.Deferred
		}
		assert.Equal(t, int(want), now+step)
	})
}
