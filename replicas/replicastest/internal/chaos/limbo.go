// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A limbo is a fault of the next creation. The creation times out and takes effect late, and its
// pod is deleted at once. The controller may not see this for a long time. Meanwhile the creation
// is sent again under its name, and left calls fail. So there are two pods of one name, and events
// of the first arrive while the second is waited for.
type limbo struct {
	left int // calls that fail
	late time.Duration
	sent bool
}

// inLimbo returns the fault of a call, if the limbo decides it.
func (r *run) inLimbo(call replicastest.Call) (replicastest.Fault, bool) {
	l := &r.limbo
	if l.left == 0 || call.Verb != "create" {
		return replicastest.Fault{}, false
	}
	l.left--
	r.report.Faults["failed calls"]++
	if l.sent {
		return replicastest.Fault{Before: failure.ServiceUnavailable.Of(call)}, true
	}
	l.sent = true
	r.reaper = &reaper{r, call.NamespacedName, r.Clock.Now().Add(l.late + time.Millisecond)}
	r.world.Parts = append(slices.Clone(r.world.Parts), r.reaper)
	return replicastest.Fault{Before: failure.Timeout.Of(call), Late: l.late}, true
}

// A reaper deletes a pod at an instant.
type reaper struct {
	*run
	types.NamespacedName
	at time.Time
}

// Due returns that instant.
func (r *reaper) Due() (time.Time, bool) { return r.at, r.reaper == r }

// Step deletes the pod, if it is there.
func (r *reaper) Step() {
	r.reaper = nil
	_, _ = r.DeleteChild(r.ctx, r.Namespace, r.Name, *metav1.NewDeleteOptions(0))
}
