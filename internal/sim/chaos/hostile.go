// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// ofHostile returns the operations that beset draws, not Generate, so that a new one does not change the rest of a
// story.
func ofHostile() map[string]kind {
	return map[string]kind{
		"take-owner": {0, func(r *run, op Op) error { r.takeOwner(op); return nil }},
		"skew-nodes": {0, func(r *run, op Op) error {
			inside.Of[inside.Cluster](r.PodCluster).SkewNodes(time.Duration(op.M-6) * 2 * time.Minute)
			return nil
		}},
		"unread-owners": {0, func(r *run, op Op) error { r.unread = unread{r.Clock.Now().Add(100 * op.For), op.M}; return nil }},
	}
}

// sieges returns the sequences of operations that beset inserts into a story.
func sieges() []scene {
	return []scene{
		{"take-owner", "scale", "run 20s"},
		{"take-owner", "blind 1 1", "scale", "run 20s", "force", "run 1m", "no-webhook"},
		{"scale 5", "run 20s", "take-owner", "disown", "disown", "run 6m", "restart|scale|no-webhook"},
		{"skew-nodes", "force", "force", "run 5m"},
		{"skew-nodes", "unready", "run 2m", "break-pods", "skew-nodes", "unready", "run 2m", "relist"},
		{"unread-owners", "force", "force", "run 20s", "scale"},
		{"unread-owners 0 0 8s", "hang-sets 0", "delete-owner 0", "run 5m", "catch-up 0|relist 0|create-owner"},
	}
}

// beset inserts sieges into a quarter of all stories.
func beset(story Story, seed uint64) Story {
	if seed%4 != 3 {
		return story
	}
	r := rand.New(rand.NewPCG(seed, 5))
	for range 3 {
		all := sieges()
		story = slices.Insert(story, 1+r.IntN(len(story)), all[r.IntN(len(all))].tell(r)...)
	}
	return story
}

// takeOwner installs two webhooks. One takes the owner from new pods, and the other refuses their adoption.
func (r *run) takeOwner(op Op) {
	refusal := []failure.Failure{failure.Invalid, failure.Forbidden, failure.BadRequest}[op.M%3]
	deny := failure.Deny[*corev1.Pod]("patch", "Pod", refusal)
	r.Mutate = disowned
	r.Webhook = func(verb string, p *corev1.Pod) error {
		if metav1.GetControllerOf(p) != nil {
			return nil
		}
		return deny(verb, p)
	}
}

// An unread is a fault of all reads of owners until a certain time.
type unread struct {
	until time.Time
	how   int
}

// readsFail returns the fault of a read of an owner, and whether the read fails.
func (r *run) readsFail(call replicastest.Call) (replicastest.Fault, bool) {
	if call.Verb != "get" || call.Kind != "ReplicaSet" || !r.Clock.Now().Before(r.unread.until) {
		return replicastest.Fault{}, false
	}
	r.report.Faults["failed reads of owners"]++
	failures := []failure.Failure{failure.InternalError, failure.Forbidden, failure.ConnectionReset, failure.Timeout}
	return replicastest.Fault{Before: failures[r.unread.how%len(failures)].Of(call)}, true
}
