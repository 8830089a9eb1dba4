// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

type podStory = replicastest.Story[*appsv1.ReplicaSet, *corev1.Pod]

func simple(s *podStory) {
	s.Kind, s.Owner = controller.ReplicaSets(), replicastest.NewReplicaSet("default", "web", 3)
}

// The Kind of ExampleNewCluster keeps its promises.
func TestFleetsInStories(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*Fleet) { return func(f *Fleet) { f.Spec.Replicas = n } }
	require.NoError(t, replicastest.Play(1, 60, func(s *replicastest.Story[*Fleet, *Runner]) {
		s.Kind = fleets()
		s.Owner = &Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ci"}, Spec: FleetSpec{Replicas: 3}}
		s.Ready = func(r *Runner) { r.Status.Ready, r.Status.ObservedGeneration = true, r.Generation }
		s.Changes = []func(*Fleet){wants(1), wants(3), wants(7)}
		s.Deletes = true
		s.Always = map[string]func() error{"never more than seven": s.AtMost(7), "never fewer than one": s.AtLeast(1)}
		s.AtEnd = map[string]func() error{"as many as wanted": s.AsWanted}
	}))
}

// A status that counts its own writes is another one in each pass.
func TestAStoryWithAFaultyStatus(t *testing.T) {
	t.Parallel()
	err := replicastest.Play(1, 1, func(s *podStory) {
		simple(s)
		s.Kind.Status = func(rs *appsv1.ReplicaSet, _ controller.Outcome[*corev1.Pod]) error {
			rs.Status.Replicas++
			return nil
		}
	})
	require.ErrorContains(t, err, "replicastest: seed 1: StatusFaulty: ")
}

// restless is a Part that always has something to do.
type restless struct{}

func (restless) Due() (time.Time, bool) { return time.Time{}, true }
func (restless) Step()                  {}

func TestAStoryInWhichNoTimePasses(t *testing.T) {
	t.Parallel()
	err := replicastest.Play(7, 7, func(s *podStory) {
		simple(s)
		s.Parts = []replicastest.Part{restless{}}
	})
	require.ErrorContains(t, err, "replicastest: seed 7: replicastest: the simulated parts never become idle")
	require.ErrorContains(t, err, "the first process begins", "it goes on with what happened")
}

func TestAStoryThatCannotBegin(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		tell func(*podStory)
		want string
	}{
		"nobody tells it":            {nil, "replicastest: tell is nil"},
		"it has no owner":            {func(s *podStory) { s.Kind = controller.ReplicaSets() }, "seed 1: the Story has no Owner"},
		"it has no Kind":             {func(s *podStory) { s.Owner = replicastest.NewReplicaSet("default", "web", 3) }, "seed 1: replicastest: controller: kind"},
		"its owner has another Kind": {func(s *podStory) { simple(s); s.Kind.Owner.Kind = "" }, "is incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, replicastest.Play(1, 3, tt.tell), tt.want)
		})
	}
	assert.NoError(t, replicastest.Play(3, 1, simple), "there is no seed from 3 to 1")
}

// A rule that is broken, nil or panics ends the story, and the report names it.
func TestAStoryReportsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		rule func() error
		want string
	}{
		"it returns an error": {func() error { return errors.New("out of luck") }, `"luck" is broken: out of luck`},
		"it panics":           {func() error { panic("no such pod") }, `"luck" is broken: the rule panicked: no such pod`},
		"it is nil":           {nil, `"luck" is broken: the rule is nil`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			always := replicastest.Play(4, 9, func(s *podStory) { simple(s); s.Always = map[string]func() error{"luck": tt.rule} })
			require.ErrorContains(t, always, "replicastest: seed 4: "+tt.want)
			assert.NotContains(t, always.Error(), "faults", "the first moment is early enough")
			atEnd := replicastest.Play(4, 9, func(s *podStory) { simple(s); s.AtEnd = map[string]func() error{"luck": tt.rule} })
			require.ErrorContains(t, atEnd, "replicastest: seed 4: "+tt.want)
			assert.Contains(t, atEnd.Error(), "all faults are over")
		})
	}
}

// One seed tells one story, also alone, and another seed another one.
func TestASeedTellsOneStory(t *testing.T) {
	t.Parallel()
	end := func(s *podStory) {
		simple(s)
		s.Changes = []func(*appsv1.ReplicaSet){func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas++ }}
		calls := 0
		s.Kind.Observe = func(_ context.Context, _ controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) { calls++ }
		s.AtEnd = map[string]func() error{"it never ends": func() error { return fmt.Errorf("%d passes", calls) }}
	}
	once, again := replicastest.Play(7, 7, end), replicastest.Play(7, 7, end)
	require.EqualError(t, again, once.Error())
	other := replicastest.Play(8, 8, end)
	assert.NotEqual(t, lines(once)[1:], lines(other)[1:])
}

func lines(err error) []string { return strings.Split(err.Error(), "\n") }

// sick is a Part that makes a pod unready after five minutes.
type sick struct {
	story *podStory
	done  bool
}

