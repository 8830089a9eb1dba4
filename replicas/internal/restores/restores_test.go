// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package restores_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas/internal/restores"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	listed := func(version string) func() (string, error) {
		return func() (string, error) { return version, nil }
	}
	for name, tt := range map[string]struct {
		observe func(w *restores.Watch) error
		proof   string
	}{
		"a list that is older than an earlier one": {func(w *restores.Watch) error {
			return errors.Join(w.CompareChildren("", listed("7")), w.CompareChildren("", listed("6")))
		}, "a live list of children has version 6, and an earlier one had 7"},
		"a list that is older than the cache": {func(w *restores.Watch) error {
			return w.CompareOwners("9", listed("8"))
		}, "a live list of owners has version 8, and the cache had shown 9"},
		"an object that is older than it was shown": {func(w *restores.Watch) error {
			return w.NoticeOlder(&metav1.ObjectMeta{Name: "web-1", UID: "uid", ResourceVersion: "3"}, "5")
		}, `"web-1" was read in version 3, but version 5 had been shown`},
		"owners and children have versions of their own": {func(w *restores.Watch) error {
			return errors.Join(w.CompareChildren("", listed("7")), w.CompareOwners("", listed("6")))
		}, ""},
		"versions that are no numbers prove nothing": {func(w *restores.Watch) error {
			return errors.Join(w.CompareChildren("b", listed("a")), w.CompareChildren("c", listed("")))
		}, ""},
		"nor does an object without a UID": {func(w *restores.Watch) error {
			return w.NoticeOlder(&metav1.ObjectMeta{ResourceVersion: "3"}, "5")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := 0
			w := restores.Watch{On: func(error) { told++ }}
			err := tt.observe(&w)
			if tt.proof == "" {
				require.NoError(t, err)
				require.NoError(t, w.Proof())
				return
			}
			require.ErrorContains(t, err, tt.proof)
			require.ErrorIs(t, err, restores.Err)
			require.Error(t, w.NoticeOlder(&metav1.ObjectMeta{UID: "other", ResourceVersion: "1"}, "2"))
			require.ErrorContains(t, w.Proof(), tt.proof, "the first proof is kept")
			assert.Equal(t, 1, told)
		})
	}
}

func TestDeletedChildren(t *testing.T) {
	t.Parallel()
	var w restores.Watch
	w.ChildDeleted("a")
	before := w.ChildrenDeleted()
	w.ChildDeleted("b")
	assert.True(t, w.IsDeleted("a", before))
	assert.False(t, w.IsDeleted("b", before), "its event came later")
	assert.False(t, w.IsDeleted("c", before))
}
