// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	type change func(spec *replicas.SpecOfPods)
	tests := []struct {
		name   string
		change change
		reason string // the Reason of the RefusedError; "" if the error is not a RefusedError
		want   string
	}{
		{
			"W3 negative replicas", func(s *replicas.SpecOfPods) { s.Replicas = -1 },
			replicas.InvalidReplicas, `replicas: ReplicaSet "default/web": replicas -1 is negative`,
		},
		{
			"negative minReadySeconds", func(s *replicas.SpecOfPods) { s.MinReadySeconds = -1 },
			replicas.InvalidReplicas, `replicas: ReplicaSet "default/web": minReadySeconds -1 is negative`,
		},
		{
			"W6 nil selector", func(s *replicas.SpecOfPods) { s.Selector = nil },
			replicas.InvalidSelector, `replicas: ReplicaSet "default/web": selector is nil`,
		},
		{
			"W6 a nil pointer for a selector", func(s *replicas.SpecOfPods) { s.Selector = (*strict)(nil) },
			replicas.InvalidSelector, `replicas: ReplicaSet "default/web": selector is nil`,
		},
		{
			"Y15 selector that matches everything", func(s *replicas.SpecOfPods) { s.Selector = labels.Everything() },
			replicas.InvalidSelector, `replicas: ReplicaSet "default/web": selector is empty`,
		},
		{
			"Y15 selector that matches nothing", func(s *replicas.SpecOfPods) { s.Selector = labels.Nothing() },
			replicas.InvalidSelector, `replicas: ReplicaSet "default/web": selector matches nothing`,
		},
		{
			"nil template", func(s *replicas.SpecOfPods) { s.Template = nil },
			replicas.InvalidTemplate, `replicas: ReplicaSet "default/web": template is nil`,
		},
		{
			"P8 template without labels", func(s *replicas.SpecOfPods) { s.Template = &corev1.PodTemplateSpec{} },
			replicas.InvalidTemplate, `replicas: ReplicaSet "default/web": template has no labels`,
		},
		{
			"template whose labels do not match", func(s *replicas.SpecOfPods) {
				s.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}}}
			},
			replicas.InvalidTemplate, `replicas: ReplicaSet "default/web": template labels "app=db" do not match selector "app=web"`,
		},
		{
			"B4 negative burst", func(s *replicas.SpecOfPods) { s.BurstReplicas = -1 },
			"", `replicas: ReplicaSet "default/web": burst replicas -1 is negative`,
		},
		{
			"delete options with preconditions", func(s *replicas.SpecOfPods) { s.DeleteOptions.Preconditions = &metav1.Preconditions{} },
			replicas.InvalidDeleteOptions, `replicas: ReplicaSet "default/web": deleteOptions.preconditions is set, but each deletion has its own`,
		},
		{
			"delete options for a dry run", func(s *replicas.SpecOfPods) { s.DeleteOptions.DryRun = []string{metav1.DryRunAll} },
			replicas.InvalidDeleteOptions, `replicas: ReplicaSet "default/web": deleteOptions.dryRun is set, so no child would ever be deleted`,
		},
		{
			"delete options that servers refuse together with preconditions", func(s *replicas.SpecOfPods) {
				yes := true
				s.DeleteOptions.IgnoreStoreReadErrorWithClusterBreakingPotential = &yes
			},
			replicas.InvalidDeleteOptions, `replicas: ReplicaSet "default/web": deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: cannot be set together with .preconditions`,
		},
		{
			"zero now", func(s *replicas.SpecOfPods) { s.Facts.Now = time.Time{} },
			"", `replicas: ReplicaSet "default/web": now is the zero time`,
		},
		{
			"nil owner", func(s *replicas.SpecOfPods) { s.Owner = nil },
			"", `replicas: owner is nil`,
		},
		{
			"owner that is a nil pointer", func(s *replicas.SpecOfPods) { s.Owner = (*appsv1.ReplicaSet)(nil) },
			"", `replicas: owner is nil`,
		},
		{
			"Y7 owner without UID and name", func(s *replicas.SpecOfPods) {
				rs := replicaSet(1)
				rs.UID, rs.Name = "", ""
				s.Owner = rs
			},
			"", `replicas: ReplicaSet "default/": metadata.uid and metadata.name are empty`,
		},
		{
			"P1 kind without a version", func(s *replicas.SpecOfPods) { s.Kind.Version = "" },
			"", `replicas: owner "default/web": kind "apps/, Kind=ReplicaSet" is incomplete`,
		},
		{
			"Y7 P1 kind without a kind", func(s *replicas.SpecOfPods) { s.Kind.Kind = "" },
			"", `replicas: owner "default/web": kind "apps/v1, Kind=" is incomplete`,
		},
		{
			"TypeMeta of another kind, without an apiVersion", ownerOfType("", "ReplicationController"),
			"", `replicas: owner "default/web": its apiVersion and kind say ReplicationController.apps, but Spec.Kind, which a Controller takes from Kind.Owner, is "apps/v1, Kind=ReplicaSet"`,
		},
		{
			"TypeMeta of the core group", ownerOfType("v1", "ReplicaSet"),
			"", `replicas: owner "default/web": its apiVersion and kind say ReplicaSet, but Spec.Kind, which a Controller takes from Kind.Owner, is "apps/v1, Kind=ReplicaSet"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, replicaSet(1))
			tt.change(&spec)
			plan, err := replicas.Manage([]*corev1.Pod{podtest.Pod("orphan")}, spec)
			require.EqualError(t, err, tt.want)
			assert.Zero(t, plan)
			var refused *replicas.RefusedError
			if assert.Equal(t, tt.reason != "", errorsAs(err, &refused)) && refused != nil {
				assert.Equal(t, tt.reason, refused.Reason)
			}
		})
	}
}

// ownerOfType returns a change that gives the spec an owner with this TypeMeta.
func ownerOfType(apiVersion, kind string) func(*replicas.SpecOfPods) {
	return func(s *replicas.SpecOfPods) {
		rs := replicaSet(1)
		rs.TypeMeta = metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
		s.Owner = rs
	}
}

// The fixtures of other projects often have a kind and no apiVersion.
func TestOwnersThatTellTheirKindOnly(t *testing.T) {
	t.Parallel()
	for _, apiVersion := range []string{"", "apps/v1", "apps/v1beta2"} {
		t.Run("with apiVersion "+apiVersion, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, replicaSet(1))
			ownerOfType(apiVersion, "ReplicaSet")(&spec)
			plan, err := replicas.Manage([]*corev1.Pod(nil), spec)
			require.NoError(t, err)
			assert.Equal(t, "apps/v1", newPod(t, plan.Scale).OwnerReferences[0].APIVersion)
		})
	}
}

func TestRefusedError(t *testing.T) {
	t.Parallel()
	why := errors.New(`widgets: widget "default/w": spec.parts is empty`)
	mine := &replicas.RefusedError{Reason: "InvalidParts", Err: why}
	require.EqualError(t, mine, why.Error())
	require.ErrorIs(t, fmt.Errorf("reading: %w", mine), why)
	require.EqualError(t, &replicas.RefusedError{Reason: "InvalidParts"}, "replicas: spec is refused: InvalidParts")
	var none *replicas.RefusedError
	for _, empty := range []*replicas.RefusedError{none, {}, {Err: none}} {
		require.EqualError(t, empty, "replicas: spec is refused")
	}
	require.NoError(t, none.Unwrap())
}

// A loop that makes its children by itself uses only the number and the names.
func TestScaleToNeedsNoTemplate(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	spec := specOf(t, rs)
	spec.Template, spec.Selector = nil, nil
	scale, err := replicas.ScaleTo(podsOf(rs, 2), spec)
	require.NoError(t, err)
	assert.Len(t, scale.Delete, 1)
	scale, err = replicas.ScaleTo(podsOf(rs, 1), spec)
	require.NoError(t, err)
	assert.True(t, scale.IsZero())
	spec.Facts.Names = func(prefix string) string { return prefix + "x" }
	scale, err = replicas.ScaleTo(nil, spec)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-x"}, scale.Names)
	for _, refused := range []string{`selector is nil`, `template is nil`} {
		scale, err := replicas.ScaleTo(nil, spec)
		require.NoError(t, err)
		pod, err := scale.New(0)
		require.EqualError(t, err, `replicas: ReplicaSet "default/web": `+refused)
		assert.Nil(t, pod)
		spec.Selector = labels.SelectorFromSet(web)
	}
}

func TestBadLists(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	twice := podtest.Pod("a", owned(rs))
	tests := []struct {
		name string
		pods []*corev1.Pod
		want string
	}{
		{"a nil pod", []*corev1.Pod{podtest.Pod("a"), nil}, `replicas: ReplicaSet "default/web": objs[1] is nil`},
		{
			"W30 a pod listed twice",
			[]*corev1.Pod{twice, podtest.Pod("b"), twice.DeepCopy()},
			`replicas: ReplicaSet "default/web": child "default/a" (uid-a) is listed twice`,
		},
		{
			"a pod listed twice among others whose UIDs begin alike",
			[]*corev1.Pod{podtest.Pod("a", podtest.UID("uid-of-a-pod-1")), podtest.Pod("b", podtest.UID("uid-of-a-pod-2")), podtest.Pod("a", podtest.UID("uid-of-a-pod-1"))},
			`replicas: ReplicaSet "default/web": child "default/a" (uid-of-a-pod-1) is listed twice`,
		},
		{
			"W30 a pod listed as an orphan and as ours",
			[]*corev1.Pod{podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("a", owned(rs))},
			`replicas: ReplicaSet "default/web": child "default/a" (uid-a) is listed twice`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			plan, err := replicas.Manage(tt.pods, specOf(t, rs))
			require.EqualError(t, err, tt.want)
			assert.Zero(t, plan)
			scale, err := replicas.ScaleTo(tt.pods, specOf(t, rs))
			require.EqualError(t, err, tt.want)
			assert.Zero(t, scale)
		})
	}
}

func TestBadListsOfOthers(t *testing.T) {
	t.Parallel()
	rs, other := replicaSet(1), replicaSet(1)
	other.UID = "uid-of-other"
	released := podtest.Labels(map[string]string{"app": "other"})
	mine := podtest.Pod("mine", owned(rs))
	for name, unrelated := range map[string]*corev1.Pod{
		"a pod of another owner":             podtest.Pod("a", owned(other)),
		"a pod of another owner without UID": podtest.Pod("a", owned(other), podtest.UID("")),
		"an orphan that does not match":      podtest.Pod("a", released),
		"one without UID":                    podtest.Pod("a", released, podtest.UID("")),
		"one without UID and name":           podtest.Pod("", released, podtest.UID("")),
	} {
		t.Run("W30 "+name+" is listed twice and changes nothing", func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, rs)
			spec.Replicas = 1
			plan, err := replicas.Manage([]*corev1.Pod{unrelated, mine, unrelated.DeepCopy()}, spec)
			require.NoError(t, err)
			assert.True(t, plan.IsZero(), plan)
			assert.Equal(t, []*corev1.Pod{mine}, plan.Claims.Owned)
			assert.Equal(t, []*corev1.Pod{unrelated, unrelated}, plan.Claims.Ignored)
		})
	}
	t.Run("W30 pods of ours without UID and name are as many as are listed", func(t *testing.T) {
		t.Parallel()
		nameless := podtest.Pod("", owned(rs), podtest.UID(""))
		plan, err := replicas.Manage([]*corev1.Pod{nameless, nameless.DeepCopy()}, specOf(t, replicaSet(2)))
		require.NoError(t, err)
		assert.Len(t, plan.Claims.Owned, 2)
		assert.True(t, plan.IsZero(), plan)
	})
}
