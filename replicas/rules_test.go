// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

func TestRulesOfOtherChildren(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	deleted := newWorker(rs, "deleted", 1, func(w *worker) { now := metav1.NewTime(podtest.Now); w.DeletionTimestamp = &now })
	ready := func(w *worker) { w.ready = true }
	workers := []*worker{newWorker(rs, "old", 9), newWorker(rs, "new", 3, ready), deleted, newWorker(rs, "newest", 1, ready)}
	isReady := func(w *worker) bool { return w.ready }
	for name, tt := range map[string]struct {
		rules replicas.Rules[*worker]
		want  []string
	}{
		"of the zero rules, the newest goes first":              {want: []string{"newest", "new", "old"}},
		"those that are not ready go first, if the rule says":   {rules: replicas.Rules[*worker]{Ready: isReady}, want: []string{"old", "newest", "new"}},
		"an order of the caller's stands":                       {rules: replicas.Rules[*worker]{Ready: isReady, Order: podrank.Must(podrank.NewOrder(podrank.Oldest[*worker]()))}, want: []string{"old", "new", "newest"}},
		"what is active is the caller's to say":                 {rules: replicas.Rules[*worker]{Active: isReady}, want: []string{"newest", "new"}},
		"children that are being deleted are not deleted again": {rules: replicas.Rules[*worker]{Active: func(*worker) bool { return true }}, want: []string{"newest", "new", "old"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(0)
			spec.Rules = tt.rules
			plan, err := replicas.Manage(workers, spec)
			require.NoError(t, err)
			var got []string
			for _, d := range plan.Scale.Delete {
				got = append(got, d.Object.Name)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestRulesOfPods(t *testing.T) {
	t.Parallel()
	rs := replicaSet(0)
	pods := []*corev1.Pod{
		podtest.Pod("a", owned(rs)), podtest.Pod("b", owned(rs), podtest.NotReady), podtest.Pod("c", owned(rs), podtest.Phase(corev1.PodFailed)),
	}
	for name, tt := range map[string]struct {
		rules replicas.Rules[*corev1.Pod]
		want  []string
	}{
		"R3 Y6 the zero rules are Kubernetes'":       {want: []string{"b", "a"}},
		"R3 a rule of the caller's changes no other": {rules: replicas.Rules[*corev1.Pod]{Active: func(*corev1.Pod) bool { return true }}, want: []string{"c", "b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, rs)
			spec.Rules = tt.rules
			plan, err := replicas.Manage(pods, spec)
			require.NoError(t, err)
			assert.Equal(t, tt.want, victims(plan.Scale))
		})
	}
}

func TestDeleteOptions(t *testing.T) {
	t.Parallel()
	rs := replicaSet(0)
	isReady := func(w *worker) bool { return w.ready }
	ready := newWorker(rs, "a", 1, func(w *worker) { w.ready = true })
	fake := newWorker(rs, "a", 1, func(w *worker) { w.ready, w.UID, w.ResourceVersion = true, "", "" })
	uid, version := ready.UID, ready.ResourceVersion
	for name, tt := range map[string]struct {
		child *worker
		ready func(*worker) bool
		want  *metav1.Preconditions
	}{
		"a child that is ready goes as it was judged": {ready, isReady, &metav1.Preconditions{UID: &uid, ResourceVersion: &version}},
		"and so does one that is not":                 {newWorker(rs, "a", 1), isReady, &metav1.Preconditions{UID: &uid, ResourceVersion: &version}},
		"and one that may be ready":                   {ready, nil, &metav1.Preconditions{UID: &uid, ResourceVersion: &version}},
		"what a fake does not have is not asked for":  {fake, isReady, nil},
		"a UID without a version, as fakes have them": {newWorker(rs, "a", 1, func(w *worker) { w.ready, w.ResourceVersion = true, "" }), isReady, &metav1.Preconditions{UID: &uid}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(0)
			spec.Rules.Ready = tt.ready
			scale, err := replicas.ScaleTo([]*worker{tt.child}, spec)
			require.NoError(t, err)
			require.Len(t, scale.Delete, 1)
			assert.Equal(t, tt.want, scale.Delete[0].Options.Preconditions)
		})
	}
	t.Run("S9 pods go as they were judged, whether they are ready or not", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{podtest.Pod("a", owned(rs)), podtest.Pod("b", owned(rs), podtest.NotReady)}
		pods[0].ResourceVersion, pods[1].ResourceVersion = "1", "2"
		scale, err := replicas.ScaleTo(pods, specOf(t, rs))
		require.NoError(t, err)
		assert.Equal(t, &metav1.Preconditions{UID: &pods[1].UID, ResourceVersion: &pods[1].ResourceVersion}, scale.Delete[0].Options.Preconditions)
		assert.Equal(t, &metav1.Preconditions{UID: &pods[0].UID, ResourceVersion: &pods[0].ResourceVersion}, scale.Delete[1].Options.Preconditions)
	})
}

// If a child has been unready for at least Rules.ReadyWithin, the child must go, even if there are not too many
// children.
func TestReadyWithin(t *testing.T) {
	t.Parallel()
	rs := replicaSet(3)
	spec, err := replicas.ReplicaSetSpec(rs)
	require.NoError(t, err)
	spec.Facts.Now, spec.Rules.ReadyWithin = podtest.Now, time.Minute
	pod := func(name string, ready corev1.ConditionStatus, since time.Duration) *corev1.Pod {
		p := podtest.Pod(name, podtest.OwnedBy(rs, "apps/v1", "ReplicaSet"), podtest.Created(podtest.Now.Add(-time.Hour)))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(podtest.Now.Add(-since))}}
		return p
	}
	never := pod("never", corev1.ConditionFalse, 0)
	never.Status.Conditions = nil
	for name, tt := range map[string]struct {
		pods    []*corev1.Pod
		deleted []string
	}{
		"one that is ready stays":                       {[]*corev1.Pod{pod("a", corev1.ConditionTrue, time.Hour), pod("b", corev1.ConditionTrue, time.Hour), pod("c", corev1.ConditionTrue, 0)}, nil},
		"one that was ready a moment ago stays":         {[]*corev1.Pod{pod("a", corev1.ConditionFalse, 59*time.Second), pod("b", corev1.ConditionTrue, 0), pod("c", corev1.ConditionTrue, 0)}, nil},
		"one that was not for long goes":                {[]*corev1.Pod{pod("a", corev1.ConditionFalse, time.Minute), pod("b", corev1.ConditionTrue, 0), pod("c", corev1.ConditionTrue, 0)}, []string{"a"}},
		"time counts from the creation if it never was": {[]*corev1.Pod{pod("a", corev1.ConditionTrue, 0), pod("b", corev1.ConditionTrue, 0), never}, []string{"never"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := replicas.Manage(tt.pods, spec)
			require.NoError(t, err)
			var deleted []string
			for _, d := range plan.Scale.Delete {
				deleted = append(deleted, d.Object.Name)
				assert.True(t, d.Replaced)
				assert.NotNil(t, d.Options.Preconditions, "one that has become ready stays")
			}
			assert.Equal(t, tt.deleted, deleted)
		})
	}
}

// Deletion.Replaced is true if another child replaces the deleted child. Surplus children are deleted first, and
// are not replaced.
func TestWhatIsReplaced(t *testing.T) {
	t.Parallel()
	rs := replicaSet(3)
	spec, err := replicas.ReplicaSetSpec(rs)
	require.NoError(t, err)
	spec.Facts.Now = podtest.Now
	spec.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name < "d" }
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		pods = append(pods, podtest.Pod(name, podtest.OwnedBy(rs, "apps/v1", "ReplicaSet")))
	}
	plan, err := replicas.Manage(pods, spec)
	require.NoError(t, err)
	require.Len(t, plan.Scale.Delete, 3)
	for i, want := range []bool{false, false, true} {
		assert.Equal(t, want, plan.Scale.Delete[i].Replaced, "two of five are too many, and one is replaced")
	}
}

