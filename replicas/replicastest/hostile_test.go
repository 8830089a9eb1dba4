// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A hostile is a world in which something that does not belong to the controller is against it.
type hostile struct {
	*replicastest.PodCluster
	controller *podController
	world      *replicastest.World
	made       int // the number of create calls
	passes     []podPass
}

func newHostile(t *testing.T, want int32, change func(*replicas.SpecOfPods)) *hostile {
	t.Helper()
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		change(&s)
		return s, err
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 2, Timing: replicastest.Timing{StartUp: time.Minute}})
	require.NoError(t, err)
	h := &hostile{PodCluster: cluster, controller: cluster.NewController()}
	h.controller.View.ChildWatch.Lag, h.controller.View.OwnerWatch.Lag = 100*time.Millisecond, 100*time.Millisecond
	h.controller.Passed = func(p podPass) { h.passes = append(h.passes, p) }
	done := h.controller.Client.Done
	h.controller.Client.Done = func(call replicastest.Call, err error) {
		if done != nil {
			done(call, err)
		}
		if call.Verb == "create" {
			h.made++
		}
	}
	h.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, h.controller}}
	createReplicaSet(t, cluster, want)
	return h
}

// run runs the world. It stops early if the controller does not stop creating pods.
func (h *hostile) run(d time.Duration) {
	end := h.Clock.Now().Add(d)
	if !h.world.RunUntil(end, func() bool { return h.made > 100 }) {
		h.Clock.Advance(end.Sub(h.Clock.Now()))
	}
}

func (h *hostile) scale(t *testing.T, n int32) {
	t.Helper()
	_, err := h.EditOwner(t.Context(), namespace, "web", func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n })
	require.NoError(t, err)
}

// owned returns the number of pods that belong to the owner and are not being deleted.
func (h *hostile) owned() (n int) {
	for _, p := range h.Children(namespace) {
		if metav1.GetControllerOf(p) != nil && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

func (h *hostile) there() int { return len(h.Children(namespace)) }

func (h *hostile) gates() map[controller.GateReason]controller.Gate {
	gates := map[controller.GateReason]controller.Gate{}
	for _, p := range h.passes {
		for _, g := range p.Gates {
			gates[g.Reason] = g
		}
	}
	return gates
}

func asIs(*replicas.SpecOfPods) {}

func disown(p *corev1.Pod) { p.OwnerReferences = nil }

// denies makes a webhook that refuses the adoption of pods without a controller.
func denies(f failure.Failure) func(string, *corev1.Pod) error {
	deny := failure.Deny[*corev1.Pod]("patch", "Pod", f)
	return func(verb string, p *corev1.Pod) error {
		if metav1.GetControllerOf(p) != nil {
			return nil
		}
		return deny(verb, p)
	}
}

// A child that the process has created keeps its place until it is gone or belongs to another owner, whatever the
// server answers to its adoption.
func TestACreatedChildWhoseAdoptionIsRefusedKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for name, takes := range map[string]func(t *testing.T, h *hostile){
		"a webhook takes the owner from new pods": func(_ *testing.T, h *hostile) { h.Mutate = disown },
		"and the answers are lost": func(_ *testing.T, h *hostile) {
			h.Mutate = disown
			h.controller.Client.Fault = func(call replicastest.Call) replicastest.Fault {
				if call.Verb != "create" {
					return replicastest.Fault{}
				}
				return replicastest.Fault{After: failure.Timeout.Of(call)}
			}
		},
		"somebody takes the owner from pods that run": func(t *testing.T, h *hostile) {
			t.Helper()
			h.scale(t, 5)
			h.run(time.Minute)
			for _, p := range h.Children(namespace)[:3] {
				_, err := h.EditChild(t.Context(), namespace, p.Name, disown)
				require.NoError(t, err)
			}
		},
	} {
		for _, refusal := range []failure.Failure{failure.Invalid, failure.Forbidden, failure.BadRequest} {
			t.Run(name+", "+refusal.String(), func(t *testing.T) {
				t.Parallel()
				h := newHostile(t, 2, asIs)
				h.run(time.Minute)
				require.Equal(t, 2, h.owned())
				h.Webhook = denies(refusal)
				takes(t, h)
				h.scale(t, 5)
				h.run(30 * time.Minute)
				assert.Equal(t, 5, h.there())
				assert.Equal(t, 2, h.owned())
				assert.Equal(t, controller.StopsCreations, h.gates()[controller.AdoptionUndecided].Stops)

				h.scale(t, 7)
				h.run(10 * time.Minute)
				assert.Equal(t, 7, h.there())

				h.Webhook, h.Mutate, h.controller.Client.Fault = nil, nil, nil
				h.run(10 * time.Minute)
				assert.Equal(t, 7, h.owned(), "in the end each is adopted")
				assert.Equal(t, 7, h.there())
			})
		}
	}
}

// When a child whose adoption was refused is gone or has got another owner, a child is created in its place.
func TestACreatedChildThatLeavesGivesUpItsPlace(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]func(ctx context.Context, h *hostile, pod string) error{
		"gone": func(ctx context.Context, h *hostile, pod string) error {
			_, err := h.DeleteChild(ctx, namespace, pod, *metav1.NewDeleteOptions(0))
			return err
		},
		"another owner's": func(ctx context.Context, h *hostile, pod string) error {
			_, err := h.EditChild(ctx, namespace, pod, func(p *corev1.Pod) {
				is := true
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Other", Name: "other", UID: "other", Controller: &is}}
			})
			return err
		},
		"no longer selected": func(ctx context.Context, h *hostile, pod string) error {
			_, err := h.EditChild(ctx, namespace, pod, func(p *corev1.Pod) { p.Labels = nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t, 3, asIs)
			h.Mutate, h.Webhook = disown, denies(failure.Invalid)
			h.run(time.Minute)
			require.Equal(t, 3, h.made)
			require.NoError(t, leaves(t.Context(), h, h.Children(namespace)[0].Name))
			h.run(10 * time.Minute)
			assert.Equal(t, 4, h.made)
		})
	}
}

