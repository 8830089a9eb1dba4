// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// passStatus makes a pass, and returns the owner with the status that the pass wrote. If the pass wrote no status,
// passStatus returns nil. After a write, the cache shows the owner with the new status.
func passStatus(t *testing.T, r *podRig, pods ...*corev1.Pod) *appsv1.ReplicaSet {
	t.Helper()
	before := len(r.statuses)
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	r.settle()
	if len(r.statuses) == before {
		return nil
	}
	written := r.statuses[before].DeepCopy()
	r.stored(written)
	r.owner = written
	return written
}

// Servers before 1.35 drop terminatingReplicas unless a feature gate is set.
func TestStatusOfWhichAFieldIsDropped(t *testing.T) {
	t.Parallel()
	t.Run("T9 U1 a status that is not stored as it was sent is sent once", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		drop := func(rs *appsv1.ReplicaSet) { *replicaset.Terminating(&rs.Status) = nil }
		r.stored = drop
		pods := podsOf(r.owner, 2)
		going := podtest.Pod("going", owned(r.owner), podtest.Deleting)
		require.NotNil(t, passStatus(t, r, pods...))
		for range 10 {
			require.Nil(t, passStatus(t, r, pods...), "U1 T9 idle passes write nothing")
		}
		changed := passStatus(t, r, append(pods, going)...)
		require.NotNil(t, changed, "another count is sent, and dropped, once")
		require.EqualValues(t, 1, podtest.Terminating(r.statuses[1].Status))
		for range 10 {
			require.Nil(t, passStatus(t, r, append(pods, going)...))
		}
		r.stored = func(*appsv1.ReplicaSet) {} // the server is upgraded
		r.owner.Generation++
		require.EqualValues(t, 1, podtest.Terminating(passStatus(t, r, append(pods, going)...).Status))
		require.Zero(t, podtest.Terminating(passStatus(t, r, pods...).Status), "what it keeps is written again")
		require.Nil(t, passStatus(t, r, pods...))
	})
}

// A status that did not stay is sent again, first at once and then after growing delays.
func TestAStatusThatDoesNotStay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stored func(rs *appsv1.ReplicaSet)        // what the server changes before it answers
		after  func(rs *appsv1.ReplicaSet, n int) // what others change after the n-th answer
		until  int                                // in seconds; a pass begins each second
		want   []int                              // the seconds in which the status was sent
	}{
		"a server that ignores a status is asked again after a minute, doubling to an hour": {
			stored: func(rs *appsv1.ReplicaSet) { rs.Status = appsv1.ReplicaSetStatus{} },
			until:  11_100, want: []int{0, 60, 180, 420, 900, 1860, 3780, 7380, 10980},
		},
		"what a webhook changes after each answer is sent again at once, and then after a second, doubling to a minute": {
			after: func(rs *appsv1.ReplicaSet, n int) { rs.Status.Replicas = int32(100 + n) },
			until: 260, want: []int{0, 1, 2, 4, 8, 16, 32, 64, 124, 184, 244},
		},
		"what two others change in turn is sent again as rarely": {
			after: func(rs *appsv1.ReplicaSet, n int) { rs.Status.Replicas = int32(100 + n%2) },
			until: 70, want: []int{0, 1, 2, 4, 8, 16, 32, 64},
		},
		"what another changes once is sent again once": {
			after: func(rs *appsv1.ReplicaSet, n int) {
				if n == 0 {
					rs.Status.Replicas = 100
				}
			},
			until: 260, want: []int{0, 1},
		},
		"a server that drops a field, and another that changes the rest once": {
			stored: func(rs *appsv1.ReplicaSet) { *replicaset.Terminating(&rs.Status) = nil },
			after: func(rs *appsv1.ReplicaSet, n int) {
				if n == 5 {
					rs.Status.Replicas = 100
				}
			},
			until: 1930, want: []int{0, 60, 180, 420, 900, 1860, 1920},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(2)
			if tt.stored != nil {
				r.stored = tt.stored
			}
			pods := podsOf(r.owner, 2)
			var sent []int
			for at := range tt.until {
				pass, err := r.pass(t, at, pods...)
				require.NoError(t, err)
				if pass.Status == nil {
					continue
				}
				shown := pass.Status.DeepCopy()
				if tt.after != nil {
					tt.after(shown, len(sent))
				}
				sent = append(sent, at)
				r.owner = shown
				r.settle()
			}
			assert.Equal(t, tt.want, sent)
		})
	}
	t.Run("the pass requests the next one for the end of the delay", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.stored = func(rs *appsv1.ReplicaSet) { rs.Status = appsv1.ReplicaSetStatus{} }
		require.NotNil(t, passStatus(t, r, podsOf(r.owner, 2)...))
		pass, err := r.pass(t, 10, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		assert.Equal(t, 50*time.Second, pass.RequeueAfter)
	})
}

