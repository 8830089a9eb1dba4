// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// rolling returns the spec of a rollout of n pods. Pods with the label "old" must go.
func rolling(n, unavailable, surge int32) replicas.SpecOfPods {
	rs := replicaSet(n)
	u, s := intstr.FromInt32(unavailable), intstr.FromInt32(surge)
	spec, _ := replicas.ReplicaSetSpec(rs)
	spec.Facts.Now, spec.MaxUnavailable, spec.MaxSurge = podtest.Now, &u, &s
	spec.Rules.MustGo = func(p *corev1.Pod) bool { return p.Labels["old"] != "" }
	return spec
}

func member(spec replicas.SpecOfPods, name string, isOld, isReady bool) *corev1.Pod {
	podLabels := map[string]string{"app": "web"}
	if isOld {
		podLabels["old"] = "yes"
	}
	p := podtest.Pod(name, podtest.OwnedBy(spec.Owner, "apps/v1", "ReplicaSet"), podtest.Labels(podLabels), podtest.UID(types.UID(name)))
	if !isReady {
		podtest.NotReady(p)
	}
	return p
}

// A plan of a rollout never exceeds MaxUnavailable or MaxSurge. The test uses random pods and random calls in flight.
func TestTheBoundsOfARollout(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		wanted, unavailable, surge := r.IntN(7), r.IntN(4), r.IntN(4)
		if unavailable+surge == 0 {
			surge = 1
		}
		spec := rolling(int32(wanted), int32(unavailable), int32(surge))
		var pods []*corev1.Pod
		old, ready := 0, 0
		for i := range r.IntN(10) {
			p := member(spec, fmt.Sprint("p", i), r.IntN(2) == 0, r.IntN(3) > 0)
			pods = append(pods, p)
			if p.Labels["old"] != "" {
				old++
			}
			if status.IsPodReady(p) {
				ready++
			}
		}
		sure := ready // the number of available pods; pods with a deletion in flight are subtracted below
		for _, p := range pods {
			if r.IntN(6) == 0 {
				spec.Facts.DeletionsInFlight = append(spec.Facts.DeletionsInFlight, object.ID(p))
				sure -= one(status.IsPodReady(p))
			}
		}
		for i := range r.IntN(3) {
			spec.Facts.CreationsInFlight = append(spec.Facts.CreationsInFlight, fmt.Sprint("flying-", i))
		}
		plan, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		all, limit := len(pods), wanted
		if old > 0 {
			limit += surge
		}
		what := fmt.Sprintf("%d wanted, %d unavailable, %d surge, %v of %d old, %d ready, %d sure, in flight %v %v: %v",
			wanted, unavailable, surge, old, all, ready, sure, spec.Facts.CreationsInFlight, spec.Facts.DeletionsInFlight, plan)
		assert.LessOrEqual(t, plan.Scale.Create, max(limit-all, 0), what)
		assert.LessOrEqual(t, plan.Scale.Create, max(wanted-(all-old), 0), what)
		goes := 0
		for _, d := range plan.Scale.Delete {
			if status.IsPodReady(d.Object) {
				goes++
			}
			if d.Object.Labels["old"] == "" {
				assert.Greater(t, all-old, wanted, what)
			}
		}
		if goes > 0 && old > 0 {
			for _, d := range plan.Scale.Delete {
				for _, id := range spec.Facts.DeletionsInFlight {
					if object.ID(d.Object) == id && status.IsPodReady(d.Object) {
						goes-- // this pod is not included in the variable sure
					}
				}
			}
			assert.GreaterOrEqual(t, sure-goes, wanted-unavailable, what)
		}
	}
}

