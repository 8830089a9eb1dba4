// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/status"
)

func TestPodPredicates(t *testing.T) {
	t.Parallel()
	type facts struct{ Ready, Active, Terminating bool }
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want facts
	}{
		"R3 a nil pod is nothing":                 {nil, facts{}},
		"R3 the zero pod is not ready":            {&corev1.Pod{}, facts{Active: true}},
		"R3 the first Ready condition is True":    {podtest.Pod("a", readyCondition(corev1.ConditionFalse)), facts{Ready: true, Active: true}},
		"R3 the first Ready condition is False":   {podtest.Pod("a", podtest.NotReady, readyCondition(corev1.ConditionTrue)), facts{Active: true}},
		"R3 the first Ready condition is Unknown": {podtest.Pod("a", noConditions, readyCondition(corev1.ConditionUnknown)), facts{Active: true}},
		"Y6 an unknown phase is active":           {podtest.Pod("a", podtest.Phase(corev1.PodUnknown)), facts{Ready: true, Active: true}},
		"Y6 a succeeded pod is not active":        {podtest.Pod("a", podtest.Phase(corev1.PodSucceeded)), facts{Ready: true}},
		"Y6 a failed pod is not active":           {podtest.Pod("a", podtest.Phase(corev1.PodFailed)), facts{Ready: true}},
		"T8 a pod being deleted is terminating":   {podtest.Pod("a", podtest.Deleting), facts{Ready: true, Terminating: true}},
		"T8 a failed pod is not":                  {podtest.Pod("a", podtest.Deleting, podtest.Phase(corev1.PodFailed)), facts{Ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, facts{status.IsPodReady(tt.pod), status.IsPodActive(tt.pod), status.IsPodTerminating(tt.pod)})
		})
	}
}

func TestIsPodAvailable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		pod             *corev1.Pod
		minReadySeconds int32
		want            bool
	}{
		"T5 a nil pod is not available":               {nil, 0, false},
		"T5 not ready":                                {podtest.Pod("a", podtest.NotReady), 0, false},
		"T5 ready, no minReadySeconds":                {podtest.Pod("a", podtest.ReadySince(now)), 0, true},
		"T5 F9 the boundary is available":             {podtest.Pod("a", podtest.ReadySince(now.Add(-10*time.Second))), 10, true},
		"T5 F9 the instant before is not":             {podtest.Pod("a", podtest.ReadySince(now.Add(-10*time.Second+1))), 10, false},
		"T6 negative, with a transition time":         {podtest.Pod("a", podtest.ReadySince(now)), -1, true},
		"T6 negative, without a transition time":      {podtest.Pod("a", podtest.ReadySince(time.Time{})), -1, false},
		"T7 without a transition time":                {podtest.Pod("a", podtest.ReadySince(time.Time{})), 1, false},
		"T7 no transition time, no minReadySeconds":   {podtest.Pod("a", podtest.ReadySince(time.Time{})), 0, true},
		"T5 whether the pod is active is no question": {podtest.Pod("a", podtest.Deleting), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, status.IsPodAvailable(tt.pod, tt.minReadySeconds, now))
		})
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	active, deleting := podtest.Pod("active"), podtest.Pod("deleting", podtest.Deleting)
	failed, last := podtest.Pod("failed", podtest.Phase(corev1.PodFailed)), podtest.Pod("last")
	pods := []*corev1.Pod{active, nil, deleting, failed, last}
	t.Run("T10 Y6 active pods, in order", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []*corev1.Pod{active, last}, status.FilterActivePods(pods))
	})
	t.Run("T8 terminating pods, in order", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, []*corev1.Pod{deleting}, status.FilterTerminatingPods(pods))
	})
	t.Run("T10 none is nil", func(t *testing.T) {
		t.Parallel()
		assert.Nil(t, status.FilterActivePods(pods[1:4]))
		assert.Nil(t, status.FilterTerminatingPods(pods[:1]))
		assert.Nil(t, status.FilterActivePods(nil))
	})
}

