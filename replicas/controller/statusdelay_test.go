// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

func TestStatusDelay(t *testing.T) {
	t.Parallel()
	now, later := []string{"default/web"}, []string{"default/web in 1s"}
	for name, tc := range map[string]struct {
		change func(p *corev1.Pod)
		spec   func(spec *replicas.PodSpec)
		want   []string
	}{
		"a pod that is no longer ready waits":        {change: podtest.NotReady, want: later},
		"an annotation waits":                        {change: func(p *corev1.Pod) { p.Annotations = web }, want: later},
		"a label does not":                           {change: func(p *corev1.Pod) { p.Labels["tier"] = "front" }, want: now},
		"a pod that has finished does not":           {change: podtest.Phase(corev1.PodFailed), want: now},
		"a pod that is being deleted does not":       {change: podtest.Deleting, want: now},
		"a pod that was released does not":           {change: func(p *corev1.Pod) { p.OwnerReferences = nil }, want: now},
		"a pod that must go now does not":            {podtest.NotReady, func(s *replicas.PodSpec) { s.Rules.MustGo = isNotReady }, now},
		"a pod that need not stay any more does not": {podtest.NotReady, func(s *replicas.PodSpec) { s.Rules.MustStay = func(p *corev1.Pod) bool { return !isNotReady(p) } }, now},
		"nothing does if deletions are limited":      {podtest.NotReady, func(s *replicas.PodSpec) { s.MaxDeletions = new(int) }, now},
		"what makes a pod a replica is for Active":   {podtest.NotReady, func(s *replicas.PodSpec) { s.Rules.Active = func(p *corev1.Pod) bool { return !isNotReady(p) } }, now},
		"M6 a pod that becomes ready waits, with a check": {
			change: func(p *corev1.Pod) { p.Annotations = web },
			spec: func(s *replicas.PodSpec) {
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
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
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