// Of the unavailable old pods, as many go as in a Deployment. New pods that are not available yet are subtracted,
// because they count among all pods and serve nobody.
func TestAsManyUnavailablePodsGoAsInADeployment(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	differed := 0
	for range 3000 {
		wanted, unavailable, surge := 1+r.IntN(8), r.IntN(4), 1+r.IntN(4)
		spec := rolling(int32(wanted), int32(unavailable), int32(surge))
		var pods []*corev1.Pod
		oldUnready, freshUnready := 0, 0
		for i := range r.IntN(wanted + surge + 1) {
			isOld, isReady := r.IntN(2) == 0, r.IntN(2) == 0
			pods = append(pods, member(spec, fmt.Sprint("p", i), isOld, isReady))
			oldUnready, freshUnready = oldUnready+one(isOld && !isReady), freshUnready+one(!isOld && !isReady)
		}
		plan, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		went := 0
		for _, d := range plan.Scale.Delete {
			went += one(d.Object.Labels["old"] != "" && !status.IsPodReady(d.Object))
		}
		least := wanted - unavailable
		may := max(len(pods)-least-freshUnready, 0)
		require.Equal(t, min(oldUnready, may), went, "%d wanted, %d unavailable: %v", wanted, unavailable, plan)
		differed += one(min(oldUnready, may) < min(oldUnready, max(len(pods)-least, 0)))
	}
	assert.Positive(t, differed, "in some cases, the new pods make a difference")
}

// Unavailable pods are deleted first, even if BurstReplicas limits the plan to one deletion. If the plan is
// changed to delete an available pod that is needed, Room.Clamp removes this deletion.
func TestWhoGoesFirstInARollout(t *testing.T) {
	t.Parallel()
	spec := rolling(3, 2, 0)
	spec.BurstReplicas = 1
	spec.Rules.Order = podrank.Must(podrank.NewOrder(podrank.By("letter", func(p *corev1.Pod) string { return p.Name })))
	pods := []*corev1.Pod{member(spec, "a", true, true), member(spec, "b", true, true), member(spec, "c", true, false)}
	plan, err := replicas.Manage(pods, spec)
	require.NoError(t, err)
	require.Len(t, plan.Scale.Delete, 1)
	assert.Equal(t, "c", plan.Scale.Delete[0].Object.Name)

	spec = rolling(3, 1, 0)
	plan, err = replicas.Manage(pods, spec)
	require.NoError(t, err)
	require.Len(t, plan.Scale.Delete, 1)
	assert.Equal(t, "c", plan.Scale.Delete[0].Object.Name)
	room, err := replicas.RoomOf(pods, spec)
	require.NoError(t, err)
	plan.Scale.Delete[0].Object = pods[0]
	assert.Empty(t, room.Clamp(plan.Scale).Delete, "two must be available")
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// This test covers Slots and Rules.MustStay, which TestTheBoundsOfARollout does not use.
func TestRolloutsWithSlotsAndChildrenThatMustStay(t *testing.T) {
	t.Parallel()
	slots := rolling(3, 1, 0)
	slots.Slots, slots.MaxSurge = replicas.Ordinals("web"), nil
	stays := rolling(3, 1, 1)
	stays.Rules.MustStay = func(p *corev1.Pod) bool { return p.Labels["stay"] != "" }
	slotsStay := slots
	slotsStay.Rules.MustStay = stays.Rules.MustStay
	none := rolling(0, 0, 0)
	tight := slots
	zero := intstr.FromInt32(0)
	tight.MaxUnavailable = &zero
	staying := func(p *corev1.Pod) *corev1.Pod { p.Labels["stay"] = "yes"; return p }
	fresh := func(spec replicas.SpecOfPods, names ...string) (pods []*corev1.Pod) {
		for _, name := range names {
			pods = append(pods, member(spec, name, false, true))
		}
		return pods
	}
	for name, tt := range map[string]struct {
		spec replicas.SpecOfPods
		pods []*corev1.Pod
		want string
	}{
		"no child of a wanted slot goes for one that must stay": {
			slotsStay, append(fresh(slots, "web-0", "web-1", "web-2"), staying(member(slots, "web-7", false, true))), "nothing to do; 1 kept by MustStay",
		},
		"slots that are no longer wanted go before a free one is filled": {
			slots, fresh(slots, "web-0", "web-2", "web-3", "web-4"), "delete 2: default/web-4 (must go), default/web-3 (must go)",
		},
		"if none may be unavailable, a free slot is filled while nothing can go": {
			tight, fresh(slots, "web-0", "web-2", "web-4"), "create 1; 1 kept while others are missing or unavailable",
		},
		"a slot that is not wanted is no rollout that can replace nothing": {
			tight, fresh(slots, "web-0", "web-1", "web-2", "web-3"), "delete 1: default/web-3 (must go)",
		},
		"nor is a scale to zero": {
			none, []*corev1.Pod{member(none, "a", true, true), member(none, "b", false, true)}, "delete 2: default/a (all go), default/b (all go)",
		},
		"what must stay is not counted as what may go": {
			stays, []*corev1.Pod{
				staying(member(stays, "a", false, true)), staying(member(stays, "b", false, true)), staying(member(stays, "c", false, true)),
				staying(member(stays, "d", false, true)), member(stays, "e", true, true),
			}, "delete 1: default/e (all others must stay); 1 kept by MustStay",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := replicas.Manage(tt.pods, tt.spec)
			require.NoError(t, err)
			assert.Equal(t, tt.want, plan.Scale.String())
		})
	}
}

