// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/status"
)

var (
	now    = podtest.Now
	before = metav1.NewTime(now.Add(-time.Hour))

	errQuota = errors.New("exceeded quota")
)

func ptr(n int32) *int32 { return &n }

// replicaSet returns a ReplicaSet with three replicas. The template has the labels of podtest's pods. The given
// functions change the ReplicaSet.
func replicaSet(changes ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid-web", Generation: 7},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr(3),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
				Labels: map[string]string{"app": "web", "pod-template-hash": "5d9c7b6f4d"},
			}},
		},
	}
	for _, change := range changes {
		change(rs)
	}
	return rs
}

func minReadySeconds(n int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = n }
}

func replicas(n *int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = n }
}

func conditions(cs ...appsv1.ReplicaSetCondition) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Status.Conditions = cs }
}

func templateLabels(set map[string]string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Template.Labels = set }
}

func selector(s *metav1.LabelSelector) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = s }
}

// fleet returns n pods that podtest.Pod makes with the given options.
func fleet(n int, options ...podtest.Option) []*corev1.Pod {
	var pods []*corev1.Pod
	for i := range n {
		pods = append(pods, podtest.Pod(string(rune('a'+i)), options...))
	}
	return pods
}

func readyCondition(value corev1.ConditionStatus) podtest.Option {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReady, Status: value, LastTransitionTime: before,
		})
	}
}

func noConditions(p *corev1.Pod) { p.Status.Conditions = nil }

func TestCounts(t *testing.T) {
	t.Parallel()
	type counts struct{ Replicas, FullyLabeled, Ready, Available int32 }
	of := func(pod ...*corev1.Pod) []*corev1.Pod { return pod }
	one := counts{1, 1, 1, 1}
	unready := counts{1, 1, 0, 0}
	unavailable := counts{1, 1, 1, 0}
	for name, tt := range map[string]struct {
		rs   *appsv1.ReplicaSet
		pods []*corev1.Pod
		want counts
	}{
		"T1 W49 what is passed is counted, whatever is wanted": {replicaSet(replicas(ptr(100))), fleet(5), counts{5, 5, 5, 5}},
		"T1 a pod listed twice counts twice":                   {replicaSet(), slices.Repeat(fleet(1), 2), counts{2, 2, 2, 2}},
		"T1 whose pods they are is not looked at":              {replicaSet(), fleet(1, podtest.Labels(nil)), counts{1, 0, 1, 1}},
		"T2 no pods":                       {replicaSet(), nil, counts{}},
		"T2 every active pod is a replica": {replicaSet(), fleet(4, podtest.NotReady), counts{4, 4, 0, 0}},
		"T2 nil pods do not count":         {replicaSet(), of(nil, podtest.Pod("a"), nil), one},

		"T3 more labels than the template's":           {replicaSet(), fleet(1, podtest.Labels(map[string]string{"app": "web", "pod-template-hash": "5d9c7b6f4d", "x": "y"})), one},
		"T3 a template label is missing":               {replicaSet(), fleet(1, podtest.Labels(map[string]string{"app": "web"})), counts{1, 0, 1, 1}},
		"T3 a template label has another value":        {replicaSet(), fleet(1, podtest.Labels(map[string]string{"app": "web", "pod-template-hash": "x"})), counts{1, 0, 1, 1}},
		"T3 an empty value is not a missing label":     {replicaSet(templateLabels(map[string]string{"x": ""})), fleet(1), counts{1, 0, 1, 1}},
		"T3 an empty value equals an empty value":      {replicaSet(templateLabels(map[string]string{"x": ""})), fleet(1, podtest.Labels(map[string]string{"x": ""})), one},
		"T3 no template labels, every pod has them":    {replicaSet(templateLabels(nil)), fleet(1, podtest.Labels(nil)), one},
		"T3 empty template labels, every pod has them": {replicaSet(templateLabels(map[string]string{})), fleet(1), one},

		"T4 R3 ready":                           {replicaSet(), fleet(1), one},
		"T4 R3 not ready":                       {replicaSet(), fleet(1, podtest.NotReady), unready},
		"T4 R3 readiness unknown":               {replicaSet(), fleet(1, noConditions, readyCondition(corev1.ConditionUnknown)), unready},
		"T4 R3 no condition":                    {replicaSet(), fleet(1, noConditions), unready},
		"T4 R3 the first Ready condition, no":   {replicaSet(), fleet(1, noConditions, readyCondition(corev1.ConditionFalse), readyCondition(corev1.ConditionTrue)), unready},
		"T4 R3 the first Ready condition, yes":  {replicaSet(), fleet(1, noConditions, readyCondition(corev1.ConditionTrue), readyCondition(corev1.ConditionFalse)), one},
		"T4 a pending pod that is ready counts": {replicaSet(), fleet(1, podtest.Phase(corev1.PodPending)), one},

		"T5 without minReadySeconds a ready pod is available at once": {replicaSet(), fleet(1, podtest.ReadySince(now)), one},
		"T5 without minReadySeconds the future is no matter":          {replicaSet(), fleet(1, podtest.ReadySince(now.Add(time.Hour))), one},
		"T5 without minReadySeconds no transition time is needed":     {replicaSet(), fleet(1, podtest.ReadySince(time.Time{})), one},
		"T5 F9 minReadySeconds have just passed":                      {replicaSet(minReadySeconds(10)), fleet(1, podtest.ReadySince(now.Add(-10*time.Second))), one},
		"T5 minReadySeconds have not quite passed":                    {replicaSet(minReadySeconds(10)), fleet(1, podtest.ReadySince(now.Add(-10*time.Second+1))), unavailable},
		"T5 not ready is not available":                               {replicaSet(minReadySeconds(10)), fleet(1, noConditions, readyCondition(corev1.ConditionFalse)), unready},
		"T5 the largest minReadySeconds":                              {replicaSet(minReadySeconds(1<<31 - 1)), fleet(1), unavailable},
		"T6 negative minReadySeconds, a transition time":              {replicaSet(minReadySeconds(-10)), fleet(1, podtest.ReadySince(now.Add(10*time.Second))), one},
		"T6 negative minReadySeconds, too far in the future":          {replicaSet(minReadySeconds(-10)), fleet(1, podtest.ReadySince(now.Add(10*time.Second+1))), unavailable},
		"T6 negative minReadySeconds, no transition time":             {replicaSet(minReadySeconds(-10)), fleet(1, podtest.ReadySince(time.Time{})), unavailable},
		"T7 minReadySeconds, no transition time":                      {replicaSet(minReadySeconds(1)), fleet(1, podtest.ReadySince(time.Time{})), unavailable},

		"T10 terminating pods do not count":        {replicaSet(), append(fleet(1), fleet(3, podtest.Deleting)...), one},
		"T10 succeeded pods do not count":          {replicaSet(), append(fleet(1), fleet(3, podtest.Phase(corev1.PodSucceeded))...), one},
		"T10 failed pods do not count":             {replicaSet(), append(fleet(1), fleet(3, podtest.Phase(corev1.PodFailed))...), one},
		"T10 finished, terminating pods count not": {replicaSet(), fleet(3, podtest.Phase(corev1.PodFailed), podtest.Deleting), counts{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := status.Calculate(tt.rs, tt.pods, status.Options{Now: now})
			assert.Equal(t, tt.want, counts{got.Replicas, got.FullyLabeledReplicas, got.ReadyReplicas, got.AvailableReplicas})
			ofController := status.CalculateReplicationController(replicationController(tt.rs), tt.pods, status.Options{Now: now})
			assert.Equal(t, tt.want, counts{
				ofController.Replicas, ofController.FullyLabeledReplicas, ofController.ReadyReplicas, ofController.AvailableReplicas,
			}, "ReplicationController")
		})
	}
	t.Run("T5 the zero instant comes before all minReadySeconds", func(t *testing.T) {
		t.Parallel()
		got := status.Calculate(replicaSet(minReadySeconds(1)), fleet(2), status.Options{})
		assert.EqualValues(t, 2, got.ReadyReplicas)
		assert.Zero(t, got.AvailableReplicas)
	})
}

