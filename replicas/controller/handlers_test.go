// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestNewHandlersRefusesWhatIsMissing(t *testing.T) {
	t.Parallel()
	store, r := &expectations.Store[expectations.Key]{}, newRig(1)
	for want, h := range map[string]struct {
		kind    func(*controller.Kind[*appsv1.ReplicaSet, *corev1.Pod])
		owners  controller.OwnerCache[*appsv1.ReplicaSet]
		store   *expectations.Store[expectations.Key]
		enqueue controller.Enqueue
	}{
		"controller: kind ReplicaSet has no Spec": {
			kind:   func(k *controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]) { k.Spec = nil },
			owners: r, store: store, enqueue: r.wake,
		},
		"controller: kind ReplicaSet: owners is nil":  {store: store, enqueue: r.wake},
		"controller: kind ReplicaSet: store is nil":   {owners: r, enqueue: r.wake},
		"controller: kind ReplicaSet: enqueue is nil": {owners: r, store: store},
	} {
		kind := controller.ReplicaSets()
		if h.kind != nil {
			h.kind(&kind)
		}
		_, err := controller.NewHandlers(kind, h.owners, h.store, h.enqueue)
		require.EqualError(t, err, want)
	}
	_, err := controller.NewHandlers(controller.ReplicaSets(), (*podRig)(nil), store, r.wake)
	require.EqualError(t, err, "controller: kind ReplicaSet: owners is nil")
}

func TestHandlersThatNobodyMade(t *testing.T) {
	t.Parallel()
	for _, h := range []*controller.Handlers{nil, {}} {
		for method, err := range everyMethod(h, podtest.Pod("a")) {
			require.EqualError(t, err, "controller: neither New nor NewHandlers made these handlers", method)
		}
	}
}

func TestHandlersAskAtTheQueueOfTheEvent(t *testing.T) {
	t.Parallel()
	r := newEventRig()
	h := r.handlers()
	var asked []string
	q := func(owner types.NamespacedName, _ time.Duration) { asked = append(asked, owner.String()) }
	require.NoError(t, h.ChildAdded(podtest.Pod("web-0", ownedBy("web")), nil, q))
	assert.Equal(t, []string{"default/web"}, asked)
	assert.Empty(t, r.wakes())
}
