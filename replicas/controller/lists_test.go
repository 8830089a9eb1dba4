// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestOldView(t *testing.T) {
	t.Parallel()
	// expired is a rig whose owner has waited too long for a creation.
	expired := func(t *testing.T, want int32, live ...*corev1.Pod) *podRig {
		t.Helper()
		r := newRig(want)
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return live, nil }
		return r
	}
	const late = 301 // seconds
	t.Run("E3 W13 nothing is created on it: a live list decides", func(t *testing.T) {
		t.Parallel()
		there := podsOf(replicaSet(3), 3)
		r := expired(t, 3, there...)
		pass, err := r.pass(t, late)
		require.NoError(t, err)
		assert.Equal(t, []string{"list default app=web"}, r.calls)
		assert.True(t, pass.ViewWasStale)
		assert.Equal(t, 1, pass.LiveLists())
		assert.Equal(t, names(there), names(pass.Active))
		assert.EqualValues(t, 3, r.statuses[0].Status.Replicas)
		assert.Zero(t, sum(r.pending()), "settled by the list")
	})
	t.Run("E3 and what the list shows is done, once: the next event does not plan from the cache again", func(t *testing.T) {
		t.Parallel()
		there := podsOf(replicaSet(3), 2)
		r := expired(t, 3, there...)
		pass, err := r.pass(t, late)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
		created := podtest.Pod(pass.Created[0].Name, owned(r.owner))
		require.NoError(t, r.start().ChildAdded(created)) // its event comes, the others' do not
		for i := range 10 {
			pass, err = r.pass(t, late+i, created)
			require.NoError(t, err)
			assert.Empty(t, r.calls)
			assert.Len(t, pass.Active, 3)
		}
	})
	t.Run("E3 nor is anything deleted: what a list has proven to be gone counts no more", func(t *testing.T) {
		t.Parallel()
		pods := podsOf(replicaSet(30), 60)
		r := newRig(30)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Len(t, pass.Deleted, 30)
		gone := names(pass.Deleted)
		r.live = func() ([]*corev1.Pod, error) {
			return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return slices.Contains(gone, p.Name) }), nil
		}
		lists := 0
		for i := range 20 { // the watch hangs for two hours
			pass, err = r.pass(t, late+i*360, pods...)
			require.NoError(t, err)
			assert.Empty(t, r.callsOf("delete"))
			assert.Len(t, pass.Active, 30)
			lists += pass.LiveLists()
		}
		assert.InDelta(t, 20, lists, 1, "one in five minutes")
	})
	t.Run("E3 nor does what the list showed count once a call has proven it gone, though the cache never had it", func(t *testing.T) {
		t.Parallel()
		there := podsOf(replicaSet(2), 3)
		podtest.NotReady(there[2])
		r := expired(t, 2, there...)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
		_, err := r.pass(t, late, there[:2]...)
		require.NoError(t, err)
		assert.Equal(t, []string{"delete web-002"}, r.callsOf("delete"))
		pass, err := r.pass(t, late+1, there[:2]...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Len(t, pass.Active, 2)
	})
	t.Run("E3 a number that is right by chance is no proof if what was done is missing from it", func(t *testing.T) {
		t.Parallel()
		r := expired(t, 3, podsOf(replicaSet(3), 4)...)
		pass, err := r.pass(t, late, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		assert.True(t, pass.ViewWasStale)
		assert.Len(t, pass.Deleted, 1, "the lost one was there")

		r = newRig(2)
		pods := podsOf(r.owner, 3)
		_, err = r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Len(t, r.last.Deleted, 1)
		*r.owner.Spec.Replicas = 3
		r.live = func() ([]*corev1.Pod, error) { return pods[1:], nil }
		pass, err = r.pass(t, late, pods...)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1, "the deleted one is gone")
	})
	t.Run("nothing is listed if there is nothing to do, and nothing that was done is missing", func(t *testing.T) {
		t.Parallel()
		r := expired(t, 3)
		pods := podsOf(r.owner, 3)
		pods[0].Name, pods[0].UID = "web-lost", "uid-web-lost"
		pass, err := r.pass(t, late, pods...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.False(t, pass.ViewWasStale)

		r = givenUp(t, 3)
		pass, err = r.pass(t, 602, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.False(t, pass.ViewWasStale)
	})
	t.Run("E3 Y10 an owner that is being deleted needs no list", func(t *testing.T) {
		t.Parallel()
		r := expired(t, 3)
		r.owner.DeletionTimestamp = &metav1.Time{Time: podtest.Now}
		_, err := r.pass(t, late)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
	})
	t.Run("if the list fails nothing is changed; it is told once, and lists are held from a second to 15 seconds", func(t *testing.T) {
		t.Parallel()
		r := expired(t, 3)
		r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("page 2 is of another version") }
		at := late
		var told []string
		for _, seconds := range []int{1, 2, 4, 8, 15, 15} {
			pass, err := r.pass(t, at, podtest.Pod("orphan"))
			require.ErrorContains(t, err, `controller: ReplicaSet "default/web": listing children live: page 2 is of another version`)
			assert.Equal(t, []string{"list default app=web"}, r.calls)
			assert.True(t, pass.Waiting())
			assert.Equal(t, time.Duration(seconds)*time.Second, pass.RequeueAfter)
			told = append(told, r.events...)
			pass, err = r.pass(t, at+seconds-1, podtest.Pod("orphan"))
			require.NoError(t, err, "held back")
			assert.Empty(t, r.calls)
			assert.Equal(t, time.Second, pass.RequeueAfter)
			assert.Zero(t, pass.LiveLists())
			at += seconds
		}
		assert.Equal(t, []string{"Warning FailedList Error listing: page 2 is of another version"}, told)
		adds, _ := r.pending()
		assert.Equal(t, 1, adds, "the record stays")
	})
	t.Run("W27 a server's Retry-After holds lists", func(t *testing.T) {
		t.Parallel()
		r := expired(t, 3)
		r.live = func() ([]*corev1.Pod, error) { return nil, busy(9) }
		pass, err := r.pass(t, late)
		require.Error(t, err)
		assert.Equal(t, 9*time.Second, pass.RequeueAfter)
	})
	t.Run("what a list has in it that was not asked for does no harm, and a nil is an error", func(t *testing.T) {
		t.Parallel()
		elsewhere := podtest.Pod("a", owned(replicaSet(1)), inNamespace("other"))
		r := expired(t, 1, elsewhere, podtest.Pod("b", owned(replicaSet(1)), podtest.Labels(api)), podtest.Pod("c", ownedBy("other")))
		pass, err := r.pass(t, late)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
		r = expired(t, 1, nil)
		_, err = r.pass(t, late)
		require.ErrorContains(t, err, "items[0] is nil")
		assert.Empty(t, r.callsOf("create"))
	})
	t.Run("releases are planned from the cache alone", func(t *testing.T) {
		t.Parallel()
		r := expired(t, 1)
		pass, err := r.pass(t, late, podtest.Pod("leaves", owned(r.owner), podtest.Labels(api)))
		require.NoError(t, err)
		assert.Equal(t, []string{"leaves"}, names(pass.Released))
	})
	t.Run("where the cache's version is known, the list's is the bar", func(t *testing.T) {
		t.Parallel()
		there := podsOf(replicaSet(3), 3)
		r := expired(t, 3, there...)
		r.childrenVersion, r.liveVersion = "50", "100"
		_, err := r.pass(t, late)
		require.NoError(t, err)
		pass, err := r.pass(t, late)
		require.NoError(t, err)
		assert.Len(t, pass.Active, 3)
		r.childrenVersion = "100" // and it still does not have them: they are gone since
		pass, err = r.pass(t, late)
		require.NoError(t, err)
		assert.Empty(t, pass.Active)
		assert.Len(t, pass.Created, 3)
	})
	t.Run("W52 a child that goes back to an older version makes the view old", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		mine := podtest.Pod("mine", owned(r.owner))
		mine.ResourceVersion = "50"
		_, err := r.pass(t, 0, mine)
		require.NoError(t, err)
		r.settle()
		now := clone(mine)
		now.ResourceVersion = "40"
		require.NoError(t, r.start().ChildUpdated(mine, now))
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{now}, nil }
		pass, err := r.pass(t, 1, now)
		require.NoError(t, err)
		assert.True(t, pass.ViewWasStale, "what was proven before is no proof")
		assert.Len(t, pass.Created, 1)
	})
	t.Run("W51 a creation that does not come back in five minutes makes the view old", func(t *testing.T) {
		t.Parallel()
		r := atVersions(newRig(3), "5", "9")
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		there := podsOf(r.owner, 3)
		r.live = func() ([]*corev1.Pod, error) { return there, nil }
		pass, err := r.pass(t, 300)
		require.NoError(t, err)
		assert.True(t, pass.Waiting())
		assert.Equal(t, time.Nanosecond, pass.RequeueAfter)
		pass, err = r.pass(t, 302)
		require.NoError(t, err)
		assert.True(t, pass.ViewWasStale)
		assert.Len(t, pass.Active, 3)
		assert.Empty(t, r.callsOf("create"))
	})
}

