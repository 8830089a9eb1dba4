// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

func TestNames(t *testing.T) {
	t.Parallel()
	t.Run("P4 W8 children are created by names of ours, with generateName beside them", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.send = func(pod *corev1.Pod) {
			assert.Equal(t, "web-", pod.GenerateName)
			assert.Regexp(t, "^web-[bcdfghjklmnpqrstvwxz2456789]{5}$", pod.Name)
		}
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-bbbbb", "web-bbbbc", "web-bbbbd"}, names(pass.Created))
	})
	t.Run("W11 lost creations are looked for after slow start, with up to three reads or one list, and the next pass goes on if all are there", func(t *testing.T) {
		t.Parallel()
		for _, tt := range []struct{ answered, gets, lists, created int }{ // the batches are 1, 2, 4, 8, 5
			{0, 1, 0, 1}, {1, 2, 0, 1 + 2}, {1 + 2, 0, 1, 1 + 2 + 4}, {1 + 2 + 1, 3, 0, 1 + 2 + 4}, {1 + 2 + 4 + 8, 0, 1, 20},
		} {
			r := newRig(20)
			var there []*corev1.Pod
			r.send = func(pod *corev1.Pod) { there = append(there, pod.DeepCopy()) }
			r.create = func(i int) error {
				if i < tt.answered {
					return nil
				}
				return timeout()
			}
			r.live = func() ([]*corev1.Pod, error) { return clones(there), nil }
			r.get = func(name string) (*corev1.Pod, error) { return find(there, name) }
			pass, err := r.pass(t, 0)
			require.NoError(t, err)
			assert.Len(t, pass.Created, tt.created)
			assert.Equal(t, 20-tt.created, pass.Skipped)
			if pass.Skipped > 0 {
				assert.Equal(t, time.Duration(1), pass.RequeueAfter)
			}
			assert.Equal(t, []int{tt.gets, tt.lists}, []int{len(r.callsOf("get")), len(r.callsOf("list"))})
			assert.Equal(t, []int{tt.gets, tt.lists}, []int{telemetry.LiveReads(pass.Calls), telemetry.LiveLists(pass.Calls)})
			assert.Zero(t, pass.InFlight)
			pass, err = r.pass(t, 1)
			require.NoError(t, err)
			assert.Len(t, pass.Active, tt.created, "though the cache has none")
		}
	})
	t.Run("W4 a batch ends the slow start if one of its lost creations took no effect", func(t *testing.T) {
		t.Parallel()
		r := newRig(20)
		r.create = func(i int) error { return map[bool]error{true: timeout()}[i > 0] }
		r.get = func(name string) (*corev1.Pod, error) {
			if name == "web-bbbbd" {
				return nil, notFound(name)
			}
			return podtest.Pod(name, owned(r.owner)), nil
		}
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Len(t, r.callsOf("create"), 1+2)
		assert.Equal(t, []int{2, 1, 17}, []int{len(pass.Created), pass.Failed, pass.Skipped})
	})
	t.Run("W11 500 creations of which 200 have no answer are one list", func(t *testing.T) {
		t.Parallel()
		r := newRig(500)
		var there []*corev1.Pod
		r.send = func(pod *corev1.Pod) { there = append(there, pod.DeepCopy()) }
		r.create = func(i int) error {
			if i < 300 {
				return nil
			}
			return timeout()
		}
		r.live = func() ([]*corev1.Pod, error) { return clones(there[:400]), nil }
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Equal(t, []string{"list default app=web"}, append(r.callsOf("get"), r.callsOf("list")...))
		assert.Len(t, pass.Created, 400)
		assert.Equal(t, 100, pass.InFlight)
		assert.Equal(t, 100, pass.Failed)
	})
	t.Run("W8 a child that left the cache before the call that shows it was answered does not count", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(i int) error { return []error{timeout(), nil, nil}[i] }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		r.mutate = func(p *corev1.Pod) {
			r.mutate = func(*corev1.Pod) {}
			p.ResourceVersion = "5"
			require.NoError(t, r.start().ChildAdded(p))
			gone := clone(p)
			gone.ResourceVersion = "6"
			require.NoError(t, r.start().ChildDeleted(gone))
		}
		_, err = r.pass(t, 1)
		require.NoError(t, err)
		pass, err := r.pass(t, 2)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)

		r = newRig(1)
		r.create = func(i int) error { return []error{timeout(), nil}[i] }
		_, err = r.pass(t, 0)
		require.Error(t, err)
		*r.owner.Spec.Replicas = 0
		r.get = func(name string) (*corev1.Pod, error) {
			late, gone := podtest.Pod(name, owned(r.owner), version("5")), podtest.Pod(name, owned(r.owner), version("6"))
			require.NoError(t, r.start().ChildDeleted(gone))
			return late, nil
		}
		_, err = r.pass(t, 1)
		require.NoError(t, err)
		*r.owner.Spec.Replicas = 1
		pass, err = r.pass(t, 2)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
	})
}