func TestStatus(t *testing.T) {
	t.Parallel()
	t.Run("U2 U6 Y11 the status of what the pass observed is written, with the generation it acted on", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.owner.Generation = 4
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		require.Len(t, r.statuses, 1)
		assert.EqualValues(t, 2, r.statuses[0].Status.Replicas)
		assert.EqualValues(t, 4, r.statuses[0].Status.ObservedGeneration)
		assert.Zero(t, r.owner.Status.Replicas, "Y14 the cached owner stays as it was")
		assert.Equal(t, r.statuses[0].Status, pass.Status.Status)
	})
	t.Run("U1 a status that is there already is not written again", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		pods := podsOf(r.owner, 2)
		require.NotNil(t, passStatus(t, r, pods...))
		require.Nil(t, passStatus(t, r, pods...))
		require.Nil(t, r.last.Status)
	})
	t.Run("a pass that observed nothing writes nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.children = func() ([]*corev1.Pod, error) { return nil, errors.New("boom") }
		_, err := r.sync(t, t.Context())
		require.ErrorContains(t, err, "boom")
		assert.Empty(t, r.statuses)
	})
	t.Run("a kind without Status has no status step", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.kind.Status = nil
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.True(t, pass.Observed)
		assert.Empty(t, r.statuses)
	})
	t.Run("an error of Status is the pass's, and nothing is written", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.kind.Status = func(*appsv1.ReplicaSet, controller.Outcome[*corev1.Pod]) error { return errors.New("no status today") }
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, `controller: writing status of ReplicaSet "default/web": no status today`)
		assert.Empty(t, r.statuses)
	})
	t.Run("without StatusOf all of the owner is compared", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.kind.StatusOf = nil
		pods := podsOf(r.owner, 2)
		require.NotNil(t, passStatus(t, r, pods...))
		require.Nil(t, passStatus(t, r, pods...))
	})
	t.Run("T8 pods on their way out are counted", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		assert.EqualValues(t, 1, podtest.Terminating(passStatus(t, r, podtest.Pod("a", owned(r.owner), podtest.Deleting)).Status))
	})
	t.Run("Y12 X9 of a write the answer's version is recorded as an own one", func(t *testing.T) {
		t.Parallel()
		r := atVersions(newRig(0), "9", "")
		r.stored = func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "10" }
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"replicasets.apps"}, gatesOf(pass.Gates, controller.OwnWriteNotSeen))
		r.ownersVersion, r.owner.ResourceVersion = "10", "10"
		pass, err = r.pass(t, 0)
		require.NoError(t, err)
		assert.Empty(t, pass.Gates)
	})
	t.Run("a client without an answer is an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.noStatus = true
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, "the client returned no object")
	})
	t.Run("Y13 T11 the pass's error comes back, and stands in the condition", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		boom := errors.New("boom")
		r.create = func(int) error { return boom }
		_, err := r.pass(t, 0)
		require.ErrorIs(t, err, boom)
		require.Len(t, r.statuses[0].Status.Conditions, 1)
		assert.Equal(t, "FailedCreate", r.statuses[0].Status.Conditions[0].Reason)
		assert.Equal(t, "boom", r.statuses[0].Status.Conditions[0].Message)
	})
	t.Run("T15 W45 a pass that merely waited leaves the condition", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.owner.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: "True", Reason: "FailedCreate"}}
		r.awaits(r.owner, "web-lost")
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Len(t, r.statuses[0].Status.Conditions, 1)
	})
}