func TestTerminatingReplicas(t *testing.T) {
	t.Parallel()
	owned := podtest.OwnedBy(replicaSet(), "apps/v1", "ReplicaSet")
	other := podtest.OwnedBy(&metav1.ObjectMeta{Name: "web", UID: "uid-other"}, "apps/v1", "ReplicaSet")
	notController := func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }
	abroad := func(p *corev1.Pod) { p.Namespace = "abroad" }
	expression := func(operator metav1.LabelSelectorOperator) *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": "web"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "pod-template-hash", Operator: operator, Values: []string{"5d9c7b6f4d"}}},
		}
	}
	old := func(rs *appsv1.ReplicaSet) { *replicaset.Terminating(&rs.Status) = ptr(5) }
	spaced := map[string]string{"app": "a b"} // no legal label
	for name, tt := range map[string]struct {
		rs   *appsv1.ReplicaSet
		opts status.Options
		want *int32
	}{
		"T8 none is 0, not nil":                         {replicaSet(), status.Options{}, ptr(0)},
		"T8 the owner's terminating pods":               {replicaSet(old), status.Options{Terminating: fleet(2, owned, podtest.Deleting)}, ptr(2)},
		"T8 nil pods do not count":                      {replicaSet(), status.Options{Terminating: append(fleet(2, owned, podtest.Deleting), nil)}, ptr(2)},
		"T8 pods not being deleted do not count":        {replicaSet(), status.Options{Terminating: fleet(2, owned)}, ptr(0)},
		"T8 succeeded pods do not count":                {replicaSet(), status.Options{Terminating: fleet(2, owned, podtest.Deleting, podtest.Phase(corev1.PodSucceeded))}, ptr(0)},
		"T8 failed pods do not count":                   {replicaSet(), status.Options{Terminating: fleet(2, owned, podtest.Deleting, podtest.Phase(corev1.PodFailed))}, ptr(0)},
		"T8 orphans do not count":                       {replicaSet(), status.Options{Terminating: fleet(2, podtest.Deleting)}, ptr(0)},
		"T8 pods of another UID do not count":           {replicaSet(), status.Options{Terminating: fleet(2, other, podtest.Deleting)}, ptr(0)},
		"T8 Y6 pods of another namespace do not count":  {replicaSet(), status.Options{Terminating: fleet(2, owned, abroad, podtest.Deleting)}, ptr(0)},
		"T8 an owner without namespace has them in all": {replicaSet(func(rs *appsv1.ReplicaSet) { rs.Namespace = "" }), status.Options{Terminating: fleet(2, owned, abroad, podtest.Deleting)}, ptr(2)},
		"T8 an owner that is no controller is none":     {replicaSet(), status.Options{Terminating: fleet(2, owned, notController, podtest.Deleting)}, ptr(0)},
		"T8 pods without a selector label do not":       {replicaSet(), status.Options{Terminating: fleet(2, owned, podtest.Deleting, podtest.Labels(nil))}, ptr(0)},
		"T8 a selector's expression matches":            {replicaSet(selector(expression("In"))), status.Options{Terminating: fleet(2, owned, podtest.Deleting)}, ptr(2)},
		"T8 a selector's expression does not match":     {replicaSet(selector(expression("NotIn"))), status.Options{Terminating: fleet(2, owned, podtest.Deleting)}, ptr(0)},
		"T8 an invalid selector matches none":           {replicaSet(selector(expression("Invalid"))), status.Options{Terminating: fleet(2, owned, podtest.Deleting)}, ptr(0)},
		"T8 a selector with an invalid label has none":  {replicaSet(selector(&metav1.LabelSelector{MatchLabels: spaced})), status.Options{Terminating: fleet(2, owned, podtest.Deleting, podtest.Labels(spaced))}, ptr(0)},
		"T8 a nil selector matches none":                {replicaSet(selector(nil)), status.Options{Terminating: fleet(2, owned, podtest.Deleting)}, ptr(0)},
		"T8 an empty selector matches all":              {replicaSet(selector(&metav1.LabelSelector{})), status.Options{Terminating: fleet(2, owned, podtest.Deleting)}, ptr(2)},
		"T9 left out where the server drops the field":  {replicaSet(), status.Options{OmitTerminating: true, Terminating: fleet(2, owned, podtest.Deleting)}, nil},
		"T9 left out, an old value is cleared":          {replicaSet(old), status.Options{OmitTerminating: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := status.Calculate(tt.rs, nil, tt.opts)
			assert.Equal(t, tt.want, *replicaset.Terminating(&got))
		})
	}
}

