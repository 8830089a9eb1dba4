// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/replicakit/replicakit/replicas/controller"
)

func TestOptions(t *testing.T) {
	t.Parallel()

	bubble(t, "V18 another rate limiter", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.opts.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Second, time.Minute)
		var at []time.Duration
		began := time.Now()
		b.onPod = func(string, *corev1.Pod) error {
			at = append(at, time.Since(began).Round(time.Second))
			return errors.New("no")
		}
		b.start(t)
		after(52 * time.Second)
		assert.Equal(t, []time.Duration{0, 10 * time.Second, 30 * time.Second}, at)
	})

	bubble(t, "M5 a status delay makes one write of many changes", func(t inBubble) {
		b := newBench(replicaSet("web", 3))
		b.opts.StatusDelay = time.Second
		b.start(t)
		before := b.web().Status
		for _, name := range b.podNames() {
			b.makeReady(name)
			after(300 * time.Millisecond)
			assert.Equal(t, before, b.web().Status)
		}
		after(100 * time.Millisecond)
		assert.Equal(t, int32(3), b.web().Status.ReadyReplicas, "a second after the first")
		b.scale(b.web(), 1)
		settle()
		assert.Len(t, b.allPods(), 1, "which nothing else waits for")
	})

	bubble(t, "events go to a sink of one's own, and nowhere else", func(t inBubble) {
		told := &eventList{}
		b := newBench(replicaSet("web", 1))
		b.opts.Events = told
		b.start(t)
		assert.Equal(t, []string{"web Normal SuccessfulCreate Created pod: " + b.podNames()[0]}, told.all())
		assert.Empty(t, b.recorded("SuccessfulCreate"))
	})

	bubble(t, "without a client for events nobody is told", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.opts.EventClient = nil
		b.start(t)
		assert.Len(t, b.allPods(), 1)
		assert.Empty(t, b.recorded("SuccessfulCreate"))
		assert.Empty(t, b.errors())
	})

	bubble(t, "N5 Z6 other names for queue and events", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		queues := &queueMetrics{added: map[string]int{}}
		b.opts.Name, b.opts.Component, b.opts.QueueMetrics = "second", "second-controller", queues
		b.start(t)
		queues.mu.Lock()
		defer queues.mu.Unlock()
		assert.Len(t, queues.added, 1)
		assert.Positive(t, queues.added["second"])
		assert.Equal(t, "second-controller", b.recorded("SuccessfulCreate")[0].Source.Component)
	})

	bubble(t, "E3 a shorter timeout of expectations", func(t inBubble) {
		web := replicaSet("web", 1)
		b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-1", ownedBy(web)))
		b.opts.ExpectationsTimeout = 10 * time.Second
		b.hold(pods)
		b.start(t)
		after(8 * time.Second)
		assert.Equal(t, 1, b.count("list pods"), "the first pass asks for the version of the server")
		after(2*time.Second + time.Second) // the Controller adds at most a tenth to the timeout
		assert.Equal(t, 2, b.count("list pods"))
	})

	for backOff, want := range map[bool][2]int{true: {1, 4}, false: {100, 1_000}} {
		bubble(t, fmt.Sprintf("pods that fail at once, back-off %v", backOff), func(t inBubble) {
			b := newBench(replicaSet("web", 1))
			b.verbosity(0)
			b.opts.BackOffFailed = &backOff
			b.start(t)
			for began := time.Now(); time.Since(began) < 30*time.Second; after(100 * time.Millisecond) {
				for _, p := range b.allPods() {
					if p.Status.Phase != corev1.PodFailed {
						b.change(p, func(obj object) { obj.(*corev1.Pod).Status.Phase = corev1.PodFailed })
					}
				}
			}
			assert.GreaterOrEqual(t, b.count("create pods"), want[0])
			assert.LessOrEqual(t, b.count("create pods"), want[1])
		})
	}

	bubble(t, "the Kind's own Prepare and Observe are called", func(t inBubble) {
		b := newBench(replicaSet("web", 5))
		b.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
			step.Create = step.Create[:min(len(step.Create), 2)]
			return nil
		}
		var created int
		b.kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
			created += len(pass.Created)
		}
		b.hold(pods)
		b.start(t)
		assert.Len(t, b.allPods(), 2)
		assert.Equal(t, 2, created)
		assert.True(t, b.hasLine("Too few replicas", 2, "replicaSet=default/web need=5 creating=2"))
	})

	bubble(t, "V18 a panic in them is that owner's error", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.kind.Observe = func(context.Context, controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) { panic("boom") }
		b.start(t)
		assert.Len(t, b.allPods(), 1)
		assert.NotNil(t, b.logged("Observed a panic"))
	})
}