// If a merge patch sets a field to null, the server removes the field. If the patch contains a list, this list
// replaces the old list.
func TestStatusPatches(t *testing.T) {
	t.Parallel()
	status := func(n int32, conditions ...appsv1.ReplicaSetConditionType) (s appsv1.ReplicaSetStatus) {
		s.Replicas, s.ReadyReplicas = 2, n
		for _, c := range conditions {
			s.Conditions = append(s.Conditions, appsv1.ReplicaSetCondition{Type: c, Status: corev1.ConditionTrue})
		}
		return s
	}
	const theirs, failed = `{"type":"Theirs","status":"True","lastTransitionTime":null}`, `{"type":"ReplicaFailure","status":"True","lastTransitionTime":null}`
	for name, tt := range map[string]struct {
		was, is appsv1.ReplicaSetStatus
		want    string
	}{
		"U1 a status that is the same makes no call":     {status(1, "Theirs"), status(1, "Theirs"), ""},
		"the whole status is sent":                       {status(1), status(2), `{"replicas":2,"readyReplicas":2}`},
		"what is 0 and required, where there was none":   {appsv1.ReplicaSetStatus{}, appsv1.ReplicaSetStatus{ReadyReplicas: 1}, `{"replicas":0,"readyReplicas":1}`},
		"a number that becomes 0 is null":                {status(1), status(0), `{"replicas":2,"readyReplicas":null}`},
		"the last condition that goes is null":           {status(1, "Theirs"), status(1), `{"replicas":2,"readyReplicas":1,"conditions":null}`},
		"the conditions are sent as a whole if one goes": {status(1, "Theirs", "ReplicaFailure"), status(1, "Theirs"), `{"replicas":2,"readyReplicas":1,"conditions":[` + theirs + `]}`},
		"and if one comes":                               {status(1, "Theirs"), status(0, "Theirs", "ReplicaFailure"), `{"replicas":2,"readyReplicas":null,"conditions":[` + theirs + `,` + failed + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			r.owner.Status, r.owner.ResourceVersion, r.owner.Labels = tt.was, "7", web
			r.kind.Status = func(rs *appsv1.ReplicaSet, _ controller.Outcome[*corev1.Pod]) error {
				rs.Status = tt.is
				return nil
			}
			_, err := r.pass(t, 0)
			require.NoError(t, err)
			if tt.want == "" {
				assert.Empty(t, r.statusPatches)
				return
			}
			require.Len(t, r.statusPatches, 1)
			assert.JSONEq(t, `{"metadata":{"uid":"uid-of-web","resourceVersion":"7"},"status":`+tt.want+`}`, r.statusPatches[0], "nothing else of the owner is sent")
		})
	}
}

// The owner is an unstructured object, and its Kind has no StatusOf.
func TestStatusPatchesOfUnstructuredOwners(t *testing.T) {
	t.Parallel()
	const big = int64(1)<<60 + 1 // a float64 cannot hold this number exactly
	owner := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": "web", "uid": "uid-of-web", "resourceVersion": "7"},
		"spec":     map[string]any{"replicas": int64(0)},
		"status":   map[string]any{"replicas": int64(3), "seen": big, "zones": map[string]any{"a": int64(1), "b": int64(2)}},
	}}
	kind := controller.Kind[*unstructured.Unstructured, *corev1.Pod]{
		Owner: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pool"}, Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec: func(*unstructured.Unstructured) (replicas.SpecOfPods, error) {
			return replicas.SpecOfPods{Selector: labels.SelectorFromSet(web), New: func(string) (*corev1.Pod, error) { return &corev1.Pod{}, nil }}, nil
		},
		Status: func(o *unstructured.Unstructured, _ controller.Outcome[*corev1.Pod]) error {
			unstructured.RemoveNestedField(o.Object, "status", "replicas")
			return errors.Join(unstructured.SetNestedField(o.Object, big+1, "status", "seen"), unstructured.SetNestedField(o.Object, int64(1), "status", "zones", "b"))
		},
	}
	r := rigOf(kind, owner)
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	require.Len(t, r.statusPatches, 1)
	assert.Equal(t, `{"metadata":{"uid":"uid-of-web","resourceVersion":"7"},"status":{"replicas":null,"seen":1152921504606846978,"zones":{"a":1,"b":1}}}`, r.statusPatches[0]) //nolint:testifylint // JSONEq would round the number
	r.settle()
	r.owner = r.statuses[0]
	_, err = r.pass(t, 1)
	require.NoError(t, err)
	assert.Len(t, r.statusPatches, 1, "it is as it should be")
}

// If two statuses are equal in JSON, no status is written. In this test, the two statuses differ only in a
// fraction of a second, which the JSON of a metav1.Time does not contain.
func TestAStatusThatDiffersInNothingThatIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.owner.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Theirs", LastTransitionTime: metav1.NewTime(at)}}
	r.kind.Status = func(rs *appsv1.ReplicaSet, _ controller.Outcome[*corev1.Pod]) error {
		rs.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at.Add(time.Millisecond))
		return nil
	}
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	assert.Empty(t, r.statuses)
}