func TestFilterClaimedPods(t *testing.T) {
	t.Parallel()
	rs := replicaSet()
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	mine := podtest.OwnedBy(rs, "apps/v1", "ReplicaSet")
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"C28 ours by UID, and the selector matches": {podtest.Pod("a", mine), true},
		"C28 kind and name are not compared":        {podtest.Pod("a", podtest.OwnedBy(&metav1.ObjectMeta{Name: "x", UID: rs.UID}, "v1", "Foo")), true},
		"C28 an inactive pod as well":               {podtest.Pod("a", mine, podtest.Deleting), true},
		"C28 the selector does not match":           {podtest.Pod("a", mine, podtest.Labels(nil)), false},
		"C28 an orphan":                             {podtest.Pod("a"), false},
		"C28 another owner":                         {podtest.Pod("a", podtest.OwnedBy(&metav1.ObjectMeta{Name: "web", UID: "uid-other"}, "apps/v1", "ReplicaSet")), false},
		"C28 an owner that is not the controller":   {podtest.Pod("a", mine, func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), false},
		"C28 a nil pod":                             {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []*corev1.Pod
			if tt.want {
				want = []*corev1.Pod{tt.pod}
			}
			assert.Equal(t, want, status.FilterClaimedPods(rs, web, []*corev1.Pod{tt.pod}))
		})
	}
	t.Run("C28 without UIDs kind and name decide", func(t *testing.T) {
		t.Parallel()
		unknown, other := replicaSet(), replicaSet()
		unknown.UID, other.UID, other.Name = "", "", "other"
		pods := []*corev1.Pod{
			podtest.Pod("a", podtest.OwnedBy(unknown, "apps/v1", "ReplicaSet")), podtest.Pod("b", mine),
			podtest.Pod("c", podtest.OwnedBy(other, "apps/v1", "ReplicaSet")), podtest.Pod("d", podtest.OwnedBy(unknown, "apps/v1", "StatefulSet")),
		}
		assert.Equal(t, pods[:1], status.FilterClaimedPods(unknown, web, pods))
		assert.Equal(t, pods[1:2], status.FilterClaimedPods(rs, web, pods))
	})
	t.Run("C28 no owner or no selector claims nothing", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{podtest.Pod("a", mine)}
		var none *appsv1.ReplicaSet
		assert.Nil(t, status.FilterClaimedPods(nil, web, pods))
		assert.Nil(t, status.FilterClaimedPods(none, web, pods))
		assert.Nil(t, status.FilterClaimedPods(rs, nil, pods))
	})
}

func TestNextAvailabilityCheck(t *testing.T) {
	t.Parallel()
	since := func(ago time.Duration) *corev1.Pod { return podtest.Pod("a", podtest.ReadySince(now.Add(-ago))) }
	zero := podtest.Pod("zero", podtest.ReadySince(time.Time{}))
	for name, tt := range map[string]struct {
		pods            []*corev1.Pod
		minReadySeconds int32
		want            time.Duration // 0 if there is no next check
	}{
		"M1 no pods":                                   {nil, 10, 0},
		"M1 every ready pod is available":              {[]*corev1.Pod{since(10 * time.Second), since(time.Hour)}, 10, 0},
		"M1 a ready pod is not available yet":          {[]*corev1.Pod{since(4 * time.Second), since(time.Hour)}, 10, 6 * time.Second},
		"M2 the pod that comes first decides":          {[]*corev1.Pod{since(4 * time.Second), since(7 * time.Second), since(0)}, 10, 3 * time.Second},
		"M2 to the nanosecond":                         {[]*corev1.Pod{since(10*time.Second - 1)}, 10, 1},
		"M2 ready in the future":                       {[]*corev1.Pod{since(-5 * time.Second)}, 10, 15 * time.Second},
		"M2 pods that are not active are left out":     {[]*corev1.Pod{podtest.Pod("a", podtest.ReadySince(now), podtest.Deleting), podtest.Pod("b", podtest.ReadySince(now), podtest.Phase(corev1.PodFailed))}, 10, 0},
		"M2 nil pods are left out":                     {[]*corev1.Pod{nil, since(4 * time.Second), nil}, 10, 6 * time.Second},
		"M3 W58 no transition time, nothing to wait":   {[]*corev1.Pod{zero}, 10, 0},
		"M3 W58 no transition time beside another pod": {[]*corev1.Pod{zero, since(4 * time.Second)}, 10, 6 * time.Second},
		"M4 no minReadySeconds":                        {[]*corev1.Pod{since(-5 * time.Second)}, 0, 0},
		"M4 negative minReadySeconds":                  {[]*corev1.Pod{since(-time.Hour)}, -10, 0},
		"M4 not ready":                                 {fleet(1, noConditions, readyCondition(corev1.ConditionFalse)), 1 << 30, 0},
		"M4 available at this very instant":            {[]*corev1.Pod{since(10 * time.Second)}, 10, 0},
		"M2 too far ahead for a Duration":              {[]*corev1.Pod{podtest.Pod("a", podtest.ReadySince(now.AddDate(1000, 0, 0)))}, 10, math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after, ok := status.NextAvailabilityCheck(tt.pods, tt.minReadySeconds, now)
			assert.Equal(t, tt.want, after)
			assert.Equal(t, tt.want != 0, ok)
		})
	}
	t.Run("M3 W58 no transition time, nothing to wait for at the zero instant either", func(t *testing.T) {
		t.Parallel()
		_, ok := status.NextAvailabilityCheck([]*corev1.Pod{zero}, 10, time.Time{})
		assert.False(t, ok)
	})
}

