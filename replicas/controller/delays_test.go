// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// Whoever asks why a child is still there finds the server's answer in the gates, until the child is deleted.
func TestARefusedDeletionHasAGate(t *testing.T) {
	t.Parallel()
	for name, why := range map[string]error{
		"a bad request (400)":          apierrors.NewBadRequest("no"),
		"forbidden (403)":              forbidden("web-000", "a webhook"),
		"a method not supported (405)": apierrors.NewMethodNotSupported(corev1.Resource("pods"), "delete"),
		"invalid (422)":                invalid("web-000"),
		"a time-out":                   timeout(),
		"a refused connection":         fmt.Errorf("dial: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			pods := versioned(podsOf(r.owner, 2))
			r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return why }
			for _, second := range []int{0, 5} {
				pass, err := r.pass(t, second, pods...)
				require.ErrorIs(t, err, why)
				require.Len(t, pass.Gates, 1, "%v", pass.Gates)
				gate := pass.Gates[0]
				assert.Equal(t, controller.DeletionRefused, gate.Reason)
				assert.Equal(t, pass.Scale.Delete[0].Object.Name, gate.Object)
				require.ErrorIs(t, gate.Err, why)
				assert.True(t, gate.Since.Equal(podtest.Now), "it is the same gate all the time")
				assert.Zero(t, gate.Until, "the work queue of the caller says when")
				assert.False(t, pass.Waiting())
			}
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
			pass, err := r.pass(t, 6, pods...)
			require.NoError(t, err)
			assert.Len(t, pass.Deleted, 1)
			assert.Empty(t, pass.Gates)
		})
	}
	t.Run("a child that others deleted has none", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return notFound(p.Name) }
		pass, err := r.pass(t, 0, versioned(podsOf(r.owner, 2))...)
		require.NoError(t, err)
		assert.Empty(t, pass.Gates)
	})
}

// The owner cannot be read. The next passes come after the delays that docs/pass.md shows, before deletions as before
// the first adoption. The transcript stale-owner.txt has the third case, in which the cache has an old owner.
func TestTheOwnerIsReadAgainAfterTheDelaysOfTheTable(t *testing.T) {
	t.Parallel()
	shortest, longest := controller.ShortestHold(controller.OwnerUnread), controller.LongestHold(controller.OwnerUnread)
	for name, podsOf := range map[string]func(r *podRig) []*corev1.Pod{
		"before deletions":   func(r *podRig) []*corev1.Pod { return versioned(podsOf(r.owner, 3)) },
		"before an adoption": func(*podRig) []*corev1.Pod { return []*corev1.Pod{podtest.Pod("orphan")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			pods, answers := podsOf(r), r.getOwner
			r.children = func() ([]*corev1.Pod, error) { return pods, nil }
			fails := func() {
				t.Helper()
				r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, errors.New("unreachable") }
				for want := shortest; ; want = min(2*want, longest) {
					again, err := r.start().Sync(t.Context(), r.key().NamespacedName)
					require.ErrorContains(t, err, "unreachable")
					require.Equal(t, want, again)
					require.Len(t, r.last.Gates, 1, "%v", r.last.Gates)
					require.Equal(t, controller.OwnerUnread, r.last.Gates[0].Reason)
					require.Equal(t, r.now.Add(want), r.last.Gates[0].Until)
					r.now = r.now.Add(again)
					if want == longest {
						break
					}
				}
			}
			fails()
			require.Len(t, r.eventsOf("Warning "+controller.FailedOwner), 1, "%v", r.events)
			if name != "before deletions" {
				return
			}
			// A read succeeds, so the next failure is held back for the shortest time again.
			r.getOwner = answers
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return invalid("web-000") }
			_, err := r.start().Sync(t.Context(), r.key().NamespacedName)
			require.Error(t, err)
			fails()
		})
	}
}

