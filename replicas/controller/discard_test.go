// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
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
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

func isOver(p *corev1.Pod) bool { return p.Annotations["over"] != "" }

func over(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, "over", "yes") }

// newDiscards returns a rig of a ReplicaSet. Rules.Discard returns true for the pods with the annotation "over".
func newDiscards(want int32) *podRig {
	kind := controller.ReplicaSets()
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		is.Rules.Discard = isOver
		return is, err
	}
	return rigOf(kind, replicaSet(want))
}

func TestDiscard(t *testing.T) {
	t.Parallel()
	t.Run("is in the pass that creates a child in its place", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(2)
		pass, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner)), podtest.Pod("b", owned(r.owner), over))
		require.NoError(t, err)
		assert.Equal(t, []string{"web-bbbbb"}, names(pass.Created))
		assert.Equal(t, []string{"b"}, names(pass.Deleted))
		adds, dels := r.pending()
		assert.Equal(t, []int{1, 1}, []int{adds, dels}, "both are expected")
		assert.Equal(t, int32(1), pass.Status.Status.Replicas)
	})
	t.Run("is in the pass that deletes others", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(0)
		pass, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner)), podtest.Pod("b", owned(r.owner), over))
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b"}, names(pass.Deleted))
	})
	t.Run("goes on while creations are held", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		pass, err := r.passAt(t, time.Millisecond, podtest.Pod("b", owned(r.owner), over))
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
		assert.Equal(t, []string{"b"}, names(pass.Deleted))
	})
	t.Run("goes on after an adoption failed", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(2)
		r.patch = func(*corev1.Pod) error { return timeout() }
		pass, err := r.pass(t, 0, podtest.Pod("orphan"), podtest.Pod("b", owned(r.owner), over))
		require.Error(t, err)
		assert.Len(t, pass.Created, 1)
		assert.Equal(t, []string{"b"}, names(pass.Deleted))
	})
	t.Run("needs the owner, and creations do not", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(1)
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, timeout() }
		pass, err := r.pass(t, 0, podtest.Pod("b", owned(r.owner), over))
		require.Error(t, err)
		assert.Len(t, pass.Created, 1)
		assert.Empty(t, r.callsOf("delete"))
	})
	t.Run("is not for an owner that wants something else by now, nor is a creation", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(1)
		r.getOwner = func() (*appsv1.ReplicaSet, error) {
			other := r.owner.DeepCopy()
			other.Generation++
			return other, nil
		}
		pass, err := r.pass(t, 0, podtest.Pod("b", owned(r.owner), over))
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
		assert.Empty(t, r.callsOf("delete"))
	})
	t.Run("fails by itself", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(1)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a policy") }
		pass, err := r.pass(t, 0, podtest.Pod("b", owned(r.owner), over))
		require.ErrorContains(t, err, "a policy")
		assert.Len(t, pass.Created, 1)
		adds, dels := r.pending()
		assert.Equal(t, []int{1, 0}, []int{adds, dels})
	})
	t.Run("keeps the owner while the child must stay", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(1)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			is, err := spec(rs)
			is.Rules.MustStay, is.Finalizer = isOver, "example.com/pods"
			return is, err
		}
		asked := false
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
			asked = true
			assert.False(t, s.NoneLeft())
			return nil
		}
		r.owner.DeletionTimestamp, r.owner.Finalizers = &metav1.Time{Time: r.now}, []string{"example.com/pods"}
		_, err := r.pass(t, 0, podtest.Pod("b", owned(r.owner), over))
		require.NoError(t, err)
		assert.True(t, asked)
	})
	t.Run("waits while the child must stay", func(t *testing.T) {
		t.Parallel()
		r := newDiscards(1)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			is, err := spec(rs)
			is.Rules.MustStay = isOver
			return is, err
		}
		pass, err := r.pass(t, 0, podtest.Pod("b", owned(r.owner), over))
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
		assert.Empty(t, pass.Deleted)
		assert.True(t, telemetry.Has(pass.Gates, controller.MustStay))
	})
}

