// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/selector"
)

// ForReplicaSet and ForReplicationController must return the same selectors as apimachinery. If the function of
// apimachinery returns an error, the function of this package must also return an error.
func FuzzSelectorsAreApimachinerys(f *testing.F) {
	for _, text := range []string{
		"app", "a", "A.b-c_d", "", "-a", "a-", "a--b", "a..b", "a b", "\u00e4", "\x00", "app.kubernetes.io/name", "App/name", "a_b/c", "a/b/c", "/a", "a/", "a-.b/c",
		"a123456789a123456789a123456789a123456789a123456789a123456789abc", "a123456789a123456789a123456789a123456789a123456789a123456789abcd",
	} {
		f.Add(text, "web", "tier", "front")
		f.Add("app", text, "tier", "front")
		f.Add("app", "web", "tier", text)
		f.Add("app", "web", text, "front")
	}
	f.Fuzz(func(t *testing.T, key, value, otherKey, otherValue string) {
		for _, set := range []map[string]string{{key: value}, {key: value, otherKey: otherValue}} {
			rs, rc := webSet(), webController()
			rs.Spec.Selector, rc.Spec.Selector = &metav1.LabelSelector{MatchLabels: set}, set
			want, wantErr := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
			got, err := selector.ForReplicaSet(rs)
			sameSelector(t, want, wantErr, got, err)
			want, wantErr = labels.ValidatedSelectorFromSet(set)
			got, err = selector.ForReplicationController(rc)
			sameSelector(t, want, wantErr, got, err)
		}
	})
}

func sameSelector(t *testing.T, want labels.Selector, wantErr error, got labels.Selector, err error) {
	t.Helper()
	if wantErr != nil { // if two labels are wrong, the error may name either label
		require.Error(t, err)
		assert.Nil(t, got)
		return
	}
	require.NoError(t, err)
	assert.Equal(t, want.String(), got.String())
	wanted, _ := want.Requirements()
	requirements, selectable := got.Requirements()
	assert.True(t, selectable)
	assert.Equal(t, wanted, requirements)
}
