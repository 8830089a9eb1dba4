// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// cutShare is the percentage of calls that the operation "cut-calls" cuts.
const cutShare = 30

// A cut is a bad network that cuts connections until it is mended. A call whose connection is cut gets no answer. The
// zero cut is a good network.
type cut struct {
	calls     bool            // a share of all calls is cut
	creations bool            // the first sending of each creation is cut
	after     bool            // creations are cut after they have taken effect
	sent      map[string]bool // the names whose creation was cut
}

// inCut returns the fault for a call, and whether its connection is cut.
func (r *run) inCut(call replicastest.Call) (replicastest.Fault, bool) {
	err := failure.Timeout.Of(call)
	switch c := &r.cut; {
	case c.creations && call.Verb == "create" && !c.sent[call.Name]:
		c.sent[call.Name] = true
		r.report.Faults["failed calls"]++
		if c.after {
			return replicastest.Fault{After: err}, true
		}
		return replicastest.Fault{Before: err}, true
	case c.calls && r.random.IntN(100) < cutShare:
		r.report.Faults["failed calls"]++
		switch r.random.IntN(3) {
		case 0:
			return replicastest.Fault{After: err}, true
		case 1:
			return replicastest.Fault{Before: err, Late: time.Duration(1+r.random.IntN(5000)) * time.Millisecond}, true
		}
		return replicastest.Fault{Before: err}, true
	}
	return replicastest.Fault{}, false
}

// A limbo is a fault of the next creation, which times out and takes effect late. Its pod is then deleted at once, so
// for a long time the controller might see neither. Meanwhile it sends the creation again under the same name, and so
// makes a second pod. The events of the first one arrive while it waits for the second.
type limbo struct {
	left int           // number of creations that will still fail, including the first one
	late time.Duration // delay after which the first creation takes effect
	sent bool          // the first creation was sent
}

// inLimbo returns the fault for a call, and whether the limbo affects it.
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

// A reaper deletes a pod at a given time.
type reaper struct {
	*run
	types.NamespacedName
	at time.Time
}

func (r *reaper) Due() (time.Time, bool) { return r.at, r.reaper == r }

func (r *reaper) Step() {
	r.reaper = nil
	_, _ = r.DeleteChild(r.ctx, r.Namespace, r.Name, *metav1.NewDeleteOptions(0))
}
