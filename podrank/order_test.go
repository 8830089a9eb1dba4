// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/podrank"
)

var never time.Time // the zero instant

// ago returns the time d before podtest.Now.
func ago(d time.Duration) time.Time { return podtest.Now.Add(-d) }

// readyFor makes the pod ready. At podtest.Now, the pod has been ready for the given duration.
func readyFor(d time.Duration) podtest.Option { return podtest.ReadySince(ago(d)) }

// createdFor sets the pod's creation time. At podtest.Now, the age of the pod is the given duration.
func createdFor(d time.Duration) podtest.Option { return podtest.Created(ago(d)) }

// conditions replaces the pod's conditions with one condition of type Ready for each status.
func conditions(ready ...corev1.ConditionStatus) podtest.Option {
	return func(p *corev1.Pod) {
		p.Status.Conditions = nil
		for _, status := range ready {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(podtest.Now)})
		}
	}
}

// notReadySince makes the pod not ready since the given time.
func notReadySince(at time.Time) podtest.Option {
	return func(p *corev1.Pod) {
		conditions(corev1.ConditionFalse)(p)
		p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(at)
	}
}

// restarts replaces the pod's container statuses with one status for each of these restart counts.
func restarts(counts ...int32) podtest.Option {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = nil
		for _, n := range counts {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{RestartCount: n})
		}
	}
}

// initRestarts adds an init container with the given restart policy and restart count to the pod.
func initRestarts(name string, policy *corev1.ContainerRestartPolicy, n int32) podtest.Option {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: policy})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name, RestartCount: n})
	}
}

func sidecarRestarts(n int32) podtest.Option {
	always := corev1.ContainerRestartPolicyAlways
	return initRestarts("mesh", &always, n)
}

// strayRestarts adds the status of an init container that is not in the pod's spec.
func strayRestarts(n int32) podtest.Option {
	return func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: "stray", RestartCount: n})
	}
}

func ephemeralRestarts(n int32) podtest.Option {
	return func(p *corev1.Pod) {
		p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{RestartCount: n})
	}
}

func named(namespace, name string) podtest.Option {
	return func(p *corev1.Pod) { p.Namespace, p.Name = namespace, name }
}

func with(options ...podtest.Option) []podtest.Option { return options }

const pow49, pow50 = time.Duration(1) << 49, time.Duration(1) << 50

// A rule describes two pods. The first pod must come before the second pod. If the deciding criterion is UID, the
// pods are equal in all earlier criteria. If another criterion decides, the UIDs by default give the opposite
// order, because the second pod has the lower UID. The options of a pod can set another UID.
type rule struct {
	name          string
	first, second []podtest.Option
	ranks         [2]int
	plain         bool   // whether now is the zero time
	by            string // the name of the criterion that decides
}

