// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// orphaning makes the Kind of the rig delete children with the policy in the owner's annotation "policy".
func (r *rig[O, C]) orphaning() {
	spec := r.kind.Spec
	r.kind.Spec = func(owner O) (replicas.Spec[C], error) {
		s, err := spec(owner)
		if policy := metav1.DeletionPropagation(owner.GetAnnotations()["policy"]); policy != "" {
			s.DeleteOptions.PropagationPolicy = &policy
		}
		return s, err
	}
}

func TestAllDeletionsHaveTheOptionsOfTheSpec(t *testing.T) {
	t.Parallel()
	orphan := metav1.DeletePropagationOrphan
	for name, tt := range map[string]struct {
		prepare func(r *podRig)
		none    bool // the owner has no pods yet
	}{
		"surplus pods": {func(r *podRig) { *r.owner.Spec.Replicas = 0 }, false},
		"surplus pods after a Conflict": {func(r *podRig) {
			*r.owner.Spec.Replicas = 0
			first := true
			r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) (err error) {
				if first {
					err = conflict(p.Name)
				}
				first = false
				return err
			}
			r.live = func() ([]*corev1.Pod, error) {
				pods := versioned(podsOf(r.owner, 2))
				for _, p := range pods {
					p.ResourceVersion = "9"
				}
				return pods, nil
			}
		}, false},
		"a new pod that a webhook made a stray": {func(r *podRig) { r.mutate = func(p *corev1.Pod) { p.Labels = nil } }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.orphaning()
			r.owner.Annotations = map[string]string{"policy": string(orphan)}
			tt.prepare(r)
			remove, sent := r.remove, 0
			r.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
				sent++
				assert.Equal(t, &orphan, opts.PropagationPolicy, p.Name)
				assert.Equal(t, p.UID, *opts.Preconditions.UID)
				return remove(p, opts)
			}
			pods := versioned(podsOf(r.owner, 2))
			if tt.none {
				pods = nil
			}
			_, _ = r.pass(t, 0, pods...)
			assert.Positive(t, sent)
		})
	}
}

// The owner on the server wants its children's dependents to be orphaned, and the cache has not seen this yet. Its
// generation does not count such changes. A deletion by the old options would lose the dependents.
func TestOlderDeleteOptionsDeleteNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		policy string
		may    bool
	}{
		"the same options":  {"Background", true},
		"another policy":    {"Orphan", false},
		"no policy anymore": {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := behind(2, 2)
			r.orphaning()
			r.owner.Annotations = map[string]string{"policy": "Background"}
			fresh, _ := r.getOwner()
			fresh.Generation, fresh.Annotations = r.owner.Generation, map[string]string{"policy": tt.policy}
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return fresh.DeepCopy(), nil }
			pass, err := r.pass(t, 0, ready(r.owner, 3)...)
			require.NoError(t, err)
			assert.Equal(t, tt.may, len(pass.Deleted) > 0)
		})
	}
}

func TestDeleteOptionsThatAreRefusedAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.DeleteOptions.DryRun = []string{metav1.DryRunAll}
		return s, err
	}
	_, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner)))
	require.NoError(t, err)
	assert.Empty(t, r.callsOf("delete"))
	assert.Equal(t, []string{`Warning InvalidDeleteOptions replicas: ReplicaSet "default/web": deleteOptions.dryRun is set, so no child would ever be deleted`}, r.events)
}
