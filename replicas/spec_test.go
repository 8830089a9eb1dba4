// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func TestReplicaSetSpec(t *testing.T) {
	t.Parallel()
	t.Run("fields come from the object, which is not copied", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(7)
		rs.Spec.MinReadySeconds = 5
		spec, err := replicas.ReplicaSetSpec(rs)
		require.NoError(t, err)
		assert.Same(t, rs, spec.Owner)
		assert.Same(t, &rs.Spec.Template, spec.Template)
		assert.Equal(t, "apps/v1, Kind=ReplicaSet", spec.Kind.String())
		assert.Equal(t, int32(7), spec.Replicas)
		assert.Equal(t, int32(5), spec.MinReadySeconds)
		assert.Equal(t, "app=web", spec.Selector.String())
	})
	t.Run("W2 nil replicas is an error", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(1)
		rs.Spec.Replicas = nil
		_, err := replicas.ReplicaSetSpec(rs)
		require.EqualError(t, err, `replicas: ReplicaSet "default/web": spec.replicas is nil`)
		requireRefused(t, err, replicas.InvalidReplicas)
	})
	t.Run("W6 Y15 nil, empty and invalid selectors are errors", func(t *testing.T) {
		t.Parallel()
		for _, sel := range []*metav1.LabelSelector{
			nil,
			{},
			{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}},
		} {
			rs := replicaSet(1)
			rs.Spec.Selector = sel
			_, err := replicas.ReplicaSetSpec(rs)
			requireRefused(t, err, replicas.InvalidSelector)
			assert.Contains(t, err.Error(), `"default/web"`)
		}
	})
	t.Run("nil is an error", func(t *testing.T) {
		t.Parallel()
		_, err := replicas.ReplicaSetSpec(nil)
		require.EqualError(t, err, "replicas: replica set is nil")
	})
}

func TestReplicationControllerSpec(t *testing.T) {
	t.Parallel()
	one := int32(1)
	valid := func() *corev1.ReplicationController {
		return &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"},
			Spec: corev1.ReplicationControllerSpec{
				Replicas: &one, Selector: web, MinReadySeconds: 3,
				Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
			},
		}
	}
	t.Run("A1 A2 fields come from the object, the kind is v1", func(t *testing.T) {
		t.Parallel()
		rc := valid()
		spec, err := replicas.ReplicationControllerSpec(rc)
		require.NoError(t, err)
		assert.Same(t, rc, spec.Owner)
		assert.Equal(t, "/v1, Kind=ReplicationController", spec.Kind.String())
		assert.Equal(t, "app=web", spec.Selector.String())
		assert.Equal(t, int32(3), spec.MinReadySeconds)
		spec.Facts.Now = podtest.Now
		plan, err := replicas.Manage(nil, spec)
		require.NoError(t, err)
		assert.Equal(t, "v1", newPod(t, plan.Scale).OwnerReferences[0].APIVersion)
	})
	for name, broken := range map[string]struct {
		change func(*corev1.ReplicationController)
		reason string
	}{
		"W2 nil replicas":   {func(rc *corev1.ReplicationController) { rc.Spec.Replicas = nil }, replicas.InvalidReplicas},
		"A9 nil selector":   {func(rc *corev1.ReplicationController) { rc.Spec.Selector = nil }, replicas.InvalidSelector},
		"A9 empty selector": {func(rc *corev1.ReplicationController) { rc.Spec.Selector = map[string]string{} }, replicas.InvalidSelector},
		"nil template":      {func(rc *corev1.ReplicationController) { rc.Spec.Template = nil }, replicas.InvalidTemplate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rc := valid()
			broken.change(rc)
			_, err := replicas.ReplicationControllerSpec(rc)
			requireRefused(t, err, broken.reason)
			assert.Contains(t, err.Error(), `"default/web"`)
		})
	}
	t.Run("nil is an error", func(t *testing.T) {
		t.Parallel()
		_, err := replicas.ReplicationControllerSpec(nil)
		require.EqualError(t, err, "replicas: replication controller is nil")
	})
}
