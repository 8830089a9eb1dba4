// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A user pauses an owner, or breaks what only new children need, and then deletes the owner. The pods go in their
// order, and the owner goes after them.
func TestAPausedOrBrokenOwnerCanBeDeleted(t *testing.T) {
	t.Parallel()
	const finalizer = "example.com/pods"
	for name, tt := range map[string]struct {
		wrong  func(s *replicas.SpecOfPods)
		reason controller.GateReason
	}{
		"paused":               {func(s *replicas.SpecOfPods) { s.Paused = true }, controller.Paused},
		"with a wrong number":  {func(s *replicas.SpecOfPods) { s.Replicas = -1 }, controller.SpecRefused},
		"with a wrong slot":    {func(s *replicas.SpecOfPods) { s.Slots = func(int) string { return "" } }, controller.SpecRefused},
		"without its template": {func(s *replicas.SpecOfPods) { s.Template = nil }, controller.SpecRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := controller.ReplicaSets()
			spec := kind.Spec
			kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				s, err := spec(rs)
				s.Finalizer, s.BurstReplicas = finalizer, 1
				if rs.Annotations["wrong"] != "" {
					tt.wrong(&s)
				}
				return s, err
			}
			var cluster *replicastest.PodCluster
			kind.Prepare = func(ctx context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
				if rs.DeletionTimestamp == nil || !step.NoneLeft() {
					return nil
				}
				_, err := cluster.EditOwner(ctx, rs.Namespace, rs.Name, func(rs *appsv1.ReplicaSet) { rs.Finalizers = nil })
				return err
			}
			cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 1})
			require.NoError(t, err)
			c := cluster.NewController()
			var gates []controller.Gate
			c.Passed = func(p podPass) { gates = p.Gates }
			world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
			rs := replicastest.NewReplicaSet("default", "db", 3)
			rs.Finalizers = []string{finalizer}
			_, err = cluster.CreateOwner(t.Context(), rs)
			require.NoError(t, err)
			world.Run(time.Minute)
			_, err = cluster.EditOwner(t.Context(), "default", "db", func(rs *appsv1.ReplicaSet) {
				metav1.SetMetaDataAnnotation(&rs.ObjectMeta, "wrong", "yes")
				*rs.Spec.Replicas = 2
			})
			require.NoError(t, err)
			world.Run(time.Minute)
			require.Len(t, cluster.Children("default"), 3, "nothing goes while the owner lives")
			require.Len(t, gates, 1)
			require.Equal(t, tt.reason, gates[0].Reason)

			require.NoError(t, cluster.DeleteOwner(t.Context(), "default", "db", metav1.DeletePropagationBackground))
			world.Run(10 * time.Minute)
			assert.Empty(t, cluster.Children("default"))
			assert.Empty(t, cluster.Owners("default"))
		})
	}
}

// If Kind.Spec fails for a deleted owner, nobody knows the selector, so the children stay. Without a change of the
// owner no event would ever say so again.
func TestARefusedSpecOfADeletedOwnerIsToldAgain(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]struct {
		why    error
		reason string
	}{
		"an error":  {errors.New("no such class"), controller.FailedSpec},
		"a refusal": {&replicas.RefusedError{Reason: "NoClass", Err: errors.New("no such class")}, "NoClass"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.kind.Spec = func(*appsv1.ReplicaSet) (replicas.SpecOfPods, error) { return replicas.SpecOfPods{}, refused.why }
			pods := podsOf(r.owner, 2)
			var told []string
			pass := func(second int) podPass {
				pass, _ := r.pass(t, second, pods...)
				for _, e := range r.events {
					require.Contains(t, e, refused.reason+" ")
					require.Contains(t, e, "no such class")
				}
				told = append(told, r.events...)
				return pass
			}
			for _, second := range []int{0, 1, 7200} {
				pass(second)
			}
			require.Len(t, told, 1, "a living owner is told once")

			r.owner.DeletionTimestamp = &metav1.Time{Time: podtest.Now}
			for _, at := range []struct{ second, events int }{{7201, 2}, {7202, 2}, {7201 + 3599, 2}, {7201 + 3600, 3}, {7201 + 3601, 3}, {7201 + 7200, 4}} {
				pass := pass(at.second)
				require.Len(t, told, at.events, "after %d seconds", at.second)
				require.Len(t, pass.Gates, 1)
				require.Equal(t, controller.SpecRefused, pass.Gates[0].Reason)
				require.Empty(t, pass.Deleted)
				if refused.reason == "NoClass" { // after another error, the rate limiter of the caller says when
					require.Positive(t, pass.RequeueAfter)
					require.LessOrEqual(t, pass.RequeueAfter, time.Hour)
				}
			}
			for _, message := range told[1:] {
				assert.True(t, strings.HasSuffix(message, "(the owner is being deleted, and the Controller deletes none of its children)"), message)
			}
		})
	}
	t.Run("of a selector that matches everything", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.owner.DeletionTimestamp, r.owner.Spec.Selector = &metav1.Time{Time: podtest.Now}, &metav1.LabelSelector{}
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		require.Len(t, r.events, 1)
		assert.Contains(t, r.events[0], "InvalidSelector")
		assert.Equal(t, time.Hour, pass.RequeueAfter)
	})
}
