// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// The ReplicaSet "web" has the controller "uid-deployment" and is scaled from two pods to one. The pods are
// "web-1" on node-1 and "web-2" on node-2. Without related pods, "web-2" goes, because "web-2" is younger. If
// node-1 has more related pods than node-2, "web-1" goes.
func TestRelated(t *testing.T) {
	t.Parallel()

	sibling := func(name string, changes ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		rs := replicaSet(name, 0, changes...)
		rs.OwnerReferences = controlledBy("uid-deployment")
		return rs
	}
	elsewhere := func(p *corev1.Pod) { p.Namespace = "elsewhere" }

	tests := []struct {
		name    string
		owner   func(*appsv1.ReplicaSet)
		objects []object
		want    string // the pod that goes
	}{
		{
			name: "L1 without related pods web-2 goes",
			want: "web-2",
		},
		{
			name:    "L1 L3 a pod that a sibling owns counts",
			objects: siblingWithPod(sibling("old"), "old"),
			want:    "web-1",
		},
		{
			name:    "L1 so does that of a sibling in another namespace",
			objects: siblingWithPod(sibling("old", func(rs *appsv1.ReplicaSet) { rs.Namespace = "elsewhere" }), "old", elsewhere),
			want:    "web-1",
		},
		{
			name: "L1 and that of a sibling being deleted",
			objects: siblingWithPod(sibling("old", func(rs *appsv1.ReplicaSet) {
				rs.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			}), "old"),
			want: "web-1",
		},
		{
			name: "L1 not that of another controller's",
			objects: siblingWithPod(sibling("old", func(rs *appsv1.ReplicaSet) {
				rs.UID = "uid-old"
			}), "old", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "uid-of-nobody" }),
			want: "web-2",
		},
		{
			name:    "L2 W32 without a controller there are no siblings",
			owner:   func(rs *appsv1.ReplicaSet) { rs.OwnerReferences = nil },
			objects: siblingWithPod(sibling("old"), "old"),
			want:    "web-2",
		},
		{
			name:    "L3 what a sibling owns counts whatever its labels",
			objects: siblingWithPod(sibling("old"), "other"),
			want:    "web-1",
		},
		{
			name:    "L3 an orphan that a sibling selects counts",
			objects: []object{sibling("old", paused), pod("orphan", "old", "node-1")},
			want:    "web-1",
		},
		{
			name:    "L3 an orphan that nobody selects does not",
			objects: []object{sibling("old", paused), pod("orphan", "other", "node-1")},
			want:    "web-2",
		},
		{
			name:    "W33 what somebody else owns does not count, although a sibling selects it",
			objects: []object{sibling("old", paused), pod("foreign", "old", "node-1", ownedBy(replicaSet("foreign", 0)))},
			want:    "web-2",
		},
		{
			name: "L5 an orphan counts once, however many siblings there are",
			objects: append(siblingWithPod(sibling("old"), "old", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }),
				pod("orphan", "old", "node-1")),
			want: "web-2",
		},
		{
			name: "L4 a sibling whose selector is refused has no orphans",
			objects: []object{
				sibling("old", paused, func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = &metav1.LabelSelector{} }),
				pod("orphan", "old", "node-1"),
			},
			want: "web-2",
		},
	}
	for _, test := range tests {
		bubble(t, test.name, func(t inBubble) {
			web := replicaSet("web", 1)
			web.OwnerReferences = controlledBy("uid-deployment")
			if test.owner != nil {
				test.owner(web)
			}
			b := newBench(append(test.objects, web, pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-2", ownedBy(web), younger))...)
			b.onPod = keepOthers
			b.start(t)
			assert.NotContains(t, b.podNames(), test.want)
			assert.Empty(t, b.refusals(), "errors")
		})
	}
}

func TestRelatedFailure(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name, index string
		wrap        func(*bench, func(cache.SharedIndexInformer) cache.SharedIndexInformer)
	}{
		{
			name: "L4 W37 where siblings cannot be listed: an event, a log line, and ranks 0", index: "controllerUID",
			wrap: func(b *bench, broken func(cache.SharedIndexInformer) cache.SharedIndexInformer) {
				b.replicaSets = broken(b.replicaSets)
			},
		},
	} {
		bubble(t, test.name, func(t inBubble) {
			web, old := replicaSet("web", 1), replicaSet("old", 1)
			web.OwnerReferences, old.OwnerReferences = controlledBy("uid-deployment"), controlledBy("uid-deployment")
			b := newBench(web, old, pod("old-1", "old", "node-1", ownedBy(old)),
				pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-2", ownedBy(web), younger))
			test.wrap(b, func(i cache.SharedIndexInformer) cache.SharedIndexInformer { return brokenIndexInformer{i, test.index} })
			b.start(t)
			assert.Equal(t, []string{"old-1", "web-1"}, b.podNames(), "as without siblings")
			assert.Len(t, b.recorded("FailedRelatedPods"), 1)
			entry := b.logged("Ranking without related pods")
			require.NotNil(t, entry)
			assert.ErrorIs(t, entry.Err, errBroken)
		})
	}
}

func TestRelatedReplicationControllers(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		name       string
		controller []metav1.OwnerReference
		want       []string
	}{
		{name: "A7 siblings of a ReplicationController are found", controller: controlledBy("uid-config"), want: []string{"old-1", "web-2"}},
		{name: "W32 one without a controller has none", want: []string{"old-1", "web-1"}},
	} {
		bubble(t, test.name, func(t inBubble) {
			web, old := replicationController("web", 1), replicationController("old", 1)
			web.OwnerReferences, old.OwnerReferences = test.controller, test.controller
			b := newBench(web, old, pod("old-1", "old", "node-1", ownedBy(old)),
				pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-2", ownedBy(web), younger))
			b.startReplicationManager(t)
			assert.Equal(t, test.want, b.podNames())
			assert.Empty(t, b.errors())
		})
	}
}

func TestRankingTime(t *testing.T) {
	t.Parallel()

	bubble(t, "L7 the ages that rank are of the pass's own instant, by the controller's clock", func(t inBubble) {
		// By the injected clock, the pods "newer" and "older" have been ready for 3 h and 4 h. Both times are in
		// one bucket, so the UID decides. By the wall clock, both pods become ready only in the future.
		now := time.Now().Add(24 * 365 * time.Hour)
		since := func(d time.Duration, uid types.UID) func(*corev1.Pod) {
			return func(p *corev1.Pod) {
				at := now.Add(-d)
				p.UID, p.CreationTimestamp = uid, metav1.NewTime(at)
				p.Status.Conditions = []corev1.PodCondition{readySince(at)}
			}
		}
		web := replicaSet("web", 2)
		b := newBench(web,
			pod("ancient", "web", "node-1", ownedBy(web), since(3000*time.Hour, "a")),
			pod("older", "web", "node-1", ownedBy(web), since(4*time.Hour, "b")),
			pod("newer", "web", "node-1", ownedBy(web), since(3*time.Hour, "c")))
		b.opts.Clock = clocktesting.NewFakeClock(now)
		b.start(t)
		assert.Equal(t, []string{"ancient", "newer"}, b.podNames())
	})
}

func controlledBy(uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Config", Name: "config", UID: uid, Controller: new(true)}}
}

func siblingWithPod(rs *appsv1.ReplicaSet, app string, changes ...func(*corev1.Pod)) []object {
	return []object{rs, pod("old-1", app, "node-1", append([]func(*corev1.Pod){ownedBy(rs)}, changes...)...)}
}

// paused sets the deletionTimestamp of a ReplicaSet, so that the controller does nothing for the ReplicaSet.
func paused(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

// younger makes a pod one minute old instead of one hour, so that its age is in another bucket.
func younger(p *corev1.Pod) {
	at := time.Now().Add(-time.Minute)
	p.CreationTimestamp = metav1.NewTime(at)
	p.Status.Conditions = []corev1.PodCondition{readySince(at)}
}

var errKept = errors.New("kept")

// keepOthers returns an error for each write, except for writes of the pods "web-1" and "web-2".
func keepOthers(_ string, pod *corev1.Pod) error {
	if pod.Name == "web-1" || pod.Name == "web-2" {
		return nil
	}
	return errKept
}

// refusals returns the messages of the logged errors, except those of keepOthers and "Sync failed".
func (b *bench) refusals() []string {
	var rest []string
	for _, entry := range b.log.Data() {
		if entry.Err != nil && !errors.Is(entry.Err, errKept) && entry.Message != "Sync failed" {
			rest = append(rest, entry.Message)
		}
	}
	return rest
}

// A brokenIndexInformer is an informer with an index that returns errors.
type brokenIndexInformer struct {
	cache.SharedIndexInformer
	index string
}

func (i brokenIndexInformer) GetIndexer() cache.Indexer {
	return brokenIndexer{i.SharedIndexInformer.GetIndexer(), i.index}
}

type brokenIndexer struct {
	cache.Indexer
	index string
}

func (i brokenIndexer) ByIndex(name, key string) ([]any, error) {
	if name == i.index {
		return nil, errBroken
	}
	return i.Indexer.ByIndex(name, key)
}
