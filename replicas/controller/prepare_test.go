// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

type step = controller.Step[*corev1.Pod]

var errNoQuorum = errors.New("no quorum")

func TestPrepareSaysWhenItWantsToBeAskedAgain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		again   time.Duration
		fails   error
		min     int32 // minReadySeconds, which may cause an earlier pass
		requeue time.Duration
		err     string
	}{
		"a pass follows after that time":                     {again: 7 * time.Second, requeue: 7 * time.Second},
		"none follows if it wants none":                      {},
		"an earlier reason wins":                             {again: time.Hour, min: 3660, requeue: 59 * time.Second},
		"its error is that of the pass":                      {fails: errNoQuorum, err: `controller: ReplicaSet "default/web": Prepare: no quorum`},
		"with an error its time is that of the rate limiter": {again: 7 * time.Second, fails: errNoQuorum, requeue: 7 * time.Second, err: "no quorum"},
		"a negative time is an error":                        {again: -time.Second, err: `ReplicaSet "default/web": Prepare: step.RequeueAfter: -1s is negative`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.owner.Spec.MinReadySeconds = tt.min
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
				s.Delete, s.RequeueAfter = nil, tt.again
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

// If Prepare returns a RefusedError, an event is sent once for each error text. If Prepare does not refuse a later
// plan, this plan is carried out.
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

// The event about a deletion has the same message as in Kubernetes. If the deletion was decided by a criterion
// that Kubernetes does not have, the message also contains this criterion and its values.
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
			r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
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

// Prepare may remove any of the names from step.Create.
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
		"one that was not planned": {func(s *step) { s.Create[0] = "web-7" }, nil, "step.Create: a name was added, or is listed twice"},
		"one twice":                {func(s *step) { s.Create[0] = "web-1" }, nil, "step.Create: a name was added, or is listed twice"},
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

// If Prepare removes the first of two creations of a cluster-scoped owner, the namespace of the second creation
// does not change.
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

// The group of a creation does not depend on what Prepare has removed.
func TestPrepareIsToldTheGroupOfEachName(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		groupsTo(&is, []string{"head=1", "small=2,slots"})
		return is, err
	}
	var groups []string
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		for len(s.Create) > 0 {
			groups = append(groups, s.Group(s.Create[0]))
			s.Create = s.Create[1:]
		}
		assert.Empty(t, s.Group("web-small-7"))
		assert.Empty(t, (&step{}).Group("web-small-0"))
		return nil
	}
	_, err := r.pass(t, 1)
	require.NoError(t, err)
	assert.Equal(t, []string{"head", "small", "small"}, groups)
}

// An evicted pod keeps the name of its slot until a rule discards it.
func TestAChildThatHasEndedHoldsItsSlot(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]podtest.Option{
		"of the owner":     func(*corev1.Pod) {},
		"without an owner": func(p *corev1.Pod) { p.OwnerReferences = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newSlots(2)
			pods := inSlots(r.owner, "web-0", "web-1")
			podtest.Phase(corev1.PodFailed)(pods[1])
			change(pods[1])
			pass, err := r.pass(t, 1, pods...)
			require.NoError(t, err)
			require.Len(t, pass.Gates, 1)
			assert.Equal(t, controller.NameTaken, pass.Gates[0].Reason)
			assert.Equal(t, "web-1", pass.Gates[0].Object)
			assert.Empty(t, pass.Created)
		})
	}
}

// While Prepare fails, passes still check whether a creation without an answer has taken effect.
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