// givenUp is a rig whose pass after five minutes knows only that a write of its own has
// not come back.
func givenUp(t *testing.T, want int32) *podRig {
	t.Helper()
	r := atVersions(newRig(0), "5", "9")
	r.owner.ResourceVersion = "9" // as the status write leaves it
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	pass, err := r.pass(t, 1)
	require.NoError(t, err)
	require.Equal(t, "9", pass.Stale.Wrote)
	*r.owner.Spec.Replicas = want
	return r
}

// No herd: see what a list of many owners costs.
func TestLists(t *testing.T) {
	t.Parallel()
	t.Run("two at once, and owners of one namespace and selector share a list that began after they asked", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := newEventRig()
			r.list = nil
			for i := range 20 {
				r.list = append(r.list, ownerNamed(fmt.Sprintf("web-%d", i), map[string]string{"app": fmt.Sprint("web-", i/4)}))
			}
			var mu sync.Mutex
			under, most, calls := 0, 0, 0
			r.live = func() ([]*corev1.Pod, error) {
				mu.Lock()
				under++
				calls++
				most = max(most, under)
				mu.Unlock()
				time.Sleep(time.Second) // until nothing else can happen
				mu.Lock()
				under--
				mu.Unlock()
				return nil, nil
			}
			for _, rs := range r.list {
				rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
				r.awaits(rs, "web-lost")
			}
			r.now = r.now.Add(time.Hour)
			var all sync.WaitGroup
			for _, rs := range r.list {
				all.Go(func() {
					for again := time.Duration(1); again > 0; time.Sleep(again) {
						var err error
						again, err = r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName)
						waits := r.ledgers()[expectations.KeyOf(rs)].Waits(r.now)
						if !assert.NoError(t, err) || waits > 0 {
							break // it has created
						}
					}
				})
			}
			all.Wait()
			assert.Equal(t, 2, most)
			assert.Less(t, calls, 16)
			assert.Len(t, r.callsOf("create"), 60)
		})
	})
	t.Run("who asks while a list is under way gets another one, as that may not show what came since", func(t *testing.T) {
		t.Parallel()
		r := eventRigOver(ownerNamed("a", web), ownerNamed("b", web))
		began, goOn := make(chan struct{}), make(chan struct{})
		r.live = func() ([]*corev1.Pod, error) {
			began <- struct{}{}
			<-goOn
			return nil, nil
		}
		for _, rs := range r.list {
			r.awaits(rs, "web-lost")
		}
		r.now = r.now.Add(time.Hour)
		var both sync.WaitGroup
		for _, rs := range r.list {
			both.Go(func() {
				_, err := r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName)
				assert.NoError(t, err)
			})
			select {
			case <-began:
			case <-time.After(time.Minute):
				assert.Fail(t, "no list began")
			}
		}
		close(goOn)
		both.Wait()
		assert.Len(t, r.callsOf("list"), 2)
	})
	t.Run("who waits for a list does so no longer than its context, and holds nobody back", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.awaits(r.owner, "web-lost")
		r.now = r.now.Add(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		r.live = func() ([]*corev1.Pod, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		_, err := r.start().Sync(ctx, r.key().NamespacedName)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		r.live = func() ([]*corev1.Pod, error) { return nil, nil }
		_, err = r.start().Sync(t.Context(), r.key().NamespacedName)
		require.NoError(t, err)
	})
}