func TestStrays(t *testing.T) {
	t.Parallel()
	t.Run("a stray is deleted by its UID alone if the answer had no version", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.mutate = func(p *corev1.Pod) { p.Labels = nil }
		r.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
			assert.Equal(t, &metav1.Preconditions{UID: &p.UID}, opts.Preconditions)
			return nil
		}
		_, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Len(t, r.callsOf("delete"), 1)
	})
	t.Run("an answer without UID, as of a fake client, counts as created", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.mutate = func(p *corev1.Pod) { p.UID, p.OwnerReferences, p.Labels = "", nil, nil }
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 1)
		assert.Empty(t, r.callsOf("delete"))
	})
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	type step = controller.Step[*corev1.Pod]
	with := func(want int32, prepare func(s *step)) *podRig {
		r := newRig(want)
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
			prepare(s)
			return nil
		}
		return r
	}
	t.Run("it sees what is about to happen, once, and also that there is nothing to do", func(t *testing.T) {
		t.Parallel()
		var seen []string
		r := with(1, func(s *step) { seen = append(seen, fmt.Sprint(len(s.Active), len(s.Create), len(s.Delete))) })
		_, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		r.settle()
		_, err = r.pass(t, 0, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.Equal(t, []string{"3 0 2", "1 0 0"}, seen)
	})
	t.Run("it may leave out creations and deletions", func(t *testing.T) {
		t.Parallel()
		r := with(5, func(s *step) { s.Create = s.Create[:2] })
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, pass.Created, 2)
		adds, _ := r.pending()
		assert.Equal(t, 2, adds)
		r = with(0, func(s *step) { s.Delete = s.Delete[1:2] })
		pass, err = r.pass(t, 0, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
		r = with(5, func(s *step) { s.Create = nil })
		pass, err = r.pass(t, 0)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Empty(t, pass.Created)
	})
	t.Run("it may cut down in place what it is given", func(t *testing.T) {
		t.Parallel()
		r := with(0, func(s *step) {
			spared := s.Delete[0].Object.Name
			s.Delete = slices.DeleteFunc(s.Delete, func(d replicas.Deletion[*corev1.Pod]) bool { return d.Object.Name == spared })
			clear(s.Active)
		})
		pass, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 2)
		assert.Len(t, pass.Scale.Delete, 2)
		assert.NotContains(t, pass.Active, (*corev1.Pod)(nil))
		r = with(5, func(s *step) { s.Create = slices.Delete(s.Create, 0, 4) })
		pass, err = r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, pass.Scale.Names, names(pass.Created))
		assert.NotContains(t, pass.Scale.Names, "")
	})
	for name, tt := range map[string]struct {
		prepare func(s *step)
		err     string
	}{
		"a creation more": {func(s *step) { s.Create = append(s.Create, "web-x") }, "step.Create: a name was added"},
		"a victim of its own": {func(s *step) {
			s.Delete = []replicas.Deletion[*corev1.Pod]{{Victim: podrank.Victim[*corev1.Pod]{Object: podtest.Pod("foreign")}}}
		}, "step.Delete: a child was added"},
		"a victim that is nil": {func(s *step) { s.Delete = make([]replicas.Deletion[*corev1.Pod], 1) }, "step.Delete: a child was added"},
	} {
		t.Run(name+" is an error, and nothing is done", func(t *testing.T) {
			t.Parallel()
			r := with(5, tt.prepare)
			for _, told := range []int{1, 0} {
				pass, err := r.pass(t, 0, podsOf(r.owner, 1)...)
				require.NoError(t, err, "trying again is useless")
				require.ErrorContains(t, pass.Err, `controller: ReplicaSet "default/web": Prepare: `+tt.err)
				assert.Empty(t, r.calls)
				require.Len(t, r.events, told)
			}
			assert.Zero(t, sum(r.pending()))
		})
	}
	// standIns returns a rig with three pods and the two wanted slots web-001 and web-005. One pod too many
	// exists, so the plan deletes web-002. The slot web-005 is free.
	standIns := func(prepare func(s *step)) (*podRig, []*corev1.Pod) {
		r := with(2, prepare)
		spec := r.kind.Spec
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.Slots = func(i int) string { return []string{"web-001", "web-005"}[i] }
			return s, err
		}
		return r, podsOf(r.owner, 3)
	}
	t.Run("a free slot is filled though who is too many may not go", func(t *testing.T) {
		t.Parallel()
		var seen []string
		r, pods := standIns(func(s *step) {
			seen = append(seen, fmt.Sprint(len(s.Create), len(s.Delete)))
			s.Delete = nil
		})
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"1 1"}, seen, "the victim stays in the plan")
		assert.Equal(t, []string{"web-005"}, names(pass.Created))
		assert.Equal(t, 1, pass.Scale.Create)
		adds, dels := r.pending()
		assert.Equal(t, []int{1, 0}, []int{adds, dels})
	})
	t.Run("who vetoes creations too is obeyed", func(t *testing.T) {
		t.Parallel()
		r, pods := standIns(func(s *step) { s.Create, s.Delete = nil, nil })
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"read owner"}, r.calls)
	})
	t.Run("a free slot is filled though who is too many cannot go, and is held", func(t *testing.T) {
		t.Parallel()
		for _, failure := range []error{conflict("web-002"), forbidden("web-002", "webhook"), busy(60), timeout()} {
			r, pods := standIns(func(*step) {})
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return failure }
			r.live = func() ([]*corev1.Pod, error) { return pods, nil }
			pass, err := r.pass(t, 0, pods...)
			if !apierrors.IsConflict(failure) { // the child may have changed, so this is no failure yet
				require.ErrorIs(t, err, failure)
			}
			assert.Equal(t, []string{"web-005"}, names(pass.Created), "%v", failure)
		}
	})
	t.Run("T12 such a pass tells both steps, and the condition what failed", func(t *testing.T) {
		t.Parallel()
		for _, tt := range []struct{ remove, create error }{
			{remove: forbidden("web-002", "webhook")},
			{remove: forbidden("web-002", "webhook"), create: quotaFull()},
		} {
			r, pods := standIns(func(*step) {})
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return tt.remove }
			r.create = func(int) error { return tt.create }
			pass, err := r.pass(t, 0, pods...)
			require.ErrorIs(t, err, tt.remove)
			require.ErrorIs(t, pass.ScaleErr, tt.remove)
			if tt.create != nil {
				require.ErrorIs(t, pass.ScaleErr, tt.create)
			}
			require.Len(t, pass.Scale.Delete, 1)
			assert.Equal(t, "web-002", pass.Scale.Delete[0].Object.Name)
			assert.Equal(t, 1, pass.Scale.Create)
			require.Len(t, pass.Status.Status.Conditions, 1)
			assert.Equal(t, "FailedDelete", pass.Status.Status.Conditions[0].Reason)
			assert.Contains(t, pass.Status.Status.Conditions[0].Message, "webhook")
		}
	})
	t.Run("T12 that who is too many cannot go is told though no slot is free", func(t *testing.T) {
		t.Parallel()
		r, pods := standIns(func(*step) {})
		*r.owner.Spec.Replicas = 1
		r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return forbidden("web-002", "webhook") }
		pass, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		assert.Equal(t, "FailedDelete", pass.Status.Status.Conditions[0].Reason)
	})
	t.Run("a victim that is there twice is an error, and one that is changed goes as planned", func(t *testing.T) {
		t.Parallel()
		r := with(0, func(s *step) { s.Delete = append(s.Delete, s.Delete[0]) })
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		require.ErrorContains(t, pass.Err, "twice")
		assert.Equal(t, []string{"read owner"}, r.calls)
		r = with(0, func(s *step) { s.Delete[0].Options = metav1.DeleteOptions{} })
		r.remove = func(_ *corev1.Pod, opts metav1.DeleteOptions) error {
			assert.NotNil(t, opts.Preconditions)
			return nil
		}
		_, err = r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("delete"), 2)
	})
}

