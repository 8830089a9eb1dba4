// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

func TestRelated(t *testing.T) {
	t.Parallel()
	setOf := func(deployment, name string) *appsv1.ReplicaSet {
		rs := replicaSet(1)
		rs.Name, rs.UID = name, types.UID("uid-of-"+name)
		yes := true
		rs.OwnerReferences = []metav1.OwnerReference{{Name: deployment, UID: types.UID(deployment), Controller: &yes}}
		return rs
	}
	mine, sibling, dying, foreign := setOf("a", "mine"), setOf("a", "sibling"), setOf("a", "dying"), setOf("b", "foreign")
	now := metav1.NewTime(podtest.Now)
	dying.DeletionTimestamp = &now
	abroad := setOf("a", "abroad")
	abroad.Namespace = "abroad"
	lone := replicaSet(1)
	broken := setOf("a", "broken")
	broken.Spec.Selector = nil
	all := []*appsv1.ReplicaSet{mine, sibling, dying, abroad, foreign, lone, broken}

	in := func(namespace string) podtest.Option { return func(p *corev1.Pod) { p.Namespace = namespace } }
	other := podtest.Labels(map[string]string{"app": "other"})
	tests := []struct {
		name  string
		owner *appsv1.ReplicaSet
		pod   *corev1.Pod
		want  bool
	}{
		{"L1 a pod of the owner itself", mine, podtest.Pod("p", owned(mine)), true},
		{"L1 a pod of a sibling", mine, podtest.Pod("p", owned(sibling)), true},
		{"L1 a pod of a sibling that is being deleted", mine, podtest.Pod("p", owned(dying)), true},
		{"L1 a pod of a sibling in another namespace", mine, podtest.Pod("p", owned(abroad), in("abroad")), true},
		{"L3 a pod in another namespace than the sibling that it names", mine, podtest.Pod("p", owned(sibling), in("abroad")), false},
		{"W33 a sibling's pod counts by ownership, whatever its labels", mine, podtest.Pod("p", owned(sibling), other), true},
		{"W33 a pod of somebody else does not count, whatever its labels", mine, podtest.Pod("p", owned(foreign)), false},
		{"L3 an orphan that a sibling selects", mine, podtest.Pod("p"), true},
		{"L3 an orphan that no sibling selects", mine, podtest.Pod("p", other), false},
		{"L3 an orphan in a namespace without siblings", mine, podtest.Pod("p", in("elsewhere")), false},
		{"L4 a sibling with a broken selector still has its pods", mine, podtest.Pod("p", owned(broken)), true},
		{"L2 nothing is related to an owner without a controller", lone, podtest.Pod("p", owned(lone)), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := replicas.Related(tt.owner, all, selector.ForReplicaSet, []*corev1.Pod{nil, tt.pod})
			if tt.want {
				assert.Equal(t, []*corev1.Pod{tt.pod}, got)
				return
			}
			assert.Empty(t, got)
		})
	}
	t.Run("nil owners, and selectors that are nil or select everything, bring nothing in", func(t *testing.T) {
		t.Parallel()
		orphans := []*corev1.Pod{podtest.Pod("p")}
		var none *appsv1.ReplicaSet
		assert.Nil(t, replicas.Related(none, all, selector.ForReplicaSet, orphans))
		for _, sel := range []labels.Selector{nil, labels.Everything()} {
			got := replicas.Related(mine, []*appsv1.ReplicaSet{none, mine}, func(*appsv1.ReplicaSet) (labels.Selector, error) { return sel, nil }, orphans)
			assert.Empty(t, got)
		}
	})
	t.Run("L4 without a function for selectors, and with a nil one in the interface, no orphan is related", func(t *testing.T) {
		t.Parallel()
		pods := []*corev1.Pod{podtest.Pod("orphan"), podtest.Pod("p", owned(sibling))}
		assert.Equal(t, pods[1:], replicas.Related(mine, all, nil, pods))
		var none *strict
		assert.Equal(t, pods[1:], replicas.Related(mine, all, func(*appsv1.ReplicaSet) (labels.Selector, error) { return none, nil }, pods))
	})
	t.Run("L1 siblings are told by the UID of their controller, not by its name", func(t *testing.T) {
		t.Parallel()
		namesake := setOf("a", "namesake")
		namesake.OwnerReferences[0].UID = "another"
		assert.Empty(t, replicas.Related(mine, []*appsv1.ReplicaSet{namesake}, selector.ForReplicaSet, []*corev1.Pod{podtest.Pod("p", owned(namesake))}))
	})
	t.Run("L3 C7 the pods of a sibling without namespace may be anywhere", func(t *testing.T) {
		t.Parallel()
		everywhere := setOf("a", "everywhere")
		everywhere.Namespace = ""
		pods := []*corev1.Pod{podtest.Pod("p", owned(everywhere), in("abroad")), podtest.Pod("orphan", in("elsewhere"))}
		assert.Equal(t, pods, replicas.Related(mine, []*appsv1.ReplicaSet{mine, everywhere}, selector.ForReplicaSet, pods))
	})
	t.Run("L1 without UIDs kinds and names tell siblings and their pods", func(t *testing.T) {
		t.Parallel()
		unmarked := func(deployment, name string) *appsv1.ReplicaSet {
			rs := setOf(deployment, name)
			rs.UID, rs.OwnerReferences[0].UID = "", ""
			return rs
		}
		mine, sibling, foreign := unmarked("a", "mine"), unmarked("a", "sibling"), unmarked("b", "foreign")
		pods := []*corev1.Pod{podtest.Pod("p", owned(mine)), podtest.Pod("q", owned(sibling)), podtest.Pod("r", owned(foreign))}
		assert.Equal(t, pods[:2], replicas.Related(mine, []*appsv1.ReplicaSet{mine, sibling, foreign}, nil, pods))
	})
	t.Run("L2 nothing related is nil, with siblings and without", func(t *testing.T) {
		t.Parallel()
		var none []*corev1.Pod
		assert.Nil(t, replicas.Related(lone, all, selector.ForReplicaSet, none))
		assert.Nil(t, replicas.Related(mine, all, selector.ForReplicaSet, none))
	})
}

