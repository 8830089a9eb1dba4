// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/ledger"
)

// HasLooked makes a Controller treat all owners as checked in the current term, and creates the state of the given
// owner. NewTerm begins a term in which no owner has been checked.
func HasLooked(c *Controller, owner metav1.Object) {
	if r, ok := c.reconciler.(interface{ hasLooked(metav1.Object) }); ok {
		r.hasLooked(owner)
	}
}

// hasLooked sets the number of the current term to 0. The fields ownerTerm and childrenTerm of a new state are
// also 0. The Controller therefore treats the owner and its children as checked in the current term.
func (r *reconciler[O, C]) hasLooked(owner metav1.Object) {
	r.term.before = -1
	if !object.IsNil(owner) {
		r.stateOf(owner, time.Time{})
	}
}

// GateTable returns the rows of the table of gates in docs/pass.md.
func GateTable() (table [][]string) {
	for r := GateReason(1); r < reasons; r++ {
		row := rows[r]
		meaning, stops := row.sentence, row.stops.String()
		if row.event != "" {
			meaning += " (" + row.event + ")"
		}
		switch row.stops {
		case stopsAll:
			stops = "all"
		case stopsScale:
			stops = "all but claims"
		}
		var ends []string
		switch {
		case row.longest == 0:
		case row.shortest == 0:
			ends = append(ends, "as the server says, at most "+row.longest.String())
		case row.shortest == row.longest:
			ends = append(ends, row.shortest.String())
		default:
			ends = append(ends, row.shortest.String()+"–"+row.longest.String())
		}
		if row.ends != "" {
			ends = append(ends, row.ends)
		}
		table = append(table, []string{"`" + row.name + "`", meaning, stops, strings.Join(ends, "; ")})
	}
	return table
}

// ShortestHold and LongestHold return the delays that the table of gates shows for a reason.
func ShortestHold(r GateReason) time.Duration { return r.row().shortest }
func LongestHold(r GateReason) time.Duration  { return r.row().longest }

// Remembered returns how many owners a Controller remembers.
func Remembered(c *Controller) int {
	if r, ok := c.reconciler.(interface{ remembered() int }); ok {
		return r.remembered()
	}
	return 0
}

func (r *reconciler[O, C]) remembered() int {
	r.owners.mu.Lock()
	defer r.owners.mu.Unlock()
	return len(r.owners.m)
}

// AskTwice creates the child twice and deletes it twice, in a pass that has room for one creation and one
// deletion.
func AskTwice(client Client[*appsv1.ReplicaSet, *corev1.Pod], owner *appsv1.ReplicaSet, child *corev1.Pod) (errs []error) {
	p := &pass[*appsv1.ReplicaSet, *corev1.Pod]{reconciler: &reconciler[*appsv1.ReplicaSet, *corev1.Pod]{client: client, opts: Options{Now: time.Now}}}
	p.kind, p.Owner = ReplicaSets(), owner
	p.spec.Selector, p.rules.Active = labels.Everything(), func(*corev1.Pod) bool { return true }
	p.state = &memory[*corev1.Pod]{ledger: &ledger.Ledger[*corev1.Pod]{}}
	start := p.state.ledger.Start()
	p.calls.setRoom(0, 1, 1)
	for range 2 {
		_, err := p.askCreate(context.Background(), start, child)
		errs = append(errs, err)
	}
	for range 2 {
		errs = append(errs, p.askDelete(context.Background(), start, child, metav1.DeleteOptions{}))
	}
	return errs
}

// StateOfView returns the name of a view's state.
func StateOfView(waits, unmet, isStale, isNewToTerm bool) string {
	seen := ledger.View[*corev1.Pod]{Unmet: unmet, Stale: isStale}
	if waits {
		seen.Waits = 1
	}
	return [...]string{trusted: "trusted", waiting: "waiting", stale: "stale", incomplete: "incomplete"}[viewStateOf(seen, isNewToTerm)]
}
