// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

type step = controller.Step[*corev1.Pod]

var errNoQuorum = errors.New("no quorum")

func TestPrepareSaysWhenItWantsToBeAskedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		again   time.Duration
		fails   error
		min     int32 // minReadySeconds, which is a reason to come back too
		requeue time.Duration
		err     string
	}{
		"a pass follows after that time":                     {again: 7 * time.Second, requeue: 7 * time.Second},
		"none follows if it wants none":                      {},
		"an earlier reason wins":                             {again: time.Hour, min: 3660, requeue: 59 * time.Second},
		"its error is that of the pass":                      {fails: errNoQuorum, err: `controller: ReplicaSet "default/web": Prepare: no quorum`},
		"with an error its time is that of the rate limiter": {again: 7 * time.Second, fails: errNoQuorum, requeue: 7 * time.Second, err: "no quorum"},
		"a negative time is an error":                        {again: -time.Second, err: `ReplicaSet "default/web": Prepare: step.Again: -1s is negative`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.owner.Spec.MinReadySeconds = tt.min
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
				s.Delete, s.Again = nil, tt.again
				return tt.fails
			}
			pass, err := r.pass(t, 1, ready(r.owner, 3)...)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, pass.Err, tt.err)
			}
			if tt.fails != nil {
				require.ErrorIs(t, err, tt.fails)
			}
			assert.Equal(t, tt.requeue, pass.RequeueAfter)
			assert.Empty(t, r.callsOf("delete"))
			assert.Zero(t, sum(r.pending()))
		})
	}
}

func TestTheConditionStaysWhilePrepareFails(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	var fails error
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		return fails
	}
	r.create = func(int) error { return forbidden("web", "a policy") }
	pass, err := r.pass(t, 0)
	require.Error(t, err)
	require.Len(t, pass.Status.Status.Conditions, 1)
	r.owner, fails = pass.Status, errNoQuorum
	pass, err = r.pass(t, 60, podsOf(r.owner, 1)...)
	require.ErrorIs(t, err, errNoQuorum)
	assert.True(t, pass.Waiting())
	assert.Empty(t, pass.Created)
	require.NotNil(t, pass.Status)
	assert.Len(t, pass.Status.Status.Conditions, 1, "nothing was tried")
}

func TestPrepareIsGivenTheContextOfThePass(t *testing.T) {
	t.Parallel()
	type key struct{}
	r := newRig(1)
	var got any
	r.kind.Prepare = func(ctx context.Context, _ *appsv1.ReplicaSet, s *step) error {
		got = ctx.Value(key{})
		return nil
	}
	r.children = func() ([]*corev1.Pod, error) { return nil, nil }
	_, err := r.sync(t, context.WithValue(t.Context(), key{}, "mine"))
	require.NoError(t, err)
	assert.Equal(t, "mine", got)
}

// What Prepare refuses for good is told once for each text, and does not stop what it
// does not refuse.
func TestPrepareRefusesForGood(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	why := "no such order"
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		if len(s.Delete) == 0 {
			return nil
		}
		return &replicas.RefusedError{Reason: "InvalidOrder", Err: errors.New(why)}
	}
	for _, told := range [][]string{{"Warning InvalidOrder no such order"}, nil} {
		pass, err := r.pass(t, 1, ready(r.owner, 3)...)
		require.NoError(t, err, "trying again is useless")
		assert.Zero(t, pass.RequeueAfter)
		require.ErrorContains(t, pass.Err, "no such order")
		assert.Equal(t, told, r.events)
	}
	why = "no such order either"
	_, err := r.pass(t, 1, ready(r.owner, 3)...)
	require.NoError(t, err)
	assert.Equal(t, []string{"Warning InvalidOrder no such order either"}, r.events)
	assert.Empty(t, r.callsOf("delete"))
	pass, err := r.pass(t, 1)
	require.NoError(t, err)
	assert.Len(t, pass.Created, 1)
}