func failure(reason string, value corev1.ConditionStatus) appsv1.ReplicaSetCondition {
	return appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: value, LastTransitionTime: before, Reason: reason, Message: "old",
	}
}

func fresh(reason string) appsv1.ReplicaSetCondition {
	return appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: reason, Message: errQuota.Error(),
	}
}

var custom = appsv1.ReplicaSetCondition{Type: "example.com/Custom", Status: corev1.ConditionTrue, LastTransitionTime: before}

func TestReplicaFailure(t *testing.T) {
	t.Parallel()
	type list = []appsv1.ReplicaSetCondition
	failed := status.Options{ManageErr: errQuota, Now: now}
	fine := status.Options{Now: now}
	waiting := status.Options{Waiting: true, Now: now}
	old := failure("FailedCreate", corev1.ConditionTrue)
	for name, tt := range map[string]struct {
		active int
		rs     *appsv1.ReplicaSet
		opts   status.Options
		want   list
	}{
		"T11 W35 an error sets the condition, at the given instant": {2, replicaSet(), failed, list{fresh("FailedCreate")}},
		"T11 the condition is appended to the others":               {2, replicaSet(conditions(custom)), failed, list{custom, fresh("FailedCreate")}},
		"T11 an error while waiting is an error":                    {2, replicaSet(), status.Options{ManageErr: errQuota, Waiting: true, Now: now}, list{fresh("FailedCreate")}},
		"T12 too few active pods":                                   {2, replicaSet(), failed, list{fresh("FailedCreate")}},
		"T12 too many active pods":                                  {4, replicaSet(), failed, list{fresh("FailedDelete")}},
		"T12 as many active pods as wanted":                         {3, replicaSet(), failed, list{fresh("")}},
		"T12 W2 nil replicas have an empty reason":                  {4, replicaSet(replicas(nil)), failed, list{fresh("")}},
		"T12 W3 negative replicas are too few":                      {0, replicaSet(replicas(ptr(-1))), failed, list{fresh("FailedDelete")}},
		"T13 W45 another message refreshes the condition":           {2, replicaSet(conditions(old)), failed, list{fresh("FailedCreate")}},
		"T13 the same failure changes nothing": {
			2, replicaSet(conditions(failure("FailedCreate", corev1.ConditionTrue))), status.Options{ManageErr: errors.New("old"), Now: now}, list{old},
		},
		"T13 the same failure with status False changes nothing": {
			2, replicaSet(conditions(failure("FailedCreate", corev1.ConditionFalse))),
			status.Options{ManageErr: errors.New("old"), Now: now},
			list{failure("FailedCreate", corev1.ConditionFalse)},
		},
		"T13 W45 another reason refreshes the condition":          {4, replicaSet(conditions(old, custom)), failed, list{custom, fresh("FailedDelete")}},
		"T13 W45 an empty reason after another refreshes it, too": {3, replicaSet(conditions(old)), failed, list{fresh("")}},
		"T14 no error removes the condition":                      {2, replicaSet(conditions(old, custom)), fine, list{custom}},
		"T14 nil remains when it was the only one":                {2, replicaSet(conditions(old)), fine, nil},
		"T14 every condition of the type is removed":              {2, replicaSet(conditions(old, custom, failure("x", corev1.ConditionFalse))), fine, list{custom}},
		"T15 W45 the condition stays while merely waiting":        {2, replicaSet(conditions(old, custom)), waiting, list{old, custom}},
		"T15 W45 waiting sets no condition":                       {2, replicaSet(), waiting, nil},
		"T16 nil conditions stay nil":                             {3, replicaSet(), fine, nil},
		"T16 empty conditions stay empty":                         {3, replicaSet(conditions(list{}...)), fine, list{}},
		"T16 other conditions are carried over":                   {3, replicaSet(conditions(custom)), fine, list{custom}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			untouched := tt.rs.DeepCopy()
			got := status.Calculate(tt.rs, fleet(tt.active), tt.opts)
			assert.Equal(t, tt.want, got.Conditions)
			assert.Equal(t, untouched, tt.rs)

			rc := replicationController(tt.rs)
			ofController := status.CalculateReplicationController(rc, fleet(tt.active), tt.opts)
			assert.Equal(t, controllerConditions(tt.want), ofController.Conditions, "ReplicationController")
			assert.Equal(t, replicationController(untouched), rc)

			ofOwnType := ownConditions(tt.rs.Status.Conditions)
			status.SetFailure(&ofOwnType, status.Failure{
				Err: tt.opts.ManageErr, Waiting: tt.opts.Waiting, Active: int32(tt.active), Desired: tt.rs.Spec.Replicas, Now: now,
			})
			assert.Equal(t, ownConditions(tt.want), ofOwnType, "metav1.Condition")
		})
	}
}

