// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A step has removed the last finalizer of an owner that is being deleted, so its status has nowhere to go.
func TestTheStatusOfAnOwnerThatIsGone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		finalizer string
		deleted   bool
		err       string
	}{
		"is none":                                  {finalizer: "example.com/pods", deleted: true},
		"is an error if nobody deleted it":         {finalizer: "example.com/pods", err: "writing status"},
		"is an error if the Spec has no finalizer": {deleted: true, err: "writing status"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			spec := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				is, err := spec(rs)
				is.Finalizer = tt.finalizer
				return is, err
			}
			if tt.deleted {
				r.owner.DeletionTimestamp, r.owner.Finalizers = &metav1.Time{Time: r.now}, []string{"example.com/pods"}
			}
			r.patchStatus = func(int, *appsv1.ReplicaSet) error { return notFound("web") }
			pass, err := r.pass(t, 0)
			if tt.err == "" {
				require.NoError(t, err)
				require.NoError(t, pass.StatusErr)
				return
			}
			require.ErrorContains(t, err, tt.err)
		})
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
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
		for range 2 {
			_, err := r.pass(t, 0, pods...)
			require.NoError(t, err)
			require.Len(t, r.statuses, 1)
			r.owner = r.statuses[0]
		}
	})
	t.Run("a client without an answer is an error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.noStatus = true
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, "the client returned no object")
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
	t.Run("a read without an answer is the error", func(t *testing.T) {
		t.Parallel()
		r := newRig(0)
		r.patchStatus = func(int, *appsv1.ReplicaSet) error { return conflict("web") }
		r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, nil } //nolint:nilnil // what a careless client does
		_, err := r.pass(t, 0)
		require.ErrorContains(t, err, "the client returned no object")
		assert.Len(t, r.statuses, 1)
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