// strayOf returns strays of the rig's owner, as a read finds them.
func strayOf(r *podRig) func(name string) (*corev1.Pod, error) {
	return func(name string) (*corev1.Pod, error) {
		return podtest.Pod(name, owned(r.owner), podtest.UID("uid-"+types.UID(name)), podtest.Labels(map[string]string{"app": "debug"})), nil
	}
}

func TestStraysAreNotForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.mutate = func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} }
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(1) }
	r.get = strayOf(r)
	_, err := r.pass(t, 0)
	require.Error(t, err)
	*r.owner.Spec.Replicas, r.owner.Generation = 0, 2
	pass, err := r.pass(t, 10)
	require.NoError(t, err)
	assert.Len(t, r.callsOf("delete"), 1)
	assert.Equal(t, 2*time.Second, pass.RequeueAfter)
	require.NoError(t, r.start().OwnerDeleted(r.owner)) // it leaves a filtered cache, and comes back
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
	pass, err = r.pass(t, 70)
	require.NoError(t, err)
	assert.Len(t, r.callsOf("delete"), 1)
	assert.Zero(t, pass.RequeueAfter)
}

// The server does not let the Controller delete the five oldest strays. The others are deleted after one hold.
func TestStraysBehindThoseThatMayNotBeDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.mutate = func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} }
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "policy") }
	r.get = strayOf(r)
	left := 0
	for ; left < 17; left++ {
		_, err := r.pass(t, left*400)
		require.Error(t, err)
	}
	var kept []string
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		if len(kept) < 5 && !slices.Contains(kept, p.Name) {
			kept = append(kept, p.Name)
		}
		if slices.Contains(kept, p.Name) {
			return forbidden(p.Name, "policy")
		}
		return nil
	}
	*r.owner.Spec.Replicas, r.owner.Generation = 0, 2
	began := 17 * 400 * time.Second
	at, deleted := began, 0
	for deleted < 12 {
		pass, err := r.passAt(t, at)
		require.NoError(t, err)
		deletes := r.callsOf("delete")
		require.LessOrEqual(t, len(deletes), 5)
		for _, call := range deletes {
			if !slices.Contains(kept, strings.Fields(call)[1]) {
				deleted++
			}
		}
		require.Positive(t, pass.RequeueAfter)
		at += pass.RequeueAfter
		require.LessOrEqual(t, at-began, 6*time.Minute)
	}
	assert.Len(t, kept, 5)
}