// The orphan of another process, or of a user, is replaced if the server refuses its adoption.
func TestAnOrphanWhoseAdoptionIsRefusedHoldsNoPlace(t *testing.T) {
	t.Parallel()
	h := newHostile(t, 3, asIs)
	h.Webhook = denies(failure.Invalid)
	createPod(t, h.PodCluster, pod("orphan"))
	h.run(10 * time.Minute)
	assert.Equal(t, 3, h.owned())
}

// The clocks of the server, the nodes and the controller may differ by any time. A pod is deleted as unready only
// after the controller has seen it unready for ReadyWithin.
func TestReadyWithinWhileClocksAreApart(t *testing.T) {
	t.Parallel()
	const ten = 10 * time.Minute
	for name, skews := range map[string]struct{ controller, nodes time.Duration }{
		"all are the same":           {},
		"the controller's is ahead":  {controller: ten},
		"the controller's is behind": {controller: -ten},
		"the nodes' are behind":      {nodes: -ten},
		"the nodes' are ahead":       {nodes: ten},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t, 3, func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin = 5 * time.Minute })
			h.controller.Skew = skews.controller
			inside.Of[inside.Cluster](h.PodCluster).SkewNodes(skews.nodes)
			h.run(time.Hour)
			require.Equal(t, 3, h.made, "each becomes ready in time")

			turns := func(is corev1.ConditionStatus) {
				_, err := h.EditChild(t.Context(), namespace, h.Children(namespace)[0].Name, func(p *corev1.Pod) {
					at := metav1.NewTime(h.Clock.Now().Add(skews.nodes).Truncate(time.Second))
					for i := range p.Status.Conditions {
						if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
							c.Status, c.LastTransitionTime = is, at
						}
					}
				})
				require.NoError(t, err)
			}
			turns(corev1.ConditionFalse)
			h.run(4 * time.Minute)
			turns(corev1.ConditionTrue)
			turns(corev1.ConditionFalse)
			h.run(4 * time.Minute)
			assert.Equal(t, 3, h.made, "it was ready for a moment between two passes")

			h.controller.View.ChildWatch.Break()
			turns(corev1.ConditionTrue)
			h.run(2 * time.Second)
			turns(corev1.ConditionFalse)
			h.controller.View.ChildWatch.Relist()
			h.run(4 * time.Minute)
			assert.Equal(t, 3, h.made, "it was ready while the watch was broken, and the list shows only that it is not")

			h.run(max(0, skews.nodes-skews.controller) + 2*time.Minute)
			assert.Equal(t, 4, h.made)
			assert.Equal(t, 3, h.owned())
		})
	}
}