// available returns the number of active pods that are available at a given time.
func available(pods []*corev1.Pod, minReadySeconds int32, at time.Time) (n int) {
	for _, p := range status.FilterActivePods(pods) {
		if status.IsPodAvailable(p, minReadySeconds, at) {
			n++
		}
	}
	return n
}

// requireNextCheck checks the time that NextAvailabilityCheck returns. The number of available pods must not
// change before this time, and must be higher at this time.
func requireNextCheck(t *testing.T, pods []*corev1.Pod, minReadySeconds int32, at time.Time) {
	t.Helper()
	after, ok := status.NextAvailabilityCheck(pods, minReadySeconds, at)
	present := available(pods, minReadySeconds, at)
	if !ok {
		require.Zero(t, after)
		if minReadySeconds > 0 {
			require.Equal(t, present, available(pods, minReadySeconds, at.AddDate(100, 0, 0)), "nothing was to wait for")
		}
		return
	}
	require.Positive(t, after)
	require.Equal(t, present, available(pods, minReadySeconds, at.Add(after-1)), "nothing changes before")
	if after < math.MaxInt64 {
		require.Greater(t, available(pods, minReadySeconds, at.Add(after)), present, "something has changed")
	}
}

func TestNextAvailabilityCheckHolds(t *testing.T) {
	t.Parallel()
	r := random{rand.New(rand.NewPCG(5, 6))}
	for range 5000 {
		requireNextCheck(t, r.pods(replicaSet()), pick[int32](r, 0, 1, 10, -10, 3600), now)
	}
}

func FuzzNextAvailabilityCheck(f *testing.F) {
	f.Add(int32(10), now.UnixNano(), int64(-4e9), int64(-7e9), int64(0))
	f.Add(int32(0), int64(0), int64(1), int64(-1), int64(5))
	f.Add(int32(math.MaxInt32), now.UnixNano(), int64(math.MaxInt64), int64(math.MinInt64), int64(0))
	f.Add(int32(-1), int64(math.MinInt64), int64(math.MaxInt64), int64(0), int64(-1e9))
	// The fuzzer found these inputs.
	f.Add(rune('\n'), int64(1777896000000000061), int64(-4000000000), int64(-7000000088), int64(0))
	f.Add(rune('\x02'), int64(1777896000000000000), int64(-3999999905), int64(-7000000113), int64(0))
	f.Fuzz(func(t *testing.T, minReadySeconds int32, nanoseconds, a, b, c int64) {
		at := time.Unix(0, nanoseconds)
		var pods []*corev1.Pod
		for _, since := range []int64{a, b, c} {
			pods = append(pods, podtest.Pod("a", podtest.ReadySince(at.Add(time.Duration(since)))))
		}
		requireNextCheck(t, append(pods, podtest.Pod("zero", podtest.ReadySince(time.Time{}))), minReadySeconds, at)
	})
}