// The selector of an owner can change, for example in a ReplicationController. If a stray matches the new
// selector, the stray is not deleted.
func TestAStrayThatMatchesByNowIsNotDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.mutate = func(p *corev1.Pod) { p.Labels = map[string]string{"app": "debug"} }
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(1) }
	first, err := r.pass(t, 0)
	require.Error(t, err)
	assert.Empty(t, first.Created)
	require.Len(t, r.callsOf("delete"), 1)
	r.owner.Spec.Selector.MatchLabels, r.owner.Generation = map[string]string{"app": "debug"}, 2
	r.owner.Spec.Template.Labels = map[string]string{"app": "debug"}
	stray := podtest.Pod("web-bbbbb", owned(r.owner), podtest.Labels(map[string]string{"app": "debug"}))
	pass, err := r.pass(t, 10, stray)
	require.NoError(t, err)
	assert.Empty(t, r.callsOf("delete"))
	assert.Len(t, pass.Active, 1)
}

func TestCreationsThatFail(t *testing.T) {
	t.Parallel()
	t.Run("W10 a name in a namespace that goes is not looked for", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return namespaceTerminating() }
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Zero(t, pass.InFlight)
		*r.owner.Spec.Replicas = 0
		_, err = r.pass(t, 1)
		require.NoError(t, err)
		assert.Empty(t, r.callsOf("get"))
	})
	t.Run("a refusal frees the name, and nothing is looked for", func(t *testing.T) {
		t.Parallel()
		for name, refused := range map[string]error{
			"a full quota": quotaFull(), "403": forbidden("web-bbbbb", "by policy"), "422": invalid("web-bbbbb"),
			"400": apierrors.NewBadRequest("denied"), "a namespace that goes": namespaceTerminating(),
		} {
			r := newRig(1)
			r.create = func(int) error { return refused }
			pass, _ := r.pass(t, 0)
			assert.Equal(t, []string{"create default/web-bbbbb"}, r.calls, name)
			assert.Zero(t, pass.InFlight, name)
			*r.owner.Spec.Replicas, r.owner.Generation = 0, 2
			pass, err := r.pass(t, 1)
			require.NoError(t, err, name)
			assert.Empty(t, r.calls, name)
			assert.Zero(t, pass.RequeueAfter, name)
		}
	})
	t.Run("unless it was sent more than once, or before: then another one may have taken effect", func(t *testing.T) {
		t.Parallel()
		for name, r := range map[string]*podRig{"more than once": newRig(1), "before": newRig(1)} {
			r.create = func(int) error { return resent(quotaFull()) }
			if name == "before" {
				r.create = func(i int) error { return []error{timeout(), quotaFull(), quotaFull()}[i] }
				_, err := r.pass(t, 0)
				require.Error(t, err)
			}
			for i := range 2 {
				pass, err := r.pass(t, 100*(i+1))
				assert.True(t, apierrors.IsForbidden(err))
				assert.Equal(t, []string{"create default/web-bbbbb", "get web-bbbbb"}, r.calls, name)
				assert.Equal(t, 1, pass.InFlight, name)
			}
		}
	})
}

