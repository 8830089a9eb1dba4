// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// The functions and methods in this file export internals of the package for its tests.

type podController = Controller[*appsv1.ReplicaSet, *corev1.Pod]

func NewClock(start time.Time) *Clock { return newClock(start) }

func (c *Cluster[O, C]) Version() uint64 { return c.version }

func (c *Cluster[O, C]) Inside() inside.Cluster { return (*insideCluster[O, C])(c) }

func (c *Cluster[O, C]) ListChildren(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error) {
	return c.listChildren(ctx, namespace, matching)
}

func (c *Cluster[O, C]) PatchChild(ctx context.Context, namespace, name string, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	return c.patchChild(ctx, namespace, name, patch, opts)
}

func (c *Cluster[O, C]) PatchOwnerStatus(ctx context.Context, namespace, name string, patch selector.Patch) (O, error) {
	return c.patchOwnerStatus(ctx, namespace, name, patch)
}

func (c *Cluster[O, C]) Backup() (restore func()) { return c.Inside().Backup() }

func (c *Cluster[O, C]) Churn(namespace string, every time.Duration) Part {
	return c.Inside().Churn(namespace, every)
}

func (c *Cluster[O, C]) TerminateNamespace(name string)   { c.Inside().TerminateNamespace(name) }
func (c *Cluster[O, C]) CreateNamespace(name string) bool { return c.Inside().CreateNamespace(name) }
func (c *Cluster[O, C]) AddNode(name string)              { c.Inside().AddNode(name) }

// Deny sets a Webhook that refuses every call with the given verb.
func (c *Cluster[O, C]) Deny(verb string, refusal func(Call) error) {
	c.Webhook = func(v string, child C) error {
		if v != verb {
			return nil
		}
		return refusal(c.children.callFor(v, child))
	}
}

func (c *Controller[O, C]) Now() time.Time { return c.now() }

func (v *View[O, C]) Synced() bool { return v.synced() }

func (s *Stream[T]) Broken() bool           { return s.broken }
func (s *Stream[T]) Hung() bool             { return s.hung }
func (s *Stream[T]) Pending() int           { return len(s.queue) }
func (s *Stream[T]) Version() string        { return s.version }
func (s *Stream[T]) Due() (time.Time, bool) { return s.due() }
func (s *Stream[T]) Step()                  { s.step() }
func (s *Stream[T]) Deliver()               { s.next() }

func (w *Worker) Queued(key types.NamespacedName) (time.Time, bool) { return w.queued(key) }

// Ledgers returns the controller's ledger of each owner.
func (c *Controller[O, C]) Ledgers() map[expectations.Key]*ledger.Ledger[C] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[C]]](c.inside.Ledgers).Ledgers()
}