// Two lists hang: passes that need no list have workers, and after a while others do.
func TestListsThatHang(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newEventRig()
		r.list = nil
		for i := range 6 {
			r.list = append(r.list, ownerNamed(fmt.Sprintf("web-%d", i), map[string]string{"app": fmt.Sprint("web-", i)}))
		}
		r.liveIn = func(ctx context.Context) ([]*corev1.Pod, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for _, rs := range r.list {
			rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
			r.awaits(rs, "web-lost")
		}
		r.now = r.now.Add(time.Hour)
		began := time.Now()
		var all sync.WaitGroup
		for _, rs := range r.list[:4] {
			all.Go(func() {
				_, err := r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName)
				assert.ErrorContains(t, err, "a list took more than 30s")
			})
		}
		synctest.Wait()
		for _, rs := range r.list[4:] {
			after, err := r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName)
			require.NoError(t, err)
			assert.Equal(t, time.Second, after)
			r.mu.Lock()
			gates := r.last.Gates
			r.mu.Unlock()
			require.Len(t, gates, 1)
			assert.Equal(t, controller.ListsBusy, gates[0].Reason)
		}
		assert.Zero(t, time.Since(began), "nobody who came later waited")
		all.Wait()
		assert.LessOrEqual(t, time.Since(began), time.Minute)
	})
}