// If two errors of the API server differ only in the name of the child, they have the same cause, and the condition
// stays unchanged. If the quota, the webhook or the resource differs, the errors have different causes.
func TestT13W45TheNameOfTheChildIsNoCause(t *testing.T) {
	t.Parallel()
	workers := schema.GroupResource{Group: "fleet.example.com", Resource: "workers"}
	denied := func(resource schema.GroupResource, name, why string) error {
		return fmt.Errorf("unable to create: %w", apierrors.NewForbidden(resource, name, errors.New(why)))
	}
	const full, raised = "exceeded quota: q, limited: pods=5", "exceeded quota: q, limited: pods=9"
	first := denied(corev1.Resource("pods"), "web-a", full)
	for name, tt := range map[string]struct {
		first, next error
		refreshed   bool
	}{
		"another pod":                    {first, denied(corev1.Resource("pods"), "web-b", full), false},
		"several pods":                   {errors.Join(first, first), errors.Join(denied(corev1.Resource("pods"), "web-b", full), first), false},
		"a quota that was raised":        {first, denied(corev1.Resource("pods"), "web-a", raised), true},
		"another pod and another quota":  {first, denied(corev1.Resource("pods"), "web-b", raised), true},
		"another resource":               {first, denied(workers, "web-a", full), true},
		"another child of another group": {denied(workers, "a", full), denied(workers, "b", full), false},
		"another webhook": {
			denied(corev1.Resource("pods"), "a", `webhook "x" denied it`), denied(corev1.Resource("pods"), "a", `webhook "y" denied it`), true,
		},
		"a webhook that names another pod": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Message: `webhook "x" denied web-7zq99: no`}},
			&apierrors.StatusError{ErrStatus: metav1.Status{Message: `webhook "x" denied web-58rmz: no`}}, false,
		},
		"another pool":                 {errors.New("node pool-bdfgh is full"), errors.New("node pool is full"), true},
		"an error that no server sent": {errors.New(`pods "a"`), errors.New(`pods "b"`), true},
		"a server that names no kind":  {&apierrors.StatusError{ErrStatus: metav1.Status{Message: "a"}}, &apierrors.StatusError{ErrStatus: metav1.Status{Message: "b"}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list []appsv1.ReplicaSetCondition
			var own []machineCondition
			machines := status.Must(status.NewConditions[machineCondition]())
			for i, err := range []error{tt.first, tt.next} {
				f := status.Failure{Err: err, Now: now.Add(time.Duration(i) * time.Minute)}
				status.SetFailure(&list, f)
				machines.SetFailure(&own, f)
			}
			want := tt.first
			if tt.refreshed {
				want = tt.next
			}
			require.Len(t, list, 1)
			assert.Equal(t, want.Error(), list[0].Message)
			assert.Equal(t, tt.refreshed, list[0].LastTransitionTime.After(now))
			require.Len(t, own, 1)
			assert.Equal(t, want.Error(), own[0].Message)
		})
	}
}

// ownConditions converts the conditions to the type metav1.Condition.
func ownConditions(list []appsv1.ReplicaSetCondition) []metav1.Condition {
	if list == nil {
		return nil
	}
	own := []metav1.Condition{}
	for _, c := range list {
		own = append(own, metav1.Condition{
			Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime,
			Reason: cmp.Or(c.Reason, "Failed"), Message: c.Message,
		})
	}
	return own
}

