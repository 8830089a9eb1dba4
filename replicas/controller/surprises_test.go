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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

var debug = podtest.Labels(map[string]string{"app": "debug"})

func TestVersionsThatNeverChange(t *testing.T) {
	t.Parallel()
	r := newProcess(2)
	r.version, r.liveVersion = "1", "1"
	var stored []*corev1.Pod
	r.mutate = func(p *corev1.Pod) { stored = append(stored, clone(p)) }
	r.live = func() ([]*corev1.Pod, error) { return slices.Clone(stored), nil }
	for i := range 8 {
		pass, err := r.pass(t, i, slices.Clone(stored)...)
		require.NoError(t, err)
		for _, c := range pass.Created {
			require.NoError(t, r.start().ChildAdded(c))
		}
	}
	assert.Len(t, stored, 2)
}

func TestASelectorThatIsMissingForAPass(t *testing.T) {
	t.Parallel()
	r := newProcess(2)
	spec, isMissing := r.kind.Spec, false
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		if isMissing {
			s.Selector = nil
		}
		return s, err
	}
	web := podtest.Pod("web-1", owned(r.owner), version("10"))
	var others []*corev1.Pod
	for i := range 2 {
		others = append(others, podtest.Pod(fmt.Sprint("db-", i), owned(r.owner), version("11"), podtest.Labels(map[string]string{"app": "db"})))
	}
	r.liveVersion, r.live = "50", func() ([]*corev1.Pod, error) { return []*corev1.Pod{web}, nil }
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	r.settle()
	r.owner = clone(r.owner)
	r.owner.Generation, r.owner.ResourceVersion, isMissing = 2, "60", true
	_, err = r.pass(t, 1, web)
	require.NoError(t, err)
	r.owner = clone(r.owner)
	r.owner.Generation, r.owner.ResourceVersion, isMissing = 3, "61", false
	r.owner.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	r.owner.Spec.Template.Labels = map[string]string{"app": "db"}
	r.liveVersion, r.live = "62", func() ([]*corev1.Pod, error) { return others, nil }
	pass, err := r.pass(t, 2, others...)
	require.NoError(t, err)
	assert.Len(t, pass.Active, 2, "the list by another selector is no bar")
	assert.Empty(t, pass.Created)
}

func TestAListAfterARelease(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"30", "31"} {
		r := newProcess(2)
		a, b := podtest.Pod("web-a", owned(r.owner), version("10")), podtest.Pod("web-b", owned(r.owner), version("11"))
		released := podtest.Pod("web-x", owned(r.owner), version("12"), debug)
		r.patched = func(p *corev1.Pod) { p.OwnerReferences = nil }
		r.version, r.liveVersion = "30", at
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{a, b}, nil }
		_, err := r.pass(t, 0, a, b, released)
		require.NoError(t, err)
		require.Len(t, r.callsOf("patch"), 1)
		pass, err := r.pass(t, 1, a, released) // the cache does not show b yet, and the owner is new to this process
		require.NoError(t, err)
		require.Equal(t, 1, telemetry.LiveLists(pass.Calls))
		for i := range 4 {
			_, err = r.pass(t, 2+i, a, released)
			require.NoError(t, err)
			assert.Empty(t, r.calls, "the list was not asked for what does not match")
		}
	}
}

func TestLooksThatFailForEver(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.create = func(int) error { return timeout() }
	r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
	for i := range 2 { // both passes send the same name
		_, err := r.pass(t, i)
		require.Error(t, err)
		r.settle()
	}
	pod := podtest.Pod("web-bbbbb", owned(r.owner), version("9"))
	_, err := r.pass(t, 2, pod)
	require.NoError(t, err)
	r.get = func(name string) (*corev1.Pod, error) { return nil, forbidden(name, "no rights") }
	pass, err := r.pass(t, 302, pod)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, pass.RequeueAfter, time.Second, "it is tried later")
}