func TestAListThatFailsHoldsTheOthersToo(t *testing.T) {
	t.Parallel()
	r := eventRigOver(ownerNamed("a", web), ownerNamed("b", api))
	for _, rs := range r.list {
		rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
		r.awaits(rs, "web-lost")
	}
	r.now = r.now.Add(time.Hour)
	r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("the server is away") }
	_, err := r.start().Sync(t.Context(), expectations.KeyOf(r.list[0]).NamespacedName)
	require.Error(t, err)
	after, err := r.start().Sync(t.Context(), expectations.KeyOf(r.list[1]).NamespacedName)
	require.NoError(t, err)
	assert.Equal(t, time.Second, after)
	assert.Equal(t, []string{"list default app=web"}, r.callsOf("list"))
}

func TestAListThatIsGivenUp(t *testing.T) {
	t.Parallel()
	t.Run("who shares it makes one of its own", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := eventRigOver(ownerNamed("a", api), ownerNamed("b", map[string]string{"app": "b"}), ownerNamed("c", web), ownerNamed("d", web))
			hang := make(chan struct{})
			lists := 0
			r.live = func() ([]*corev1.Pod, error) {
				r.mu.Lock()
				lists++
				first := lists <= 2
				r.mu.Unlock()
				if first { // both turns are taken
					<-hang
				}
				return nil, nil
			}
			for _, rs := range r.list {
				rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
				r.awaits(rs, "web-lost")
			}
			r.now = r.now.Add(time.Hour)
			sync := func(ctx context.Context, rs *appsv1.ReplicaSet, want func(error)) {
				go func() {
					_, err := r.start().Sync(ctx, expectations.KeyOf(rs).NamespacedName)
					want(err)
				}()
				synctest.Wait()
			}
			none := func(err error) { assert.NoError(t, err) }
			sync(t.Context(), r.list[0], none)
			sync(t.Context(), r.list[1], none)
			ctx, cancel := context.WithCancel(t.Context())
			sync(ctx, r.list[2], func(err error) { assert.ErrorIs(t, err, context.Canceled) })
			shared := false
			sync(t.Context(), r.list[3], func(err error) { shared = true; assert.NoError(t, err) })
			cancel()
			synctest.Wait()
			assert.False(t, shared, "it still waits for its turn")
			close(hang)
			synctest.Wait()
			assert.True(t, shared)
			assert.Equal(t, 3, lists)
		})
	})
	t.Run("lists of one Controller that hang do not hold back those of another", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			hanging, other := eventRigOver(ownerNamed("a", web), ownerNamed("b", api)), newRig(1)
			hang := make(chan struct{})
			hanging.live = func() ([]*corev1.Pod, error) { <-hang; return nil, nil }
			for _, rs := range hanging.list {
				rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
				hanging.awaits(rs, "web-lost")
			}
			hanging.now = hanging.now.Add(time.Hour)
			for _, rs := range hanging.list {
				go func() { _, _ = hanging.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName) }()
			}
			synctest.Wait()
			require.Len(t, hanging.callsOf("list"), 2)
			other.live = func() ([]*corev1.Pod, error) { return nil, nil }
			other.awaits(other.owner, "web-lost")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			other.now = other.now.Add(time.Hour)
			_, err := other.start().Sync(ctx, other.key().NamespacedName)
			require.NoError(t, err)
			close(hang)
		})
	})
}