func TestRulesThatContradictThemselves(t *testing.T) {
	t.Parallel()
	rs := replicaSet(3)
	for text, change := range map[string]func(s *replicas.SpecOfPods){
		"readyWithin -1s is negative":                           func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin = -time.Second },
		"readyWithin 5s is below minReadySeconds, which is 10s": func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin, s.MinReadySeconds = 5*time.Second, 10 },
		"readyWithin is 5s, and Rules.NotReadySince is nil":     func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin, s.Rules.Ready = 5*time.Second, status.IsPodReady },
	} {
		spec, err := replicas.ReplicaSetSpec(rs)
		require.NoError(t, err)
		spec.Facts.Now = podtest.Now
		change(&spec)
		_, err = replicas.Manage(nil, spec)
		require.ErrorContains(t, err, `ReplicaSet "default/web": `+text)
	}
	_, err := replicas.Manage[*corev1.ConfigMap](nil, replicas.Spec[*corev1.ConfigMap]{
		Owner: rs, Kind: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), Selector: labels.SelectorFromSet(labels.Set{"a": "b"}),
		Facts: replicas.Facts[*corev1.ConfigMap]{Now: podtest.Now},
		Rules: replicas.Rules[*corev1.ConfigMap]{ReadyWithin: time.Second},
	})
	require.ErrorContains(t, err, "Rules.Ready is nil: no *v1.ConfigMap is ever ready")
}