// refusing returns a rig whose Spec is refused while the owner wants 7 pods, and whose Refused sets a condition.
func refusing(want int32) *podRig {
	r := newRig(want)
	spec, status := r.kind.Spec, r.kind.Status
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		if *rs.Spec.Replicas == 7 {
			return replicas.SpecOfPods{}, fmt.Errorf("wrapped: %w", &replicas.RefusedError{Reason: "Seven", Err: errors.New("seven is too many")})
		}
		return spec(rs)
	}
	r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
		rs.Status.Conditions = nil
		return status(rs, o)
	}
	r.kind.Refused = func(rs *appsv1.ReplicaSet, err error) {
		var refused *replicas.RefusedError
		if errors.As(err, &refused) {
			rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: "Accepted", Status: corev1.ConditionFalse, Reason: refused.Reason, Message: err.Error()}}
		}
	}
	return r
}

func TestARefusedSpecHasACondition(t *testing.T) {
	t.Parallel()
	t.Run("beside the counts of the last pass that counted", func(t *testing.T) {
		t.Parallel()
		r := refusing(2)
		pods := podsOf(r.owner, 2)
		_, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Len(t, r.statuses, 1)
		counted := r.statuses[0].Status
		require.EqualValues(t, 2, counted.Replicas)

		seven := int32(7)
		r.owner = r.statuses[0].DeepCopy()
		r.owner.Spec.Replicas, r.owner.Generation = &seven, 2
		_, err = r.pass(t, 1, pods...)
		require.NoError(t, err)
		require.Equal(t, []string{"Warning Seven seven is too many"}, r.events)
		require.Len(t, r.statuses, 2)
		conditions := r.statuses[1].Status.Conditions
		require.Len(t, conditions, 1)
		assert.Equal(t, appsv1.ReplicaSetCondition{Type: "Accepted", Status: corev1.ConditionFalse, Reason: "Seven", Message: "seven is too many"}, conditions[0])
		r.statuses[1].Status.Conditions = nil
		assert.Equal(t, counted, r.statuses[1].Status, "nothing was counted, so no zeros are written")

		r.owner.Status = counted
		r.owner.Status.Conditions = conditions
		_, err = r.pass(t, 2, pods...)
		require.NoError(t, err)
		assert.Len(t, r.statuses, 2, "it is as it should be")

		two := int32(2)
		r.owner.Spec.Replicas, r.owner.Generation = &two, 3
		_, err = r.pass(t, 3, pods...)
		require.NoError(t, err)
		require.Len(t, r.statuses, 3)
		assert.Empty(t, r.statuses[2].Status.Conditions)
	})
	for name, change := range map[string]func(r *podRig){
		"if package replicas refuses it": func(r *podRig) { r.owner.Spec.Selector = &metav1.LabelSelector{} },
		"if the owner is being deleted": func(r *podRig) {
			r.owner.DeletionTimestamp, r.owner.Spec.Selector = &metav1.Time{Time: podtest.Now}, &metav1.LabelSelector{}
		},
		"if the Kind has no Status": func(r *podRig) { r.owner.Spec.Selector, r.kind.Status = &metav1.LabelSelector{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refusing(1)
			change(r)
			pass, err := r.pass(t, 0, podsOf(r.owner, 1)...)
			require.NoError(t, err)
			require.Len(t, r.statuses, 1)
			require.Len(t, r.statuses[0].Status.Conditions, 1)
			assert.Equal(t, replicas.InvalidSelector, r.statuses[0].Status.Conditions[0].Reason)
			assert.Zero(t, r.statuses[0].Status.ObservedGeneration)
			assert.Equal(t, r.statuses[0].Status, pass.Status.Status)
			requireRefused(t, pass.Err, replicas.InvalidSelector)
		})
	}
	t.Run("not if Spec failed for another reason, or if New refused", func(t *testing.T) {
		t.Parallel()
		r := refusing(1)
		r.kind.Refused = func(*appsv1.ReplicaSet, error) { assert.Fail(t, "called") }
		spec := r.kind.Spec
		r.kind.Spec = func(*appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			return replicas.SpecOfPods{}, errors.New("boom")
		}
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, "boom")
		assert.Empty(t, r.statuses)
		r = refusing(1)
		r.kind.Refused = func(*appsv1.ReplicaSet, error) { assert.Fail(t, "called") }
		r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			s, err := spec(rs)
			s.New = func(string) (*corev1.Pod, error) { return nil, &replicas.RefusedError{Reason: "Seven"} }
			return s, err
		}
		_, err = r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, r.statuses, 1, "the children were counted")
		assert.EqualValues(t, 1, r.statuses[0].Status.ObservedGeneration)
	})
	t.Run("not without Refused", func(t *testing.T) {
		t.Parallel()
		r := refusing(7)
		r.kind.Refused = nil
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		assert.Empty(t, r.statuses)
	})
	for name, tt := range map[string]struct{ wants, generation, writes int }{
		"after a Conflict too": {7, 1, 2},
		"after a Conflict not on an owner that was mended since": {2, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := refusing(7)
			r.patchStatus = func(write int, _ *appsv1.ReplicaSet) error {
				if write == 1 {
					return conflict("web")
				}
				return nil
			}
			r.getOwner = func() (*appsv1.ReplicaSet, error) {
				fresh := r.owner.DeepCopy()
				wants := int32(tt.wants)
				fresh.Spec.Replicas, fresh.Generation, fresh.ResourceVersion = &wants, int64(tt.generation), "8"
				return fresh, nil
			}
			_, err := r.pass(t, 0)
			require.NoError(t, err)
			assert.Len(t, r.statuses, tt.writes)
		})
	}
	t.Run("and a write that fails is an error of the pass", func(t *testing.T) {
		t.Parallel()
		r := refusing(7)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return forbidden("web", "policy") }
		pass, err := r.pass(t, 0)
		require.ErrorContains(t, err, `controller: writing status of ReplicaSet "default/web": `)
		assert.True(t, apierrors.IsForbidden(pass.StatusErr))
	})
}