// Prepare is called even if there is nothing to do, so that Prepare can undo what it began. Prepare is not called
// if the plan is blocked, for example because the owner is paused. If the plan contains deletions, Prepare is also
// not called while the owner cannot be read or the whole plan is on hold.
func TestPrepareIsAskedWhenThePlanIsKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		before func(r *podRig)
		want   string
	}{
		"nothing is to be done":      {func(*podRig) {}, "3 0 0"},
		"one is too many":            {func(r *podRig) { *r.owner.Spec.Replicas = 2 }, "3 0 1"},
		"one is missing":             {func(r *podRig) { *r.owner.Spec.Replicas = 4 }, "3 1 0"},
		"the owner is paused":        {func(r *podRig) { withSpec(r, func(s *replicas.SpecOfPods) { s.Paused = true }) }, ""},
		"the owner is being deleted": {func(r *podRig) { r.owner.DeletionTimestamp = &metav1.Time{Time: podtest.Now} }, ""},
		"the owner could not be read": {func(r *podRig) {
			*r.owner.Spec.Replicas = 2
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, busy(1) }
		}, ""},
		"MaxDeletions allows none": {func(r *podRig) {
			*r.owner.Spec.Replicas = 2
			withSpec(r, func(s *replicas.SpecOfPods) { s.MaxDeletions = new(int) })
		}, "3 0 0 and 1 later"},
		"earlier calls are not seen": {func(r *podRig) { _, _ = r.pass(t, 0, ready(r.owner, 2)...) }, ""},
		"an earlier pass put it all off": {func(r *podRig) {
			*r.owner.Spec.Replicas = 2
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(60) }
			_, _ = r.pass(t, 0, ready(r.owner, 3)...)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(3)
			asked := ""
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
				asked = fmt.Sprint(len(s.Active), len(s.Create), len(s.Delete))
				if s.Later > 0 {
					asked += fmt.Sprintf(" and %d later", s.Later)
				}
				return nil
			}
			tt.before(r)
			asked = ""
			_, _ = r.pass(t, 1, ready(r.owner, 3)...)
			assert.Equal(t, tt.want, asked)
		})
	}
}

// If the deletion of a child is on hold, step.Delete still contains the child. If step.Delete did not contain the
// child, Prepare would undo its preparations for the deletion, for example a drain.
func TestPrepareSeesVictimsThatAreHeld(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	var seen [][]string
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		seen = append(seen, victimsOf(s))
		return nil
	}
	pods := versioned(ready(r.owner, 4))
	refuses := true
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		if refuses && p.Name == "web-000" {
			return conflict(p.Name)
		}
		return forbidden(p.Name, "a policy")
	}
	r.live = func() ([]*corev1.Pod, error) { return clones(pods), nil }
	r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	refuses = false
	_, err = r.pass(t, 0, pods...)
	require.Error(t, err)
	want := []string{"web-000", "web-001"}
	assert.Equal(t, [][]string{want, want}, seen, "once in each pass")
	assert.Equal(t, []string{"delete web-001"}, r.callsOf("delete"))
}

func victimsOf(s *step) (names []string) {
	for _, d := range s.Delete {
		names = append(names, d.Object.Name)
	}
	slices.Sort(names)
	return names
}

// If Prepare panics, the pass ends with an error and reports a gate with the reason HeldByPrepare. The pass creates and
// deletes nothing.
func TestAPanicOfPrepareIsAGate(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.kind.Prepare = func(context.Context, *appsv1.ReplicaSet, *step) error { panic("no such member") }
	pass, err := r.pass(t, 0, ready(r.owner, 2)...)
	require.ErrorContains(t, err, "no such member")
	require.ErrorContains(t, err, "prepare_test.go", "the stack is for the log")
	assert.Empty(t, r.callsOf("delete"))
	require.Len(t, pass.Gates, 1)
	assert.Equal(t, controller.HeldByPrepare, pass.Gates[0].Reason)
	assert.NotContains(t, pass.Gates[0].String(), "prepare_test.go")
	assert.Contains(t, strings.Join(r.events, "\n"), "Warning Panicked")
}

// If Prepare hangs, its context ends after PrepareTimeout.
func TestPrepareHasATimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1)
		r.kind.Prepare = func(ctx context.Context, _ *appsv1.ReplicaSet, _ *step) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		began := time.Now()
		pass, err := r.pass(t, 0, ready(r.owner, 2)...)
		require.ErrorContains(t, err, "it took more than 30s")
		assert.Equal(t, controller.PrepareTimeout, time.Since(began))
		assert.Empty(t, r.callsOf("delete"))
		require.Len(t, pass.Gates, 1)
	})
}

