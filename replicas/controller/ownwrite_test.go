// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// writing returns a rig whose owner has resourceVersion 5. Each status write increases the resourceVersion by one.
func writing() *podRig {
	r := newRig(0)
	r.owner.ResourceVersion = "5"
	r.stored = func(rs *appsv1.ReplicaSet) {
		n, _ := strconv.Atoi(rs.ResourceVersion)
		rs.ResourceVersion = strconv.Itoa(n + 1)
	}
	return r
}

// write makes a pass that writes a status, and returns the owner before and after the write.
func write(t *testing.T, r *podRig, pods ...*corev1.Pod) (was, cur *appsv1.ReplicaSet) {
	t.Helper()
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	require.Len(t, r.statuses, 1)
	r.woken = nil
	return r.owner, stored(r)
}

func stored(r *podRig) *appsv1.ReplicaSet {
	cur := r.statuses[len(r.statuses)-1].DeepCopy()
	r.stored(cur)
	return cur
}

// says returns a rule that has the same result for each pod.
func says(is bool) func(*corev1.Pod) bool { return func(*corev1.Pod) bool { return is } }

func number(is bool) int32 { return map[bool]int32{true: 1}[is] }

func woken(t *testing.T, r *podRig, was, cur *appsv1.ReplicaSet) bool {
	t.Helper()
	require.NoError(t, r.start().OwnerUpdated(was, cur))
	return len(r.wakes()) > 0
}

