// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

func TestAdoptingSetsLabels(t *testing.T) {
	t.Parallel()
	orphan := &metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "pu", ResourceVersion: "7", Labels: map[string]string{"app": "web", "tier": "back"}}
	for name, tt := range map[string]struct {
		patchType types.PatchType
		labels    map[string]string
		selector  labels.Selector
		want      string
		err       string
	}{
		"by a strategic merge patch": {
			labels: map[string]string{"tier": "front"}, selector: appIsWeb(t),
			want: `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"uid":"pu","labels":{"tier":"front"}}}`,
		},
		"by a JSON merge patch": {
			patchType: types.MergePatchType, labels: map[string]string{"tier": "front"}, selector: appIsWeb(t),
			want: `{"metadata":{"uid":"pu","resourceVersion":"7","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"labels":{"tier":"front"}}}`,
		},
		"without a selector, whichever they are": {
			labels: map[string]string{"app": "db"},
			want:   `{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"o","uid":"ouid","controller":true,"blockOwnerDeletion":true}],"uid":"pu","labels":{"app":"db"}}}`,
		},
		"but none that contradict the selector": {
			labels: map[string]string{"app": "db"}, selector: appIsWeb(t),
			err: `selector: child "ns/p": with the labels "app=db" the selector "app=web" does not match it`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := selector.Claimer[metav1.Object]{Owner: o, Kind: setKind, PatchType: tt.patchType, Labels: tt.labels, Selector: tt.selector}
			patch, err := c.AdoptPatch(orphan)
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			assert.JSONEq(t, tt.want, string(patch.Data))
			release, err := c.ReleasePatch(orphan)
			require.NoError(t, err)
			assert.NotContains(t, string(release.Data), "labels")
		})
	}
	t.Run("an orphan whose labels would contradict the selector is not adopted", func(t *testing.T) {
		t.Parallel()
		orphan := &corev1.Pod{ObjectMeta: *orphan}
		claimed, err := selector.Claimer[*corev1.Pod]{
			Owner: o, Kind: setKind, Selector: appIsWeb(t), Labels: map[string]string{"app": "db"},
			Patch: func(context.Context, *corev1.Pod, selector.Patch) (*corev1.Pod, error) {
				t.Error("no call is made")
				return orphan, nil
			},
		}.Claim(t.Context(), []*corev1.Pod{orphan})
		require.ErrorContains(t, err, "does not match it")
		assert.Len(t, claimed.AdoptionPending, 1)
	})
}

// An adopted object gets a label with the number of its shard.
func ExampleClaimer_AdoptPatch_labels() {
	claimer := selector.Claimer[*corev1.Pod]{
		Owner:  &metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Kind:   schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Shop"},
		Labels: map[string]string{"example.com/shard": "3"},
	}
	patch, err := claimer.AdoptPatch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", UID: "77c0"}})
	fmt.Println(string(patch.Data), err)
	// Output: {"metadata":{"ownerReferences":[{"apiVersion":"example.com/v1","kind":"Shop","name":"web","uid":"4a1f","controller":true,"blockOwnerDeletion":true}],"uid":"77c0","labels":{"example.com/shard":"3"}}} <nil>
}