// While the owner cannot be read, children that have left are not replaced, because the owner may be gone.
func TestTheOwnerIsGoneAndCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, read := range unreadable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t, 10, asIs)
			h.run(time.Minute)
			require.Equal(t, 10, h.made)
			h.controller.View.OwnerWatch.Hang()
			require.NoError(t, h.DeleteOwner(t.Context(), namespace, "web", metav1.DeletePropagationBackground))
			reads := 0
			h.reads(&reads, read)
			h.run(10 * time.Minute)
			assert.Equal(t, 10, h.made, "none is replaced")
			assert.Less(t, reads, 12)
			gate := h.gates()[controller.OwnerUnread]
			assert.NotZero(t, gate.Stops&controller.StopsCreations)
			if name == "forbidden" {
				assert.ErrorContains(t, gate.Err, `the right to get replicasets in the group "apps" is needed`)
			}
		})
	}
}

// Children that are missing for another reason are created, and when a read succeeds, the others are replaced.
func TestTheOwnerIsThereAndCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, read := range unreadable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHostile(t, 4, asIs)
			h.run(time.Minute)
			reads := 0
			h.reads(&reads, read)
			for _, p := range h.Children(namespace)[:2] {
				_, err := h.DeleteChild(t.Context(), namespace, p.Name, *metav1.NewDeleteOptions(0))
				require.NoError(t, err)
			}
			h.run(3 * time.Minute)
			require.Equal(t, 4, h.made, "none that has left is replaced")
			h.scale(t, 7)
			h.run(time.Minute)
			assert.Equal(t, 7, h.made, "three more are wanted")
			assert.Equal(t, 5, h.owned())

			h.reads(&reads, nil)
			h.run(5 * time.Minute)
			assert.Equal(t, 7, h.owned())
			assert.Equal(t, 9, h.made)
		})
	}
}

// A reading is the answer to a read of the owner.
type reading func() (*appsv1.ReplicaSet, error)

func unreadable() map[string]reading {
	failing := func(f failure.Failure) reading {
		return func() (*appsv1.ReplicaSet, error) {
			return nil, f.Of(replicastest.Call{Verb: "get", Kind: "ReplicaSet", NamespacedName: key("web")})
		}
	}
	return map[string]reading{
		"broken": failing(failure.InternalError), "cut": failing(failure.ConnectionReset), "forbidden": failing(failure.Forbidden),
		"nothing":   func() (*appsv1.ReplicaSet, error) { return nil, nil },
		"timed out": failing(failure.Timeout),
	}
}

// reads replaces the answers to reads of the owner, and counts the reads. If the answer is nil, the cluster answers.
func (h *hostile) reads(n *int, read reading) {
	client := h.controller.Client
	if is, replaced := client.Client.(*unreadableClient); replaced {
		is.read = read
		return
	}
	client.Client = &unreadableClient{client.Client, n, read}
}

type unreadableClient struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	n    *int
	read reading
}

func (c *unreadableClient) GetOwner(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	*c.n++
	if c.read == nil {
		return c.Client.GetOwner(ctx, namespace, name)
	}
	return c.read()
}
