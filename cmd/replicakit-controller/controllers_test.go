// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/replicakit/replicakit/replicas/clientgo"
)

// A refusing server refuses all creations of pods. For each owner, the server records the times of the refused
// creations.
type refusing struct {
	mu    sync.Mutex
	began time.Time
	asked map[string][]time.Duration
}

func (r *refusing) create(action kubetesting.Action) (bool, runtime.Object, error) {
	create, _ := action.(kubetesting.CreateAction)
	pod, _ := create.GetObject().(*corev1.Pod)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[pod.Labels["app"]] = append(r.asked[pod.Labels["app"]], time.Since(r.began))
	return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New("no"))
}

// refuse runs the controller for the given time, with ReplicaSets that want one pod each. The server refuses to
// create pods and to write statuses. For each ReplicaSet, refuse returns the times at which the controller tried to
// create the pod.
func refuse(t *testing.T, owners int, during time.Duration) map[string][]time.Duration {
	t.Helper()
	server := &refusing{began: time.Now(), asked: map[string][]time.Duration{}}
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", server.create)
	client.PrependReactor("list", "*", func(action kubetesting.Action) (bool, runtime.Object, error) {
		list, err := client.Tracker().List(action.GetResource(), action.(kubetesting.ListActionImpl).Kind, action.GetNamespace())
		if about, ok := list.(metav1.ListInterface); ok {
			about.SetResourceVersion("1") // so that the lists of the informers count as up to date
		}
		return true, list, err
	})
	client.PrependReactor("patch", "replicasets", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("no")
	})
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	c := controllers()[0]
	built, err := c.build(ctx, factory, client, settings{orders: newOrders(defaults()), passes: newPasses(), pods: newTrimmer(unmarked), passed: newRunaways().note, isProbe: func(types.UID) bool { return false }}, clientgo.Options{})
	require.NoError(t, err)
	// Without NewTerm, an owner may wait for a request of another owner. The first try of the waiting owner may
	// then come late, when the other owners are already in their retries.
	built.NewTerm(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = built.Run(ctx, owners) })
	factory.StartWithContext(ctx)
	for i := range owners {
		rs := newReplicaSet(fmt.Sprintf("web-%03d", i), 1)
		rs.Namespace, rs.UID, rs.ResourceVersion = "default", types.UID("uid-"+rs.Name), "1"
		require.NoError(t, client.Tracker().Create(c.resource, rs, rs.Namespace))
	}
	time.Sleep(during)
	cancel()
	running.Wait()
	factory.Shutdown()
	return server.asked
}

func TestRetries(t *testing.T) {
	t.Parallel()
	t.Run("Z4 an owner is tried again after 5 ms, doubling up to 1000 s", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			tries := refuse(t, 1, 2*time.Hour)["web-000"]
			var waits []time.Duration
			for i := range tries[1:] {
				waits = append(waits, (tries[i+1] - tries[i]).Round(time.Millisecond))
			}
			want := 5 * time.Millisecond
			for i, wait := range waits {
				assert.Equal(t, want, wait, "try %d", i+2)
				want = min(2*want, 1000*time.Second)
			}
			assert.Equal(t, 1000*time.Second, waits[len(waits)-1])
			assert.Greater(t, len(waits), 20)
		})
	})

	t.Run("Z4 all owners together are tried again ten times a second after the first hundred", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var second []time.Duration
			for _, tries := range refuse(t, 150, 10*time.Second) {
				second = append(second, (tries[1] - tries[0]).Round(time.Millisecond))
			}
			slices.Sort(second)
			require.Len(t, second, 150)
			assert.Equal(t, 5*time.Millisecond, second[99])
			for i, wait := range second[100:] {
				assert.Equal(t, time.Duration(i+1)*100*time.Millisecond, wait)
			}
		})
	})
}

func TestControllers(t *testing.T) {
	t.Parallel()
	t.Run("Z1 names and aliases are Kubernetes'", func(t *testing.T) {
		t.Parallel()
		var names []string
		for _, c := range controllers() {
			names = append(names, c.name, c.alias)
			assert.True(t, c.isCalled(c.name))
			assert.True(t, c.isCalled(c.alias))
		}
		assert.Equal(t, []string{"replicaset-controller", "replicaset", "replicationcontroller-controller", "replicationcontroller"}, names)
	})
}