func TestCreationsInFlightHoldTheirPlaces(t *testing.T) {
	t.Parallel()
	// lost makes a pass that sends three creations, and only the first one gets an answer. lost returns the rig and
	// the first pod. The owner now wants two pods.
	lost := func(t *testing.T) (r *podRig, first *corev1.Pod) {
		t.Helper()
		r = newRig(3)
		r.create = func(i int) error { return []error{nil, timeout(), timeout(), nil, nil}[i] }
		r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		require.Equal(t, 2, pass.InFlight)
		r.settle()
		*r.owner.Spec.Replicas, r.owner.Generation = 2, 2
		return r, podtest.Pod("web-bbbbb", owned(r.owner))
	}
	// taken returns a rig in which the creation of a child got no answer. On the server, an unrelated pod has the
	// name of this child.
	taken := func(t *testing.T) *podRig {
		t.Helper()
		r := newRig(1)
		r.create = func(i int) error { return []error{timeout(), nil}[i] }
		r.get = func(name string) (*corev1.Pod, error) { return podtest.Pod(name, podtest.Labels(api)), nil }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		r.settle()
		return r
	}
	bothLooks := []string{"get web-bbbbc", "get web-bbbbd"}
	t.Run("what turns up counts", func(t *testing.T) {
		t.Parallel()
		r, first := lost(t)
		*r.owner.Spec.Replicas = 1 // so none is sent again
		late := podtest.Pod("web-bbbbd", owned(r.owner))
		r.get = func(name string) (*corev1.Pod, error) { return find([]*corev1.Pod{late}, name) }
		pass, err := r.pass(t, 1, first)
		require.NoError(t, err)
		assert.Equal(t, bothLooks, r.calls)
		assert.Equal(t, time.Duration(1), pass.RequeueAfter)
		pass, err = r.pass(t, 1, first)
		require.NoError(t, err)
		assert.Len(t, pass.Active, 2)
	})
	t.Run("of two that may land the one that is missing is sent again, and none under a new name", func(t *testing.T) {
		t.Parallel()
		r, first := lost(t)
		r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
		pass, err := r.pass(t, 1, first)
		require.NoError(t, err)
		assert.Equal(t, []string{"create default/web-bbbbc", "get web-bbbbd"}, r.calls)
		assert.Equal(t, []string{"web-bbbbc"}, names(pass.Created))
		assert.Empty(t, pass.Gates)
	})
	t.Run("with two missing both are sent again", func(t *testing.T) {
		t.Parallel()
		r, first := lost(t)
		*r.owner.Spec.Replicas = 4
		r.create = func(int) error { return nil }
		pass, err := r.pass(t, 1, first)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-bbbbc", "web-bbbbd", "web-bbbbf"}, names(pass.Created))
	})
	t.Run("a name that another object has no longer is sent again, and no other one instead", func(t *testing.T) {
		t.Parallel()
		r := taken(t)
		r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
		pass, err := r.pass(t, 1)
		require.NoError(t, err)
		assert.Equal(t, []string{"get web-bbbbb"}, r.calls)
		assert.Equal(t, time.Duration(1), pass.RequeueAfter)
		assert.True(t, pass.Waiting())
		_, err = r.pass(t, 1)
		require.NoError(t, err)
		assert.Equal(t, []string{"create default/web-bbbbb"}, r.calls)
	})
	t.Run("a name that another object had holds its place, as long as it is not known whether that is there still", func(t *testing.T) {
		t.Parallel()
		r := taken(t)
		r.get = func(string) (*corev1.Pod, error) { return nil, timeout() }
		pass, err := r.pass(t, 1)
		require.NoError(t, err)
		assert.Equal(t, []string{"get web-bbbbb"}, r.calls)
		require.Error(t, requireGate(t, pass.Gates, controller.LookFailed).Err)
		r.get = func(name string) (*corev1.Pod, error) { return podtest.Pod(name, podtest.Labels(api)), nil }
		pass, err = r.pass(t, 3)
		require.NoError(t, err)
		assert.Equal(t, []string{"get web-bbbbb", "create default/web-bbbbd"}, r.calls, "it is there, so no request takes effect")
		assert.Len(t, pass.Created, 1)
	})
	t.Run("a name that another object may have no longer is looked for, and the other open name is sent again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		others := map[string]bool{"web-bbbbb": true}
		r.create = func(int) error { return timeout() }
		r.get = func(name string) (*corev1.Pod, error) {
			if others[name] {
				return podtest.Pod(name, podtest.Labels(api)), nil
			}
			return nil, notFound(name)
		}
		for second := range 2 { // the second pass creates web-bbbbc in place of web-bbbbb
			_, err := r.pass(t, second)
			require.Error(t, err)
			r.settle()
		}
		r.get = func(name string) (*corev1.Pod, error) {
			if others[name] {
				return nil, timeout()
			}
			return nil, notFound(name)
		}
		r.create = func(int) error { return nil }
		pass, err := r.pass(t, 10)
		require.NoError(t, err)
		assert.Equal(t, []string{"get web-bbbbb", "create default/web-bbbbc"}, r.calls)
		assert.Equal(t, []string{"web-bbbbc"}, names(pass.Created))
	})
	t.Run("if a look fails, the next one waits as long as the server said", func(t *testing.T) {
		t.Parallel()
		r, first := lost(t)
		*r.owner.Spec.Replicas = 1 // so none is sent again
		r.get = func(string) (*corev1.Pod, error) { return nil, busy(7) }
		pass, err := r.pass(t, 1, first)
		require.NoError(t, err)
		assert.Equal(t, bothLooks, r.calls)
		assert.Equal(t, 7*time.Second, pass.RequeueAfter)
		require.Error(t, requireGate(t, pass.Gates, controller.LookFailed).Err)
		_, err = r.pass(t, 7, first)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Zero(t, sum(r.pending()))
	})
	t.Run("if pods may not be read, an event says so once while that lasts", func(t *testing.T) {
		t.Parallel()
		r, first := lost(t)
		*r.owner.Spec.Replicas = 1 // so none is sent again
		for i, step := range []struct {
			is     string
			events int
		}{{"forbidden", 1}, {"forbidden", 0}, {"ended", 0}, {"allowed", 0}, {"forbidden", 1}} {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			r.get = func(name string) (*corev1.Pod, error) {
				switch step.is {
				case "allowed":
					return nil, notFound(name)
				case "ended":
					end()
					return nil, ctx.Err()
				}
				return nil, forbidden(name, "no rights")
			}
			r.now, r.children = podtest.Now.Add(time.Duration(1+70*i)*time.Second), func() ([]*corev1.Pod, error) { return []*corev1.Pod{first}, nil }
			pass, _ := r.sync(t, ctx)
			r.settle()
			events := r.eventsOf("Warning FailedLook")
			assert.Len(t, events, step.events, "%d: %s", i, step.is)
			for _, event := range events {
				assert.Equal(t, `Warning FailedLook Error looking for pods: pods "web-bbbbc" is forbidden: no rights`, event)
			}
			assert.Empty(t, pass.Created)
			if step.is == "allowed" {
				assert.Empty(t, gatesOf(pass.Gates, controller.LookFailed))
				assert.Zero(t, r.metric(t, "owners", "unread"))
				continue
			}
			require.Error(t, requireGate(t, pass.Standing, controller.LookFailed).Err)
			assert.InDelta(t, 1, r.metric(t, "owners", "unread"), 0)
		}
	})
	t.Run("a look that takes long is not due again when the pass ends", func(t *testing.T) {
		t.Parallel()
		r, first := lost(t)
		*r.owner.Spec.Replicas = 1
		r.get = func(string) (*corev1.Pod, error) {
			r.now = r.now.Add(15 * time.Second)
			return nil, timeout()
		}
		_, err := r.pass(t, 1, first)
		require.NoError(t, err)
		ended := r.now
		pass, err := r.passAt(t, ended.Sub(podtest.Now)+900*time.Millisecond, first)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Equal(t, 100*time.Millisecond, pass.RequeueAfter)
	})
	t.Run("a name that was taken, and whose second creation has taken effect, keeps its place", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		name := types.NamespacedName{Namespace: podtest.Namespace, Name: "web-bbbbb"}
		r.known().CreateSent(name, r.now)
		r.known().CreateSent(name, r.now)
		r.get = func(name string) (*corev1.Pod, error) {
			return podtest.Pod(name, owned(r.owner), podtest.UID("uid-second"), version("9")), nil
		}
		pass, err := r.pass(t, 1, podtest.Pod("web-bbbbb", owned(r.owner), podtest.UID("uid-first"), version("7"), podtest.Deleting))
		require.NoError(t, err)
		assert.Empty(t, pass.Created, "the cache does not show it yet")
	})
	t.Run("more than three are listed, and if lists are held back the looks wait for them", func(t *testing.T) {
		t.Parallel()
		const created = 1 + 2 + 4
		r := newRig(created + 8)
		r.create = func(i int) error {
			if i < created {
				return nil
			}
			return timeout()
		}
		r.live = func() ([]*corev1.Pod, error) { return nil, timeout() }
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		require.Equal(t, []string{"list default app=web"}, r.callsOf("list"))
		r.settle()
		*r.owner.Spec.Replicas, r.owner.Generation = created, 2 // so none is sent again
		var pods []*corev1.Pod
		for _, p := range pass.Created {
			pods = append(pods, podtest.Pod(p.Name, owned(r.owner)))
		}
		pass, err = r.passAt(t, 100*time.Millisecond, pods...)
		require.NoError(t, err)
		assert.Empty(t, r.calls)
		assert.Equal(t, 900*time.Millisecond, pass.RequeueAfter)
		assert.Empty(t, r.eventsOf("Warning FailedLook"), "lists are put off, and no look failed")
		r.live = func() ([]*corev1.Pod, error) { return clones(pods), nil }
		r.create = func(int) error { return nil }
		pass, err = r.pass(t, 2, pods...)
		require.NoError(t, err)
		assert.Equal(t, []string{"list default app=web"}, r.calls)
		assert.Empty(t, pass.Created)
	})
}