// A rolledFleet simulates a rollout step by step. Each pod becomes ready after a number of steps.
type rolledFleet struct {
	old, fresh []int // for each pod, the number of steps until the pod becomes ready; 0 or less for a ready pod
	made       int
	fewest     int // the smallest number of available pods so far
	steps      int
}

func (f *rolledFleet) available() (n int) {
	for _, left := range append(append([]int(nil), f.old...), f.fresh...) {
		n += one(left <= 0)
	}
	return n
}

func (f *rolledFleet) step() {
	f.steps++
	for i := range f.old {
		f.old[i]--
	}
	for i := range f.fresh {
		f.fresh[i]--
	}
}

// asDeployment makes one step as Kubernetes' Deployment controller does. If new pods may be created, the step only
// creates pods. Otherwise, the step deletes old pods, and deletes unavailable pods before available ones.
func (f *rolledFleet) asDeployment(wanted, unavailable, surge, startUp int) {
	if n := min(wanted-len(f.fresh), wanted+surge-len(f.old)-len(f.fresh)); n > 0 {
		for range n {
			f.fresh, f.made = append(f.fresh, startUp), f.made+1
		}
		return
	}
	unready := 0
	for _, left := range f.fresh {
		unready += one(left > 0)
	}
	most := len(f.old) + len(f.fresh) - (wanted - unavailable) - unready
	for i := 0; i < len(f.old) && most > 0; {
		if f.old[i] > 0 {
			f.old, most = append(f.old[:i], f.old[i+1:]...), most-1
			continue
		}
		i++
	}
	for spare := f.available() - (wanted - unavailable); spare > 0 && len(f.old) > 0; spare-- {
		f.old = f.old[1:]
	}
}

// asPlanned makes one step by carrying out a plan of Manage.
func (f *rolledFleet) asPlanned(t *testing.T, spec replicas.SpecOfPods, startUp int) {
	t.Helper()
	var pods []*corev1.Pod
	for i, left := range f.old {
		pods = append(pods, member(spec, fmt.Sprint("old-", i), true, left <= 0))
	}
	for i, left := range f.fresh {
		pods = append(pods, member(spec, fmt.Sprint("new-", i), false, left <= 0))
	}
	plan, err := replicas.Manage(pods, spec)
	require.NoError(t, err)
	gone := map[string]bool{}
	for _, d := range plan.Scale.Delete {
		gone[d.Object.Name] = true
	}
	var old []int
	for i, left := range f.old {
		if !gone[fmt.Sprint("old-", i)] {
			old = append(old, left)
		}
	}
	f.old = old
	for range plan.Scale.Create {
		f.fresh, f.made = append(f.fresh, startUp), f.made+1
	}
}