var rules = []rule{
	{name: "R1 unassigned before assigned", first: with(podtest.On("")), by: "unassigned"},
	{name: "R1 two different nodes are a tie", first: with(podtest.On("node-2")), by: podrank.UID},

	{name: "R2 Pending before Unknown", first: with(podtest.Phase("Pending")), second: with(podtest.Phase("Unknown")), by: "phase"},
	{name: "R2 Unknown before Running", first: with(podtest.Phase("Unknown")), by: "phase"},
	{name: "R2 Pending before Running", first: with(podtest.Phase("Pending")), by: "phase"},
	{name: "R2 no phase is a tie with Pending", first: with(podtest.Phase("")), second: with(podtest.Phase("Pending")), by: podrank.UID},
	{name: "R2 Succeeded is a tie with Pending", first: with(podtest.Phase("Succeeded")), second: with(podtest.Phase("Pending")), by: podrank.UID},
	{name: "R2 Failed is a tie with Pending", first: with(podtest.Phase("Pending")), second: with(podtest.Phase("Failed")), by: podrank.UID},
	{name: "R2 an unheard-of phase is a tie with Pending", first: with(podtest.Phase("Zombie")), second: with(podtest.Phase("Pending")), by: podrank.UID},
	{name: "R2 a phase is spelled exactly", first: with(podtest.Phase("running")), by: "phase"},

	{name: "R3 not ready before ready", first: with(podtest.NotReady), by: "not-ready"},
	{name: "R3 readiness Unknown is not ready", first: with(conditions("Unknown")), by: "not-ready"},
	{name: "R3 no Ready condition is not ready", first: with(conditions()), by: "not-ready"},
	{name: "R3 the first Ready condition counts", first: with(conditions("False", "True")), second: with(conditions("True", "False")), by: "not-ready"},

	{name: "R4 the lower deletion cost first", first: with(podtest.Cost("-1")), by: "deletion-cost"},
	{name: "R4 no deletion cost is 0", second: with(podtest.Cost("1")), by: "deletion-cost"},
	{name: "R5 the whole range of costs counts", first: with(podtest.Cost("-2147483648")), second: with(podtest.Cost("2147483647")), by: "deletion-cost"},
	{name: "R5 an invalid cost is 0", first: with(podtest.Cost("-1e9")), by: podrank.UID},
	{name: "R5 a cost out of range is 0", first: with(podtest.Cost("-99999999999")), second: with(podtest.Cost("99999999999")), by: podrank.UID},
	{name: "R5 W38 zeros behind a sign are invalid", first: with(podtest.Cost("-008")), by: podrank.UID},

	{name: "R6 the higher rank first", ranks: [2]int{2, 1}, by: "colocation"},
	{name: "R6 ranks may be anything", ranks: [2]int{math.MaxInt, math.MinInt}, by: "colocation"},

	{name: "R7 equal ready times are a tie", first: with(readyFor(time.Hour), restarts(1)), second: with(readyFor(time.Hour)), by: "restarts"},
	{name: "R7 pods that are not ready have no ready time", first: with(notReadySince(ago(time.Minute))), second: with(notReadySince(ago(time.Hour))), by: podrank.UID},

	{name: "R8 the smaller bucket of ready time first", first: with(readyFor(2 * time.Hour)), second: with(readyFor(5 * time.Hour)), by: "ready-time"},
	{name: "R8 same bucket, restarts decide", first: with(readyFor(8*time.Hour), restarts(1)), second: with(readyFor(5 * time.Hour)), by: "restarts"},
	{name: "R8 same bucket, sidecar restarts decide", first: with(readyFor(8*time.Hour), sidecarRestarts(1)), second: with(readyFor(5 * time.Hour)), by: "sidecar-restarts"},
	{name: "R8 same bucket, creation decides", first: with(readyFor(8*time.Hour), createdFor(time.Hour)), second: with(readyFor(5*time.Hour), createdFor(100*time.Hour)), by: "creation-time"},
	{name: "R8 same bucket, UID comes last", first: with(readyFor(8 * time.Hour)), second: with(readyFor(5 * time.Hour)), by: podrank.UID},
	{name: "R8 the zero instant before a young one", first: with(podtest.ReadySince(never)), second: with(readyFor(time.Nanosecond)), by: "ready-time"},
	{name: "R8 the zero instant before a future one", first: with(podtest.ReadySince(never)), second: with(readyFor(-time.Hour)), by: "ready-time"},
	{name: "R8 two zero instants are a tie", first: with(podtest.ReadySince(never)), second: with(podtest.ReadySince(never)), by: podrank.UID},
	{name: "R8 zero now, the later instant first", first: with(readyFor(5 * time.Hour)), second: with(readyFor(8 * time.Hour)), plain: true, by: "ready-time"},
	{name: "R8 zero now, a nanosecond counts", first: with(readyFor(time.Hour)), second: with(readyFor(time.Hour + 1)), plain: true, by: "ready-time"},
	{name: "R8 zero now, far futures are told apart", first: with(podtest.ReadySince(podtest.Now.AddDate(7000, 0, 0))), second: with(podtest.ReadySince(podtest.Now.AddDate(6000, 0, 0))), plain: true, by: "ready-time"},
	{name: "R8 zero now, the zero instant first", first: with(podtest.ReadySince(never)), second: with(readyFor(-time.Hour)), plain: true, by: "ready-time"},
	{name: "R8 zero now, two zero instants are a tie", first: with(podtest.ReadySince(never)), second: with(podtest.ReadySince(never)), plain: true, by: podrank.UID},
	{name: "R8 zero now, equal instants are a tie", first: with(readyFor(time.Hour), restarts(1)), second: with(readyFor(time.Hour)), plain: true, by: "restarts"},
	{name: "R8 zero now, one instant in two time zones is a tie", first: with(podtest.ReadySince(podtest.Now.In(time.FixedZone("", 3600)))), second: with(podtest.ReadySince(podtest.Now)), plain: true, by: podrank.UID},

	{name: "R9 a bucket begins at a power of two", first: with(readyFor(1<<35 - 1)), second: with(readyFor(1 << 35)), by: "ready-time"},
	{name: "R9 a bucket ends before the next power of two", first: with(readyFor(1 << 35)), second: with(readyFor(1<<36 - 1)), by: podrank.UID},
	{name: "R9 one nanosecond is a bucket", first: with(readyFor(1)), second: with(readyFor(2)), by: "ready-time"},
	{name: "R9 all future instants are a tie", first: with(readyFor(-time.Second)), second: with(readyFor(-1e6 * time.Hour)), by: podrank.UID},
	{name: "R9 now is a tie with the future", first: with(readyFor(0)), second: with(readyFor(-time.Hour)), by: podrank.UID},
	{name: "R9 the future before the youngest", first: with(readyFor(-time.Hour)), second: with(readyFor(1)), by: "ready-time"},
	{name: "R9 no rounding up to a great power of two", first: with(readyFor(pow50 - 1)), second: with(readyFor(pow49)), by: podrank.UID},
	{name: "R9 a great power of two begins a bucket", first: with(readyFor(pow50 - 1)), second: with(readyFor(pow50)), by: "ready-time"},
	{name: "R9 ages above 292 years are a tie with 200", first: with(podtest.ReadySince(podtest.Now.AddDate(-200, 0, 0))), second: with(podtest.ReadySince(podtest.Now.AddDate(-2000, 0, 0))), by: podrank.UID},
	{name: "R9 99 years before 200", first: with(podtest.ReadySince(podtest.Now.AddDate(-99, 0, 0))), second: with(podtest.ReadySince(podtest.Now.AddDate(-200, 0, 0))), by: "ready-time"},
	{name: "R9 the far future is a tie with the near", first: with(podtest.ReadySince(podtest.Now.AddDate(7000, 0, 0))), second: with(readyFor(-1)), by: podrank.UID},

	{name: "R10 more restarts first", first: with(restarts(2)), second: with(restarts(1)), by: "restarts"},
	{name: "R10 restarts are a maximum, not a sum", first: with(restarts(0, 3)), second: with(restarts(2, 2)), by: "restarts"},
	{name: "R10 more sidecar restarts first", first: with(sidecarRestarts(2)), second: with(sidecarRestarts(1)), by: "sidecar-restarts"},
	{name: "R10 sidecar restarts are a maximum, not a sum", first: with(sidecarRestarts(3)), second: with(sidecarRestarts(2), sidecarRestarts(2)), by: "sidecar-restarts"},
	{name: "R10 restarts before sidecar restarts", first: with(restarts(1)), second: with(restarts(0), sidecarRestarts(9)), by: "restarts"},
	{name: "R10 an ordinary init container does not count", first: with(initRestarts("setup", nil, 9)), by: podrank.UID},
	{name: "R10 an init container that is restarted on failure does not count", first: with(initRestarts("setup", ptr(corev1.ContainerRestartPolicy("OnFailure")), 9)), by: podrank.UID},
	{name: "R10 a sidecar that the spec does not have does not count", first: with(strayRestarts(9)), by: podrank.UID},
	{name: "R10 an ephemeral container does not count", first: with(ephemeralRestarts(9)), by: podrank.UID},
	{name: "R10 restarts count for pods that are not ready", first: with(podtest.NotReady, restarts(1)), second: with(podtest.NotReady), by: "restarts"},

	{name: "R11 the smaller bucket of creation time first", first: with(createdFor(2 * time.Hour)), second: with(createdFor(5 * time.Hour)), by: "creation-time"},
	{name: "R11 creation times of one bucket are a tie", first: with(createdFor(8 * time.Hour)), second: with(createdFor(5 * time.Hour)), by: podrank.UID},
	{name: "R11 the zero instant first", first: with(podtest.Created(never)), second: with(createdFor(-time.Hour)), by: "creation-time"},
	{name: "R11 zero now, the later instant first", first: with(createdFor(5 * time.Hour)), second: with(createdFor(8 * time.Hour)), plain: true, by: "creation-time"},
	{name: "R11 zero now, the zero instant first", first: with(podtest.Created(never)), second: with(createdFor(-time.Hour)), plain: true, by: "creation-time"},
	{name: "R11 zero now, equal instants are a tie", plain: true, by: podrank.UID},
	{name: "R11 creation times count for pods that are not ready", first: with(podtest.NotReady, createdFor(2*time.Hour)), second: with(podtest.NotReady, createdFor(5*time.Hour)), by: "creation-time"},

	{name: "R12 nothing else distinguishes, UID decides", by: podrank.UID},
	{name: "R14 empty UIDs, the namespace decides", first: with(podtest.UID(""), named("a", "b")), second: with(podtest.UID(""), named("b", "a")), by: podrank.Name},
	{name: "R14 empty UIDs of one name, the namespace decides", first: with(podtest.UID(""), named("a", "a")), second: with(podtest.UID(""), named("b", "a")), by: podrank.Name},
	{name: "R14 empty UIDs of one namespace, the name decides", first: with(podtest.UID(""), named("a", "a")), second: with(podtest.UID(""), named("a", "b")), by: podrank.Name},
	{name: "R14 empty UIDs in one bucket, restarts decide", first: with(podtest.UID(""), named("b", "b"), readyFor(8*time.Hour), restarts(1)), second: with(podtest.UID(""), named("a", "a"), readyFor(5*time.Hour)), by: "restarts"},

	{name: "R1 before R2", first: with(podtest.On("")), second: with(podtest.Phase("Pending")), by: "unassigned"},
	{name: "R2 before R3", first: with(podtest.Phase("Pending")), second: with(podtest.NotReady), by: "phase"},
	{name: "R3 before R4", first: with(podtest.NotReady, podtest.Cost("9")), by: "not-ready"},
	{name: "R4 before R6", first: with(podtest.Cost("-9")), ranks: [2]int{1, 2}, by: "deletion-cost"},
	{name: "R6 before R8", first: with(readyFor(8 * time.Hour)), second: with(readyFor(time.Hour)), ranks: [2]int{2, 1}, by: "colocation"},
	{name: "R8 before R10", first: with(readyFor(time.Hour)), second: with(readyFor(8*time.Hour), restarts(9)), by: "ready-time"},
	{name: "R10 before R11", first: with(sidecarRestarts(1), createdFor(8*time.Hour)), second: with(createdFor(time.Hour)), by: "sidecar-restarts"},
}

