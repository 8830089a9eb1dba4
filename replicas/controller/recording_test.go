// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// recorded makes passes on a rig and returns their recordings.
func recorded(r *podRig) *[]controller.Recording {
	var all []controller.Recording
	r.opts.Record = func(is controller.Recording) { all = append(all, is) }
	return &all
}

// read writes and reads a recording.
func read(t *testing.T, is controller.Recording) (again controller.Recording) {
	t.Helper()
	text, err := json.Marshal(is)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &again))
	more, err := json.Marshal(again)
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(more))
	return again
}

func TestRecording(t *testing.T) {
	t.Parallel()
	t.Run("a pass says what it knew, planned, asked and was answered", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		all := recorded(r)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a policy") }
		_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.Error(t, err)
		require.Len(t, *all, 1)
		is := (*all)[0]
		assert.Equal(t, "default/web", is.Owner.String())
		assert.Equal(t, int32(1), is.Desired)
		assert.Equal(t, []string{"web-000", "web-001"}, is.Believed)
		require.Len(t, is.Calls, 3)
		assert.Equal(t, "GetOwner default/web", is.Calls[0].String())
		assert.Equal(t, `Delete default/web-000 {"preconditions":{"uid":"uid-web-000"}}: `+forbidden("web-000", "a policy").Error(), is.Calls[1].String())
		assert.Equal(t, "UpdateStatus default/web", is.Calls[2].String())
		assert.Equal(t, err.Error(), is.Err)
		assert.True(t, is.Changes())
		assert.Equal(t, "2026-05-04T12:00:00Z ReplicaSet default/web: 1 wanted, 2 believed (web-000 web-001)\n"+
			"  GetOwner default/web\n  "+is.Calls[1].String()+"\n  UpdateStatus default/web\n  it returned: "+err.Error(), is.String())
		for _, version := range []controller.Recording{is, read(t, is)} {
			made, err := controller.Replay(t.Context(), controller.ReplicaSets(), version)
			require.NoError(t, err)
			require.Len(t, made, 3)
			assert.Equal(t, is.Calls[1].String(), made[1].String())
			assert.True(t, is.Began.Equal(made[1].Ended))
		}
	})
	t.Run("a pass that is made of what passes before it have left is played again alone", func(t *testing.T) {
		t.Parallel()
		r := newRig(4)
		r.opts.MaxParallel = 0
		all := recorded(r)
		pods := podsOf(r.owner, 2)
		r.create = func(int) error { return timeout() } // lost, and not found
		r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
		_, err := r.pass(t, 0, pods...)
		require.Error(t, err)
		r.create = func(int) error { return nil }
		pass, err := r.pass(t, 1, pods...)
		require.NoError(t, err)
		require.Len(t, pass.Created, 2)
		made, err := controller.Replay(t.Context(), controller.ReplicaSets(), read(t, (*all)[1]))
		require.NoError(t, err)
		text := ""
		for _, c := range made {
			text += c.String() + "\n"
		}
		assert.Equal(t, "Create default/web-bbbbb: "+timeout().Error(), (*all)[0].Calls[0].String())
		assert.Contains(t, text, "Create default/web-bbbbb\n", "the same name, though nobody makes it up")
	})
	t.Run("an event that came in the middle of a pass is told again in the middle", func(t *testing.T) {
		t.Parallel()
		r := newRig(3)
		r.newProcess = true
		all := recorded(r)
		pods := podsOf(r.owner, 2)
		r.live = func() ([]*corev1.Pod, error) {
			older := clone(pods[1])
			older.ResourceVersion = "1"
			return pods, errors.Join(r.start().ChildUpdated(pods[1], older), r.start().ChildDeleted(pods[1]))
		}
		pass, err := r.pass(t, 0, pods...)
		require.NoError(t, err)
		require.Len(t, pass.Created, 1)
		_, err = controller.Replay(t.Context(), controller.ReplicaSets(), read(t, (*all)[0]))
		require.NoError(t, err)
	})
	t.Run("a pass that writes a status alone changes nothing", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		all := recorded(r)
		_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		require.NotEmpty(t, (*all)[0].Calls)
		assert.False(t, (*all)[0].Changes())
	})
	t.Run("a pass whose owner is not in the cache is not recorded", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		all := recorded(r)
		r.forget(t)
		assert.Empty(t, *all)
	})
	t.Run("another rule makes other calls, and the first is named", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		all := recorded(r)
		_, err := r.pass(t, 0, podsOf(r.owner, 3)...)
		require.NoError(t, err)
		spared := controller.ReplicaSets()
		spec := spared.Spec
		spared.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := spec(rs)
			s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == "web-000" }
			return s, err
		}
		made, err := controller.Replay(t.Context(), spared, read(t, (*all)[0]))
		require.EqualError(t, err, `controller: the recording of ReplicaSet "default/web": Delete default/web-002 {"preconditions":{"uid":"uid-web-002"}}: it was not made then`)
		assert.NotEmpty(t, made)
	})
	t.Run("a call that is not made any more is named", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		all := recorded(r)
		_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.NoError(t, err)
		spared := controller.ReplicaSets()
		spared.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
			s, err := controller.ReplicaSets().Spec(rs)
			s.Replicas = 2
			return s, err
		}
		_, err = controller.Replay(t.Context(), spared, read(t, (*all)[0]))
		require.EqualError(t, err, `controller: the recording of ReplicaSet "default/web": GetOwner default/web: it is not made any more`)
	})
	t.Run("another status is named", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		all := recorded(r)
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		kind := controller.ReplicaSets()
		kind.Status = func(rs *appsv1.ReplicaSet, _ controller.Outcome[*corev1.Pod]) error {
			rs.Status.Replicas = 99
			return nil
		}
		_, err = controller.Replay(t.Context(), kind, read(t, (*all)[0]))
		require.ErrorContains(t, err, "UpdateStatus default/web: it sent ")
	})
}