func TestAVictimThatAListDoesNotShow(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	pods := versioned(podsOf(r.owner, 4))
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	r.liveVersion, r.live = "20", func() ([]*corev1.Pod, error) { return pods[1:], nil }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	r.settle()
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
	_, err = r.pass(t, 60, podtest.Pod("web-000", owned(r.owner), version("15"), debug))
	require.NoError(t, err)
	assert.Len(t, r.callsOf("patch web-000"), 1, "it may only have got other labels")
}

func TestADeletionInFlightOfAChildWithoutAUIDCounts(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	pods := podsOf(r.owner, 3)
	for _, p := range pods {
		p.UID = ""
	}
	podtest.NotReady(pods[0])
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	require.Equal(t, []string{"delete web-000"}, r.callsOf("delete"))
	r.settle()
	pods[0].Status.Conditions, pods[1].Status.Conditions = pods[1].Status.Conditions, pods[0].Status.Conditions
	_, err = r.pass(t, 1, pods...)
	require.Error(t, err)
	assert.Equal(t, []string{"delete web-000"}, r.callsOf("delete"), "if it lands, web-001 would be one too many")
}

func TestADeletionInFlightIsLookedForThoughItHoldsNothingBack(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	pods := versioned(podsOf(r.owner, 3))
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	r.settle()
	*r.owner.Spec.Replicas = 3
	pass, err := r.pass(t, 1, pods...)
	require.NoError(t, err)
	assert.Empty(t, pass.Gates)
	assert.Equal(t, 299*time.Second+1, pass.RequeueAfter)
	_, err = r.pass(t, 301, pods...)
	require.NoError(t, err)
	assert.Equal(t, []string{"get web-000"}, r.calls)
	pass, err = r.pass(t, 302, pods...)
	require.NoError(t, err)
	assert.Zero(t, pass.RequeueAfter)
}

// All children that must go are deleted, even after a Conflict.
func TestThoseThatMustGoGoAfterAConflict(t *testing.T) {
	t.Parallel()
	r := newRig(4)
	withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustGo = func(*corev1.Pod) bool { return true } })
	pods, refused := versioned(podsOf(r.owner, 4)), false
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		if p.Name == "web-001" && !refused {
			refused = true
			return conflict(p.Name)
		}
		return nil
	}
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	assert.NotContains(t, names(pass.Deleted), "web-001")
	replaced := podsOf(r.owner, 4)
	replaced[1].ResourceVersion = "99999"
	r.live = func() ([]*corev1.Pod, error) { return replaced, nil }
	r.settle()
	pass, err = r.pass(t, 1, replaced...)
	require.NoError(t, err)
	assert.Len(t, pass.Deleted, 4)
	assert.Empty(t, pass.Gates)
}

// If a deletion is in flight, a child that must go waits for the result of this deletion. It does not wait for a
// missing child to be created.
func TestAChildThatMustGoBesideADeletionInFlight(t *testing.T) {
	t.Parallel()
	r, must := newRig(2), ""
	withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == must } })
	pods := versioned(podsOf(r.owner, 3))
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	r.settle()
	*r.owner.Spec.Replicas, must = 3, "web-001"
	pass, err := r.pass(t, 1, pods...)
	require.NoError(t, err)
	require.Len(t, pass.Gates, 1)
	assert.Equal(t, controller.DeletionInFlight, pass.Gates[0].Reason)
}

// After a Conflict, a victim may have ended before the next delete call. That call then discards the
// victim, and requires the resourceVersion from the live list. The other victims are still deleted.
func TestAVictimThatEndedBeforeTheSecondTry(t *testing.T) {
	t.Parallel()
	r := newDiscards(2)
	pods := versioned(podsOf(r.owner, 4))
	podtest.NotReady(pods[0])
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return conflict(p.Name) }
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	r.settle()
	live, carried := clones(pods), map[string]string{}
	over(live[0])
	live[0].ResourceVersion = "99999"
	r.live = func() ([]*corev1.Pod, error) { return live, nil }
	r.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
		if opts.Preconditions.ResourceVersion != nil {
			carried[p.Name] = *opts.Preconditions.ResourceVersion
		}
		return nil
	}
	pass, err := r.pass(t, 120, pods...)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"web-000", "web-001"}, names(pass.Deleted))
	assert.Equal(t, "99999", carried["web-000"])
}