// Who is held back comes back, also if the hold ends while the pass is under way.
func TestAHoldThatEndsDuringThePass(t *testing.T) {
	t.Parallel()
	t.Run("of lists", func(t *testing.T) {
		t.Parallel()
		for before := range 12 { // one of them asks in between
			r := newRig(3)
			r.awaits(r.owner, "web-lost")
			r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("the server is away") }
			_, err := r.pass(t, 301)
			require.Error(t, err)
			r.look = func() { r.now = r.now.Add(time.Nanosecond) }
			pass, err := r.passAt(t, 302*time.Second-time.Duration(before)*time.Nanosecond)
			assert.True(t, err != nil || pass.RequeueAfter > 0, "%d ns before", before)
		}
	})
	t.Run("of an adoption", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patch = func(*corev1.Pod) error { return busy(1) }
		orphan := podtest.Pod("orphan")
		_, err := r.pass(t, 0, orphan)
		require.Error(t, err)
		r.now = podtest.Now.Add(time.Second - time.Millisecond)
		r.children = func() ([]*corev1.Pod, error) {
			r.now = podtest.Now.Add(2 * time.Second)
			return []*corev1.Pod{orphan}, nil
		}
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Positive(t, pass.RequeueAfter)
	})
}

// An orphan that is refused leaves a place that the plan took for filled.
func TestOldViewAndARefusedOrphan(t *testing.T) {
	t.Parallel()
	start := func(t *testing.T) (*podRig, []*corev1.Pod) {
		t.Helper()
		r := givenUp(t, 3)
		r.patch = func(c *corev1.Pod) error { return invalid(c.Name) }
		return r, append(podsOf(r.owner, 2), podtest.Pod("orphan"))
	}
	t.Run("E3 W42 the place is filled after a live list", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		r.live = func() ([]*corev1.Pod, error) { return pods, nil }
		pass, err := r.pass(t, 602, pods...)
		require.NoError(t, err)
		assert.Equal(t, 1, pass.LiveLists())
		assert.Len(t, pass.Created, 1)
	})
	t.Run("E3 W42 and not if the list shows that it is filled", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 3), nil }
		pass, err := r.pass(t, 602, pods...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
		assert.Len(t, pass.Active, 3)
	})
	t.Run("E3 C13 a child that could not be released does not count", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 3), nil }
		var former []*corev1.Pod
		for _, name := range []string{"a", "b"} {
			former = append(former, podtest.Pod(name, owned(r.owner), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} }))
		}
		pass, err := r.pass(t, 602, append(pods, former...)...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("patch"), 3)
		assert.Empty(t, r.callsOf("delete"))
		assert.Equal(t, []string{"web-000", "web-001", "web-002"}, names(pass.Active))
	})
	t.Run("E3 C13 one that was released keeps no place", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		refuse := r.patch
		r.patch = func(c *corev1.Pod) error {
			if c.Name == "a" {
				return nil
			}
			return refuse(c)
		}
		r.patched = func(c *corev1.Pod) { c.OwnerReferences = nil }
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 2), nil }
		former := podtest.Pod("a", owned(r.owner), func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} })
		pass, err := r.pass(t, 602, append(pods, former)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"a"}, names(pass.Released))
		assert.Len(t, pass.Created, 1)
	})
	t.Run("E3 L3 who is one too many in the list is ranked by co-location, as ever", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		there := podsOf(r.owner, 4)
		there[3].Spec.NodeName = "crowded"
		r.live = func() ([]*corev1.Pod, error) { return there, nil }
		r.related = func() (siblings []*corev1.Pod, _ error) {
			for i := range 5 {
				siblings = append(siblings, podtest.Pod(fmt.Sprint("sibling-", i), podtest.On("crowded")))
			}
			return siblings, nil
		}
		pass, err := r.pass(t, 602, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-003"}, names(pass.Deleted))
	})
	t.Run("E3 C26 nor with an orphan that the cache does not know", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		r.live = func() ([]*corev1.Pod, error) { return append(slices.Clone(pods), podtest.Pod("new")), nil }
		_, err := r.pass(t, 602, pods...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
	})
	t.Run("E3 W42 if the list fails nothing is created, and while lists are held it is no error", func(t *testing.T) {
		t.Parallel()
		r, pods := start(t)
		r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("the server is away") }
		_, err := r.passAt(t, 602*time.Second, pods...)
		require.ErrorContains(t, err, "the server is away")
		assert.Empty(t, r.callsOf("create"))
		pass, err := r.passAt(t, 602*time.Second+time.Millisecond, pods...)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("create"))
		assert.Positive(t, pass.RequeueAfter)
	})
}

