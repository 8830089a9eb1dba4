// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

// newProcess returns a rig that checks the owner and the children on the server in its first passes.
func newProcess(want int32) *podRig {
	r := newRig(want)
	r.newProcess = true
	r.opts.ExpectationsTimeout = time.Hour
	return r
}

const list = "list default app=web"

func TestANewProcessLooksLiveBeforeItChangesANumber(t *testing.T) {
	t.Parallel()
	for name, created := range map[string]time.Time{
		"an old owner":                               podtest.Now.Add(-time.Hour),
		"one that has just been created":             podtest.Now,
		"one from a server whose clock is ahead":     podtest.Now.Add(5 * time.Minute),
		"one from a server whose clock is far ahead": podtest.Now.Add(time.Hour),
		"one that does not tell when it was made":    {},
	} {
		t.Run("of "+name+", and creates nothing that is there", func(t *testing.T) {
			t.Parallel()
			r := newProcess(20)
			r.owner.CreationTimestamp = metav1.NewTime(created)
			all := ready(r.owner, 20)
			r.live = func() ([]*corev1.Pod, error) { return all, nil }
			pass, err := r.pass(t, 0, all[:2]...)
			require.NoError(t, err)
			assert.Equal(t, []string{list}, r.calls)
			assert.Equal(t, 1, telemetry.LiveLists(pass.Calls))
			_, err = r.pass(t, 1, all[:19]...)
			require.NoError(t, err)
			assert.Empty(t, r.calls, "what the list has shown counts")
			_, err = r.pass(t, 2, all...)
			require.NoError(t, err)
			*r.owner.Spec.Replicas = 19
			_, err = r.pass(t, 3, all...)
			require.NoError(t, err)
			assert.Equal(t, []string{"read owner", "delete web-000"}, r.calls, "one list is enough")
		})
	}
	t.Run("and deletes nobody beside those that are gone", func(t *testing.T) {
		t.Parallel()
		r := newProcess(4)
		all := ready(r.owner, 6)
		r.live = func() ([]*corev1.Pod, error) { return all[:4], nil }
		_, err := r.pass(t, 0, all...)
		require.NoError(t, err)
		assert.Equal(t, []string{list}, r.calls)
	})
	t.Run("a pass with nothing to do needs no look, the first one that has needs it", func(t *testing.T) {
		t.Parallel()
		r := newProcess(2)
		pods := ready(r.owner, 2)
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		for i := range 3 {
			_, err := r.pass(t, 1000*i, pods...)
			require.NoError(t, err)
			assert.Empty(t, r.calls)
		}
		_, err := r.pass(t, 4000, pods[:1]...)
		require.NoError(t, err)
		assert.Equal(t, []string{list}, r.calls)
	})
	t.Run("if that fails, nothing is done", func(t *testing.T) {
		t.Parallel()
		r := newProcess(2)
		r.live = func() ([]*corev1.Pod, error) { return nil, forbidden("", "no") }
		for i := range 3 {
			pass, _ := r.pass(t, 60*i)
			assert.Equal(t, []string{list}, r.calls)
			assert.True(t, pass.Waiting())
			assert.Len(t, r.eventsOf("Warning FailedList"), map[int]int{0: 1}[i], "told once")
		}
	})
	t.Run("another term is as a new process", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		_, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.NoError(t, err)
		r.start().NewTerm(t.Context(), "")
		r.live = func() ([]*corev1.Pod, error) { return ready(r.owner, 2), nil }
		_, err = r.pass(t, 3600)
		require.NoError(t, err)
		assert.Equal(t, []string{list}, r.calls)
		new(controller.Controller).NewTerm(t.Context(), "") // New did not make this Controller
	})
}

