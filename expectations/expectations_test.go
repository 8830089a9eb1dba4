// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

const timeout = expectations.DefaultTimeout

var start = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)

// A clock stands still until the test calls advance.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time          { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func TestState(t *testing.T) {
	t.Parallel()
	var zero expectations.State
	assert.Equal(t, expectations.Satisfied, zero)
	assert.Equal(t, "satisfied", expectations.Satisfied.String())
	assert.Equal(t, "waiting", expectations.Waiting.String())
	assert.Equal(t, "expired", expectations.Expired.String())
	assert.Equal(t, "State(9)", expectations.State(9).String())
}

func TestKey(t *testing.T) {
	t.Parallel()
	old := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "1"}}
	again := old.DeepCopy()
	again.UID = "2"

	t.Run("W12 an owner made again under its name starts clean", func(t *testing.T) {
		t.Parallel()
		var s expectations.Store[expectations.Key]
		s.Set(expectations.KeyOf(old), expectations.Changes{Creations: 3})
		assert.Equal(t, expectations.Waiting, stateOf(&s, expectations.KeyOf(old)))
		assert.Equal(t, expectations.Satisfied, stateOf(&s, expectations.KeyOf(again)))
	})

	t.Run("a nil owner has the zero key", func(t *testing.T) {
		t.Parallel()
		assert.Zero(t, expectations.KeyOf(nil))
		assert.Zero(t, expectations.KeyOf((*corev1.Pod)(nil)))
	})

	t.Run("a key prints with its UID", func(t *testing.T) {
		t.Parallel()
		key := expectations.KeyOf(old)
		assert.Equal(t, "team/web (1)", key.String())
		assert.Equal(t, "{web team 1}", fmt.Sprint(key.MarshalLog()))
	})
}

func TestTotal(t *testing.T) {
	t.Parallel()
	creations, deletions := expectations.Changes{
		Creations: 2, Creating: []string{"a"},
		Deletions: -1, Deleting: []types.UID{"1", "2"},
	}.Total()
	assert.Equal(t, [2]int{3, 1}, [2]int{creations, deletions})
}

func TestNamesAndUIDs(t *testing.T) {
	t.Parallel()
	unnamed := podtest.Pod("")
	unnamed.GenerateName = "web-"
	fake := podtest.Pod("web-1", podtest.UID(""))
	pods := []*corev1.Pod{podtest.Pod("web-0"), nil, unnamed, fake}
	assert.Equal(t, []string{"web-0", "", "web-1"}, expectations.Names(pods))
	assert.Equal(t, []types.UID{"uid-web-0", "uid-", "default/web-1"}, expectations.UIDs(pods))
	assert.Nil(t, expectations.Names[*corev1.Pod](nil))
	assert.Nil(t, expectations.UIDs[*corev1.Pod](nil))

	var store expectations.Store[string]
	store.Set("web", expectations.Changes{Creating: expectations.Names(pods), Deleting: expectations.UIDs(pods)})
	pending, _ := store.Get("web")
	creations, deletions := pending.Total()
	assert.Equal(t, 3, creations, "an empty name is counted")
	assert.Equal(t, 3, deletions)
	expectations.Sync(&store, "web", []*corev1.Pod{podtest.Pod("web-0"), fake}, nil)
	assert.True(t, store.Deleting("web", "default/web-1"), "as Sync takes one without UID")
	assert.False(t, store.Deleting("web", "uid-"))
}
