// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

func TestRankingDefects(t *testing.T) {
	t.Parallel()
	inBubbles(t, "W28 the order does not go round in circles, nor hang on the order of the list", func(t bubble) {
		c := web(0, 3)
		now := metav1.NewTime(time.Now())
		for i, since := range []time.Duration{0, time.Second, 0} {
			p := c.Pods[i]
			p.CreationTimestamp = metav1.NewTime(now.Add(-9 * time.Hour))
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-8*time.Hour + since)) // the three ages are in one bucket (R9)
		}
		c.Pods[2].Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: 5}}
		theirs := controller.ActivePodsWithRanks{Pods: c.Pods, Rank: []int{0, 0, 0}, Now: now}
		ours := podrank.ActivePodsWithRanks{Pods: c.Pods, Now: now}
		assert.True(t, theirs.Less(0, 1) && theirs.Less(1, 2) && theirs.Less(2, 0))
		assert.True(t, ours.Less(2, 0) && ours.Less(0, 1) && ours.Less(2, 1))

		theirFirst, ourFirst := map[string]bool{}, map[string]bool{}
		for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
			var list []*corev1.Pod
			for _, i := range order {
				list = append(list, c.Pods[i])
			}
			ourFirst[victims(list, nil, 1)[0].Name] = true
			theirFirst[upstream.GetPodsToDelete(list, nil, 1)[0].Name] = true
		}
		assert.Greater(t, len(theirFirst), 1)
		assert.Len(t, ourFirst, 1)
	})
	t.Run("W32 pods of ReplicationControllers are ranked by co-location", func(t *testing.T) {
		t.Parallel()
		var theirs, ours []string
		synctest.Test(t, func(*testing.T) { theirs = goneFromController(theirManager) })
		synctest.Test(t, func(*testing.T) { ours = goneFromController(ourManager) })
		assert.Equal(t, []string{"web-2"}, theirs, "the youngest")
		assert.Equal(t, []string{"web-1"}, ours, "the younger of two on one node")
	})
	inBubbles(t, "W33 pods of somebody else do not count for co-location", func(t bubble) {
		c := web(1, 2)
		deployment := metav1.OwnerReference{Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)}
		c.RS.OwnerReferences = []metav1.OwnerReference{deployment}
		sibling := &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web-old", UID: "old", OwnerReferences: c.RS.OwnerReferences},
			Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "old"}}},
		}
		c.Siblings = []*appsv1.ReplicaSet{sibling}
		stranger := runningPod(c.RS, 3)
		stranger.Labels = map[string]string{"tier": "old"}
		stranger.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "job", Controller: new(true)}}
		stranger.Spec.NodeName = c.Pods[0].Spec.NodeName
		c.Pods[1].Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(-time.Minute)) // this pod became ready last, so it is deleted first if the ranks are equal
		c.Pods = append(c.Pods, stranger)
		assert.Equal(t, []string{"web-0"}, t.theirPass(c).deletes)
		assert.Equal(t, []string{"web-1"}, t.ourPass(c).deletes)
	})
	t.Run("W36 the list keeps its order", func(t *testing.T) {
		t.Parallel()
		pods := web(0, 3).Pods
		pods[2].Spec.NodeName = ""
		list := slices.Clone(pods)
		victims(list, nil, 1)
		assert.Equal(t, pods, list)
		upstream.GetPodsToDelete(list, nil, 1)
		assert.NotEqual(t, pods, list)
	})
	inBubbles(t, "W37 where co-located pods cannot be listed an event says so", func(t bubble) {
		c := web(0, 1)
		c.RS.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)}}
		theirs := t.theirPass(c, func(rsc *replicaset.ReplicaSetController) { *upstream.PodLister(rsc) = failingLister{} })
		ours := t.ourPass(c, func(w *wiring) { w.cache.err = errLister })
		assert.Equal(t, []string{"Normal SuccessfulDelete Deleted pod: web-0"}, theirs.events)
		assert.ElementsMatch(t, []string{"Normal SuccessfulDelete Deleted pod: web-0", "Warning FailedRelatedPods Error listing related pods: no index"}, ours.events)
	})
}

// goneFromController scales a ReplicationController from three pods to two, and returns the deleted pods. Two of
// the three pods are on one node. The pod that became ready last is on another node.
func goneFromController(m maker) (gone []string) {
	w := newWorld(true)
	rs := web(3, 0).RS
	rs.OwnerReferences = []metav1.OwnerReference{{Kind: "DeploymentConfig", Name: "web", UID: "config", Controller: new(true)}}
	w.updateSet(rs)
	for i, node := range []string{"n0", "n0", "n1"} {
		p := runningPod(rs, i)
		p.OwnerReferences[0].Kind = "ReplicationController"
		p.Spec.NodeName = node
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start.Add(-time.Hour >> (2 * i)))
		w.stamp(p)
		must(w.tracker.Create(podResource, p, "a"))
	}
	stop := w.start(m, 500)
	step{Do: "scale", N: 2}.happen(w, nil)
	time.Sleep(time.Second)
	synctest.Wait()
	for _, p := range w.look().pods {
		if p.DeletionTimestamp != nil {
			gone = append(gone, p.Name)
		}
	}
	stop()
	return gone
}

var errLister = errors.New("no index")

// failingLister is a lister of pods. Each list in a namespace fails with errLister.
type failingLister struct{ corelisters.PodLister }

func (failingLister) Pods(string) corelisters.PodNamespaceLister { return failingNamespaceLister{} }

type failingNamespaceLister struct{ corelisters.PodNamespaceLister }

func (failingNamespaceLister) List(labels.Selector) ([]*corev1.Pod, error) { return nil, errLister }