// An event about a deletion has Kubernetes' words, and the reason if Kubernetes' order has
// no such reason.
func TestADeletionTellsWhichOrderDecided(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		criterion podrank.Criterion[*corev1.Pod]
		want      string
	}{
		"spread over zones": {podrank.Spread("zones", func(*corev1.Pod) string { return "a" }), "Normal SuccessfulDelete Deleted pod: web-000 (zones: 2 in a > 1 in a)"},
		"a number":          {podrank.By("number", func(p *corev1.Pod) string { return p.Name }), "Normal SuccessfulDelete Deleted pod: web-000 (number: web-000 < web-001)"},
		"one that decides nothing": {
			podrank.By("number", func(*corev1.Pod) int { return 0 }), "Normal SuccessfulDelete Deleted pod: web-000",
		},
		"one of Kubernetes'": {podrank.NotReady(), "Normal SuccessfulDelete Deleted pod: web-000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			spec := r.kind.Spec
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
				s, err := spec(rs)
				s.Rules.Order = podrank.Must(podrank.NewOrder(row.criterion))
				return s, err
			}
			_, err := r.pass(t, 1, ready(r.owner, 2)...)
			require.NoError(t, err)
			assert.Equal(t, []string{row.want}, r.events)
		})
	}
}

// Prepare may leave out any of the creations, by their names.
func TestPrepareLeavesOutNames(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leaves func(s *step)
		want   []string
		err    string
	}{
		"the first":                {func(s *step) { s.Create = s.Create[1:] }, []string{"web-1", "web-2"}, ""},
		"one in the middle":        {func(s *step) { s.Create = append(s.Create[:1], s.Create[2]) }, []string{"web-0", "web-2"}, ""},
		"the last ones":            {func(s *step) { s.Create = s.Create[:1] }, []string{"web-0"}, ""},
		"all names":                {func(s *step) { s.Create = nil }, nil, ""},
		"one that was not planned": {func(s *step) { s.Create[0] = "web-7" }, nil, "step.Create: a name was added, or is there twice"},
		"one twice":                {func(s *step) { s.Create[0] = "web-1" }, nil, "step.Create: a name was added, or is there twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSlots(3)
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
				tt.leaves(s)
				return nil
			}
			pass, err := r.pass(t, 1)
			if tt.err != "" {
				require.ErrorContains(t, pass.Err, `ReplicaSet "default/web": Prepare: `+tt.err)
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, names(pass.Created))
			assert.Len(t, r.callsOf("create"), len(tt.want))
		})
	}
}

// What is left out of a cluster-scoped owner's creations does not move the others to its
// namespace.
func TestPrepareLeavesOutNamesInSeveralNamespaces(t *testing.T) {
	t.Parallel()
	r := globalRig(2, "a", "b")
	r.kind.Prepare = func(_ context.Context, _ *pool, s *controller.Step[*worker]) error {
		s.Create = s.Create[1:]
		return nil
	}
	pass, err := r.pass(t, 1)
	require.NoError(t, err)
	require.Len(t, pass.Created, 1)
	assert.Equal(t, "b/blue-bbbbc", pass.Created[0].Namespace+"/"+pass.Created[0].Name)
}

// While the author's step fails, it is still looked what became of a creation without an answer.
func TestLostCallsAreLookedForWhileTheStepFails(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	fails := false
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		if fails {
			return errors.New("not now")
		}
		return nil
	}
	r.create = func(int) error { return timeout() }
	r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
	_, err := r.pass(t, 0)
	require.Error(t, err)
	fails = true
	for _, seconds := range []int{2, 400} {
		_, err = r.pass(t, seconds)
		require.ErrorContains(t, err, "not now")
		assert.Empty(t, r.callsOf("create"))
		assert.Len(t, r.callsOf("get"), 1, "after %d seconds", seconds)
	}
	p, err := r.pass(t, 500)
	require.ErrorContains(t, err, "not now")
	assert.Zero(t, p.InFlight, "the request can take effect no longer")
}