func ptr[T any](v T) *T { return &v }

// pods returns the two pods of the rule. If the deciding criterion is UID, the first pod has the lower UID. If
// another criterion decides, the second pod has the lower UID. The options of a pod can replace the pod's UID.
func (r rule) pods() (first, second *corev1.Pod) {
	a, z := podtest.UID("a"), podtest.UID("z")
	if r.by != podrank.UID {
		a, z = z, a
	}
	return podtest.Pod("web", append(with(a), r.first...)...), podtest.Pod("web", append(with(z), r.second...)...)
}

func (r rule) now() time.Time {
	if r.plain {
		return never
	}
	return podtest.Now
}

func TestActivePodsWithRanksLess(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			first, second := r.pods()
			s := podrank.ActivePodsWithRanks{Pods: []*corev1.Pod{first, second}, Rank: r.ranks[:], Now: metav1.NewTime(r.now())}
			assert.True(t, s.Less(0, 1), "the first before the second")
			assert.False(t, s.Less(1, 0), "and not the second before the first")
			assert.False(t, s.Less(0, 0), "nor a pod before itself")
		})
	}
}

func TestSelectByEachRule(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		if r.by == "colocation" || r.ranks != [2]int{} {
			continue // Select computes the ranks itself
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			first, second := r.pods()
			for _, pods := range [][]*corev1.Pod{{first, second}, {second, first}} {
				victims := podrank.Select(pods, 1, podrank.PodOptions{Now: r.now()})
				assert.Len(t, victims, 1)
				assert.Same(t, first, victims[0].Object)
				assert.Equal(t, r.by, victims[0].Criterion, "decided by %s", victims[0].Criterion)
			}
		})
	}
}