func TestFailureOfOwnType(t *testing.T) {
	t.Parallel()
	t.Run("the generation is told", func(t *testing.T) {
		t.Parallel()
		var own []metav1.Condition
		status.SetFailure(&own, status.Failure{Err: errQuota, ObservedGeneration: 7, Now: now})
		assert.Equal(t, []metav1.Condition{{
			Type: status.ReplicaFailure, Status: metav1.ConditionTrue, ObservedGeneration: 7,
			LastTransitionTime: metav1.NewTime(now), Reason: "Failed", Message: errQuota.Error(),
		}}, own)
	})
	t.Run("a failure that goes on is told of the newest generation, with its old time", func(t *testing.T) {
		t.Parallel()
		old := []metav1.Condition{{
			Type: status.ReplicaFailure, Status: metav1.ConditionTrue, ObservedGeneration: 7,
			LastTransitionTime: metav1.NewTime(now), Reason: "Failed", Message: errQuota.Error(),
		}}
		own := slices.Clone(old)
		conditions := own
		status.SetFailure(&conditions, status.Failure{Err: errQuota, ObservedGeneration: 8, Now: now.Add(time.Hour)})
		want := slices.Clone(old)
		want[0].ObservedGeneration = 8
		assert.Equal(t, want, conditions)
		assert.Equal(t, old, own, "the slice is not written to")
	})
	t.Run("a message that the API server would refuse is cut, between two characters", func(t *testing.T) {
		t.Parallel()
		var own []metav1.Condition
		status.SetFailure(&own, status.Failure{Err: errors.New("x" + strings.Repeat("é", 20000)), Now: now})
		message := own[0].Message
		assert.LessOrEqual(t, len(message), 32768)
		assert.Greater(t, len(message), 32760)
		assert.True(t, utf8.ValidString(message))
		assert.True(t, strings.HasSuffix(message, "é..."))
	})
	t.Run("the longest message is kept whole", func(t *testing.T) {
		t.Parallel()
		longest := strings.Repeat("x", 32768)
		var own []metav1.Condition
		status.SetFailure(&own, status.Failure{Err: errors.New(longest), Now: now})
		assert.Equal(t, longest, own[0].Message)
	})
}

func TestCarriedOver(t *testing.T) {
	t.Parallel()
	t.Run("T16 only what is calculated differs from the old status", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(conditions(custom))
		got := status.Calculate(rs, fleet(3), status.Options{Now: now})
		want := appsv1.ReplicaSetStatus{
			Replicas: 3, FullyLabeledReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
			ObservedGeneration: 7, Conditions: []appsv1.ReplicaSetCondition{custom},
		}
		*replicaset.Terminating(&want) = ptr(0)
		assert.Equal(t, want, got)
	})
	t.Run("U2 observedGeneration is the generation that was calculated from", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(func(rs *appsv1.ReplicaSet) { rs.Generation, rs.Status.ObservedGeneration = 9, 8 })
		assert.EqualValues(t, 9, status.Calculate(rs, nil, status.Options{}).ObservedGeneration)
		assert.EqualValues(t, 9, status.CalculateReplicationController(replicationController(rs), nil, status.Options{}).ObservedGeneration)
	})
	t.Run("T16 the conditions share no memory with the old ones", func(t *testing.T) {
		t.Parallel()
		for _, opts := range []status.Options{{}, {Waiting: true}, {ManageErr: errQuota}} {
			spare := make([]appsv1.ReplicaSetCondition, 1, 4)
			spare[0] = custom
			rs := replicaSet(conditions(spare...))
			got := status.Calculate(rs, nil, opts)
			got.Conditions[0].Reason = "scribbled"
			_ = append(got.Conditions, failure("scribbled", corev1.ConditionTrue))
			assert.Equal(t, []appsv1.ReplicaSetCondition{custom, {}, {}, {}}, spare[:4])
		}
	})
	t.Run("a nil owner has the zero status", func(t *testing.T) {
		t.Parallel()
		assert.Equal(t, appsv1.ReplicaSetStatus{}, status.Calculate(nil, fleet(1), status.Options{ManageErr: errQuota}))
		assert.Equal(t, corev1.ReplicationControllerStatus{}, status.CalculateReplicationController(nil, fleet(1), status.Options{ManageErr: errQuota}))
	})
}

// replicationController returns a ReplicationController with the same spec and the same conditions.
func replicationController(rs *appsv1.ReplicaSet) *corev1.ReplicationController {
	return &corev1.ReplicationController{
		ObjectMeta: rs.ObjectMeta,
		Spec: corev1.ReplicationControllerSpec{
			Replicas: rs.Spec.Replicas, MinReadySeconds: rs.Spec.MinReadySeconds,
			Selector: map[string]string{"app": "web"}, Template: &rs.Spec.Template,
		},
		Status: corev1.ReplicationControllerStatus{
			ObservedGeneration: rs.Status.ObservedGeneration, Conditions: controllerConditions(rs.Status.Conditions),
		},
	}
}