// strict implements labels.Selector. The tests use only a nil pointer of this type.
type strict struct{ labels.Selector }

func TestRelatedPodsCountOnce(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	crowded, alone := podtest.On("crowded"), podtest.On("alone")
	mine := []*corev1.Pod{
		podtest.Pod("a", owned(rs), alone, podtest.UID("0a")), podtest.Pod("b", owned(rs), crowded, podtest.UID("0b")),
		podtest.Pod("c", owned(rs), crowded, podtest.UID("0c")), podtest.Pod("d", owned(rs), alone, podtest.UID("0d")),
	}
	sibling := podtest.Pod("sibling", crowded, podtest.UID("00"))
	moved := podtest.Pod("a", owned(rs), crowded, podtest.UID("0a"))
	for name, related := range map[string][]*corev1.Pod{
		"L5 the owned pods are added":                {sibling},
		"L5 the owned pods are not counted again":    {mine[0], mine[1], mine[2], mine[3], sibling},
		"L5 in whatever order they come":             {mine[3], sibling, mine[1], mine[0], mine[2]},
		"L5 a related pod is counted once":           {sibling, sibling, nil, sibling.DeepCopy()},
		"L5 of two views of an owned pod its own is": {moved, sibling},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, rs)
			spec.Facts.Related = func() []*corev1.Pod { return related }
			plan, err := replicas.Manage(mine, spec)
			require.NoError(t, err)
			require.Equal(t, []string{"b", "c"}, victims(plan.Scale))
			assert.Equal(t, "3", plan.Scale.Delete[0].Values.Victim)
			assert.Equal(t, "2", plan.Scale.Delete[0].Values.Survivor)
		})
	}
}