func TestOwnStatusWritesWakeNobody(t *testing.T) {
	t.Parallel()
	t.Run("V15 an update that shows the last status write wakes nobody, a resync always", func(t *testing.T) {
		t.Parallel()
		r := writing()
		was, cur := write(t, r)
		assert.False(t, woken(t, r, was, cur))
		assert.True(t, woken(t, r, cur, cur), "a resync")
		assert.True(t, woken(t, r, was, was), "a resync")
		next := cur.DeepCopy()
		next.ResourceVersion = "7"
		assert.True(t, woken(t, r, cur, next), "somebody else wrote")
		assert.True(t, woken(t, r, was, next), "and the cache skipped ours")
	})
	t.Run("V15 a resync does so even if the last write changed nothing", func(t *testing.T) {
		t.Parallel()
		r := writing()
		r.stored = func(*appsv1.ReplicaSet) {}
		was, _ := write(t, r)
		assert.True(t, woken(t, r, was, was))
	})
	for name, change := range map[string]func(rs *appsv1.ReplicaSet){
		"the UID":                        func(rs *appsv1.ReplicaSet) { rs.UID = "another" },
		"no version is told, which also": func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "" },
	} {
		t.Run("V15 it wakes if "+name+" changed", func(t *testing.T) {
			t.Parallel()
			r := writing()
			was, cur := write(t, r)
			change(cur)
			assert.True(t, woken(t, r, was, cur))
		})
	}
	for name, tt := range map[string]struct {
		// spec changes the result of Kind.Spec. The second argument is true if the owner has a pod according to its
		// status.
		spec  func(s *replicas.SpecOfPods, has bool)
		wakes bool
	}{
		"another number": {func(s *replicas.SpecOfPods, has bool) { s.Replicas = number(has) }, true},
		"another selector": {func(s *replicas.SpecOfPods, has bool) {
			s.Selector = labels.SelectorFromSet(map[bool]labels.Set{false: web, true: api}[has])
		}, true},
		"no selector":        {func(s *replicas.SpecOfPods, has bool) { s.Selector = map[bool]labels.Selector{false: s.Selector}[has] }, true},
		"a pause":            {func(s *replicas.SpecOfPods, has bool) { s.Paused = has }, true},
		"another burst":      {func(s *replicas.SpecOfPods, has bool) { s.BurstReplicas = 1 + int(number(has)) }, true},
		"a limit":            {func(s *replicas.SpecOfPods, has bool) { s.MaxDeletions = map[bool]*int{true: new(int)}[has] }, true},
		"another limit":      {func(s *replicas.SpecOfPods, has bool) { n := int(number(has)); s.MaxDeletions = &n }, true},
		"the same limit":     {func(s *replicas.SpecOfPods, _ bool) { s.MaxDeletions = new(int) }, false},
		"other replicas":     {func(s *replicas.SpecOfPods, has bool) { s.Rules.Active = says(!has) }, true},
		"one that must go":   {func(s *replicas.SpecOfPods, has bool) { s.Replicas = 2; s.Rules.MustGo = says(has) }, true},
		"one that must stay": {func(s *replicas.SpecOfPods, has bool) { s.Rules.MustStay = says(has) }, true},
		"that one must stay any more": {func(s *replicas.SpecOfPods, has bool) {
			s.Rules.MustStay = map[bool]func(*corev1.Pod) bool{false: says(true)}[has]
		}, true},
		"another order": {func(s *replicas.SpecOfPods, has bool) {
			s.Replicas = 1
			s.Rules.Order = podrank.Must(podrank.NewOrder(podrank.First("the other", func(p *corev1.Pod) bool { return (p.Name == "web-a") == has })))
		}, true},
		"other options of deletion": {func(s *replicas.SpecOfPods, has bool) {
			grace := int64(number(has))
			s.DeleteOptions.GracePeriodSeconds = &grace
		}, true},
		"rules that say the same":           {func(s *replicas.SpecOfPods, _ bool) { s.Rules.MustGo, s.Rules.MustStay = says(true), says(true) }, false},
		"a time that changes no number now": {func(s *replicas.SpecOfPods, has bool) { s.MinReadySeconds = number(has) }, false},
	} {
		t.Run(fmt.Sprintf("V15 by which the owner wants %s: it wakes %v", name, tt.wakes), func(t *testing.T) {
			t.Parallel()
			r := writing()
			original := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				s, err := original(rs)
				tt.spec(&s, rs.Status.Replicas > 0)
				return s, err
			}
			was, cur := write(t, r, podtest.Pod("web-a", owned(r.owner)), podtest.Pod("web-b", owned(r.owner)))
			assert.Equal(t, tt.wakes, woken(t, r, was, cur))
		})
	}
	t.Run("V15 or by which nobody can tell what it wants", func(t *testing.T) {
		t.Parallel()
		r := writing()
		original, calls := r.kind.Spec, 0
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := original(rs)
			if calls++; calls > 1 {
				err = errors.New("boom")
			}
			return s, err
		}
		was, cur := write(t, r)
		assert.True(t, woken(t, r, was, cur))
	})
	t.Run("V15 an update that comes before the answer wakes, because nobody knows yet whose it is", func(t *testing.T) {
		t.Parallel()
		r := writing()
		r.patchStatus = func(_ int, rs *appsv1.ReplicaSet) error {
			cur := rs.DeepCopy()
			cur.ResourceVersion = "6"
			require.NoError(t, r.start().OwnerUpdated(r.owner, cur))
			assert.Len(t, r.wakes(), 1)
			return nil
		}
		_, err := r.pass(t, 0)
		require.NoError(t, err)
	})
	t.Run("V15 of a write that failed nothing is ours", func(t *testing.T) {
		t.Parallel()
		r := writing()
		cur := r.owner.DeepCopy()
		cur.ResourceVersion = "6"
		r.patchStatus = func(int, *appsv1.ReplicaSet) error {
			require.NoError(t, r.start().OwnerUpdated(r.owner, cur))
			return errors.New("boom")
		}
		_, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Len(t, r.wakes(), 1)
		assert.True(t, woken(t, r, r.owner, cur))
	})
	t.Run("V15 of a write after a conflict only the last step is ours", func(t *testing.T) {
		t.Parallel()
		r := writing()
		r.patchStatus = func(n int, _ *appsv1.ReplicaSet) error {
			if n == 1 {
				return conflict("web")
			}
			return nil
		}
		fresh := r.owner.DeepCopy()
		fresh.ResourceVersion = "8"
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return fresh.DeepCopy(), nil }
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.True(t, woken(t, r, r.owner, fresh))
		assert.False(t, woken(t, r, fresh, stored(r)))
		assert.False(t, woken(t, r, r.owner, stored(r)), "nor if the cache skipped the other, whose plan is the same")
	})
	t.Run("V15 X10 a pass that waits for it is woken by it", func(t *testing.T) {
		t.Parallel()
		r := writing()
		was, cur := write(t, r)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		requireGate(t, pass.Gates, controller.OwnWriteNotSeen)
		assert.True(t, woken(t, r, was, cur))
	})
	t.Run("V15 a pass that went by the owner as it was before is made up for", func(t *testing.T) {
		t.Parallel()
		r := writing()
		_, r.owner = write(t, r)
		_, err := r.pass(t, 0, podtest.Pod("a", owned(r.owner), podtest.Deleting))
		require.NoError(t, err)
		require.Len(t, r.statuses, 2)
		_, err = r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, r.statuses, 2, "what it knows of the status is what it should be")
		assert.True(t, woken(t, r, r.owner, stored(r)))
	})
	t.Run("V15 V17 of an owner that was forgotten nothing is known", func(t *testing.T) {
		t.Parallel()
		r := writing()
		was, cur := write(t, r)
		r.forget(t)
		assert.True(t, woken(t, r, was, cur))
	})
	t.Run("V15 objects of fake clients have no versions", func(t *testing.T) {
		t.Parallel()
		r := writing()
		r.owner.ResourceVersion, r.stored = "", func(*appsv1.ReplicaSet) {}
		was, cur := write(t, r)
		assert.True(t, woken(t, r, was, cur))
	})
}

