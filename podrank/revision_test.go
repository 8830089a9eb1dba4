// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
)

func TestOldRevision(t *testing.T) {
	t.Parallel()
	label := func(revision string) podtest.Option { return podtest.Labels(map[string]string{"revision": revision}) }
	annotation := func(revision string) podtest.Option {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{"revision": revision} }
	}
	for _, tt := range []struct {
		name          string
		first, second []podtest.Option
		explained     string
	}{
		{"an older label before the current one", with(label("v1")), with(label("v2")), "revision v1, not v2"},
		{"a newer one too: it is not the current one", with(label("v3")), with(label("v2")), "revision v3, not v2"},
		{"an older annotation before the current one", with(annotation("v1")), with(annotation("v2")), "revision v1, not v2"},
		{"the label beats the annotation", with(annotation("v2"), label("v1")), with(annotation("v1"), label("v2")), "revision v1, not v2"},
		{"a label that is empty beats it too", with(annotation("v2"), label("")), with(label("v2")), "revision none, not v2"},
		{"neither is an old revision", nil, with(label("v2")), "revision none, not v2"},
		{"two old revisions are a tie", with(label("v3"), podtest.UID("a")), with(label("v1"), podtest.UID("b")), "UID a < b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pods := []*corev1.Pod{podtest.Pod("a", tt.second...), podtest.Pod("z", tt.first...)}
			order := podrank.Must(podrank.NewOrder(podrank.OldRevision[*corev1.Pod]("revision", "v2")))
			victims := podrank.Select(pods, 1, podrank.PodOptions{Order: order})
			require.Len(t, victims, 1)
			assert.Same(t, pods[1], victims[0].Object)
			assert.Equal(t, tt.explained, victims[0].Explain())
		})
	}
	t.Run("an empty key or revision is refused", func(t *testing.T) {
		t.Parallel()
		_, err := podrank.NewOrder(podrank.OldRevision[*corev1.Pod]("", "v2"))
		require.EqualError(t, err, `podrank: criterion "old-revision": key is empty`)
		_, err = podrank.NewOrder(podrank.OldRevision[*corev1.Pod]("revision", ""))
		require.EqualError(t, err, `podrank: criterion "old-revision": current revision is empty`)
	})
}
