// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/selector"
)

// webSet returns a ReplicaSet in the namespace of the pods. The ReplicaSet selects app=web.
func webSet() *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid-web"},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
}

// webController returns a ReplicationController in the namespace of the pods. The ReplicationController selects
// app=web.
func webController() *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid-web"},
		Spec:       corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "web"}},
	}
}

func TestForReplicaSet(t *testing.T) {
	t.Parallel()
	rs := webSet()
	rs.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{
		{Key: "track", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"canary", "beta"}},
		{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"front"}},
		{Key: "owner", Operator: metav1.LabelSelectorOpExists},
		{Key: "retired", Operator: metav1.LabelSelectorOpDoesNotExist},
	}
	before := rs.DeepCopy()
	sel, err := selector.ForReplicaSet(rs)
	require.NoError(t, err)
	assert.Equal(t, "app=web,owner,!retired,tier in (front),track notin (beta,canary)", sel.String())
	assert.True(t, sel.Matches(labels.Set{"app": "web", "owner": "", "tier": "front"}))
	assert.False(t, sel.Matches(labels.Set{"app": "web", "owner": "", "tier": "front", "track": "beta"}))
	assert.Equal(t, before, rs)

	rs.Spec.Selector.MatchExpressions[1].Values[0] = "back"
	assert.True(t, sel.Matches(labels.Set{"app": "web", "owner": "", "tier": "front"}), "the selector shares no memory with its ReplicaSet")
}

func TestForReplicaSetRefuses(t *testing.T) {
	t.Parallel()
	expression := func(op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: op, Values: values}}}
	}
	for _, tt := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     string
	}{
		{"W6 nil would release every pod", nil, "selector is nil"},
		{"W6 empty would adopt every orphan", &metav1.LabelSelector{}, "selector is empty"},
		{
			"Y15 empty map and list are empty",
			&metav1.LabelSelector{MatchLabels: map[string]string{}, MatchExpressions: []metav1.LabelSelectorRequirement{}},
			"selector is empty",
		},
		{
			"W7 a label value that no label can have",
			&metav1.LabelSelector{MatchLabels: map[string]string{"app": "not a value"}},
			`selector is invalid: values[0][app]: Invalid value: "not a value": `,
		},
		{
			"W7 a label key that no label can have",
			&metav1.LabelSelector{MatchLabels: map[string]string{"not a key": "web"}},
			`selector is invalid: key: Invalid value: "not a key": `,
		},
		{"W7 an unknown operator", expression("Near", "web"), `selector is invalid: "Near" is not a valid label selector operator`},
		{"W7 In without values", expression(metav1.LabelSelectorOpIn), "selector is invalid: values: Invalid value: "},
		{"W7 NotIn without values", expression(metav1.LabelSelectorOpNotIn), "selector is invalid: values: Invalid value: "},
		{"W7 Exists with values", expression(metav1.LabelSelectorOpExists, "web"), "selector is invalid: values: Invalid value: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rs := webSet()
			rs.Spec.Selector = tt.selector
			sel, err := selector.ForReplicaSet(rs)
			require.ErrorContains(t, err, `selector: replica set "default/web": `+tt.want)
			assert.Nil(t, sel)
		})
	}

	_, err := selector.ForReplicaSet(nil)
	require.EqualError(t, err, "selector: replica set is nil")
}

func TestForReplicationController(t *testing.T) {
	t.Parallel()
	rc := webController()
	rc.Spec.Selector["tier"] = ""
	sel, err := selector.ForReplicationController(rc)
	require.NoError(t, err)
	assert.Equal(t, "app=web,tier=", sel.String())
	assert.True(t, sel.Matches(labels.Set{"app": "web", "tier": "", "more": "yes"}))
	assert.False(t, sel.Matches(labels.Set{"app": "web"}), "a label with an empty value must be there")

	rc.Spec.Selector["app"] = "db"
	assert.True(t, sel.Matches(labels.Set{"app": "web", "tier": ""}), "the selector shares no memory with its ReplicationController")
}

func TestForReplicationControllerRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		selector map[string]string
		want     string
	}{
		{"W6 nil", nil, "selector is empty"},
		{"W6 empty", map[string]string{}, "selector is empty"},
		{"W7 a label value that no label can have", map[string]string{"app": "a/b"}, `selector is invalid: values[0][app]: Invalid value: "a/b": `},
		{"W7 a label key that no label can have", map[string]string{"": "web"}, `selector is invalid: key: Invalid value: "": `},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rc := webController()
			rc.Spec.Selector = tt.selector
			sel, err := selector.ForReplicationController(rc)
			require.ErrorContains(t, err, `selector: replication controller "default/web": `+tt.want)
			assert.Nil(t, sel)
		})
	}

	_, err := selector.ForReplicationController(nil)
	require.EqualError(t, err, "selector: replication controller is nil")
}