// counted is a Selector that counts how often it is asked.
type counted struct {
	labels.Selector
	asked *int
}

func (c counted) Matches(l labels.Labels) bool {
	*c.asked++
	return c.Selector.Matches(l)
}

func TestAStatusWriteCostsNoPlanUnlessRulesMayHaveChanged(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		spec  func(s *replicas.SpecOfPods)
		plans int
	}{
		"a Spec without functions": {func(*replicas.SpecOfPods) {}, 0},
		"a Spec with New, which no plan calls": {func(s *replicas.SpecOfPods) {
			s.New = func(string) (*corev1.Pod, error) { return podtest.Pod("new"), nil }
		}, 0},
		"a Spec with a rule, which may say something else now": {func(s *replicas.SpecOfPods) { s.Rules.MustGo = says(false) }, 1},
	} {
		t.Run(fmt.Sprintf("%s: %d", name, tt.plans), func(t *testing.T) {
			t.Parallel()
			asked := 0
			ask := func(status bool) int {
				r := writing()
				original := r.kind.Spec
				r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
					s, err := original(rs)
					s.Replicas, s.Selector = 2, counted{s.Selector, &asked}
					tt.spec(&s)
					return s, err
				}
				if !status {
					r.kind.Status = nil
				}
				asked = 0
				_, err := r.pass(t, 0, podtest.Pod("web-a", owned(r.owner)), podtest.Pod("web-b", owned(r.owner)))
				require.NoError(t, err)
				return asked
			}
			spec, err := controller.ReplicaSets().Spec(replicaSet(2))
			require.NoError(t, err)
			spec.Selector, spec.Facts.Now, spec.Owner = counted{spec.Selector, &asked}, podtest.Now, replicaSet(2)
			tt.spec(&spec)
			asked = 0
			_, err = replicas.Manage([]*corev1.Pod{podtest.Pod("web-a", owned(replicaSet(2))), podtest.Pod("web-b", owned(replicaSet(2)))}, spec)
			require.NoError(t, err)
			plan := asked
			require.Positive(t, plan)
			assert.Equal(t, tt.plans*plan, ask(true)-ask(false))
		})
	}
}