func TestStatusDelay(t *testing.T) {
	t.Parallel()
	now, later := []string{"default/web"}, []string{"default/web in 1s"}
	for name, tc := range map[string]struct {
		change func(p *corev1.Pod)
		spec   func(spec *replicas.SpecOfPods)
		want   []string
	}{
		"a pod that is no longer ready waits":              {change: podtest.NotReady, want: later},
		"an annotation waits":                              {change: func(p *corev1.Pod) { p.Annotations = web }, want: later},
		"a label does not":                                 {change: func(p *corev1.Pod) { p.Labels["tier"] = "front" }, want: now},
		"a pod that has finished does not":                 {change: podtest.Phase(corev1.PodFailed), want: now},
		"a pod that is being deleted does not":             {change: podtest.Deleting, want: now},
		"a pod that was released does not":                 {change: func(p *corev1.Pod) { p.OwnerReferences = nil }, want: now},
		"a pod that must go now does not":                  {podtest.NotReady, func(s *replicas.SpecOfPods) { s.Rules.MustGo = isNotReady }, now},
		"a pod that need not stay any more does not":       {podtest.NotReady, func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(p *corev1.Pod) bool { return !isNotReady(p) } }, now},
		"nothing does if deletions are limited":            {podtest.NotReady, func(s *replicas.SpecOfPods) { s.MaxDeletions = new(int) }, now},
		"what makes a pod a replica is for Active":         {podtest.NotReady, func(s *replicas.SpecOfPods) { s.Rules.Active = func(p *corev1.Pod) bool { return !isNotReady(p) } }, now},
		"nothing does if deletions of a group are limited": {podtest.NotReady, func(s *replicas.SpecOfPods) { groupsTo(s, []string{"gpu=1", "cpu=1,deletions=0"}) }, now},
		"a pod of a group waits":                           {podtest.NotReady, func(s *replicas.SpecOfPods) { groupsTo(s, []string{"gpu=1"}) }, later},
		"a pod that an annotation puts into another group does not": {func(p *corev1.Pod) { p.Annotations = map[string]string{"group": "cpu"} }, func(s *replicas.SpecOfPods) {
			groupsTo(s, []string{"gpu=1"})
			s.GroupOf = func(p *corev1.Pod) string { return p.Annotations["group"] }
		}, now},
		"M6 a pod that becomes ready waits, with a check": {
			change: func(p *corev1.Pod) { p.Annotations = web },
			spec: func(s *replicas.SpecOfPods) {
				s.MinReadySeconds = 7
				s.Rules.Ready = func(p *corev1.Pod) bool { return len(p.Annotations) > 0 }
			},
			want: []string{"default/web in 1s", "default/web in 7s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.opts.StatusDelay = time.Second
			original := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				spec, err := original(rs)
				if tc.spec != nil {
					tc.spec(&spec)
				}
				return spec, err
			}
			was := podtest.Pod("a", owned(r.owner), version("1"))
			cur := was.DeepCopy()
			cur.ResourceVersion = "2"
			tc.change(cur)
			require.NoError(t, r.start().ChildUpdated(was, cur))
			assert.Equal(t, tc.want, r.wakes())
		})
	}
	t.Run("events of owners, and of pods that come and go, do not wait", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.opts.StatusDelay = time.Second
		p, c := podtest.Pod("a", owned(r.owner)), r.start()
		for name, event := range map[string]func() error{
			"child added":   func() error { return c.ChildAdded(p) },
			"child deleted": func() error { return c.ChildDeleted(p) },
			"owner added":   func() error { return c.OwnerAdded(r.owner) },
			"owner updated": func() error { return c.OwnerUpdated(r.owner, r.owner) },
			"owner deleted": func() error { return c.OwnerDeleted(r.owner) },
		} {
			require.NoError(t, event(), name)
			assert.Equal(t, now, r.wakes(), name)
		}
	})
	t.Run("of a refused spec nothing is known", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.owner.Spec.Selector = nil
		r.opts.StatusDelay = time.Second
		was := podtest.Pod("a", owned(r.owner), version("1"))
		cur := podtest.Pod("a", owned(r.owner), version("2"), podtest.NotReady)
		require.NoError(t, r.start().ChildUpdated(was, cur))
		assert.Equal(t, now, r.wakes())
	})
	t.Run("a pod that has finished and still has waits", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.opts.StatusDelay = time.Second
		was := podtest.Pod("a", owned(r.owner), version("1"), podtest.Phase(corev1.PodFailed))
		cur := podtest.Pod("a", owned(r.owner), version("2"), podtest.Phase(corev1.PodFailed))
		require.NoError(t, r.start().ChildUpdated(was, cur))
		assert.Equal(t, later, r.wakes())
	})
	t.Run("a negative one is refused", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		_, err := controller.New(r.kind, r, r, r.wake, controller.Options{StatusDelay: -1})
		require.EqualError(t, err, "controller: StatusDelay -1ns is negative")
	})
}

func isNotReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status != corev1.ConditionTrue
		}
	}
	return true
}