func TestStatusRetries(t *testing.T) {
	t.Parallel()
	conflictOnce := func(write int, _ *appsv1.ReplicaSet) error {
		if write == 1 {
			return conflict("web")
		}
		return nil
	}
	t.Run("U2 U3 a conflict is tried once more on a fresh read, with the same status", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.owner.Generation = 3
		r.patchStatus = conflictOnce
		r.getOwner = func() (*appsv1.ReplicaSet, error) {
			live := r.owner.DeepCopy()
			live.Generation, live.ResourceVersion = 9, "fresh"
			return live, nil
		}
		_, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		require.Len(t, r.statuses, 2)
		assert.Equal(t, 1, r.ownerGets)
		assert.Equal(t, "fresh", r.statuses[1].ResourceVersion)
		assert.Equal(t, r.statuses[0].Status, r.statuses[1].Status)
		assert.EqualValues(t, 3, r.statuses[1].Status.ObservedGeneration)
	})
	t.Run("U1 a status that is there by then is not written again", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.patchStatus = conflictOnce
		r.getOwner = func() (*appsv1.ReplicaSet, error) {
			live := r.owner.DeepCopy()
			live.ResourceVersion, live.Status = "fresh", r.statuses[0].Status
			return live, nil
		}
		_, err := r.pass(t, 0, podsOf(r.owner, 1)...)
		require.NoError(t, err)
		assert.Len(t, r.statuses, 1)
	})
	t.Run("U3 U4 a second conflict is the error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return conflict("web") }
		_, err := r.pass(t, 0)
		assert.True(t, apierrors.IsConflict(err))
		assert.Len(t, r.statuses, 2)
	})
	for name, read := range map[string]func(r *podRig) (*appsv1.ReplicaSet, error){
		"U4 a read that fails is the error: not found": func(*podRig) (*appsv1.ReplicaSet, error) { return nil, notFound("web") },
		"a read without an answer is the error: the client returned no object": func(*podRig) (*appsv1.ReplicaSet, error) {
			return nil, nil //nolint:nilnil // what a careless client does
		},
		"W47 another object of that name is not written to: original is gone: got uid other, wanted uid-of-web": func(r *podRig) (*appsv1.ReplicaSet, error) {
			other := r.owner.DeepCopy()
			other.UID = "other"
			return other, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(0)
			r.patchStatus = conflictOnce
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return read(r) }
			_, err := r.pass(t, 0)
			_, want, _ := strings.Cut(name, ": ")
			require.ErrorContains(t, err, want)
			assert.Len(t, r.statuses, 1)
		})
	}
	t.Run("W47 only a conflict is tried again", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return forbidden("web", "policy") }
		_, err := r.pass(t, 0)
		assert.True(t, apierrors.IsForbidden(err))
		assert.Equal(t, []string{`Warning FailedStatus Error writing the status: pods "web" is forbidden: policy (the right to patch replicasets/status in the group "apps" is needed)`}, r.events)
		_, err = r.pass(t, 1)
		require.Error(t, err)
		assert.Empty(t, r.events, "once while it lasts")
		assert.Len(t, r.statuses, 2)
		require.ErrorContains(t, err, `controller: writing status of ReplicaSet "default/web"`)
		assert.Zero(t, r.ownerGets)
	})
	t.Run("U5 W48 both errors come back, the status's first", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		boom := errors.New("boom")
		r.create = func(int) error { return boom }
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return busy(4) }
		pass, err := r.pass(t, 0)
		require.ErrorIs(t, err, boom)
		assert.True(t, apierrors.IsTooManyRequests(err))
		assert.Less(t, strings.Index(err.Error(), "slow down"), strings.Index(err.Error(), "boom"))
		assert.Equal(t, 4*time.Second, pass.RequeueAfter, "the server says when")
	})
	t.Run("W27 no server puts a status off for more than five minutes", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return busy(math.MaxInt32) }
		pass, err := r.pass(t, 0)
		require.Error(t, err)
		assert.Equal(t, 5*time.Minute, pass.RequeueAfter)
	})
	t.Run("W46 the write ends with the caller's context", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		ctx, cancel := context.WithCancel(t.Context())
		r.children = func() ([]*corev1.Pod, error) {
			cancel()
			return nil, nil
		}
		_, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, r.statuses)
	})
}