func controllerConditions(list []appsv1.ReplicaSetCondition) []corev1.ReplicationControllerCondition {
	if list == nil {
		return nil
	}
	same := []corev1.ReplicationControllerCondition{}
	for _, c := range list {
		same = append(same, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return same
}

func TestReplicationController(t *testing.T) {
	t.Parallel()
	t.Run("A4 terminating pods are not reported, all else is", func(t *testing.T) {
		t.Parallel()
		rc := replicationController(replicaSet())
		owned := podtest.OwnedBy(rc, "v1", "ReplicationController")
		got := status.CalculateReplicationController(rc, fleet(2), status.Options{
			Terminating: fleet(2, owned, podtest.Deleting), ManageErr: errQuota, Now: now,
		})
		assert.Equal(t, corev1.ReplicationControllerStatus{
			Replicas: 2, FullyLabeledReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2, ObservedGeneration: 7,
			Conditions: controllerConditions([]appsv1.ReplicaSetCondition{fresh("FailedCreate")}),
		}, got)
	})
	t.Run("A4 T3 a nil template has no labels", func(t *testing.T) {
		t.Parallel()
		rc := replicationController(replicaSet())
		rc.Spec.Template = nil
		got := status.CalculateReplicationController(rc, fleet(2), status.Options{})
		assert.EqualValues(t, 2, got.FullyLabeledReplicas)
	})
}

func TestNeedsUpdate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rs     func(*appsv1.ReplicaSet)
		status func(*appsv1.ReplicaSetStatus)
		want   bool
	}{
		"U1 nothing differs":                         {},
		"U1 replicas differ":                         {status: func(s *appsv1.ReplicaSetStatus) { s.Replicas++ }, want: true},
		"U1 fullyLabeledReplicas differ":             {status: func(s *appsv1.ReplicaSetStatus) { s.FullyLabeledReplicas++ }, want: true},
		"U1 readyReplicas differ":                    {status: func(s *appsv1.ReplicaSetStatus) { s.ReadyReplicas++ }, want: true},
		"U1 availableReplicas differ":                {status: func(s *appsv1.ReplicaSetStatus) { s.AvailableReplicas++ }, want: true},
		"U1 a condition differs":                     {status: func(s *appsv1.ReplicaSetStatus) { s.Conditions[0].Message = "new" }, want: true},
		"U1 a condition's time differs":              {status: func(s *appsv1.ReplicaSetStatus) { s.Conditions[0].LastTransitionTime = metav1.NewTime(now) }, want: true},
		"U1 a condition is gone":                     {status: func(s *appsv1.ReplicaSetStatus) { s.Conditions = nil }, want: true},
		"U1 nil conditions are not empty ones":       {rs: conditions([]appsv1.ReplicaSetCondition{}...), status: func(s *appsv1.ReplicaSetStatus) { s.Conditions = nil }, want: true},
		"U1 the generation was not observed":         {rs: func(rs *appsv1.ReplicaSet) { rs.Generation++ }, want: true},
		"U1 the new observedGeneration is no matter": {status: func(s *appsv1.ReplicaSetStatus) { s.ObservedGeneration = 99 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(conditions(custom))
			rs.Status = status.Calculate(rs, fleet(3), status.Options{Now: now})
			newStatus := *rs.Status.DeepCopy()
			if tt.rs != nil {
				tt.rs(rs)
			}
			if tt.status != nil {
				tt.status(&newStatus)
			}
			assert.Equal(t, tt.want, status.NeedsUpdate(rs, newStatus))

			rc := replicationController(rs)
			rc.Status = controllerStatus(rs.Status)
			assert.Equal(t, tt.want, status.NeedsUpdateReplicationController(rc, controllerStatus(newStatus)))
		})
	}
	t.Run("U1 what was written is not written again", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet()
		opts := status.Options{ManageErr: errQuota, Now: now}
		rs.Status = status.Calculate(rs, fleet(2), opts)
		opts.Now = now.Add(time.Hour)
		assert.False(t, status.NeedsUpdate(rs, status.Calculate(rs, fleet(2), opts)))
		rc := replicationController(rs)
		rc.Status = status.CalculateReplicationController(rc, fleet(2), opts)
		assert.False(t, status.NeedsUpdateReplicationController(rc, status.CalculateReplicationController(rc, fleet(2), opts)))
	})
	t.Run("U1 a nil owner needs no update", func(t *testing.T) {
		t.Parallel()
		assert.False(t, status.NeedsUpdate(nil, appsv1.ReplicaSetStatus{Replicas: 1}))
		assert.False(t, status.NeedsUpdateReplicationController(nil, corev1.ReplicationControllerStatus{Replicas: 1}))
	})
}

func TestTerminatingReplicasShareNoMemory(t *testing.T) {
	t.Parallel()
	rs := replicaSet(func(rs *appsv1.ReplicaSet) { *replicaset.Terminating(&rs.Status) = ptr(0) })
	got := status.Calculate(rs, nil, status.Options{})
	assert.NotSame(t, *replicaset.Terminating(&rs.Status), *replicaset.Terminating(&got), "T16")
}

