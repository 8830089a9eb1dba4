// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/status"
)

// report fills in the status of a pool.
func report(p *v1.WorkerPool, o controller.Outcome[*v1.Worker]) error {
	current := revision(p)
	s := &p.Status
	s.Replicas, s.ReadyReplicas, s.ObservedGeneration = o.Counts.Replicas, o.Counts.Ready, o.Generation
	s.UpdatedReplicas = count(o.Active, func(w *v1.Worker) bool { return w.Labels[revisionLabel] == current })
	s.Selector = metav1.FormatLabelSelector(&p.Spec.Selector)
	meta.SetStatusCondition(&s.Conditions, available(p, o))
	meta.SetStatusCondition(&s.Conditions, heldBack(o))
	status.SetFailure(&s.Conditions, o.Failure())
	return nil
}

// heldBack returns the condition HeldBack. This condition is true while the controller holds back the
// creation or deletion of Workers. The message depends only on the reason, because each new message would
// cause a write to the API server.
func heldBack(o controller.Outcome[*v1.Worker]) metav1.Condition {
	condition := metav1.Condition{
		Type: "HeldBack", Status: metav1.ConditionFalse, Reason: "Nothing",
		ObservedGeneration: o.Generation, LastTransitionTime: metav1.NewTime(o.Now),
	}
	// Gates with the reason CallsNotSeen are ignored. After each creation or deletion, a gate with
	// this reason lasts for a short time, until the cache shows the change.
	if i := slices.IndexFunc(o.Gates, func(g controller.Gate) bool { return g.Stops != 0 && g.Reason != controller.CallsNotSeen }); i >= 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, o.Gates[i].Reason.String(), o.Gates[i].Reason.Sentence()
	}
	return condition
}

// available returns the condition Available, which says whether enough Workers are ready.
func available(p *v1.WorkerPool, o controller.Outcome[*v1.Worker]) metav1.Condition {
	condition := metav1.Condition{
		Type: "Available", Status: metav1.ConditionTrue, Reason: "EnoughReady",
		ObservedGeneration: o.Generation, LastTransitionTime: metav1.NewTime(o.Now),
	}
	if missing := -spare(p, o.Counts.Ready); missing > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, "TooFewReady"
	}
	return condition
}

// revisionLabel is a label on each Worker. Its value is the name of the template from which the Worker was
// created.
const revisionLabel = "workerpool.example.com/revision"

// revision returns a name for the pool's current template.
func revision(p *v1.WorkerPool) string {
	hash := fnv.New32a()
	_ = json.NewEncoder(hash).Encode(p.Spec.Template) // the encoder and the hash always succeed
	return fmt.Sprintf("%08x", hash.Sum32())
}

func count(workers []*v1.Worker, is func(*v1.Worker) bool) (n int32) {
	for _, w := range workers {
		if is(w) {
			n++
		}
	}
	return n
}