func TestStatusAvailability(t *testing.T) {
	t.Parallel()
	newRig := func() *podRig {
		r := newRig(3)
		r.owner.Spec.MinReadySeconds = 60
		return r
	}
	pod := func(r *podRig, name string, ready podtest.Option) *corev1.Pod {
		return podtest.Pod(name, owned(r.owner), ready)
	}
	readyFor := func(r *podRig, name string, seconds int) *corev1.Pod {
		return pod(r, name, podtest.ReadySince(podtest.Now.Add(-time.Duration(seconds)*time.Second)))
	}
	t.Run("M1 M2 the next pod to become available asks for a pass", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		pass, err := r.pass(t, 0, readyFor(r, "a", 10), readyFor(r, "b", 45), readyFor(r, "c", 99))
		require.NoError(t, err)
		assert.Equal(t, 15*time.Second, pass.RequeueAfter)
		assert.EqualValues(t, 1, pass.Counts.Available)
		assert.EqualValues(t, 1, r.statuses[0].Status.AvailableReplicas)
	})
	t.Run("M2 the time that the pass took is taken off", func(t *testing.T) {
		t.Parallel()
		for took, want := range map[time.Duration]time.Duration{5 * time.Second: 10 * time.Second, time.Minute: 1} {
			r := newRig()
			*r.owner.Spec.Replicas = 1
			r.patchStatus = func(int, *appsv1.ReplicaSet) error {
				r.now = r.now.Add(took)
				return nil
			}
			pass, err := r.pass(t, 0, readyFor(r, "b", 45))
			require.NoError(t, err)
			assert.Equal(t, want, pass.RequeueAfter, "overdue is at once")
			assert.Equal(t, took, pass.Took)
		}
	})
	t.Run("M1 an earlier wish of the pass stands", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		*r.owner.Spec.Replicas = 2
		r.awaits(r.owner, "web-lost")
		pass, err := r.pass(t, 290, readyFor(r, "b", -250))
		require.NoError(t, err)
		assert.Equal(t, 10*time.Second, pass.RequeueAfter.Round(time.Second))
	})
	t.Run("M1 nothing is asked for when every ready pod is available", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		*r.owner.Spec.Replicas = 2
		pass, err := r.pass(t, 0, readyFor(r, "c", 99), pod(r, "d", podtest.NotReady))
		require.NoError(t, err)
		assert.Zero(t, pass.RequeueAfter)
	})
	t.Run("U7 M1 the pods are looked at, whatever the server stored", func(t *testing.T) {
		t.Parallel()
		for _, available := range []int32{0, 1} {
			r := newRig()
			*r.owner.Spec.Replicas = 1
			r.stored = func(rs *appsv1.ReplicaSet) { rs.Status.AvailableReplicas = available }
			pass, err := r.pass(t, 0, readyFor(r, "b", 45))
			require.NoError(t, err)
			assert.Equal(t, 15*time.Second, pass.RequeueAfter)
		}
	})
	t.Run("M3 W58 a ready pod without a transition time asks for nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		*r.owner.Spec.Replicas = 1
		pass, err := r.pass(t, 0, pod(r, "a", podtest.ReadySince(time.Time{})))
		require.NoError(t, err)
		assert.Zero(t, pass.RequeueAfter)
	})
	t.Run("M7 after an error nothing is asked for: the rate limiter decides", func(t *testing.T) {
		t.Parallel()
		r := newRig()
		*r.owner.Spec.Replicas = 1
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return errors.New("boom") }
		pass, err := r.pass(t, 0, readyFor(r, "b", 45))
		require.Error(t, err)
		assert.Zero(t, pass.RequeueAfter)
		r = newRig()
		r.create = func(int) error { return errors.New("boom") }
		pass, err = r.pass(t, 0, readyFor(r, "b", 45))
		require.Error(t, err)
		assert.Zero(t, pass.RequeueAfter)
	})
	t.Run("M7 W27 but not later than it is due, if a server says when instead", func(t *testing.T) {
		t.Parallel()
		for seconds, want := range map[int]time.Duration{300: 15 * time.Second, 7: 7 * time.Second} {
			r := newRig()
			*r.owner.Spec.Replicas = 2
			r.create = func(int) error { return busy(seconds) }
			pass, err := r.pass(t, 0, readyFor(r, "b", 45))
			require.Error(t, err)
			assert.Equal(t, want, pass.RequeueAfter)
			pass, err = r.pass(t, 6, readyFor(r, "b", 45))
			require.NoError(t, err)
			assert.True(t, pass.HeldBack())
		}
	})
}

