// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// gen makes random inputs. Many inputs contain equal values or rare values, because such values are the edge cases
// of the rules.
type gen struct{ *rand.Rand }

// A call of g.in(n) returns true with the probability 1/n.
func (g *gen) in(n int) bool { return g.IntN(n) == 0 }

// pick returns one of the values.
func pick[T any](g *gen, values ...T) T { return values[g.IntN(len(values))] }

// some returns up to n values.
func some[T any](g *gen, n int, value func() T) []T {
	var values []T
	for range g.IntN(n + 1) {
		values = append(values, value())
	}
	return values
}

// start is the time at which a synctest bubble begins. Tests that pass a current time also use start.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// instant returns a random time before or after now. It may return now or the zero time. For some of the returned
// times, the age in nanoseconds is a power of two, or a few nanoseconds more or less. For some other times, the age is
// too long for a time.Duration. Many times are whole seconds, as in the API.
func (g *gen) instant(now time.Time) metav1.Time {
	switch g.IntN(12) {
	case 0:
		return metav1.Time{}
	case 1:
		return metav1.NewTime(now)
	case 2:
		return metav1.NewTime(now.Add(time.Duration(1 + g.Int64N(1<<40))))
	case 3:
		return metav1.NewTime(now.AddDate(-pick(g, 290, 292, 293, 500), 0, 0))
	case 4, 5, 6:
		power := time.Duration(1) << g.IntN(62)
		if g.in(2) {
			power = time.Duration(1) << (45 + g.IntN(10))
		}
		return metav1.NewTime(now.Add(-power).Add(time.Duration(g.IntN(13) - 6)))
	case 7:
		return metav1.NewTime(now.Add(-8 * time.Hour).In(time.FixedZone("", 3600)))
	default:
		return metav1.NewTime(now.Add(-time.Duration(g.IntN(100_000)) * time.Second).Truncate(time.Second))
	}
}

// costs are values of the deletion cost annotation. Some of them are valid, and some are not.
var costs = []string{
	"0", "-0", "1", "-1", "5", "-8", "8", "100", "2147483647", "-2147483648", "2147483648", "-2147483649",
	"", "+1", "008", "00", "-", "--1", " 1", "1 ", "1.0", "1e3", "0x1", "1_0", "text", "٣", "-008", "-00", "-01", "-0000000000000000008",
}

// conditions returns pod conditions. They usually contain the condition Ready, and sometimes contain it twice.
func (g *gen) conditions(now time.Time) []corev1.PodCondition {
	condition := func(kind corev1.PodConditionType) corev1.PodCondition {
		return corev1.PodCondition{
			Type:               kind,
			Status:             pick(g, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown),
			LastTransitionTime: g.instant(now),
		}
	}
	switch g.IntN(8) {
	case 0:
		return nil
	case 1:
		return []corev1.PodCondition{condition(corev1.PodReady), condition(corev1.PodReady)}
	case 2:
		return []corev1.PodCondition{condition(corev1.ContainersReady)}
	case 3:
		return []corev1.PodCondition{condition(corev1.ContainersReady), condition(corev1.PodReady)}
	}
	return []corev1.PodCondition{condition(corev1.PodReady)}
}

// phase returns a phase, mostly Running.
func (g *gen) phase() corev1.PodPhase {
	if g.in(3) {
		return pick(g, corev1.PodPending, corev1.PodUnknown, corev1.PodSucceeded, corev1.PodFailed, "", "Zombie", "running")
	}
	return corev1.PodRunning
}