// A rollout creates as many pods as Kubernetes' Deployment controller does, and takes no more steps. If the
// Deployment controller always keeps at least wanted - unavailable pods available, the rollout also keeps this
// number available. Otherwise, the smallest number of available pods in the rollout is at least the smallest
// number with the Deployment controller.
func TestARolloutBesideADeployment(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		wanted, unavailable, surge, startUp := 1+r.IntN(10), r.IntN(4), r.IntN(4), 1+r.IntN(4)
		unavailable = min(unavailable, wanted)
		if unavailable+surge == 0 {
			surge = 1
		}
		spec := rolling(int32(wanted), int32(unavailable), int32(surge))
		var begins []int
		for range wanted {
			begins = append(begins, max(r.IntN(12)-9, 0)*1000) // some pods do not become ready during the test
		}
		run := func(do func(f *rolledFleet)) rolledFleet {
			f := rolledFleet{old: append([]int(nil), begins...)}
			f.fewest = f.available()
			for (len(f.old) > 0 || len(f.fresh) != wanted || f.available() < wanted) && f.steps < 500 {
				do(&f)
				f.fewest = min(f.fewest, f.available())
				f.step()
			}
			return f
		}
		theirs := run(func(f *rolledFleet) { f.asDeployment(wanted, unavailable, surge, startUp) })
		ours := run(func(f *rolledFleet) { f.asPlanned(t, spec, startUp) })
		what := fmt.Sprintf("%d wanted, %d unavailable, %d surge, start-up %d, begins %v", wanted, unavailable, surge, startUp, begins)
		require.Less(t, theirs.steps, 500, what)
		assert.Equal(t, theirs.made, ours.made, what)
		assert.GreaterOrEqual(t, ours.fewest, min(theirs.fewest, wanted-unavailable), what)
		assert.LessOrEqual(t, ours.steps, theirs.steps, what)
	}
}

func TestRolloutsThatContradictThemselves(t *testing.T) {
	t.Parallel()
	text := func(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }
	minus, one := intstr.FromInt32(-1), intstr.FromInt32(1)
	for want, change := range map[string]func(s *replicas.SpecOfPods){
		"maxUnavailable -1 is negative":             func(s *replicas.SpecOfPods) { s.MaxUnavailable = &minus },
		"maxSurge -1 is negative":                   func(s *replicas.SpecOfPods) { s.MaxSurge = &minus },
		`maxUnavailable "a" is no percentage`:       func(s *replicas.SpecOfPods) { s.MaxUnavailable = text("a") },
		`maxSurge "x%" is no percentage`:            func(s *replicas.SpecOfPods) { s.MaxSurge = text("x%") },
		"maxUnavailable 101% is more than 100%":     func(s *replicas.SpecOfPods) { s.MaxUnavailable = text("101%") },
		"maxSurge 1: there is no slot for a child":  func(s *replicas.SpecOfPods) { s.MaxSurge, s.Slots = &one, replicas.Ordinals("web") },
		"maxUnavailable and maxSurge are 0, and 1 ": func(s *replicas.SpecOfPods) { zero := intstr.FromInt32(0); s.MaxUnavailable, s.MaxSurge = &zero, nil },
	} {
		spec := rolling(1, 1, 1)
		change(&spec)
		_, err := replicas.Manage([]*corev1.Pod{member(spec, "a", true, true)}, spec)
		require.ErrorContains(t, err, `ReplicaSet "default/web": `+want)
		requireRefused(t, err, replicas.InvalidRollout)
	}
	_, err := replicas.Manage[*corev1.ConfigMap](nil, replicas.Spec[*corev1.ConfigMap]{
		Owner: replicaSet(1), Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Selector: labels.SelectorFromSet(labels.Set{"a": "b"}),
		Facts: replicas.Facts[*corev1.ConfigMap]{Now: podtest.Now}, MaxSurge: &one,
	})
	require.ErrorContains(t, err, "no *v1.ConfigMap is ever available")
}