func TestANewProcessWhoseCacheTellsItsVersion(t *testing.T) {
	t.Parallel()
	const version = "children of default"
	// at returns a rig of a new process. Its cache and its server return the given versions of the children.
	at := func(cache, server string) *podRig {
		r := atVersions(newProcess(2), cache, "")
		r.serverAt = func() (string, error) { return server, nil }
		r.live = func() ([]*corev1.Pod, error) { return ready(r.owner, 2), nil }
		return r
	}
	t.Run("one small list is for all owners", func(t *testing.T) {
		t.Parallel()
		r := at("20", "20")
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, version, r.calls[0])
		assert.Len(t, r.last.Created, 2)
		assert.Zero(t, telemetry.LiveLists(r.last.Calls))
		r.owner.UID = "uid-of-another"
		_, err = r.pass(t, 1)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 2)
		assert.Empty(t, r.callsOf(version))
		assert.Empty(t, r.callsOf("list"))
	})
	t.Run("a cache that is behind is waited for", func(t *testing.T) {
		t.Parallel()
		r := at("20", "30")
		for _, after := range []time.Duration{0, 50, 100, 200} {
			pass, err := r.passAt(t, after*time.Millisecond)
			require.NoError(t, err)
			assert.Equal(t, max(after, 50)*time.Millisecond, pass.RequeueAfter)
			assert.True(t, pass.Waiting())
			assert.Empty(t, r.callsOf("create"))
			assert.Empty(t, r.callsOf("list"))
			assert.Len(t, r.callsOf(version), map[time.Duration]int{0: 1}[after])
		}
		atVersions(r, "30", "")
		_, err := r.passAt(t, 400*time.Millisecond)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 2)
		assert.Empty(t, r.callsOf("list"))
	})
	for name, tt := range map[string]struct {
		cache, server string
		err           error
	}{
		"a cache that is far behind":  {"20", "30", nil},
		"a server that does not tell": {"20", "", nil},
		"versions that are words":     {"b", "b", nil},
		"a server that refuses":       {"20", "30", errors.New("no")},
	} {
		t.Run(name+" is waited for two seconds, and then there is a live list", func(t *testing.T) {
			t.Parallel()
			r := at(tt.cache, tt.server)
			r.serverAt = func() (string, error) { return tt.server, tt.err }
			var waited time.Duration
			for len(r.callsOf("list")) == 0 {
				pass, err := r.passAt(t, waited)
				require.NoError(t, err)
				if telemetry.LiveLists(pass.Calls) == 0 {
					require.LessOrEqual(t, pass.RequeueAfter, time.Second)
					waited += pass.RequeueAfter
				}
			}
			assert.Equal(t, 2*time.Second, waited)
			assert.Empty(t, r.last.Created)
		})
	}
	t.Run("a cache that is filled after NewTerm needs no look and no wait, whatever happens on the server then", func(t *testing.T) {
		t.Parallel()
		r := at("", "20")
		r.ownersAt = func() (string, error) { return "20", nil }
		r.start().NewTerm(t.Context(), "default")
		assert.Equal(t, []string{"owners of default", version}, r.calls)
		r.serverAt = func() (string, error) { return "30", nil }
		atVersions(r, "20", "")
		r.owner.ResourceVersion = "20"
		_, err := r.pass(t, 60)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 2)
		for _, look := range []string{"list", version, "owners of default"} {
			assert.Empty(t, r.callsOf(look), look)
		}
	})
	t.Run("a cache that was filled before NewTerm is waited for, from the first pass on", func(t *testing.T) {
		t.Parallel()
		r := at("20", "30")
		r.start().NewTerm(t.Context(), "default")
		pass, err := r.pass(t, 60)
		require.NoError(t, err)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
		assert.Empty(t, r.callsOf("create"))
		assert.Empty(t, r.callsOf("list"))
		_, err = r.pass(t, 62)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("list"), 1)
	})
	t.Run("a server that does not answer NewTerm is asked by the first pass", func(t *testing.T) {
		t.Parallel()
		r := at("20", "")
		r.serverAt = func() (string, error) { return "", errors.New("no") }
		r.start().NewTerm(t.Context(), "default")
		r.serverAt = func() (string, error) { return "20", nil }
		_, err := r.pass(t, 60)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 2)
		assert.Len(t, r.callsOf(version), 1)
	})
	t.Run("a call that hangs holds up no other owner for longer", func(t *testing.T) {
		t.Parallel()
		r := at("20", "30")
		inside := false
		r.serverAt = func() (string, error) {
			if inside {
				return "", errors.New("it is asked once at a time")
			}
			inside = true
			other := *r.owner
			other.Name, other.UID = "other", "uid-of-other"
			mine := r.owner
			r.owner = &other
			for _, after := range []time.Duration{1, 2} {
				r.now = podtest.Now.Add(after * time.Second)
				pass, err := r.sync(t, t.Context())
				require.NoError(t, err)
				assert.Equal(t, int(after)-1, telemetry.LiveLists(pass.Calls))
			}
			r.owner, r.now = mine, podtest.Now
			return "20", nil
		}
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, r.last.Created, 2)
	})
	t.Run("a client that cannot tell leaves a live list for each owner", func(t *testing.T) {
		t.Parallel()
		r := at("20", "30")
		r.serverAt = nil
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{list}, r.calls)
	})
}

