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

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/handlers"
)

func TestNewHandlersRefusesWhatIsMissing(t *testing.T) {
	t.Parallel()
	type config = handlers.Config[*appsv1.ReplicaSet, *corev1.Pod]
	for want, change := range map[string]func(*config){
		"handlers: Owner.Kind is empty":             func(c *config) { c.Owner.Kind = "" },
		"handlers: kind ReplicaSet: Spec is nil":    func(c *config) { c.Spec = nil },
		"handlers: kind ReplicaSet: Owners is nil":  func(c *config) { c.Owners = (*podRig)(nil) },
		"handlers: kind ReplicaSet: Enqueue is nil": func(c *config) { c.Enqueue = nil },
	} {
		r := newRig(1)
		c := config{Owner: r.kind.Owner, Spec: r.kind.Spec, Owners: r, Enqueue: r.wake}
		_, err := handlers.New(c)
		require.NoError(t, err)
		change(&c)
		_, err = handlers.New(c)
		require.EqualError(t, err, want)
	}
}

func TestHandlersThatNobodyMade(t *testing.T) {
	t.Parallel()
	for _, h := range []*handlers.Handlers{nil, {}} {
		assert.Empty(t, h.Newest())
		for method, err := range everyMethod(h, podtest.Pod("a")) {
			require.EqualError(t, err, "handlers: New did not make these Handlers", method)
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