func TestTerminatingReplicasNeedAnUpdate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		was, is *int32
		want    bool
	}{
		"U1 they differ":         {ptr(0), ptr(1), true},
		"U1 0 is not nil":        {ptr(0), nil, true},
		"U1 nil is not 0":        {nil, ptr(0), true},
		"U1 they are equal":      {ptr(1), ptr(1), false},
		"U1 neither is reported": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet()
			rs.Status = status.Calculate(rs, fleet(3), status.Options{Now: now})
			newStatus := *rs.Status.DeepCopy()
			*replicaset.Terminating(&rs.Status), *replicaset.Terminating(&newStatus) = tt.was, tt.is
			assert.Equal(t, tt.want, status.NeedsUpdate(rs, newStatus))
		})
	}
}

func controllerStatus(s appsv1.ReplicaSetStatus) corev1.ReplicationControllerStatus {
	return corev1.ReplicationControllerStatus{
		Replicas: s.Replicas, FullyLabeledReplicas: s.FullyLabeledReplicas, ReadyReplicas: s.ReadyReplicas,
		AvailableReplicas: s.AvailableReplicas, ObservedGeneration: s.ObservedGeneration, Conditions: controllerConditions(s.Conditions),
	}
}

// slowly is a slow, obvious implementation of Calculate, with one loop for each field.
func slowly(rs *appsv1.ReplicaSet, pods []*corev1.Pod, opts status.Options) appsv1.ReplicaSetStatus {
	result := *rs.Status.DeepCopy()
	result.ObservedGeneration = rs.Generation

	var active []*corev1.Pod
	for _, p := range pods {
		if p != nil && p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
			active = append(active, p)
		}
	}
	result.Replicas = int32(len(active))

	result.FullyLabeledReplicas = 0
	for _, p := range active {
		if labels.SelectorFromSet(rs.Spec.Template.Labels).Matches(labels.Set(p.Labels)) {
			result.FullyLabeledReplicas++
		}
	}

	result.ReadyReplicas, result.AvailableReplicas = 0, 0
	minReady := time.Duration(rs.Spec.MinReadySeconds) * time.Second
	for _, p := range active {
		for _, c := range p.Status.Conditions {
			if c.Type != corev1.PodReady {
				continue
			}
			if c.Status == corev1.ConditionTrue {
				result.ReadyReplicas++
				waited := opts.Now.Sub(c.LastTransitionTime.Time)
				if minReady == 0 || !c.LastTransitionTime.IsZero() && waited >= minReady {
					result.AvailableReplicas++
				}
			}
			break
		}
	}

	*replicaset.Terminating(&result) = nil
	if !opts.OmitTerminating {
		n := new(int32)
		*replicaset.Terminating(&result) = n
		s, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
		for _, p := range opts.Terminating {
			if err == nil && p != nil && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded &&
				metav1.IsControlledBy(p, rs) && s.Matches(labels.Set(p.Labels)) {
				*n++
			}
		}
	}

	reason := ""
	if desired := rs.Spec.Replicas; desired != nil && int(*desired) > len(active) {
		reason = "FailedCreate"
	} else if desired != nil && int(*desired) < len(active) {
		reason = "FailedDelete"
	}
	at := slices.IndexFunc(result.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == appsv1.ReplicaSetReplicaFailure })
	if at >= 0 && (opts.ManageErr == nil && !opts.Waiting || opts.ManageErr != nil &&
		(result.Conditions[at].Reason != reason || result.Conditions[at].Message != opts.ManageErr.Error())) {
		result.Conditions = slices.Delete(result.Conditions, at, at+1)
		if len(result.Conditions) == 0 {
			result.Conditions = nil
		}
		at = -1
	}
	if at < 0 && opts.ManageErr != nil {
		result.Conditions = append(result.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: reason,
			Message: opts.ManageErr.Error(), LastTransitionTime: metav1.NewTime(opts.Now),
		})
	}
	return result
}

// random makes random pods, owners and options with many borderline cases.
type random struct{ *rand.Rand }

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

func (r random) labels() map[string]string {
	return pick(r, nil, map[string]string{}, map[string]string{"app": "web"}, map[string]string{"app": ""},
		map[string]string{"app": "web", "pod-template-hash": "5d9c7b6f4d"}, map[string]string{"app": "db", "x": "y"})
}

func (r random) instant() time.Time {
	return pick(r, time.Time{}, now, now.Add(1), now.Add(-1), now.Add(-10*time.Second), now.Add(-10*time.Second+1),
		now.Add(10*time.Second), now.Add(-time.Hour), now.Add(time.Hour))
}

func (r random) pods(owner metav1.Object) []*corev1.Pod {
	pods := make([]*corev1.Pod, r.IntN(8))
	for i := range pods {
		if r.IntN(10) == 0 {
			continue
		}
		p := podtest.Pod(string(rune('a'+i)), podtest.Labels(r.labels()),
			podtest.Phase(pick(r, corev1.PodRunning, corev1.PodRunning, corev1.PodPending, corev1.PodFailed, corev1.PodSucceeded, corev1.PodUnknown, "")))
		p.Status.Conditions = nil
		for range r.IntN(4) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type:               pick(r, corev1.PodReady, corev1.PodReady, corev1.ContainersReady),
				Status:             pick(r, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown),
				LastTransitionTime: metav1.NewTime(r.instant()),
			})
		}
		if r.IntN(3) == 0 {
			podtest.Deleting(p)
		}
		if r.IntN(2) == 0 {
			podtest.OwnedBy(pick(r, owner, metav1.Object(&metav1.ObjectMeta{UID: "uid-other"})), "apps/v1", "ReplicaSet")(p)
		}
		pods[i] = p
	}
	return pods
}

