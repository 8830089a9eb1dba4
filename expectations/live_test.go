// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

func TestSyncLive(t *testing.T) {
	t.Parallel()
	type pods = []*corev1.Pod
	x, y, z := podtest.Pod("x"), podtest.Pod("y"), podtest.Pod("z")
	for name, test := range map[string]struct {
		expected     changes
		cached, live pods
		want         changes
	}{
		"E3 what the server has and the cache has not stays expected": {
			changes{Creating: []string{"x", "y"}}, pods{x}, pods{x, y}, changes{Creating: []string{"y"}},
		},
		"W8 a creation that nobody knows failed": {
			changes{Creating: []string{"x", "y"}}, nil, pods{x}, changes{Creating: []string{"x"}},
		},
		"E3 what is gone and the cache still has stays expected": {
			changes{Deleting: uids{"uid-x", "uid-y"}}, pods{x, y}, pods{y}, changes{Deleting: uids{"uid-x"}},
		},
		"W9 what is gone for the cache too will not come": {
			changes{Deleting: uids{"uid-x", "uid-y"}}, pods{y}, nil, changes{Deleting: uids{"uid-y"}},
		},
		"E3 of a number as many stay as the cache has still to see": {
			changes{Creations: 5, Deletions: 5}, pods{x}, pods{y, z}, changes{Creations: 2, Deletions: 1},
		},
		"E3 also if they are more than were expected: the cache is old": {
			changes{Creations: 1, Deletions: 1}, pods{x}, pods{y, z}, changes{Creations: 2, Deletions: 1},
		},
		"E3 and if others were expected, which will not come": {
			changes{Creating: []string{"lost"}}, pods{x, y}, pods{y, z}, changes{Creations: 1, Deletions: 1},
		},
		"E3 and without those that are known": {
			changes{Creations: 5, Creating: []string{"y"}}, nil, pods{y, z}, changes{Creations: 1, Creating: []string{"y"}},
		},
		"a pod made again under its name is another": {
			changes{Creating: []string{"x"}, Deleting: uids{"uid-x"}},
			pods{x},
			pods{podtest.Pod("x", podtest.UID("another"))},
			changes{Creating: []string{"x"}, Deleting: uids{"uid-x"}},
		},
		"an object without UID goes by its name, and nil ones are skipped": {
			changes{Creating: []string{"x"}, Deleting: uids{"default/y", "default/z"}},
			pods{nil, podtest.Pod("y", podtest.UID(""))},
			pods{podtest.Pod("x", podtest.UID("")), nil},
			changes{Creating: []string{"x"}, Deleting: uids{"default/y"}},
		},
		"what was seen beyond what was expected is forgotten": {
			changes{Creations: -2, Deletions: -1}, pods{x}, pods{x}, changes{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			s := &store{Now: c.Now}
			s.Set("a", test.expected)
			c.advance(time.Hour)
			for range 2 { // a second call changes nothing
				got := expectations.SyncLive(s, "a", test.cached, test.live, nil)
				assert.Equal(t, expectations.Pending{Changes: test.want, Since: start}, got, "the time stays")
				assert.Equal(t, test.want, left(s, "a"))
			}
			if creations, deletions := test.want.Total(); creations+deletions > 0 {
				assert.Equal(t, expectations.Expired, stateOf(s, "a"))
			} else {
				assert.Equal(t, expectations.Satisfied, stateOf(s, "a"))
			}
		})
	}
	t.Run("what does not count is not missed, in whichever list it is", func(t *testing.T) {
		t.Parallel()
		foreign, finished := podtest.Pod("foreign"), podtest.Pod("finished", podtest.Phase(corev1.PodFailed))
		ours := func(p *corev1.Pod) bool { return p.Name != "foreign" && p.Status.Phase != corev1.PodFailed }
		for name, lists := range map[string][2]pods{
			"the live list is by labels, the cached one by owner": {{x}, {x, foreign}},
			"the cached list also has those that have ended":      {{x, finished}, {x}},
			"both have others": {{x, finished, nil}, {nil, x, foreign}},
		} {
			s := &store{Now: (&clock{start}).Now}
			s.Set("a", changes{Creating: []string{"x"}})
			assert.Zero(t, expectations.SyncLive(s, "a", lists[0], lists[1], ours).Changes, name)
			assert.Equal(t, expectations.Satisfied, stateOf(s, "a"), name)
		}
		s := &store{Now: (&clock{start}).Now}
		s.Set("a", changes{Creating: []string{"x"}})
		assert.Equal(t, []string{"x"}, expectations.SyncLive(s, "a", pods{finished}, pods{x, foreign}, ours).Creating)
	})
	t.Run("an object that counts only as the cache has it is gone for the server", func(t *testing.T) {
		t.Parallel()
		active := func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }
		s := &store{Now: (&clock{start}).Now}
		s.Set("a", changes{Deleting: uids{"uid-x"}})
		left := expectations.SyncLive(s, "a", pods{x}, pods{podtest.Pod("x", podtest.Deleting)}, active)
		assert.Equal(t, uids{"uid-x"}, left.Deleting)
	})
	t.Run("E1 an owner without a record stays without one", func(t *testing.T) {
		t.Parallel()
		var s store
		assert.Zero(t, expectations.SyncLive(&s, "a", nil, pods{x}, nil))
		_, ok := s.Get("a")
		assert.False(t, ok)
	})
}

// If the cached objects differ from the live objects, the owner still has expected changes after SyncLive. When
// the cache has caught up, SyncLive removes all expected changes.
func TestSyncLiveIsSettledByTheCache(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := &store{Now: (&clock{start}).Now}
		var expected changes
		var cached, live []*corev1.Pod
		behind := false
		for i := range 10 {
			pod := podtest.Pod(strconv.Itoa(i))
			inCache, isLive := r.IntN(2) == 0, r.IntN(2) == 0
			if inCache {
				cached = append(cached, pod)
			}
			if isLive {
				live = append(live, pod)
			}
			switch r.IntN(4) {
			case 0:
				expected.Creating = append(expected.Creating, pod.Name)
			case 1:
				expected.Deleting = append(expected.Deleting, types.UID("uid-"+pod.Name))
			case 2:
				expected.Creations += r.IntN(5) - 2
				expected.Deletions += r.IntN(5) - 2
			}
			behind = behind || inCache != isLive
		}
		s.Set("a", expected)
		expectations.SyncLive(s, "a", cached, live, nil)
		require.Equal(t, behind, stateOf(s, "a") != expectations.Satisfied, "seed %d", seed)
		require.Zero(t, expectations.SyncLive(s, "a", live, live, nil).Changes, "seed %d: the cache has caught up", seed)
	}
}
