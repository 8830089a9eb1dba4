// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// podsOfEveryKind returns versions of one pod. Each version has a different combination of labels, owner and
// state.
func podsOfEveryKind() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, labels := range []map[string]string{nil, {}, web, api} {
		for _, owner := range []podtest.Option{
			func(*corev1.Pod) {},
			ownedBy("web"),
			ownedBy("api"),
			reference(func(ref *metav1.OwnerReference) { ref.Kind, ref.UID = "DaemonSet", "uid-of-daemon-set" }),
			reference(func(ref *metav1.OwnerReference) { ref.UID = "uid-of-older-web" }),
		} {
			for _, state := range []podtest.Option{func(*corev1.Pod) {}, podtest.NotReady, podtest.Deleting} {
				v := version(strconv.Itoa(len(pods)))
				pods = append(pods, podtest.Pod("web-0", podtest.Labels(labels), owner, state, v))
			}
		}
	}
	return pods
}

// slowWakes returns the wake-ups that an update of a pod must cause for one owner, with their delays. It follows
// the written rules step by step.
func slowWakes(rs *appsv1.ReplicaSet, was, now *corev1.Pod) []string {
	key := rs.Namespace + "/" + rs.Name
	owns := func(p *corev1.Pod) bool {
		ref := metav1.GetControllerOf(p)
		return ref != nil && ref.Kind == "ReplicaSet" && ref.Name == rs.Name && ref.UID == rs.UID
	}
	ready := func(p *corev1.Pod) bool { return p.Status.Conditions[0].Status == corev1.ConditionTrue }
	selects := len(now.Labels) > 0 && now.Labels["app"] == rs.Spec.Selector.MatchLabels["app"]
	relabeled := was.Labels["app"] != now.Labels["app"]
	orphaned := metav1.GetControllerOf(was) != nil && metav1.GetControllerOf(now) == nil
	orphan := metav1.GetControllerOf(now) == nil
	switch {
	case was.ResourceVersion == now.ResourceVersion:
		return nil
	case now.DeletionTimestamp != nil && (owns(now) || owns(was)):
		return []string{key}
	case now.DeletionTimestamp != nil:
		return nil
	case owns(now) && !ready(was) && ready(now) && rs.Spec.MinReadySeconds > 0:
		return []string{key, key + " in 10s"}
	case owns(now), owns(was), orphan && selects && (relabeled || orphaned):
		return []string{key}
	}
	return nil
}

func TestEventsAgreesWithSlowTwin(t *testing.T) {
	t.Parallel()
	t.Run("V6 V7 V8 V9 V10 M6 W57 every update wakes whom the rules say", func(t *testing.T) {
		t.Parallel()
		pods := podsOfEveryKind()
		for _, was := range pods {
			for _, now := range pods {
				r := newEventRig()
				var want []string
				for _, rs := range r.list[:3] {
					want = append(want, slowWakes(rs, was, now)...)
				}
				slices.Sort(want)
				require.NoError(t, r.handlers().ChildUpdated(was, now))
				require.Equal(t, want, r.wakes(), "%+v\n->\n%+v", was.ObjectMeta, now.ObjectMeta)
			}
		}
	})
}

// If several events report the same deletion, the deletion is settled only once. The test reports the deletions of
// random pods. Each deletion is reported one to three times in a row, and may be reported again after others.
func TestEventsRepeatedEvents(t *testing.T) {
	t.Parallel()
	t.Run("V12 E20 an event that is repeated settles a deletion once", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(100) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r, rs := newEventRig(), ownerNamed("web", web)
			var uids []types.UID
			expected := map[types.UID]bool{}
			for i := range 20 {
				uid := types.UID(fmt.Sprintf("uid-%d", i))
				uids, expected[uid] = append(uids, uid), true
			}
			r.record().Set(expectations.KeyOf(rs), expectations.Changes{Deleting: uids[:15]})
			for _, uid := range uids[15:] {
				delete(expected, uid)
			}
			for range 60 {
				uid := uids[rnd.IntN(len(uids))]
				routeDeletion(t, r, rnd, uid)
				delete(expected, uid)
				require.Equal(t, expectations.Changes{Deleting: slices.Sorted(maps.Keys(expected))}, r.outstanding(rs))
			}
		}
	})
}

// routeDeletion sends one to three events about the deletion of a pod. Each of them is one of the four events that
// can show a deletion.
func routeDeletion(t *testing.T, r *eventRig, rnd *rand.Rand, uid types.UID) {
	t.Helper()
	owner := []podtest.Option{ownedBy("web"), ownedBy("api"), func(*corev1.Pod) {}}[rnd.IntN(3)]
	was := podtest.Pod(string(uid), podtest.UID(uid), ownedBy("web"), version("1"))
	now := podtest.Pod(string(uid), podtest.UID(uid), owner, podtest.Deleting, version("2"))
	ways := []func() error{
		func() error { return r.handlers().ChildAdded(now) },
		func() error { return r.handlers().ChildUpdated(was, now) },
		func() error { return r.handlers().ChildDeleted(now) },
		func() error { return r.handlers().ChildDeleted(deletedFinalStateUnknown{Obj: was}) },
	}
	for range 1 + rnd.IntN(3) {
		require.NoError(t, ways[rnd.IntN(len(ways))]())
	}
}

func TestEventsConcurrentEvents(t *testing.T) {
	t.Parallel()
	t.Run("E11 V2 V12 events from many goroutines settle exactly what they tell of", func(t *testing.T) {
		t.Parallel()
		const creations, deletions = 200, 200
		r, rs, other := newEventRig(), ownerNamed("web", web), ownerNamed("api", api)
		r.record().Set(expectations.KeyOf(rs), expectations.Changes{Creations: creations + 1})
		var uids []types.UID
		for i := range deletions {
			uids = append(uids, types.UID(fmt.Sprintf("uid-api-%d", i)))
		}
		r.record().Set(expectations.KeyOf(other), expectations.Changes{Deleting: append(uids, "uid-of-the-last")})
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := range creations {
				assert.NoError(t, r.handlers().ChildAdded(podtest.Pod(fmt.Sprintf("web-%d", i), ownedBy("web"))))
			}
		})
		for range 2 {
			wg.Go(func() {
				for _, uid := range uids {
					assert.NoError(t, r.handlers().ChildDeleted(podtest.Pod("api", podtest.UID(uid), ownedBy("api"))))
				}
			})
		}
		wg.Go(func() {
			canary := ownerNamed("canary", web)
			for range 100 {
				assert.NoError(t, r.handlers().OwnerUpdated(canary, canary))
				assert.NoError(t, r.handlers().OwnerDeleted(canary))
			}
		})
		wg.Wait()
		assert.Equal(t, expectations.Changes{Creations: 1}, r.outstanding(rs))
		assert.Equal(t, expectations.Changes{Deleting: []types.UID{"uid-of-the-last"}}, r.outstanding(other))
	})
}