func (r random) replicaSet() *appsv1.ReplicaSet {
	rs := replicaSet(minReadySeconds(pick[int32](r, 0, 10, -10, 1)), replicas(pick(r, nil, ptr(0), ptr(2), ptr(3), ptr(-1))), templateLabels(r.labels()))
	rs.Spec.Selector = pick(r, nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: r.labels()}, &metav1.LabelSelector{
		MatchLabels:      r.labels(),
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "x", Operator: pick(r, metav1.LabelSelectorOpDoesNotExist, metav1.LabelSelectorOpIn)}},
	})
	rs.Status = appsv1.ReplicaSetStatus{Replicas: 9, FullyLabeledReplicas: 9, ReadyReplicas: 9, AvailableReplicas: 9}
	*replicaset.Terminating(&rs.Status) = pick(r, nil, ptr(9))
	old := failure(pick(r, "", "FailedCreate", "FailedDelete"), pick(r, corev1.ConditionTrue, corev1.ConditionFalse))
	rs.Status.Conditions = pick(r, nil, []appsv1.ReplicaSetCondition{}, []appsv1.ReplicaSetCondition{custom},
		[]appsv1.ReplicaSetCondition{old}, []appsv1.ReplicaSetCondition{old, custom})
	return rs
}

func TestCalculateEqualsSlowTwin(t *testing.T) {
	t.Parallel()
	r := random{rand.New(rand.NewPCG(3, 4))}
	for range 5000 {
		rs := r.replicaSet()
		pods := r.pods(rs)
		opts := status.Options{
			Terminating: pick(r, nil, pods, r.pods(rs)), OmitTerminating: r.IntN(4) == 0, Waiting: r.IntN(2) == 0,
			ManageErr: pick(r, nil, errQuota), Now: now,
		}
		rsBefore, podsBefore := rs.DeepCopy(), deepCopy(pods)

		got := status.Calculate(rs, pods, opts)
		require.Equal(t, slowly(rs, pods, opts), got)
		require.Equal(t, rsBefore, rs, "Y14 the owner is not modified")
		require.Equal(t, podsBefore, pods, "Y14 the pods are not modified")
		require.True(t, 0 <= got.AvailableReplicas && got.AvailableReplicas <= got.ReadyReplicas && got.ReadyReplicas <= got.Replicas)
		require.True(t, 0 <= got.FullyLabeledReplicas && got.FullyLabeledReplicas <= got.Replicas)

		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		require.Equal(t, got, status.Calculate(rs, pods, opts), "the order of the pods is no matter")

		rc := replicationController(rs)
		require.Equal(t, controllerStatus(got), status.CalculateReplicationController(rc, pods, opts))
	}
}

// If Count gets the unfinished pods and the rules for pods, it returns the same counts as CountPods for all pods.
func TestCountEqualsCountPods(t *testing.T) {
	t.Parallel()
	r := random{rand.New(rand.NewPCG(5, 6))}
	for range 2000 {
		rs := r.replicaSet()
		pods, minReadySeconds := r.pods(rs), rs.Spec.MinReadySeconds
		want := status.CountPods(pods, rs.Spec.Template.Labels, minReadySeconds, now)
		unfinished := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
			return p != nil && (p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded)
		})
		got := status.Count(unfinished, status.Rules[*corev1.Pod]{
			Active: status.IsPodActive,
			FullyLabeled: func(p *corev1.Pod) bool {
				return labels.SelectorFromSet(rs.Spec.Template.Labels).Matches(labels.Set(p.Labels))
			},
			Ready:     status.IsPodReady,
			Available: func(p *corev1.Pod) bool { return status.IsPodAvailable(p, minReadySeconds, now) },
		})
		require.Equal(t, want, got)
	}
}

func TestCountWithoutRules(t *testing.T) {
	t.Parallel()
	children := []*metav1.ObjectMeta{{Name: "a"}, nil, {Name: "b"}, {Name: "c", DeletionTimestamp: &before}}
	assert.Equal(t, status.Counts{Replicas: 2, FullyLabeled: 2, Terminating: 1}, status.Count(children, status.Rules[*metav1.ObjectMeta]{}))
	assert.Equal(t, status.Counts{Terminating: 1}, status.Count(children, status.Rules[*metav1.ObjectMeta]{
		Active: func(*metav1.ObjectMeta) bool { return false },
	}), "who is not active is terminating only if it is being deleted")
	ready := status.Rules[*metav1.ObjectMeta]{Ready: func(m *metav1.ObjectMeta) bool { return m.Name == "a" }}
	assert.Equal(t, status.Counts{Replicas: 2, FullyLabeled: 2, Ready: 1, Available: 1, Terminating: 1}, status.Count(children, ready))
	assert.Zero(t, status.Count(nil, ready))
}

func deepCopy(pods []*corev1.Pod) []*corev1.Pod {
	copies := make([]*corev1.Pod, len(pods))
	for i, p := range pods {
		copies[i] = p.DeepCopy()
	}
	return copies
}
