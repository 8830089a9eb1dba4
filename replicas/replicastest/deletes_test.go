// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// changingStage returns a stage with the given number of ready pods. Each pod changes once per second, and the
// controller sees each change after the lag. After the pods have become ready, the controller's calls are counted
// by verb in the map calls.
func changingStage(t *testing.T, pods int32, lag time.Duration) (s *stage, calls map[string]int) {
	t.Helper()
	s = running(t, pods)
	calls = map[string]int{}
	s.controller.Client.Done = func(call replicastest.Call, _ error) { calls[call.Verb]++ }
	s.controller.View.ChildWatch.Lag = lag
	s.world.Parts = append(s.world.Parts, s.Churn(namespace, time.Second))
	s.world.Run(2 * lag)
	return s, calls
}

// heldTold returns the messages of the events with the reason DeletionsHeld.
func (s *stage) heldTold() (messages []string) {
	for _, e := range s.Events {
		if e.Reason == controller.DeletionsHeld {
			messages = append(messages, e.Message)
		}
	}
	return messages
}

func TestPodsThatChangeAllTheTimeAreDeleted(t *testing.T) {
	t.Parallel()
	for _, from := range sizes(50, 200) {
		for _, lag := range []time.Duration{0, 2 * time.Second, 10 * time.Second} {
			t.Run(fmt.Sprintf("W25 from %d to 10, seen after %v", from, lag), func(t *testing.T) {
				t.Parallel()
				s, calls := changingStage(t, from, lag)
				rs := s.Owners(namespace)[0]
				s.scale(t, 10)
				s.world.Run(time.Second)
				assert.Len(t, s.active(rs), 10, "within a second")
				assert.LessOrEqual(t, calls["delete"], 2*int(from-10))
				assert.LessOrEqual(t, calls["list"], 1)
				s.world.Parts = s.world.Parts[:2]
				s.world.Run(2 * time.Minute)
				s.requireSettled(t, "in the end")
				assert.Empty(t, s.heldTold())
			})
		}
	}
}

// While pods change twice a second, a webhook answers with a Conflict for one of them for ever. All others are deleted
// as soon, and with hardly more calls.
func TestOneConflictForEverHoldsNoOtherChild(t *testing.T) {
	t.Parallel()
	for _, from := range sizes(50, 500) {
		for _, lag := range []time.Duration{20 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("W25 from %d to 10, seen after %v", from, lag), func(t *testing.T) {
				t.Parallel()
				made := func(refuses bool) (calls int) {
					s := running(t, from)
					rs, refused := s.Owners(namespace)[0], ""
					s.controller.View.ChildWatch.Lag = lag
					s.world.Parts = append(s.world.Parts, s.Churn(namespace, 500*time.Millisecond))
					s.world.Run(2 * lag)
					s.Webhook = func(verb string, p *corev1.Pod) error {
						if refused == "" && refuses && verb == "delete" {
							refused = p.Name
						}
						if verb != "delete" || p.Name != refused {
							return nil
						}
						return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("not now"))
					}
					s.controller.Client.Done = func(call replicastest.Call, _ error) {
						if call.Kind == "Pod" {
							calls++
						}
					}
					s.scale(t, 10)
					for range 40 {
						s.world.Run(50 * time.Millisecond)
						if len(s.active(rs)) <= 10+min(len(refused), 1) {
							return calls
						}
					}
					assert.Fail(t, "not within two seconds", "%d pods are left", len(s.active(rs)))
					return calls
				}
				without := made(false)
				assert.LessOrEqual(t, made(true), without+without/10+3)
			})
		}
	}
}

func TestAWebhookThatAnswersConflict(t *testing.T) {
	t.Parallel()
	s, calls := changingStage(t, 20, 2*time.Second)
	rs := s.Owners(namespace)[0]
	s.Webhook = func(verb string, p *corev1.Pod) error {
		if verb != "delete" {
			return nil
		}
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("not now"))
	}
	s.scale(t, 10)
	s.world.Run(3 * time.Minute)
	assert.Len(t, s.active(rs), 20)
	// The holds grow to a minute in 11 passes, which take 102 s.
	assert.LessOrEqual(t, calls["delete"], 1+13*10)
	assert.LessOrEqual(t, calls["list"], 13*2)
	require.Len(t, s.heldTold(), 2, "for the first, and for the nine others that were tried in the next pass")
	assert.Contains(t, s.heldTold()[0], "Holding deletions for 1.6s: unable to delete pods: ")
	assert.Contains(t, s.heldTold()[0], "not now")

	s.Webhook = nil
	s.world.Run(time.Minute + time.Second)
	assert.Len(t, s.active(rs), 10, "as soon as the hold is over")
	s.world.Parts = s.world.Parts[:2]
	s.world.Run(2 * time.Minute)
	s.requireSettled(t, "in the end")
	assert.Len(t, s.heldTold(), 2)
}

func TestALiveListThatFails(t *testing.T) {
	t.Parallel()
	s, calls := changingStage(t, 20, 2*time.Second)
	rs := s.Owners(namespace)[0]
	s.controller.Client.Fault = func(call replicastest.Call) replicastest.Fault {
		if call.Verb == "list" {
			return replicastest.Fault{Before: failure.ServiceUnavailable.Of(call)}
		}
		return replicastest.Fault{}
	}
	s.scale(t, 10)
	s.world.Run(3 * time.Minute)
	assert.Len(t, s.active(rs), 20, "nothing is changed on a view that is known to be old")
	assert.Equal(t, 1, calls["delete"], "the one that met a conflict")
	assert.Less(t, calls["list"], 18)
	assert.Empty(t, s.heldTold(), "the gate ListFailed has an event of its own")

	s.controller.Client.Fault = nil
	s.world.Run(time.Minute)
	assert.Len(t, s.active(rs), 10)
}

func TestADryRunDeletesNothing(t *testing.T) {
	t.Parallel()
	cluster := replicastest.NewPodCluster(replicastest.Options{})
	p, err := cluster.CreateChild(t.Context(), namespace, replicastest.NewPod(nil, "a"))
	require.NoError(t, err)
	client := cluster.NewClient()
	record := client.Record()
	err = client.Delete(t.Context(), p, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	assert.Len(t, cluster.Children(namespace), 1)
	assert.Equal(t, "delete Pod default/a (dry run)\n", record.String())
}

func TestAPodWithoutAGracePeriodHasTheUsualOne(t *testing.T) {
	t.Parallel()
	cluster := replicastest.NewPodCluster(replicastest.Options{})
	cluster.Mutate = func(p *corev1.Pod) { p.Spec = corev1.PodSpec{NodeName: "node-1"} }
	_, err := cluster.CreateChild(t.Context(), namespace, replicastest.NewPod(nil, "a"))
	require.NoError(t, err)
	_, err = cluster.DeleteChild(t.Context(), namespace, "a", metav1.DeleteOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 30, *cluster.Children(namespace)[0].DeletionGracePeriodSeconds)
}
