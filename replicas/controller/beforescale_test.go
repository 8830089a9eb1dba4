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
)

var errNoQuorum = errors.New("no quorum")

func TestBeforeScaleSaysWhenItWantsToBeAskedAgain(t *testing.T) {
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
		"its error is that of the pass":                      {fails: errNoQuorum, err: `controller: ReplicaSet "default/web": BeforeScale: no quorum`},
		"with an error its time is that of the rate limiter": {again: 7 * time.Second, fails: errNoQuorum, requeue: 7 * time.Second, err: "no quorum"},
		"a negative time is an error":                        {again: -time.Second, err: `ReplicaSet "default/web": BeforeScale: -1s until the next pass is negative`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.owner.Spec.MinReadySeconds = tt.min
			r.kind.BeforeScale = func(context.Context, *appsv1.ReplicaSet, []*corev1.Pod, replicas.PodScale) (replicas.PodScale, time.Duration, error) {
				return replicas.PodScale{}, tt.again, tt.fails
			}
			pass, err := r.pass(t, 1, ready(r.owner, 3)...)
			if tt.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.err)
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

func TestTheConditionStaysWhileBeforeScaleFails(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	var fails error
	r.kind.BeforeScale = func(_ context.Context, _ *appsv1.ReplicaSet, _ []*corev1.Pod, s replicas.PodScale) (replicas.PodScale, time.Duration, error) {
		return s, 0, fails
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

func TestBeforeScaleIsGivenTheContextOfThePass(t *testing.T) {
	t.Parallel()
	type key struct{}
	r := newRig(1)
	var got any
	r.kind.BeforeScale = func(ctx context.Context, _ *appsv1.ReplicaSet, _ []*corev1.Pod, s replicas.PodScale) (replicas.PodScale, time.Duration, error) {
		got = ctx.Value(key{})
		return s, 0, nil
	}
	r.children = func() ([]*corev1.Pod, error) { return nil, nil }
	_, err := r.sync(t, context.WithValue(t.Context(), key{}, "mine"))
	require.NoError(t, err)
	assert.Equal(t, "mine", got)
}

// What BeforeScale refuses for good is told once for each text, and does not stop what it
// does not refuse.
func TestBeforeScaleRefusesForGood(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	why := "no such order"
	r.kind.BeforeScale = func(_ context.Context, _ *appsv1.ReplicaSet, _ []*corev1.Pod, s replicas.PodScale) (replicas.PodScale, time.Duration, error) {
		if len(s.Delete) == 0 {
			return s, 0, nil
		}
		return s, 0, &replicas.RefusedError{Reason: "InvalidOrder", Err: errors.New(why)}
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

// BeforeScale may leave out any of the creations, by their names.
func TestBeforeScaleLeavesOutNames(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		leaves func(s *replicas.PodScale)
		want   []string
		err    string
	}{
		"the first":                {func(s *replicas.PodScale) { s.Names = s.Names[1:] }, []string{"web-1", "web-2"}, ""},
		"the first, and counts it": {func(s *replicas.PodScale) { s.Names, s.Create = s.Names[1:], 2 }, []string{"web-1", "web-2"}, ""},
		"one in the middle":        {func(s *replicas.PodScale) { s.Names = append(s.Names[:1], s.Names[2]) }, []string{"web-0", "web-2"}, ""},
		"the last ones":            {func(s *replicas.PodScale) { s.Create = 1 }, []string{"web-0"}, ""},
		"the first and the last":   {func(s *replicas.PodScale) { s.Names, s.Create = s.Names[1:], 1 }, []string{"web-1"}, ""},
		"all names":                {func(s *replicas.PodScale) { s.Names = nil }, nil, ""},
		"one that was not planned": {func(s *replicas.PodScale) { s.Names[0] = "web-7" }, nil, "a name was added, or is there twice"},
		"one twice":                {func(s *replicas.PodScale) { s.Names[0] = "web-1" }, nil, "a name was added, or is there twice"},
		"more than were planned":   {func(s *replicas.PodScale) { s.Create = 4 }, nil, "4 creations were made of 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSlots(3)
			r.kind.BeforeScale = func(_ context.Context, _ *appsv1.ReplicaSet, _ []*corev1.Pod, s replicas.PodScale) (replicas.PodScale, time.Duration, error) {
				tt.leaves(&s)
				return s, 0, nil
			}
			pass, err := r.pass(t, 1)
			if tt.err != "" {
				require.ErrorContains(t, err, `ReplicaSet "default/web": BeforeScale: `+tt.err)
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, names(pass.Created))
			assert.Len(t, r.callsOf("create"), len(tt.want))
		})
	}
}

// What is left out of a cluster-scoped owner's creations does not move the others to its
// namespace.
func TestBeforeScaleLeavesOutNamesInSeveralNamespaces(t *testing.T) {
	t.Parallel()
	r := globalRig(2, "a", "b")
	r.kind.BeforeScale = func(_ context.Context, _ *pool, _ []*worker, s replicas.Scale[*worker]) (replicas.Scale[*worker], time.Duration, error) {
		s.Names = s.Names[1:]
		return s, 0, nil
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
	r.kind.BeforeScale = func(_ context.Context, _ *appsv1.ReplicaSet, _ []*corev1.Pod, s replicas.PodScale) (replicas.PodScale, time.Duration, error) {
		if fails {
			return s, 0, errors.New("not now")
		}
		return s, 0, nil
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
