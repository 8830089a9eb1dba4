// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
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