// restarts adds containers, sidecars and ordinary init containers with restart counts to the pod, or adds nothing.
func (g *gen) restarts(p *corev1.Pod) {
	if g.in(2) {
		return
	}
	status := func(name string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, RestartCount: pick[int32](g, 0, 0, 0, 1, 2, -1, 1<<31-1)}
	}
	p.Status.ContainerStatuses = some(g, 2, func() corev1.ContainerStatus { return status("c" + strconv.Itoa(g.IntN(2))) })
	p.Spec.InitContainers = some(g, 2, func() corev1.Container {
		return corev1.Container{
			Name:          "i" + strconv.Itoa(g.IntN(2)),
			RestartPolicy: pick(g, nil, new(corev1.ContainerRestartPolicyAlways), new(corev1.ContainerRestartPolicyAlways), new(corev1.ContainerRestartPolicyOnFailure)),
		}
	})
	p.Status.InitContainerStatuses = some(g, 2, func() corev1.ContainerStatus { return status("i" + strconv.Itoa(g.IntN(3))) })
	p.Status.EphemeralContainerStatuses = some(g, 1, func() corev1.ContainerStatus { return status("e") })
}

// rankedPod returns a pod with random values in all fields that affect its ranking.
func (g *gen) rankedPod(now time.Time) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         pick(g, "a", "b"),
			Name:              "p" + strconv.Itoa(g.IntN(4)),
			UID:               types.UID(pick(g, "", "a", "b", "c", strconv.FormatUint(g.Uint64(), 36))),
			CreationTimestamp: g.instant(now),
		},
		Spec:   corev1.PodSpec{NodeName: pick(g, "", "n1", "n2", "n3", "n4", "n5")},
		Status: corev1.PodStatus{Phase: g.phase(), Conditions: g.conditions(now)},
	}
	if g.in(5) {
		p.Annotations = map[string]string{corev1.PodDeletionCost: pick(g, costs...)}
	}
	g.restarts(p)
	return p
}

// labelSet returns random labels. There are only a few different keys and values, so that selectors often match.
func (g *gen) labelSet() map[string]string {
	if g.in(10) {
		return nil
	}
	set := map[string]string{}
	for range g.IntN(3) {
		set[pick(g, "app", "tier", "hash")] = pick(g, "a", "b", "")
	}
	if g.in(2) {
		set["app"] = "a"
	}
	return set
}

// labelSets contains all sets that labelSet can return, and a few more.
var labelSets = func() (sets []labels.Set) {
	values := []string{"-", "a", "b", "c", ""}
	for _, app := range values {
		for _, tier := range values {
			for _, hash := range values {
				set := labels.Set{"app": app, "tier": tier, "hash": hash}
				maps.DeleteFunc(set, func(_, value string) bool { return value == "-" })
				sets = append(sets, set)
			}
		}
	}
	return sets
}()

// labelSelector returns a selector that the API accepts and that some labels match.
func (g *gen) labelSelector() *metav1.LabelSelector {
	for {
		sel := g.anyLabelSelector()
		if matching(sel) != nil {
			return sel
		}
	}
}

// matching returns labels that match the selector. It returns the first set in labelSets that is not empty and
// that matches. If no set in labelSets is suitable, or if the selector is invalid or empty, matching returns nil.
func matching(sel *metav1.LabelSelector) map[string]string {
	s, err := metav1.LabelSelectorAsSelector(sel)
	if err != nil || s.Empty() {
		return nil
	}
	for _, set := range labelSets {
		if len(set) > 0 && s.Matches(set) {
			return maps.Clone(set)
		}
	}
	return nil
}

func (g *gen) anyLabelSelector() *metav1.LabelSelector {
	sel := &metav1.LabelSelector{}
	if g.in(2) {
		sel.MatchLabels = map[string]string{"app": pick(g, "a", "a", "b")}
	}
	if g.in(5) {
		sel.MatchLabels = map[string]string{"app": "a", "tier": pick(g, "a", "b", "")}
	}
	for range g.IntN(2) {
		op := pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)
		r := metav1.LabelSelectorRequirement{Key: pick(g, "app", "tier", "hash"), Operator: op}
		if op == metav1.LabelSelectorOpIn || op == metav1.LabelSelectorOpNotIn {
			r.Values = []string{pick(g, "a", "b"), pick(g, "b", "c")}
		}
		sel.MatchExpressions = append(sel.MatchExpressions, r)
	}
	return sel
}