func (f *sick) Due() (time.Time, bool) {
	created := f.story.Cluster.Children("default")
	if f.done || len(created) == 0 {
		return time.Time{}, false
	}
	return created[0].CreationTimestamp.Add(5 * time.Minute), true
}

func (f *sick) Step() {
	f.done = true
	_, _ = f.story.Cluster.EditChild(context.Background(), "default", f.story.Cluster.Children("default")[0].Name, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	})
}

// A story that failed ends with what held the last pass back, and with its error.
func TestAStoryEndsWithWhatHeldItBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		labels map[string]string
		sel    *metav1.LabelSelector
		want   string
	}{
		"a selector that is missing":              {map[string]string{"app": "web"}, nil, "\nheld back by SpecRefused"},
		"a template that the selector leaves out": {map[string]string{"app": "other"}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, "\nthe last pass ended with: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := replicastest.Play(1, 1, func(s *podStory) {
				simple(s)
				s.Owner.Spec.Selector, s.Owner.Spec.Template.Labels = tt.sel, tt.labels
				s.AtEnd = map[string]func() error{"three": func() error {
					if n := len(s.Cluster.Children("default")); n != 3 {
						return fmt.Errorf("%d pods", n)
					}
					return nil
				}}
			})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// The ready-made rules notice what they name.
func TestRulesOfStories(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n }
	}
	for name, tt := range map[string]struct {
		tell func(s *podStory)
		want string
	}{
		"too many": {func(s *podStory) { s.Always = map[string]func() error{"rule": s.AtMost(4)} }, "5 children are alive, want at most 4"},
		"too few":  {func(s *podStory) { s.Always = map[string]func() error{"rule": s.AtLeast(3)} }, "2 children are alive, want at least 3"},
		"too few are ready": {func(s *podStory) {
			s.Always = map[string]func() error{"rule": s.AtLeastReady(2)}
			s.Parts = []replicastest.Part{&sick{story: s}}
		}, "1 children are ready, want at least 2"},
		"never ready at all":  {func(s *podStory) { s.Always = map[string]func() error{"rule": s.AtLeastReady(6)} }, ""},
		"as many as ever":     {func(s *podStory) { s.Always = map[string]func() error{"rule": s.AtLeast(6)} }, ""},
		"a change of a cache": {func(s *podStory) { s.Kind.Prepare = spoils }, "was changed in the cache"},
		"a Spec that refuses from the beginning": {func(s *podStory) {
			s.Owner.Spec.Selector = nil
			s.AtEnd = map[string]func() error{"rule": s.AsWanted}
		}, "selector"},
		"not as wanted": {func(s *podStory) {
			s.Kind.Prepare = refuses
			s.AtEnd = map[string]func() error{"rule": s.AsWanted}
		}, "0 children are alive, want "},
		"not as wanted in a group": {func(s *podStory) {
			spec := s.Kind.Spec
			s.Kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				all, err := spec(rs)
				n := all.Replicas
				all.Replicas, all.Template, all.GroupOf = 0, nil, func(p *corev1.Pod) string { return p.Labels["group"] }
				for _, name := range []string{"a", "b"} {
					create := func(string) (*corev1.Pod, error) {
						return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "group": name}}}, nil
					}
					all.Groups = append(all.Groups, replicas.Group[*corev1.Pod]{Name: name, Replicas: n, New: create})
				}
				return all, err
			}
			s.Kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
				step.Create = slices.DeleteFunc(step.Create, func(name string) bool { return strings.HasPrefix(name, "web-b-") })
				return nil
			}
			s.AtEnd = map[string]func() error{"rule": s.AsWanted}
		}, `0 children of group "b" are alive, want `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := replicastest.Play(1, 20, func(s *podStory) {
				simple(s)
				s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(5)}
				tt.tell(s)
			})
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// A call of a Kind's own has faults, too, and dies with its process.
func TestCallsOfAStory(t *testing.T) {
	t.Parallel()
	sent, effects, failures := 0, 0, 0
	require.NoError(t, replicastest.Play(1, 40, func(s *podStory) {
		simple(s)
		s.Kind.Prepare = func(ctx context.Context, _ *appsv1.ReplicaSet, _ *controller.Step[*corev1.Pod]) error {
			sent++
			err := s.Call(ctx, replicastest.Call{Verb: "create", Kind: "Disk"}, func() error { effects++; return nil })
			if err != nil {
				failures++
			}
			return err
		}
		s.AtEnd = map[string]func() error{"as many as wanted": s.AsWanted}
	}))
	assert.Positive(t, failures)
	assert.Greater(t, effects, sent-failures, "some took effect although their answers were lost")
	assert.Less(t, effects, sent, "some never took effect")

	var s podStory
	require.ErrorContains(t, s.Call(t.Context(), replicastest.Call{}, func() error { return nil }), "has not begun")
	require.ErrorContains(t, s.Call(t.Context(), replicastest.Call{}, nil), "effect is nil")
}

func spoils(_ context.Context, rs *appsv1.ReplicaSet, _ *controller.Step[*corev1.Pod]) error {
	rs.Labels = map[string]string{"spoiled": "yes"}
	return nil
}

func refuses(_ context.Context, _ *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
	step.Create = nil
	return nil
}