func TestReplicationControllers(t *testing.T) {
	t.Parallel()
	t.Run("A1 A3 A4 U3 M1 a ReplicationController is kept as a ReplicaSet is, and its status written on the object itself", func(t *testing.T) {
		t.Parallel()
		rc := &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Generation: 2},
			Spec: corev1.ReplicationControllerSpec{
				Replicas: new(int32), Selector: web, MinReadySeconds: 7200,
				Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
			},
		}
		*rc.Spec.Replicas = 2
		mine := podtest.OwnedBy(rc, "v1", "ReplicationController")
		r := rigOf(controller.ReplicationControllers(), rc)
		r.patchStatus = func(write int, _ *corev1.ReplicationController) error {
			if write == 1 {
				return conflict("web")
			}
			return nil
		}
		r.stored = func(rc *corev1.ReplicationController) { rc.ResourceVersion = "9" }
		r.ownersVersion = "8"
		pass, err := r.pass(t, 0, podtest.Pod("a", mine), podtest.Pod("b", mine, podtest.NotReady))
		require.NoError(t, err)
		require.Len(t, r.statuses, 2, "a conflict is tried once more")
		status := r.statuses[1].Status
		assert.Equal(t, []int32{2, 1, 0}, []int32{status.Replicas, status.ReadyReplicas, status.AvailableReplicas})
		assert.EqualValues(t, 2, status.ObservedGeneration)
		assert.Equal(t, time.Hour, pass.RequeueAfter)
		pass, err = r.pass(t, 0)
		require.NoError(t, err)
		assert.Equal(t, []string{"replicationcontrollers"}, gatesOf(pass.Gates, controller.OwnWriteNotSeen))
	})
}

func TestAStatusAfterAConflictKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	theirs := appsv1.ReplicaSetCondition{Type: "example.com/Theirs", Status: corev1.ConditionTrue}
	r.patchStatus = func(write int, _ *appsv1.ReplicaSet) error {
		if write == 1 {
			return conflict("web")
		}
		return nil
	}
	r.getOwner = func() (*appsv1.ReplicaSet, error) {
		fresh := clone(r.owner)
		fresh.Status.Conditions = []appsv1.ReplicaSetCondition{theirs}
		return fresh, nil
	}
	_, err := r.pass(t, 0)
	require.NoError(t, err)
	require.Len(t, r.statuses, 2)
	assert.Equal(t, []appsv1.ReplicaSetCondition{theirs}, r.statuses[1].Status.Conditions)
}