// The answer to an adoption can show that the orphan has been replaced in the meantime. The plan then has one
// creation too many. Prepare has allowed it, and the pass leaves it out.
func TestWhatPrepareAllowsMayHaveNoRoom(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	surge := intstr.FromInt32(1)
	spec := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.MaxSurge = &surge
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["image"] != "two" }
		return s, err
	}
	var steps []step
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		steps = append(steps, *s)
		return nil
	}
	r.patched = func(p *corev1.Pod) { p.Annotations = map[string]string{"image": "two"} }
	pass, err := r.pass(t, 0, podtest.Pod("orphan"))
	require.NoError(t, err)
	assert.Equal(t, []string{"orphan"}, names(pass.Adopted))
	assert.Empty(t, r.callsOf("create"))
	require.Len(t, steps, 1)
	assert.Len(t, steps[0].Create, 1)
}

// In the pass after a Conflict, the step contains the children of the live list, including those that are being
// deleted. If the owner is being deleted, it keeps its finalizer until these children are gone.
func TestPrepareSeesTerminatingChildrenOfALiveList(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	r.owner.DeletionTimestamp, r.owner.Finalizers = &metav1.Time{Time: podtest.Now}, []string{"example.com/pods"}
	withSpec(r, func(s *replicas.SpecOfPods) { s.Finalizer = "example.com/pods" })
	var seen []string
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error {
		seen = append(seen, fmt.Sprint(len(s.Active), len(s.Terminating), len(s.Delete), s.NoneLeft()))
		return nil
	}
	pods := versioned(ready(r.owner, 2))
	r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error {
		if p.Name == "web-000" {
			return conflict(p.Name) // someone else has deleted it
		}
		return nil
	}
	r.live = func() ([]*corev1.Pod, error) {
		going := clones(pods)
		for _, p := range going {
			p.DeletionTimestamp, p.ResourceVersion = &metav1.Time{Time: podtest.Now}, "9"
		}
		return going, nil
	}
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	assert.Equal(t, int32(0), pass.Desired, "none is wanted")
	_, err = r.pass(t, 1, pods...)
	require.NoError(t, err)
	assert.Equal(t, []string{"2 0 2 false", "0 2 0 false"}, seen)
}

// Prepare is not called while the view may be old, because an empty plan then means nothing. The view is new
// enough if the cache has reached the version that the server had when the process began. If the cache stays
// behind or returns no version, a live list replaces the view.
func TestPrepareIsNotAskedOnAViewThatMayBeOld(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		versions []string // the version of the cache in each pass
		asked    []int    // the total number of Prepare calls up to the end of each pass
		lists    int
	}{
		"the cache tells that it is new enough": {[]string{"7", "12"}, []int{0, 1}, 0},
		"the cache is late for minutes":         {[]string{"7", "7", "7"}, []int{0, 1, 2}, 1},
		"the cache does not tell its version":   {[]string{"", ""}, []int{1, 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(2)
			r.newProcess = true
			r.serverAt = func() (string, error) { return "12", nil }
			asked, lists := 0, 0
			r.kind.Prepare = func(context.Context, *appsv1.ReplicaSet, *step) error { asked++; return nil }
			pods := versioned(ready(r.owner, 2))
			r.live = func() ([]*corev1.Pod, error) { return clones(pods), nil }
			for i, version := range tt.versions {
				r.childrenVersion = version
				pass, err := r.pass(t, 120*i, pods...)
				require.NoError(t, err)
				assert.Equal(t, tt.asked[i], asked, "pass %d", i)
				if lists += telemetry.LiveLists(pass.Calls); asked == 0 {
					assert.Equal(t, 2*time.Minute, pass.RequeueAfter)
				}
			}
			assert.Equal(t, tt.lists, lists)
		})
	}
}

// If the plan contains deletions and the owner cannot be read, Prepare is not called. Prepare is not called even
// if one of the owner's slots still has no child.
func TestPrepareSeesNoVictimsOfAnOldOwner(t *testing.T) {
	t.Parallel()
	r := newSlots(2)
	asked := 0
	r.kind.Prepare = func(context.Context, *appsv1.ReplicaSet, *step) error { asked++; return nil }
	r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, busy(1) }
	_, err := r.pass(t, 0, podtest.Pod("web-0", owned(r.owner)), podtest.Pod("web-7", owned(r.owner)), podtest.Pod("web-8", owned(r.owner)))
	require.Error(t, err)
	assert.Zero(t, asked)
	assert.Equal(t, []string{"read owner"}, r.calls)
}