// The cache of a new process may contain an older owner than an earlier process saw. Before its first creations,
// the new process therefore reads the owner from the server. The read is not necessary if the owner's version
// shows that the owner is new enough.
func TestANewProcessReadsTheOwnerBeforeItsFirstCreations(t *testing.T) {
	t.Parallel()
	const read, owners = "read owner", "owners of default"
	start := func() (*podRig, []*corev1.Pod) {
		r := newProcess(4)
		all := ready(r.owner, 2)
		r.live = func() ([]*corev1.Pod, error) { return all, nil }
		return r, all
	}
	t.Run("it is read once", func(t *testing.T) {
		t.Parallel()
		r, all := start()
		pass, err := r.pass(t, 0, all...)
		require.NoError(t, err)
		assert.Equal(t, []string{list, read}, r.calls[:2])
		assert.Len(t, pass.Created, 2)
		r.settle()
		*r.owner.Spec.Replicas = 5
		pass, err = r.pass(t, 1, append(all, pass.Created...)...)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
		assert.NotContains(t, r.calls, read)
	})
	t.Run("it is read again if a child left that nobody deleted here", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.NotContains(t, r.calls, read)
		there := pass.Created
		for second := 1; second <= 5; second++ {
			r.settle()
			pass, err = r.pass(t, second, there[1:]...)
			require.NoError(t, err)
			assert.Len(t, pass.Created, 1)
			assert.Contains(t, r.calls, read, second)
			there = append(there[1:], pass.Created...)
		}
	})
	t.Run("it is not read again for children that were deleted or released here", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		there := pass.Created
		r.settle()
		*r.owner.Spec.Replicas = 2
		pass, err = r.pass(t, 1, there...)
		require.NoError(t, err)
		there = slices.DeleteFunc(there, func(c *corev1.Pod) bool { return c.Name == pass.Deleted[0].Name })
		r.settle()
		*r.owner.Spec.Replicas = 3
		there[0].Labels = api
		pass, err = r.pass(t, 2, there...)
		require.NoError(t, err)
		assert.Len(t, pass.Released, 1)
		assert.Len(t, pass.Created, 2)
		assert.NotContains(t, r.calls, read)
	})
	t.Run("an owner that is gone then replaces nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		r.settle()
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") }
		pass, err = r.pass(t, 1, pass.Created[1:]...)
		require.NoError(t, err)
		assert.Equal(t, []string{read}, r.calls)
		assert.Empty(t, pass.Created)
	})
	t.Run("not if it was written since the process began", func(t *testing.T) {
		t.Parallel()
		for name, tt := range map[string]struct {
			cached, server string
			err            error
			reads          int
		}{
			"written since":                {"21", "20", nil, 0},
			"written last":                 {"20", "20", nil, 0},
			"written before":               {"19", "20", nil, 1},
			"a server that does not tell":  {"21", "", nil, 1},
			"a server that refuses":        {"21", "20", forbidden("", "no"), 1},
			"a server whose are words":     {"21", "b", nil, 1},
			"a cache whose are words":      {"b", "20", nil, 1},
			"a cache that does not tell":   {"", "20", nil, 1},
			"a cache without its versions": {"", "", nil, 1},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r, all := start()
				r.serverAt = func() (string, error) { return "30", nil } // the version of the children
				r.ownersAt = func() (string, error) { return tt.server, tt.err }
				r.owner.ResourceVersion = tt.cached
				pass, err := r.pass(t, 0, all...)
				require.NoError(t, err)
				assert.Equal(t, append([]string{list, owners}, slices.Repeat([]string{read}, tt.reads)...), r.calls[:2+tt.reads])
				assert.Len(t, pass.Created, 2)
			})
		}
	})
	t.Run("one small list of owners is for all", func(t *testing.T) {
		t.Parallel()
		r, all := start()
		r.serverAt = func() (string, error) { return "", nil }
		r.ownersAt = func() (string, error) { return "20", nil }
		r.owner.ResourceVersion = "19"
		_, err := r.pass(t, 0, all...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf(read), 1)
		r.owner.UID, r.owner.ResourceVersion = "uid-of-another", "21"
		_, err = r.pass(t, 1, all...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("create"), 4)
		assert.Empty(t, r.callsOf(read))
		assert.Empty(t, r.callsOf(owners))

		r.settle()
		r.ownersAt = func() (string, error) { return "22", nil }
		r.start().NewTerm(t.Context(), "default")
		assert.Len(t, r.callsOf(owners), 1, "another term asks anew")
		_, err = r.pass(t, 3600, all...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf(read), 1)
	})
	t.Run("deletions are preceded by a read all the same", func(t *testing.T) {
		t.Parallel()
		r, _ := start()
		r.serverAt = func() (string, error) { return "", nil }
		r.ownersAt = func() (string, error) { return "20", nil }
		r.owner.ResourceVersion = "21"
		all := ready(r.owner, 5)
		r.live = func() ([]*corev1.Pod, error) { return all, nil }
		_, err := r.pass(t, 0, all...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("delete"), 1)
		assert.Len(t, r.callsOf(read), 1)
		assert.Empty(t, r.callsOf(owners))
	})
	t.Run("if fewer are wanted by now, none is created", func(t *testing.T) {
		t.Parallel()
		r, all := start()
		r.owner.ResourceVersion = "5"
		fresh := clone(r.owner)
		*fresh.Spec.Replicas, fresh.Generation, fresh.ResourceVersion = 2, 2, "7"
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return clone(fresh), nil }
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return conflict("web") }
		for second := range 3 {
			pass, _ := r.pass(t, second, all...) // the status meets a Conflict
			assert.Empty(t, pass.Created)
			assert.True(t, pass.Desired == 2 || len(gatesOf(pass.Gates, controller.OwnerStale)) > 0, "after a second it goes by what it read")
		}
	})
	t.Run("if that fails, creations go on", func(t *testing.T) {
		t.Parallel()
		for name, read := range map[string]func() (*appsv1.ReplicaSet, error){
			"it is forbidden":      func() (*appsv1.ReplicaSet, error) { return nil, forbidden("web", "no rights") },
			"there is no answer":   func() (*appsv1.ReplicaSet, error) { return nil, timeout() },
			"it is another object": func() (*appsv1.ReplicaSet, error) { return &appsv1.ReplicaSet{}, nil },
			"it is no object":      func() (*appsv1.ReplicaSet, error) { return nil, nil },
		} {
			r, all := start()
			r.getOwner = read
			pass, err := r.pass(t, 0, all...)
			require.NoError(t, err, name)
			assert.Len(t, pass.Created, 2, name)
		}
	})
}