// The cache does not know an orphan that a live list has shown.
func TestAnOrphanThatOnlyALiveListShows(t *testing.T) {
	t.Parallel()
	const late = 301 // seconds
	start := func() *podRig {
		r := newRig(2)
		r.awaits(r.owner, "web-lost")
		there, orphan := podtest.Pod("a", owned(r.owner), version("3")), podtest.Pod("orphan", version("4"))
		r.version, r.patched = "5", owned(r.owner)
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{there, orphan}, nil }
		return r
	}
	t.Run("E3 C26 it counts when it is adopted, until the cache shows it", func(t *testing.T) {
		t.Parallel()
		r := start()
		pass, err := r.pass(t, late)
		require.NoError(t, err)
		require.Equal(t, []string{"orphan"}, names(pass.Adopted))
		for i := range 3 {
			pass, err = r.pass(t, late+i)
			require.NoError(t, err)
			assert.Empty(t, r.calls, "pass %d", i)
			assert.Equal(t, []string{"a", "orphan"}, names(pass.Active))
		}
	})
	t.Run("E3 C26 its place is held if its adoption is not decided", func(t *testing.T) {
		t.Parallel()
		r := start()
		r.patch = func(*corev1.Pod) error { return timeout() }
		pass, err := r.pass(t, late)
		require.Error(t, err)
		require.Equal(t, []string{"orphan"}, names(pass.AdoptionPending))
		pass, err = r.pass(t, late)
		require.NoError(t, err)
		assert.Equal(t, []string{"orphan"}, names(pass.AdoptionPending))
		assert.Empty(t, r.calls)
		r.patch = func(*corev1.Pod) error { return nil }
		pass, err = r.pass(t, late+1)
		require.NoError(t, err)
		assert.Equal(t, []string{"orphan"}, names(pass.Adopted))
		assert.Empty(t, r.callsOf("create"))
	})
	t.Run("E3 C16 its place is filled when it turns out to be gone", func(t *testing.T) {
		t.Parallel()
		r := start()
		r.patch = func(p *corev1.Pod) error { return notFound(p.Name) }
		pass, err := r.pass(t, late)
		require.NoError(t, err)
		require.Len(t, pass.Created, 1)
		pass, err = r.pass(t, late+1, podtest.Pod(pass.Created[0].Name, owned(r.owner)))
		require.NoError(t, err)
		assert.Empty(t, r.calls, "it is not asked for again")
		assert.Len(t, pass.Active, 2)
	})
	t.Run("E3 one that the cache has and the list has not is not adopted any more", func(t *testing.T) {
		t.Parallel()
		r := start()
		former := podtest.Pod("former", version("2"))
		pass, err := r.pass(t, late, former)
		require.NoError(t, err)
		require.Equal(t, []string{"orphan"}, names(pass.Adopted))
		pass, err = r.pass(t, late+1, former)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Equal(t, []string{"a", "orphan"}, names(pass.Active))
	})
}

// Owners share a list only if it shows the children of both.
func TestListsOfTwoNamespacesAreTwo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		here, there := ownerNamed("web", web), ownerNamed("web", web)
		there.Namespace, there.UID = "other", "uid-of-other-web"
		r := eventRigOver(ownerNamed("x", map[string]string{"app": "x"}), ownerNamed("y", map[string]string{"app": "y"}), here, there)
		busy := make(chan struct{})
		r.live = func() ([]*corev1.Pod, error) {
			<-busy
			return nil, nil
		}
		for _, rs := range r.list {
			rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
			r.awaits(rs, "web-lost")
		}
		r.now = r.now.Add(time.Hour)
		for _, rs := range r.list { // the first two have their turns, the others wait
			go func() { _, _ = r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName) }()
			synctest.Wait()
		}
		close(busy)
		synctest.Wait()
		assert.ElementsMatch(t, []string{"list default app=x", "list default app=y", "list default app=web", "list other app=web"}, r.callsOf("list"))
	})
}

func TestOldViewAndTwoOrphans(t *testing.T) {
	t.Parallel()
	r := givenUp(t, 4)
	r.patch = func(c *corev1.Pod) error {
		if c.Name == "gone" {
			return notFound(c.Name)
		}
		return timeout()
	}
	pods := append(podsOf(r.owner, 2), podtest.Pod("gone"), podtest.Pod("undecided"))
	r.live = func() ([]*corev1.Pod, error) { return append(pods[:2:2], pods[3]), nil }
	pass, err := r.pass(t, 602, pods...)
	require.Error(t, err)
	assert.Equal(t, 1, pass.LiveLists())
	assert.Len(t, pass.Created, 1, "and not two: the undecided one may become the owner's")
}
