// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"

	"github.com/replicakit/replicakit/status"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A report contains all inputs of a status calculation.
type report struct {
	RS        *appsv1.ReplicaSet
	Pods      []*corev1.Pod
	ManageErr string // "" means no error
	Waiting   bool
	Omit      bool // whether to leave out terminatingReplicas
}

func (g *gen) replicaSetConditions() []appsv1.ReplicaSetCondition {
	if g.in(3) {
		return pick(g, nil, []appsv1.ReplicaSetCondition{})
	}
	return some(g, 3, func() appsv1.ReplicaSetCondition {
		return appsv1.ReplicaSetCondition{
			Type:               pick(g, appsv1.ReplicaSetReplicaFailure, "Other", "Another"),
			Status:             pick(g, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse),
			Reason:             pick(g, "FailedCreate", "FailedDelete", ""),
			Message:            pick(g, "quota", ""),
			LastTransitionTime: g.instant(start),
		}
	})
}

func (g *gen) report() report {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "owner", Generation: int64(g.IntN(3))},
		Spec: appsv1.ReplicaSetSpec{
			Replicas:        new(int32(g.IntN(6))),
			MinReadySeconds: g.minReadySeconds(),
			Selector:        g.labelSelector(),
			Template:        corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: g.labelSet()}},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: int32(g.IntN(6)), FullyLabeledReplicas: int32(g.IntN(6)), ReadyReplicas: int32(g.IntN(6)), AvailableReplicas: int32(g.IntN(6)),
			TerminatingReplicas: pick(g, nil, new(int32(0)), new(int32(1))),
			ObservedGeneration:  int64(g.IntN(3)),
			Conditions:          g.replicaSetConditions(),
		},
	}
	c := report{RS: rs, Omit: g.in(4), Waiting: g.in(4), ManageErr: pick(g, "", "", "exceeded quota")}
	for i := range g.IntN(13) {
		p := g.readyPod(start, rs.Spec.MinReadySeconds)
		child := g.child(i)
		p.OwnerReferences, p.Namespace, p.UID = child.OwnerReferences, child.Namespace, types.UID(strconv.Itoa(i))
		c.Pods = append(c.Pods, p)
	}
	return c
}

func (c report) err() error {
	if c.ManageErr == "" {
		return nil
	}
	return errors.New(c.ManageErr)
}

// claimed returns the pods that a pass sees. These are the claimed active pods, and the claimed pods that are
// being deleted. Pods in other namespaces are left out, because Kubernetes' index separates pods by namespace
// (Y6).
func (c report) claimed() (active, terminating []*corev1.Pod) {
	sel, err := metav1.LabelSelectorAsSelector(c.RS.Spec.Selector)
	if err != nil {
		panic(err)
	}
	near := slices.DeleteFunc(slices.Clone(c.Pods), func(p *corev1.Pod) bool { return p.Namespace != c.RS.Namespace })
	active = controller.FilterClaimedPods(c.RS, sel, controller.FilterActivePods(logr.Discard(), near))
	return active, controller.FilterClaimedPods(c.RS, sel, controller.FilterTerminatingPods(near))
}

const (
	refreshed = "T13 W45: a ReplicaFailure condition is set anew when the reason or the message changes"
	kept      = "T15: a ReplicaFailure condition stays while nothing is tried"
)

// expected returns the conditions that our side must have, given the conditions that Kubernetes calculated. If the
// conditions differ on purpose, expected counts the name of the difference.
func (c report) expected(theirs []appsv1.ReplicaSetCondition, active int, named *tally) []appsv1.ReplicaSetCondition {
	old := replicaset.GetCondition(c.RS.Status, appsv1.ReplicaSetReplicaFailure)
	if old == nil {
		return theirs
	}
	if c.ManageErr == "" {
		if !c.Waiting {
			return theirs
		}
		named.add(kept)
		return c.RS.Status.Conditions
	}
	reason := ""
	if desired := int(*c.RS.Spec.Replicas); active < desired {
		reason = "FailedCreate"
	} else if active > desired {
		reason = "FailedDelete"
	}
	if old.Reason == reason && old.Message == c.ManageErr {
		return theirs
	}
	named.add(refreshed)
	set := appsv1.ReplicaSetStatus{Conditions: theirs}
	replicaset.RemoveCondition(&set, old.Type)
	replicaset.SetCondition(&set, replicaset.NewReplicaSetCondition(old.Type, corev1.ConditionTrue, reason, c.ManageErr))
	return set.Conditions
}

