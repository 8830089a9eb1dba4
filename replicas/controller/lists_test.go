// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

func TestOldView(t *testing.T) {
	t.Parallel()
	// expired returns a rig whose owner waits for a creation. The value of the constant late is the number of
	// seconds after which the owner has waited too long.
	expired := func(t *testing.T, want int32, live ...*corev1.Pod) *podRig {
		t.Helper()
		r := newRig(want)
		r.awaits(r.owner, "web-lost")
		r.live = func() ([]*corev1.Pod, error) { return live, nil }
		return r
	}
	const late = 301 // seconds
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
		assert.Equal(t, 1, telemetry.LiveLists(pass.Calls), "what was proven before is no proof")
		assert.Len(t, pass.Created, 1)
	})
}

// If many owners need live lists at the same time, few lists are made at once, and owners share lists.
func TestLists(t *testing.T) {
	t.Parallel()
	t.Run("two at once, and who finds two under way comes again", func(t *testing.T) {
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
				time.Sleep(time.Second) // with synctest, the sleep ends when nothing else can happen
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
							break // the pass has created the pods
						}
					}
				})
			}
			all.Wait()
			assert.Equal(t, 2, most)
			assert.Equal(t, 20, calls, "each owner has its own")
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
	t.Run("a pass that was canceled holds no list back", func(t *testing.T) {
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

// If two lists hang, another pass that needs a list ends immediately. The worker that made this pass is then free for
// passes that need no list. A list that hangs fails after 30 seconds, so that the next list can begin.
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
		for _, rs := range r.list[:2] {
			all.Go(func() {
				_, err := r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName)
				assert.ErrorContains(t, err, "a list took more than 30s")
			})
		}
		synctest.Wait()
		for _, rs := range r.list[2:] {
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
		assert.Equal(t, 30*time.Second, time.Since(began))
	})
}

// Lists hang for twenty minutes. While two are under way, the passes of other owners find them busy, and when these
// two have failed, lists are held back. Both are one gate each, until a list succeeds.
func TestListsThatHangAreToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newEventRig()
		r.list = nil
		began := time.Now()
		r.opts.Now = func() time.Time { return podtest.Now.Add(time.Hour + time.Since(began)) }
		told := map[string]int{}
		r.kind.Observe = func(_ context.Context, pass podPass) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, change := range r.changes {
				message, _ := change.Log()
				told[pass.Name.Name+": "+change.Reason.String()+" "+message]++
			}
		}
		r.liveIn = func(ctx context.Context) ([]*corev1.Pod, error) {
			if time.Since(began) > 20*time.Minute {
				return nil, nil
			}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		for i := range 6 {
			rs := ownerNamed(fmt.Sprintf("web-%d", i), map[string]string{"app": fmt.Sprint("web-", i)})
			rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
			r.list = append(r.list, rs)
			r.awaits(rs, "web-lost")
		}
		var all sync.WaitGroup
		for _, rs := range r.list {
			all.Go(func() {
				for time.Since(began) < 21*time.Minute {
					after, _ := r.start().Sync(t.Context(), expectations.KeyOf(rs).NamespacedName)
					time.Sleep(max(after, time.Second)) // with synctest, the sleep ends when nothing else can happen
				}
			})
		}
		all.Wait()
		assert.NotEmpty(t, told)
		for change, times := range told {
			assert.Equal(t, 1, times, change)
		}
		for _, reason := range []string{"ListFailed", "ListsBusy"} {
			assert.Zero(t, r.metric(t, "gated_owners", reason), "the end of the gate is noticed")
		}
	})
}

func TestAListThatFailsHoldsNoOthers(t *testing.T) {
	t.Parallel()
	r := eventRigOver(ownerNamed("a", web), ownerNamed("b", api))
	for _, rs := range r.list {
		rs.Spec.Template.Labels = rs.Spec.Selector.MatchLabels
		r.awaits(rs, "web-lost")
	}
	r.now = r.now.Add(time.Hour)
	r.live = func() ([]*corev1.Pod, error) { return nil, errors.New("a webhook does not like this selector") }
	_, err := r.start().Sync(t.Context(), expectations.KeyOf(r.list[0]).NamespacedName)
	require.Error(t, err)
	after, err := r.start().Sync(t.Context(), expectations.KeyOf(r.list[0]).NamespacedName)
	require.NoError(t, err, "it waits")
	assert.Equal(t, time.Second, after)
	r.live = func() ([]*corev1.Pod, error) { return nil, nil }
	_, err = r.start().Sync(t.Context(), expectations.KeyOf(r.list[1]).NamespacedName)
	require.NoError(t, err)
	assert.Equal(t, []string{"list default app=web", "list default app=api"}, r.callsOf("list"))
}

func TestListsOfOneControllerThatHangDoNotHoldBackThoseOfAnother(t *testing.T) {
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
}

// If a hold postpones a list or an adoption of a pass, a second pass follows. The second pass also follows if the
// hold ends while the first pass is still under way.
func TestAHoldThatEndsDuringThePass(t *testing.T) {
	t.Parallel()
	t.Run("of lists", func(t *testing.T) {
		t.Parallel()
		for before := range 12 { // in each round, the hold ends after a different number of reads of the clock
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

// If the server refuses an adoption, the owner lacks a child that the plan has counted. If the view is old, the
// pass then lists the children live. In this test, the list shows one child too many.
func TestOldViewAndARefusedOrphan(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	r.start().NewTerm(t.Context(), "")
	*r.owner.Spec.Replicas = 3
	r.patch = func(c *corev1.Pod) error { return invalid(c.Name) }
	there := podsOf(r.owner, 4)
	there[3].Spec.NodeName = "crowded"
	r.live = func() ([]*corev1.Pod, error) { return there, nil }
	r.related = func() (siblings []*corev1.Pod, _ error) {
		for i := range 5 {
			siblings = append(siblings, podtest.Pod(fmt.Sprint("sibling-", i), podtest.On("crowded")))
		}
		return siblings, nil
	}
	pass, err := r.pass(t, 602, append(podsOf(r.owner, 2), podtest.Pod("orphan"))...)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-003"}, names(pass.Deleted), "by co-location (E3 L3)")
}

// Owners that wait for the same watch or for the same list do not all ask the server at the same moment.
func TestWhatIsSpread(t *testing.T) {
	t.Parallel()
	// last returns a rig in which the generated names count up, as in other tests. All other random numbers are
	// the largest possible ones.
	last := func() *podRig {
		const letters = 27
		r := newRig(1)
		r.opts.Random = func(n int) int {
			if n == letters {
				return r.random(n)
			}
			return n - 1
		}
		return r
	}
	t.Run("W13 an expectation expires up to a tenth later", func(t *testing.T) {
		t.Parallel()
		r := last()
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, 5*time.Minute+30*time.Second, pass.RequeueAfter.Round(time.Second))
		short := last()
		short.opts.ExpectationsTimeout = 10 * time.Second
		pass, err = short.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, 11*time.Second, pass.RequeueAfter.Round(time.Second))
	})
	t.Run("a list that failed is made again after a second, as two lists at once need no spreading", func(t *testing.T) {
		t.Parallel()
		r := last()
		r.awaits(r.owner, "web-lost")
		pass, err := r.pass(t, 331)
		require.ErrorContains(t, err, "no list was expected")
		assert.Equal(t, time.Second, pass.RequeueAfter)
	})
}
