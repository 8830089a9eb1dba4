// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"time"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// cutShare is the percentage of calls that the operation "cut-calls" cuts.
const cutShare = 30

// A cut describes a bad network that cuts connections until it is mended. A call whose connection is cut
// gets no answer. The zero cut is a good network.
type cut struct {
	calls     bool            // a share of all calls is cut
	creations bool            // the first sending of each creation is cut
	after     bool            // creations are cut after they have taken effect
	sent      map[string]bool // the names whose creation was cut
}

// inCut returns the fault for a call. If the connection of the call is not cut, the second result is
// false.
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