// TestActivePodsLess applies the rules to ActivePods, the order of older releases. If ActivePods lacks the
// criterion that decides a rule, the two pods of the rule are equal. ActivePods compares times exactly. Therefore
// the test skips a rule if the times of the two pods differ. There are two exceptions. The test runs a rule in any
// case if the current time of the rule is the zero time. The test also runs a rule in any case if the assignment,
// the phase or the readiness decides, because ActivePods compares these criteria before the times.
func TestActivePodsLess(t *testing.T) {
	t.Parallel()
	later := []string{"deletion-cost", "colocation", podrank.UID, podrank.Name}
	for _, r := range rules {
		if first, second := r.pods(); !r.plain && !slices.Contains([]string{"unassigned", "phase", "not-ready"}, r.by) && !equalTimes(first, second) {
			continue
		}
		t.Run("R16 "+r.name, func(t *testing.T) {
			t.Parallel()
			first, second := r.pods()
			s := podrank.ActivePods{first, second}
			assert.Equal(t, !slices.Contains(later, r.by), s.Less(0, 1))
			assert.False(t, s.Less(1, 0))
		})
	}
}

func equalTimes(p, q *corev1.Pod) bool {
	since := func(p *corev1.Pod) (times []time.Time) {
		for _, c := range p.Status.Conditions {
			times = append(times, c.LastTransitionTime.Time)
		}
		return append(times, p.CreationTimestamp.Time)
	}
	return slices.EqualFunc(since(p), since(q), time.Time.Equal)
}