func TestRecordingsThatCannotBePlayed(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	all := recorded(r)
	_, err := r.pass(t, 0, podsOf(r.owner, 2)...)
	require.NoError(t, err)
	text, err := json.Marshal((*all)[0])
	require.NoError(t, err)
	for name, c := range map[string]struct{ old, is, want string }{
		"of another version": {"replicakit.recording/2", "replicakit.recording/0", `a recording of the format "replicakit.recording/0": this version reads "replicakit.recording/2"`},
		"of no format":       {"replicakit.recording/2", "", `a recording of the format ""`},
		"that is cut off":    {`"kind"`, "", "a recording: invalid character"},
	} {
		t.Run("a recording "+name+" is refused when it is read", func(t *testing.T) {
			t.Parallel()
			var is controller.Recording
			changed := strings.Replace(string(text), c.old, c.is, 1)
			require.NotEqual(t, string(text), changed)
			require.ErrorContains(t, is.UnmarshalJSON([]byte(changed)), c.want)
			assert.Zero(t, is)
		})
	}
	for name, c := range map[string]struct{ old, is, want string }{
		"of another kind":                {`"Kind":"ReplicaSet"`, `"Kind":"Fleet"`, "it is of apps/v1, Kind=Fleet and /v1, Kind=Pod, not of apps/v1, Kind=ReplicaSet"},
		"of another owner":               {`"name":"web"`, `"name":"db"`, `the owner in the cache is "default/web"`},
		"without an owner":               {`"owner":{`, `"owner":null,"was":{`, "it has no owner"},
		"whose owner is no object":       {`"owner":{`, `"owner":7,"was":{`, "cache.owner: json: cannot unmarshal number"},
		"that was interrupted":           {`"began"`, `"interrupted":true,"began"`, "the context of the pass ended"},
		"whose ledger has no UID":        {`"ledger":{`, `"ledger":{"children":{"":{}},`, "known.ledger: ledger: children[]: a fact about a child without a UID"},
		"whose status is none":           {`"known":{`, `"known":{"is":true,"statusSent":[1],`, "known.statusSent: json: cannot unmarshal array"},
		"whose owner fact is none":       {`"known":{`, `"known":{"is":true,"ownerIs":[1],`, "known.ownerIs: json: cannot unmarshal array"},
		"with an answer of another type": {`"answer":{`, `"answer":7,"was":{`, "the answer: json: cannot unmarshal number"},
	} {
		t.Run("a recording "+name+" is refused when it is played", func(t *testing.T) {
			t.Parallel()
			var is controller.Recording
			changed := strings.Replace(string(text), c.old, c.is, 1)
			require.NotEqual(t, string(text), changed)
			require.NoError(t, json.Unmarshal([]byte(changed), &is))
			_, err := controller.Replay(t.Context(), controller.ReplicaSets(), is)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("the zero Recording and a Kind that can never work are refused", func(t *testing.T) {
		t.Parallel()
		_, err := controller.Replay(t.Context(), controller.ReplicaSets(), controller.Recording{})
		require.ErrorContains(t, err, "it is of ")
		_, err = controller.Replay(t.Context(), controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]{}, (*all)[0])
		require.ErrorContains(t, err, "is incomplete")
	})
}

// An owner without a namespace has children in several.
func TestRecordingOfAnOwnerWithoutNamespace(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	all := recorded(r)
	r.owner.Namespace = ""
	r.kind.ClusterScoped = true
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
		s, err := spec(rs)
		s.New = func(string) (*corev1.Pod, error) {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "one", Labels: map[string]string{"app": "web"}}}, nil
		}
		return s, err
	}
	pass, err := r.pass(t, 0)
	require.NoError(t, err)
	require.Len(t, pass.Created, 2)
	_, err = controller.Replay(t.Context(), r.kind, read(t, (*all)[0]))
	require.NoError(t, err)
}