// If a watch hangs forever, the controller makes no wrong calls. Earlier versions of the controller made wrong
// calls each time that expectations expired. These versions deleted surviving pods after a scale-down, and
// created missing pods again.
func TestWatchHangs(t *testing.T) {
	t.Parallel()
	const longest = 6 * time.Hour

	bubble(t, "E3 down: exactly the surplus goes", func(t inBubble) {
		web := replicaSet("web", 60)
		b := newBench(web)
		b.verbosity(0)
		b.start(t)
		require.Len(t, b.allPods(), 60)
		b.hold(pods)
		b.scale(web, 30)
		for began := time.Now(); time.Since(began) < longest; after(time.Minute) {
			b.change(web, func(rs object) { rs.SetLabels(map[string]string{"at": time.Now().String()}) })
			require.GreaterOrEqual(t, len(b.allPods()), 30)
		}
		assert.Len(t, b.allPods(), 30)
		assert.Equal(t, 30, b.count("delete pods"))
		assert.Positive(t, b.metric(t, "replicakit_live_lists_total"))
		b.release(pods)
		after(time.Minute)
		assert.Len(t, b.allPods(), 30)
		assert.Equal(t, int32(30), b.web().Status.Replicas)
	})

	bubble(t, "E3 up: exactly what is missing is created", func(t inBubble) {
		web := replicaSet("web", 3)
		b := newBench(web)
		b.hold(pods)
		b.start(t)
		for began := time.Now(); time.Since(began) < longest; after(time.Minute) {
			b.change(web, func(rs object) { rs.SetLabels(map[string]string{"at": time.Now().String()}) })
		}
		assert.Len(t, b.allPods(), 3)
		assert.Equal(t, 3, b.count("create pods"))
		assert.NotNil(t, b.logged("Listed pods live"))
		b.release(pods)
		after(time.Minute)
		assert.Len(t, b.allPods(), 3)
	})
}

func TestOwnerStates(t *testing.T) {
	t.Parallel()
	timeout := apierrors.NewTimeoutError("lost", 0)

	bubble(t, "backed off, waiting and in flight, until it passes", func(t inBubble) {
		b := newBench(replicaSet("web", 2), replicaSet("other", 1))
		lost := func(_ string, p *corev1.Pod) error {
			if p.Labels["app"] == "web" {
				return timeout
			}
			return nil
		}
		b.onPod = lost
		b.start(t)
		assert.Equal(t, 1, b.owners(t, "in_flight"))
		assert.Positive(t, b.metric(t, "replicakit_live_reads_total"))
		b.setOnPod(func(_ string, p *corev1.Pod) error { return apierrors.NewTooManyRequests("busy", 60) })
		after(30 * time.Second)
		b.change(replicaSet("web", 2), func(rs object) { rs.SetLabels(map[string]string{"wake": "up"}) })
		settle()
		assert.Equal(t, 1, b.owners(t, "RetryAfter"))
		b.setOnPod(nil)
		after(10 * time.Minute)
		require.Len(t, b.allPods(), 3)
		for _, state := range []string{"RetryAfter", "in_flight", "adoption_pending"} {
			assert.Zero(t, b.owners(t, state), state)
		}
	})

	bubble(t, "an adoption is pending, until the owner is gone", func(t inBubble) {
		web := replicaSet("web", 1)
		b := newBench(web, pod("orphan", "web", "n"))
		b.onPod = func(verb string, p *corev1.Pod) error {
			if verb == "patch" {
				return apierrors.NewForbidden(corev1.Resource("pods"), p.Name, errors.New("policy"))
			}
			return nil
		}
		b.start(t)
		assert.Equal(t, 1, b.owners(t, "adoption_pending"))
		assert.Zero(t, b.count("create pods"))
		assert.Len(t, b.recorded("FailedAdopt"), 1)
		b.remove(web)
		settle()
		assert.Zero(t, b.owners(t, "adoption_pending"))
	})
}