func TestActivePods(t *testing.T) {
	t.Parallel()
	less := func(t *testing.T, want bool, first, second []podtest.Option) {
		t.Helper()
		s := podrank.ActivePods{podtest.Pod("web", first...), podtest.Pod("web", second...)}
		assert.Equal(t, want, s.Less(0, 1))
		assert.False(t, s.Less(1, 0))
	}
	t.Run("R16 within a bucket the later ready time first", func(t *testing.T) {
		t.Parallel()
		less(t, true, with(readyFor(5*time.Hour)), with(readyFor(8*time.Hour), restarts(9)))
	})
	t.Run("R16 the zero ready time first", func(t *testing.T) {
		t.Parallel()
		less(t, true, with(podtest.ReadySince(never)), with(readyFor(-time.Hour)))
	})
	t.Run("R16 within a bucket the later creation time first", func(t *testing.T) {
		t.Parallel()
		less(t, true, with(createdFor(5*time.Hour)), with(createdFor(8*time.Hour)))
	})
	t.Run("R16 the zero creation time first", func(t *testing.T) {
		t.Parallel()
		less(t, true, with(podtest.Created(never)), with(createdFor(-time.Hour)))
	})
	t.Run("R16 deletion costs are ignored", func(t *testing.T) {
		t.Parallel()
		less(t, true, with(podtest.Cost("9"), restarts(1)), with(podtest.Cost("-9")))
	})
	t.Run("R16 R12 pods that agree on all six are equal", func(t *testing.T) {
		t.Parallel()
		less(t, false, with(podtest.UID("a"), named("a", "a")), with(podtest.UID("b"), named("b", "b")))
	})
	t.Run("R16 a nil pod first", func(t *testing.T) {
		t.Parallel()
		s := podrank.ActivePods{podtest.Pod("web", podtest.On("")), nil, nil}
		sort.Sort(s)
		assert.Nil(t, s[0])
		assert.Nil(t, s[1])
		assert.NotNil(t, s[2])
		assert.Equal(t, 3, s.Len())
	})
}

