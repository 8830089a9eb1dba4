// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/controller"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/status"
)

// readyPod returns a pod with random values in all fields that affect a status. In many cases, the first condition
// in the pod's list of conditions has changed about minReadySeconds before now.
func (g *gen) readyPod(now time.Time, minReadySeconds int32) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(g.IntN(100)), Labels: g.labelSet()},
		Status:     corev1.PodStatus{Phase: g.phase(), Conditions: g.conditions(now)},
	}
	if g.in(2) && len(p.Status.Conditions) > 0 {
		since := now.Add(-time.Duration(minReadySeconds) * time.Second)
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since.Add(pick(g, 0, 1, -1, time.Second, -time.Second, time.Hour)))
	}
	if g.in(6) {
		p.DeletionTimestamp = new(g.instant(now))
	}
	return p
}

func (g *gen) minReadySeconds() int32 {
	return pick[int32](g, 0, 0, 1, 10, 10, 3600, -1, -3600, 1<<31-1, -1<<31)
}

// A judgement is a list of pods, and the time at which the tests check their state.
type judgement struct {
	Pods            []*corev1.Pod
	MinReadySeconds int32
	Now             time.Time
	Later           time.Duration // the time between Now and the request for the next check
}

func newJudgement(g *gen) judgement {
	c := judgement{MinReadySeconds: g.minReadySeconds(), Now: start.Add(time.Duration(g.Int64N(int64(time.Second))))}
	c.Pods = some(g, 12, func() *corev1.Pod { return g.readyPod(c.Now, c.MinReadySeconds) })
	return c
}

func TestPods(t *testing.T) {
	t.Parallel()
	t.Run("R3 T5 T6 T7 T10 Y6 pods are ready, available, active and terminating as in Kubernetes", func(t *testing.T) {
		t.Parallel()
		comparison[judgement]{
			cases: 200_000, of: "lists of up to 12 pods",
			input: newJudgement,
			differ: func(c judgement, _ *tally) string {
				for i, p := range c.Pods {
					theirs := []bool{
						podutil.IsPodReady(p), podutil.IsPodAvailable(p, c.MinReadySeconds, metav1.NewTime(c.Now)),
						controller.IsPodActive(p), controller.IsPodTerminating(p),
					}
					ours := []bool{
						status.IsPodReady(p), status.IsPodAvailable(p, c.MinReadySeconds, c.Now),
						status.IsPodActive(p), status.IsPodTerminating(p),
					}
					if !slices.Equal(theirs, ours) {
						return fmt.Sprintf("ready, available, active, terminating: Kubernetes: %v, ours: %v, for pod %d", theirs, ours, i)
					}
				}
				return cmpLists(
					"active", controller.FilterActivePods(logr.Discard(), c.Pods), status.FilterActivePods(c.Pods)) + cmpLists(
					"terminating", controller.FilterTerminatingPods(c.Pods), status.FilterTerminatingPods(c.Pods))
			},
		}.run(t)
	})
	t.Run("C28 pods are claimed already as in Kubernetes", func(t *testing.T) {
		t.Parallel()
		comparison[family]{
			cases: 200_000, of: "lists of up to 12 pods",
			input: (*gen).family,
			differ: func(c family, _ *tally) string {
				return cmpLists("claimed",
					controller.FilterClaimedPods(c.Owner, c.selector(), c.Pods), status.FilterClaimedPods(c.Owner, c.selector(), c.Pods))
			},
		}.run(t)
	})
}

// cmpLists compares two lists of pods. A nil list differs from an empty list.
func cmpLists(what string, theirs, ours []*corev1.Pod) string {
	if slices.Equal(theirs, ours) && (theirs == nil) == (ours == nil) {
		return ""
	}
	return fmt.Sprintf("%s: Kubernetes: %v, ours: %v\n", what, names(theirs), names(ours))
}

func names(pods []*corev1.Pod) []string {
	list := make([]string, len(pods))
	for i, p := range pods {
		list[i] = p.Namespace + "/" + p.Name
	}
	return list
}

func TestNextAvailabilityCheck(t *testing.T) {
	t.Parallel()
	activePods := func(g *gen) judgement {
		c := newJudgement(g)
		c.Pods = controller.FilterActivePods(logr.Discard(), c.Pods)
		c.Later = pick(g, 0, 0, 0, 1, time.Second, time.Minute, time.Hour)
		return c
	}
	t.Run("M2 M4 W58 active pods are looked at again after the same time", func(t *testing.T) {
		t.Parallel()
		const check = "a check is due"
		comparison[judgement]{
			cases: 300_000, of: "lists of up to 12 pods",
			input: activePods,
			differ: func(c judgement, reached *tally) string {
				clock := testingclock.NewFakePassiveClock(c.Now.Add(c.Later))
				theirs := controller.FindMinNextPodAvailabilityCheck(c.Pods, c.MinReadySeconds, c.Now, clock)
				ours, ok := status.NextAvailabilityCheck(c.Pods, c.MinReadySeconds, c.Now)
				if ok {
					reached.reach(check)
				}
				if c.Later > 0 { // the caller must subtract the time that has passed since Now
					ours = max(ours-c.Later, 0)
				}
				if (theirs != nil) != ok || theirs != nil && *theirs != ours {
					return fmt.Sprintf("Kubernetes: %s, ours: %v, %v", dump(theirs), ours, ok)
				}
				return ""
			},
			reaches: []string{check},
		}.run(t)
	})
}

// A family is an owner with its selector, and pods that the owner may claim or ignore.
type family struct {
	Owner    *metav1.ObjectMeta
	Selector *metav1.LabelSelector
	Pods     []*corev1.Pod
}

func (f family) selector() labels.Selector {
	sel, err := metav1.LabelSelectorAsSelector(f.Selector)
	if err != nil {
		panic(err)
	}
	return sel
}

func (g *gen) family() family {
	f := family{
		Owner:    &metav1.ObjectMeta{Namespace: pick(g, "a", "a", "a", ""), Name: "web", UID: "owner"},
		Selector: g.labelSelector(),
	}
	if g.in(6) {
		f.Owner.DeletionTimestamp = new(metav1.NewTime(start))
	}
	for i := range g.IntN(13) {
		f.Pods = append(f.Pods, g.child(i))
	}
	return f
}

// child returns a pod with random labels and owner references.
func (g *gen) child(i int) *corev1.Pod {
	ref := func() metav1.OwnerReference {
		return metav1.OwnerReference{
			APIVersion: pick(g, "apps/v1", "apps/v1", "extensions/v1beta1", "v1"),
			Kind:       pick(g, "ReplicaSet", "ReplicaSet", "ReplicationController"),
			Name:       pick(g, "web", "web", "web", "db"),
			UID:        types.UID(pick(g, "owner", "owner", "owner", "other")),
			Controller: pick(g, new(true), new(true), new(true), new(false), nil),
		}
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pick(g, "a", "a", "a", "b"), Name: "p" + strconv.Itoa(i), UID: types.UID("pod-" + strconv.Itoa(i)),
		Labels: g.labelSet(), ResourceVersion: strconv.Itoa(i),
	}}
	if !g.in(3) {
		p.OwnerReferences = some(g, 2, ref)
	}
	if g.in(8) {
		p.DeletionTimestamp = new(metav1.NewTime(start))
	}
	p.Status.Phase = g.phase()
	return p
}