// The status of an operator tells how many of its children failed.
func TestEndedChildrenAreInTheOutcome(t *testing.T) {
	t.Parallel()
	failed, mine := podtest.Phase(corev1.PodFailed), func(r *podRig, name string, options ...podtest.Option) *corev1.Pod {
		return podtest.Pod(name, append(options, owned(r.owner))...)
	}
	newFailing := func(want int32) (r *podRig, told *[]string) {
		r, told = newDiscards(want), new([]string)
		withSpec(r, func(s *replicas.SpecOfPods) {
			s.Rules.Failed = func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }
		})
		r.kind.Status = func(_ *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
			*told = names(o.Ended)
			return nil
		}
		return r, told
	}
	t.Run("those that failed and those that are over, without those that go or are no children", func(t *testing.T) {
		t.Parallel()
		r, told := newFailing(1)
		pass, err := r.pass(t, 0, mine(r, "a"), mine(r, "b", over), mine(r, "c", failed), mine(r, "going", failed, podtest.Deleting),
			mine(r, "relabelled", failed, podtest.Labels(nil)), podtest.Pod("orphan", failed))
		require.NoError(t, err)
		assert.Equal(t, []string{"b", "c"}, *told)
		assert.Equal(t, []string{"a"}, names(pass.Active))
		assert.Equal(t, []string{"b", "c"}, names(pass.Deleted), "the list is of before the deletions")
	})
	t.Run("those of a live list, if one was made", func(t *testing.T) {
		t.Parallel()
		r, told := newFailing(1)
		r.newProcess = true
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{mine(r, "b", failed)}, nil }
		_, err := r.pass(t, 0, mine(r, "b"), mine(r, "c", failed))
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, *told)
	})
	t.Run("those of a live list that was made because an adoption was refused", func(t *testing.T) {
		t.Parallel()
		r, told := newFailing(2)
		r.newProcess = true
		r.patch = func(p *corev1.Pod) error { return invalid(p.Name) }
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{mine(r, "a"), mine(r, "b", failed)}, nil }
		pass, err := r.pass(t, 0, mine(r, "a"), podtest.Pod("orphan"))
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, *told)
		assert.Equal(t, []string{"b"}, names(pass.Deleted))
	})
	t.Run("none without rules", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		pass, err := r.pass(t, 0, mine(r, "c", failed))
		require.NoError(t, err)
		assert.Empty(t, pass.Ended)
	})
}

// A discard requires that the child still has the resourceVersion in the view. After a Conflict, a live list
// decides whether the child is discarded.
func TestDiscardAfterAConflict(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		live    func(p *corev1.Pod)
		deleted []string
	}{
		"it is over still":        {func(*corev1.Pod) {}, []string{"delete b", "delete b"}},
		"it is not over any more": {func(p *corev1.Pod) { p.Annotations = nil }, []string{"delete b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDiscards(1)
			is := podtest.Pod("b", owned(r.owner), over, version("7"))
			r.remove = func(_ *corev1.Pod, opts metav1.DeleteOptions) error {
				if opts.Preconditions.ResourceVersion != nil {
					return conflict("b")
				}
				return nil
			}
			r.live = func() ([]*corev1.Pod, error) {
				now := is.DeepCopy()
				now.ResourceVersion = "8"
				tt.live(now)
				return []*corev1.Pod{now}, nil
			}
			_, _ = r.pass(t, 0, is, podtest.Pod("a", owned(r.owner)))
			deleted := r.callsOf("delete")
			_, _ = r.pass(t, 1, is, podtest.Pod("a", owned(r.owner)))
			assert.Equal(t, tt.deleted, append(deleted, r.callsOf("delete")...))
		})
	}
}

func TestPrepareLeavesOutDiscards(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change  func(s *controller.Step[*corev1.Pod])
		deleted []string
		err     string
	}{
		"all":                     {func(*controller.Step[*corev1.Pod]) {}, []string{"b", "c"}, ""},
		"one":                     {func(s *controller.Step[*corev1.Pod]) { s.Discard = s.Discard[1:] }, []string{"c"}, ""},
		"none":                    {func(s *controller.Step[*corev1.Pod]) { s.Discard = nil }, nil, ""},
		"one that is there twice": {func(s *controller.Step[*corev1.Pod]) { s.Discard[0] = s.Discard[1] }, nil, "step.Discard: a child was added, or is listed twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDiscards(1)
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
				assert.Len(t, s.Active, 1)
				tt.change(s)
				return nil
			}
			pass, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner)), podtest.Pod("b", owned(r.owner), over), podtest.Pod("c", owned(r.owner), over))
			require.NoError(t, err)
			if tt.err != "" {
				require.ErrorContains(t, pass.Err, tt.err)
			}
			assert.Equal(t, tt.deleted, names(pass.Deleted))
		})
	}
}

// If a creation fails, the status reports the failure, even if a discard in the same pass succeeds.
func TestACreationFailsAndADiscardSucceeds(t *testing.T) {
	t.Parallel()
	r := newDiscards(2)
	r.create = func(int) error { return quotaFull() }
	p, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner)), podtest.Pod("b", owned(r.owner), over))
	require.Error(t, err)
	require.Len(t, p.Deleted, 1)
	require.ErrorContains(t, p.ScaleErr, "quota")
	assert.Equal(t, int32(1), p.Failure().Active, "not more than wanted: a creation failed")
}