func TestActivePodsWithRanks(t *testing.T) {
	t.Parallel()
	names := func(s podrank.ActivePodsWithRanks) (names []string) {
		for _, p := range s.Pods {
			if p != nil {
				names = append(names, p.Name)
			}
		}
		return names
	}
	t.Run("R15 Swap moves the ranks with the pods", func(t *testing.T) {
		t.Parallel()
		a, b := podtest.Pod("a"), podtest.Pod("b")
		s := podrank.ActivePodsWithRanks{Pods: []*corev1.Pod{a, b}, Rank: []int{1, 2}}
		s.Swap(0, 1)
		assert.Equal(t, []*corev1.Pod{b, a}, s.Pods)
		assert.Equal(t, []int{2, 1}, s.Rank)
		assert.Equal(t, 2, s.Len())
	})
	t.Run("R15 sorting moves the ranks with the pods", func(t *testing.T) {
		t.Parallel()
		pods := podtest.Fleet(200, 10, 1)
		ranks := podrank.ColocationRanks(pods, pods)
		of := make(map[string]int)
		for i, p := range pods {
			of[p.Name] = ranks[i]
		}
		sort.Sort(podrank.ActivePodsWithRanks{Pods: pods, Rank: ranks, Now: metav1.NewTime(podtest.Now)})
		for i, p := range pods {
			assert.Equal(t, of[p.Name], ranks[i], p.Name)
		}
	})
	t.Run("R15 W5 nil ranks are 0", func(t *testing.T) {
		t.Parallel()
		s := podrank.ActivePodsWithRanks{Pods: []*corev1.Pod{podtest.Pod("c"), podtest.Pod("a"), podtest.Pod("b")}}
		sort.Sort(s)
		assert.Equal(t, []string{"a", "b", "c"}, names(s))
	})
	t.Run("R15 W5 a missing rank is 0", func(t *testing.T) {
		t.Parallel()
		s := podrank.ActivePodsWithRanks{Pods: []*corev1.Pod{podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c")}, Rank: []int{-1, 1}}
		assert.True(t, s.Less(1, 2), "1 before 0")
		assert.True(t, s.Less(2, 0), "0 before -1")
		s.Swap(1, 2)
		assert.Equal(t, []int{-1, 0}, s.Rank)
		assert.NotPanics(t, func() { sort.Sort(s) })
	})
	t.Run("R6 ranks that no node could have are in order too", func(t *testing.T) {
		t.Parallel()
		s := podrank.ActivePodsWithRanks{
			Pods: []*corev1.Pod{podtest.Pod("low"), podtest.Pod("middle"), podtest.Pod("high")}, Rank: []int{math.MinInt, 0, math.MaxInt},
		}
		sort.Sort(s)
		assert.Equal(t, []string{"high", "middle", "low"}, names(s))
	})
	t.Run("R12 pods that nothing tells apart are equal", func(t *testing.T) {
		t.Parallel()
		s := podrank.ActivePodsWithRanks{Pods: []*corev1.Pod{podtest.Pod("a"), podtest.Pod("a")}}
		assert.False(t, s.Less(0, 1))
		assert.False(t, s.Less(1, 0))
	})
	t.Run("a nil pod comes first", func(t *testing.T) {
		t.Parallel()
		s := podrank.ActivePodsWithRanks{Pods: []*corev1.Pod{podtest.Pod("a"), nil, podtest.Pod("b"), nil}, Rank: []int{9, 0, 9, 0}}
		sort.Sort(s)
		assert.Nil(t, s.Pods[0])
		assert.Nil(t, s.Pods[1])
		assert.Equal(t, []string{"a", "b"}, names(s))
		assert.False(t, s.Less(0, 1), "two nil pods are equal")
	})
}

// In Kubernetes' order, these three pods form a cycle. The ready times of a and c are in the same bucket, so the
// UIDs decide, and a comes before c. The ready times of c and b are in the same bucket, so the UIDs decide, and c
// comes before b. The ready times of b and a are equal, so the restarts decide, and b comes before a. This package
// must sort the pods to the same order from every initial order.
func TestNoCycle(t *testing.T) {
	t.Parallel()
	a := podtest.Pod("web", podtest.UID("a"), readyFor(5*time.Hour))
	b := podtest.Pod("web", podtest.UID("c"), readyFor(5*time.Hour), restarts(1))
	c := podtest.Pod("web", podtest.UID("b"), readyFor(6*time.Hour))
	for _, pods := range [][]*corev1.Pod{{a, b, c}, {a, c, b}, {b, a, c}, {b, c, a}, {c, a, b}, {c, b, a}} {
		t.Run("R18 W28 "+string(pods[0].UID+pods[1].UID+pods[2].UID)+" sorts to one order", func(t *testing.T) {
			t.Parallel()
			victims := podrank.Select(pods, 2, podrank.PodOptions{Now: podtest.Now})
			assert.Same(t, b, victims[0].Object)
			assert.Same(t, a, victims[1].Object)
			sort.Sort(podrank.ActivePodsWithRanks{Pods: pods, Now: metav1.NewTime(podtest.Now)})
			assert.Equal(t, []*corev1.Pod{b, a, c}, pods)
		})
	}
}