func TestStraysThatAreSomebodysByNow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		found   func(p *corev1.Pod)
		deletes int
	}{
		"still nobody's":                 {func(p *corev1.Pod) { p.Labels, p.OwnerReferences = api, nil }, 2},
		"an orphan that matches":         {func(p *corev1.Pod) { p.OwnerReferences = nil }, 1},
		"ours, and not matching":         {func(p *corev1.Pod) { p.Labels = api }, 2},
		"ours, and matching":             {func(*corev1.Pod) {}, 1},
		"another's":                      {func(p *corev1.Pod) { p.OwnerReferences[0].UID = "other" }, 1},
		"another pod of its name":        {func(p *corev1.Pod) { p.UID, p.OwnerReferences = "other", nil }, 1},
		"another's, and not as it wants": {func(p *corev1.Pod) { p.OwnerReferences[0].UID, p.Labels = "other", api }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.version = "7"
			r.mutate = func(p *corev1.Pod) { p.Labels, p.OwnerReferences = api, nil }
			var only []*metav1.Preconditions
			r.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
				if only = append(only, opts.Preconditions); len(only) == 1 {
					return conflict(p.Name)
				}
				return nil
			}
			r.get = func(string) (*corev1.Pod, error) {
				p := podtest.Pod("web-bbbbb", owned(r.owner), podtest.UID("uid-web-bbbbb"), version("8"))
				tt.found(p)
				return p, nil
			}
			_, err := r.pass(t, 0)
			require.Error(t, err)
			*r.owner.Spec.Replicas, r.owner.Generation = 0, 2
			_, err = r.pass(t, 10)
			require.NoError(t, err)
			require.Len(t, only, tt.deletes)
			for i, p := range only {
				assert.Equal(t, types.UID("uid-web-bbbbb"), *p.UID)
				require.NotNil(t, p.ResourceVersion)
				assert.Equal(t, []string{"7", "8"}[i], *p.ResourceVersion)
			}
		})
	}
}

