// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/selector"
)

// An orphanage is an orphaned pod with a list of owners.
type orphanage struct {
	Orphan *corev1.Pod
	Owners []orphanOwner
}

type orphanOwner struct {
	Namespace string
	Selector  *metav1.LabelSelector
	Deleting  bool
}

// brokenSelector returns a random selector. The API refuses some of these selectors.
func (g *gen) brokenSelector() *metav1.LabelSelector {
	switch g.IntN(8) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: pick(g, "app", "not a key"), Operator: pick(g, metav1.LabelSelectorOpIn, "Sometimes"), Values: some(g, 1, func() string { return "a" }),
		}}}
	case 3:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, "a", "not a value")}}
	}
	return g.labelSelector()
}

func newOrphanage(g *gen) orphanage {
	return orphanage{
		Orphan: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pick(g, "a", "b"), Name: "orphan", Labels: g.labelSet()}},
		Owners: some(g, 6, func() orphanOwner {
			return orphanOwner{Namespace: pick(g, "a", "b"), Selector: g.brokenSelector(), Deleting: g.in(8)}
		}),
	}
}

func (o orphanOwner) meta(i int) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: o.Namespace, Name: "owner-" + strconv.Itoa(i)}
	if o.Deleting {
		meta.DeletionTimestamp = new(metav1.NewTime(start))
	}
	return meta
}

func TestOwners(t *testing.T) {
	t.Parallel()
	const overlap = "several owners at once"
	t.Run("V4 V5 the same ReplicaSets look at an orphan", func(t *testing.T) {
		t.Parallel()
		comparison[orphanage]{
			cases: 60_000, of: "orphans with up to 6 ReplicaSets",
			input: newOrphanage,
			differ: func(c orphanage, named *tally) string {
				index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
				var owners []*appsv1.ReplicaSet
				for i, o := range c.Owners {
					owners = append(owners, &appsv1.ReplicaSet{ObjectMeta: o.meta(i), Spec: appsv1.ReplicaSetSpec{Selector: o.Selector}})
					_ = index.Add(owners[i])
				}
				theirs, _ := appslisters.NewReplicaSetLister(index).GetPodReplicaSets(c.Orphan)
				return cmpOwners(named, overlap, theirs, selector.Owners(c.Orphan, owners, selector.ForReplicaSet))
			},
			reaches: []string{overlap},
		}.run(t)
	})
	t.Run("A9 the same ReplicationControllers look at an orphan", func(t *testing.T) {
		t.Parallel()
		comparison[orphanage]{
			cases: 60_000, of: "orphans with up to 6 ReplicationControllers",
			input: newOrphanage,
			differ: func(c orphanage, named *tally) string {
				index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
				var owners []*corev1.ReplicationController
				for i, o := range c.Owners {
					rc := &corev1.ReplicationController{ObjectMeta: o.meta(i)}
					if o.Selector != nil {
						rc.Spec.Selector = o.Selector.MatchLabels
					}
					owners = append(owners, rc)
					_ = index.Add(rc)
				}
				theirs, _ := corelisters.NewReplicationControllerLister(index).GetPodControllers(c.Orphan)
				return cmpOwners(named, overlap, theirs, selector.Owners(c.Orphan, owners, selector.ForReplicationController))
			},
			reaches: []string{overlap},
		}.run(t)
	})
}

func cmpOwners[O interface {
	comparable
	metav1.Object
}](named *tally, overlap string, theirs, ours []O) string {
	byName := func(a, b O) int { return slices.Compare([]string{a.GetName()}, []string{b.GetName()}) }
	slices.SortFunc(theirs, byName)
	if !slices.Equal(theirs, ours) { // our owners keep the order of the input, which is sorted by name
		return fmt.Sprintf("Kubernetes: %d owners, ours: %d", len(theirs), len(ours))
	}
	if len(theirs) > 1 {
		named.reach(overlap)
	}
	return ""
}