func features(omit bool) replicaset.ReplicaSetControllerFeatures {
	return replicaset.ReplicaSetControllerFeatures{EnableStatusTerminatingReplicas: !omit}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	t.Run("T1 T2 T3 T4 T5 T6 T7 T8 Y6 T9 T10 T11 T12 T13 T14 T15 T16 a ReplicaSet has the status that Kubernetes calculates", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[report]{
			cases: 100_000, of: "ReplicaSets with up to 12 pods",
			input: (*gen).report,
			differ: func(c report, named *tally) string {
				active, terminating := c.claimed()
				theirs := upstream.CalculateStatus(c.RS, active, terminating, c.err(), features(c.Omit), time.Now())
				theirs.Conditions = c.expected(theirs.Conditions, len(active), named)
				theirs.ObservedGeneration = c.RS.Generation // Kubernetes sets this field when it writes the status (U2)
				ours := status.Calculate(c.RS, active, status.Options{
					Terminating: c.Pods, OmitTerminating: c.Omit, Waiting: c.Waiting, ManageErr: c.err(), Now: time.Now(),
				})
				return cmpStatus(theirs, ours, theirs.Conditions == nil, ours.Conditions == nil)
			},
			names: []string{refreshed, kept},
		})
	})
	t.Run("A4 A8 a ReplicationController has the status that Kubernetes calculates", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[report]{
			cases: 50_000, of: "ReplicationControllers with up to 12 pods",
			input: (*gen).controllerReport,
			differ: func(c report, named *tally) string {
				rc, err := upstream.ToReplicationController(c.RS)
				if err != nil {
					return err.Error()
				}
				active, _ := c.claimed()
				converted := c.RS.DeepCopy()
				converted.Status = upstream.CalculateStatus(c.RS, active, nil, c.err(), features(true), time.Now())
				converted.Status.Conditions = c.expected(converted.Status.Conditions, len(active), named)
				converted.Status.ObservedGeneration = c.RS.Generation
				theirs, err := upstream.ToReplicationController(converted)
				if err != nil {
					return err.Error()
				}
				ours := status.CalculateReplicationController(rc, active, status.Options{Waiting: c.Waiting, ManageErr: c.err(), Now: time.Now()})
				return cmpStatus(theirs.Status, ours, theirs.Status.Conditions == nil, ours.Conditions == nil)
			},
			names: []string{refreshed, kept},
		})
	})
}

// controllerReport returns a report of a ReplicaSet that can be converted to a ReplicationController.
func (g *gen) controllerReport() report {
	c := g.report()
	c.RS.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	c.RS.Status.TerminatingReplicas = nil
	return c
}

func cmpStatus[S any](theirs, ours S, theirsNil, oursNil bool) string {
	if equality.Semantic.DeepEqual(theirs, ours) && theirsNil == oursNil {
		return ""
	}
	return fmt.Sprintf("Kubernetes (no conditions: %v): %s\nours (no conditions: %v): %s", theirsNil, dump(theirs), oursNil, dump(ours))
}

// An edit is a condition to set, or to remove if it has no status.
type edit struct{ Condition appsv1.ReplicaSetCondition }

type edits struct {
	Conditions []appsv1.ReplicaSetCondition
	Edits      []edit
}

func newEdits(g *gen) edits {
	c := edits{Conditions: g.replicaSetConditions()}
	c.Edits = some(g, 6, func() edit {
		conditions := g.replicaSetConditions()
		if len(conditions) == 0 || g.in(3) {
			return edit{appsv1.ReplicaSetCondition{Type: "Other"}}
		}
		return edit{conditions[0]}
	})
	return c
}

func TestConditions(t *testing.T) {
	t.Parallel()
	t.Run("T14 T17 T18 conditions of ReplicaSets are set, removed and found as in Kubernetes", func(t *testing.T) {
		t.Parallel()
		comparison[edits]{
			cases: 200_000, of: "sequences of up to 6 edits",
			input: newEdits,
			differ: func(c edits, _ *tally) string {
				theirs, ours := appsv1.ReplicaSetStatus{Conditions: c.Conditions}, appsv1.ReplicaSetStatus{Conditions: c.Conditions}
				for _, e := range c.Edits {
					if e.Condition.Status == "" {
						replicaset.RemoveCondition(&theirs, e.Condition.Type)
						status.RemoveCondition(&ours.Conditions, e.Condition.Type)
					} else {
						replicaset.SetCondition(&theirs, e.Condition)
						status.SetCondition(&ours.Conditions, e.Condition)
					}
					a, b := replicaset.GetCondition(theirs, e.Condition.Type), status.GetCondition(ours.Conditions, e.Condition.Type)
					if !equality.Semantic.DeepEqual(a, b) {
						return fmt.Sprintf("Kubernetes: %s, ours: %s", dump(a), dump(b))
					}
				}
				return cmpStatus(theirs, ours, theirs.Conditions == nil, ours.Conditions == nil)
			},
		}.run(t)
	})
	t.Run("A8 conditions of ReplicationControllers are set, removed and found as in Kubernetes", func(t *testing.T) {
		t.Parallel()
		comparison[edits]{
			cases: 200_000, of: "sequences of up to 6 edits",
			input: newEdits,
			differ: func(c edits, _ *tally) string {
				var theirs, ours corev1.ReplicationControllerStatus
				for _, condition := range c.Conditions {
					theirs.Conditions = append(theirs.Conditions, forController(condition))
				}
				ours.Conditions = theirs.Conditions
				for _, e := range c.Edits {
					condition := forController(e.Condition)
					if condition.Status == "" {
						replication.RemoveCondition(&theirs, condition.Type)
						status.RemoveCondition(&ours.Conditions, condition.Type)
					} else {
						replication.SetCondition(&theirs, condition)
						status.SetCondition(&ours.Conditions, condition)
					}
					a, b := replication.GetCondition(theirs, condition.Type), status.GetCondition(ours.Conditions, condition.Type)
					if !equality.Semantic.DeepEqual(a, b) {
						return fmt.Sprintf("Kubernetes: %s, ours: %s", dump(a), dump(b))
					}
				}
				return cmpStatus(theirs, ours, theirs.Conditions == nil, ours.Conditions == nil)
			},
		}.run(t)
	})
}

func forController(c appsv1.ReplicaSetCondition) corev1.ReplicationControllerCondition {
	return corev1.ReplicationControllerCondition{
		Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
		Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime,
	}
}