// If a pass deletes children that must go, the same pass does not create the children that are missing afterwards.
func TestWhatIsMissingOnceThoseThatMustGoAreDeleted(t *testing.T) {
	t.Parallel()
	t.Run("nothing is created in the pass that deletes", func(t *testing.T) {
		t.Parallel()
		r := mustGoRig(3, "web-000")
		pass, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, 1)
		assert.Empty(t, pass.Created)
		_, dels := r.pending()
		assert.Equal(t, 1, dels)
	})
	t.Run("nor after a veto that is no veto", func(t *testing.T) {
		t.Parallel()
		r := mustGoRig(3, "web-000")
		asked := 0
		r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
			asked++
			s.Delete = append(s.Delete, s.Delete...)
			return nil
		}
		pass, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		require.ErrorContains(t, pass.Err, "twice")
		assert.Equal(t, 1, asked)
		assert.Equal(t, []string{"read owner"}, r.calls)
	})
	t.Run("W25 nor if a live list shows that the view is behind", func(t *testing.T) {
		t.Parallel()
		r := mustGoRig(3, "web-000")
		pods := versioned(podsOf(r.owner, 3))
		r.live = func() ([]*corev1.Pod, error) { return append(podsOf(r.owner, 4)[2:], pods[1]), nil }
		_ = versionsOf(r, r.changed)
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		assert.Empty(t, pass.Created)
		assert.Equal(t, 50*time.Millisecond, pass.RequeueAfter)
	})
}