// Prepare is called even if all creations are on hold. It can then cancel a drain, for example.
func TestPrepareIsAskedWhileCreationsAreHeld(t *testing.T) {
	t.Parallel()
	r := newRig(3)
	asked := 0
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *step) error { asked += len(s.Create); return nil }
	r.create = func(int) error { return busy(60) }
	_, err := r.pass(t, 0, ready(r.owner, 2)...)
	require.Error(t, err)
	require.Equal(t, 1, asked)
	_, err = r.pass(t, 1, ready(r.owner, 2)...)
	require.NoError(t, err)
	assert.Equal(t, 2, asked)
	assert.Empty(t, r.callsOf("create"))
}

// If the ReadyWithin of a child ends while a pass is under way, another pass follows immediately.
func TestAChildThatIsLateWhileThePassGoesOn(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.ReadyWithin = time.Minute })
	pods := ready(r.owner, 2)
	pods[0].Status.Conditions[0].Status = corev1.ConditionFalse
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	r.now = podtest.Now.Add(59 * time.Second)
	r.children = func() ([]*corev1.Pod, error) {
		r.now = podtest.Now.Add(61 * time.Second)
		return pods, nil
	}
	_, err = r.sync(t, t.Context())
	require.NoError(t, err)
	assert.Empty(t, r.callsOf("delete"))
	assert.Equal(t, time.Duration(1), r.last.RequeueAfter)
}

// If the Kind has its own Ready rule and no NotReadySince rule, ReadyWithin begins when the Controller first sees
// the pod unready. The Controller ignores the lastTransitionTime of the pod's Ready condition.
func TestReadyWithinWithARuleOfTheAuthors(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	inSync := func(p *corev1.Pod) bool { return p.Annotations["insync"] != "" }
	withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.Ready, s.Rules.ReadyWithin = inSync, time.Minute })
	pod := ready(r.owner, 1)[0]
	for _, tt := range []struct {
		at      int
		deleted int
		again   time.Duration
	}{{0, 0, time.Minute}, {30, 0, 30 * time.Second}, {61, 1, 0}} {
		pass, err := r.pass(t, tt.at, clone(pod))
		require.NoError(t, err)
		assert.Len(t, pass.Deleted, tt.deleted, "at %d s", tt.at)
		if tt.again > 0 {
			assert.Equal(t, tt.again, pass.RequeueAfter, "at %d s", tt.at)
		}
	}
}

// If the Kind has its own Ready rule, an unready pod is deleted after ReadyWithin, even if the status cannot be
// written.
func TestReadyWithinWhileTheStatusFails(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	withSpec(r, func(s *replicas.SpecOfPods) {
		s.Rules.Ready, s.Rules.ReadyWithin = func(*corev1.Pod) bool { return false }, time.Minute
	})
	r.patchStatus = func(int, *appsv1.ReplicaSet) error { return forbidden("web", "no right") }
	deleted := 0
	for _, at := range []int{0, 30, 61} {
		pass, err := r.pass(t, at, ready(r.owner, 1)...)
		require.Error(t, err)
		deleted += len(pass.Deleted)
	}
	assert.Equal(t, 1, deleted)
}

// If the user wants to orphan the children, the owner on the server has the finalizer orphan. The children then
// stay, even if the owner in the cache does not have this finalizer yet.
func TestAnOwnerThatOrphansItsChildrenMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRig(0)
	r.owner.DeletionTimestamp, r.owner.Finalizers = &metav1.Time{Time: podtest.Now}, []string{"example.com/pods"}
	withSpec(r, func(s *replicas.SpecOfPods) { s.Finalizer = "example.com/pods" })
	r.getOwner = func() (*appsv1.ReplicaSet, error) {
		rs := clone(r.owner)
		rs.ResourceVersion, rs.Finalizers = "99", append(rs.Finalizers, metav1.FinalizerOrphanDependents)
		return rs, nil
	}
	pass, err := r.pass(t, 0, ready(r.owner, 2)...)
	require.NoError(t, err)
	assert.Empty(t, pass.Deleted)
	requireGate(t, pass.Gates, controller.OwnerStale)
}
