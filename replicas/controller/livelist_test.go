// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// A stalled is a rig with a server. The cache shows the pods of the server until the watch stops. The server gives
// each change a new version, unless the version of all objects is empty.
type stalled struct {
	*podRig
	t       *testing.T
	version func() string
	pods    []*corev1.Pod
	cache   []*corev1.Pod
	stopped bool
	deleted []string
}

func newStalled(t *testing.T, want int32, version func() string) *stalled {
	t.Helper()
	s := &stalled{podRig: newRig(want), t: t, version: version}
	s.children = func() ([]*corev1.Pod, error) { return s.cache, nil }
	s.live = func() ([]*corev1.Pod, error) { return slices.Clone(s.pods), nil }
	s.get = func(name string) (*corev1.Pod, error) {
		if i := s.index(name); i >= 0 {
			return s.pods[i], nil
		}
		return nil, notFound(name)
	}
	s.mutate = func(p *corev1.Pod) {
		p.ResourceVersion = version()
		p.CreationTimestamp = metav1.NewTime(s.now)
		podtest.ReadySince(s.now)(p)
		s.pods = append(s.pods, p)
	}
	s.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		i := s.index(p.Name)
		if i < 0 {
			return notFound(p.Name)
		}
		s.pods = slices.Delete(s.pods, i, i+1)
		s.deleted = append(s.deleted, p.Name)
		return nil
	}
	return s
}

func (s *stalled) index(name string) int {
	return slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
}

// finish lets a pod of the server fail.
func (s *stalled) finish(i int) {
	p := clone(s.pods[i])
	p.Status.Phase, p.ResourceVersion = corev1.PodFailed, s.version()
	s.pods[i] = p
}

// run makes passes for the duration d, each when the last one has asked for it, or after a minute.
func (s *stalled) run(d time.Duration) {
	s.t.Helper()
	key := types.NamespacedName{Namespace: s.owner.Namespace, Name: s.owner.Name}
	for end := s.now.Add(d); s.now.Before(end); {
		if !s.stopped {
			s.cache = slices.Clone(s.pods)
		}
		after, err := s.start().Sync(s.t.Context(), key)
		require.NoError(s.t, err)
		if after <= 0 {
			after = time.Minute
		}
		s.now = s.now.Add(min(after, time.Minute))
	}
}

// active returns the number of pods on the server that count.
func (s *stalled) active() (n int) {
	for _, p := range s.pods {
		if p.Status.Phase != corev1.PodFailed {
			n++
		}
	}
	return n
}

// kindsOfVersions returns functions that make the versions of a server.
func kindsOfVersions() map[string]func() func() string {
	count := func(format string) func() func() string {
		return func() func() string {
			n := 0
			return func() string { n++; return fmt.Sprintf(format, n) }
		}
	}
	return map[string]func() func() string{
		"numbers": count("%d"), "words": count("v%d"),
		"empty": func() func() string { return func() string { return "" } },
	}
}

// A pod has ended while the watch hangs. Each pass has another pod in its place, and none deletes a living one.
func TestTheWatchHangsAndALiveListCounts(t *testing.T) {
	t.Parallel()
	for name, version := range kindsOfVersions() {
		t.Run("versions are "+name, func(t *testing.T) {
			t.Parallel()
			s := newStalled(t, 3, version())
			s.run(10 * time.Minute)
			require.Equal(t, 3, s.active())
			s.stopped = true
			s.finish(0)
			*s.owner.Spec.Replicas, s.owner.Generation = 4, 2 // the cache does not show the new pod for five minutes, so the pods are listed
			s.run(2 * time.Hour)
			assert.Equal(t, 4, s.active())
			assert.Empty(t, s.deleted)
			s.stopped = false
			s.run(time.Hour)
			assert.Equal(t, 4, s.active())
			assert.Empty(t, s.deleted)
		})
	}
}

// A deletion is answered with 404 although the pod is there. A live list shows the pod, so it is deleted again.
func TestOneWrongNotFoundEndsWithALiveList(t *testing.T) {
	t.Parallel()
	for name, version := range kindsOfVersions() {
		t.Run("versions are "+name, func(t *testing.T) {
			t.Parallel()
			s := newStalled(t, 4, version())
			s.run(10 * time.Minute)
			remove, wrong := s.remove, 0
			s.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
				if wrong++; wrong == 1 {
					return notFound(p.Name)
				}
				return remove(p, opts)
			}
			*s.owner.Spec.Replicas, s.owner.Generation = 3, 2
			s.run(time.Minute)
			assert.Equal(t, 4, s.active(), "nothing shows yet that the answer was wrong")
			s.run(10 * time.Minute)
			assert.Equal(t, 3, s.active())
		})
	}
}