func TestNamesAreLookedForInTheirNamespace(t *testing.T) {
	t.Parallel()
	const created, lost = 1 + 2 + 4, 8
	r := newRig(created + lost)
	r.create = func(i int) error {
		if i < created {
			return nil
		}
		return timeout()
	}
	r.live = func() ([]*corev1.Pod, error) {
		var elsewhere []*corev1.Pod
		for _, call := range r.callsOf("create default/") {
			p := podtest.Pod(strings.TrimPrefix(call, "create default/"), owned(r.owner))
			p.Namespace = "other"
			elsewhere = append(elsewhere, p)
		}
		return elsewhere, nil
	}
	pass, err := r.pass(t, 0)
	require.Error(t, err)
	assert.Len(t, r.callsOf("list"), 1)
	assert.Len(t, pass.Created, created)
	assert.Equal(t, lost, pass.InFlight)
}

func TestANameThatComesFreeAgainIsNotSentInPlaceOfOneInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(5)
	there, others := ready(r.owner, 4), map[string]bool{"web-bbbbb": true}
	r.create = func(int) error { return timeout() }
	r.get = func(name string) (*corev1.Pod, error) {
		if others[name] {
			return podtest.Pod(name, podtest.Labels(api)), nil
		}
		return nil, notFound(name)
	}
	for second := range 3 {
		_, _ = r.pass(t, 10*second, there...)
		r.settle()
	}
	require.Contains(t, r.calls, "create default/web-bbbbc", "it is in flight")
	delete(others, "web-bbbbb")
	r.create = func(int) error { return nil }
	_, _ = r.pass(t, 40, there...)
	r.settle()
	_, _ = r.pass(t, 50, there...)
	assert.NotContains(t, r.calls, "create default/web-bbbbb", "web-bbbbc may land yet: then there are 6 of 5")
}

// Four pods were created without an answer, and were then given other labels. Their names are in use, but no list of
// the owner's pods contains them. A list that lacks them does not free the names, or each pass would cause the next
// one at once, with a list of its own, until the creations can no longer take effect.
func TestNamesThatNoListContainsCauseNoLists(t *testing.T) {
	t.Parallel()
	const n = 4 // more names than a pass reads one by one
	r := newRig(n)
	var released []*corev1.Pod
	for i := range n {
		name := fmt.Sprintf("web-released-%d", i)
		r.known().CreateSent(types.NamespacedName{Namespace: podtest.Namespace, Name: name}, r.now)
		released = append(released, podtest.Pod(name, podtest.Labels(api), version("7")))
	}
	r.children = func() ([]*corev1.Pod, error) { return released, nil }
	r.live, r.liveVersion = func() ([]*corev1.Pod, error) { return nil, nil }, "9"
	lists, created := 0, 0
	for passes := 0; created == 0 && passes < 100; passes++ {
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		lists += telemetry.LiveLists(pass.Calls)
		created = len(pass.Created)
		r.now = r.now.Add(max(pass.RequeueAfter, 1))
	}
	assert.Equal(t, n, created, "once the names are settled")
	assert.LessOrEqual(t, lists, 12, "in five minutes")
}
