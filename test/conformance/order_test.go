package conformance_test

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A ranked is a pod with its rank.
type ranked struct {
	Pod  *corev1.Pod
	Rank int
}

// A crowd is pods, all of whose pairs are compared.
type crowd struct {
	Pods []ranked
	Now  metav1.Time
}

const crowdSize = 150

// newCrowd returns a crowd: every other time one of pods that are much alike, for
// the later criteria to be reached.
func newCrowd(g *gen) crowd {
	now := start.Add(time.Duration(g.Int64N(int64(time.Second))))
	c := crowd{Pods: make([]ranked, crowdSize), Now: metav1.NewTime(now)}
	alike := g.in(2)
	for i := range c.Pods {
		c.Pods[i] = ranked{Pod: g.rankedPod(now), Rank: pick(g, 0, 0, 0, 1, 2)}
		if alike && !g.in(20) {
			p := c.Pods[i].Pod
			p.Spec.NodeName, p.Status.Phase, p.Annotations, c.Pods[i].Rank = "n1", corev1.PodRunning, nil, 0
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: g.instant(now)}}
		}
	}
	if g.in(8) {
		c.Now = metav1.Time{}
	}
	return c
}

func (c crowd) pods() []*corev1.Pod {
	pods := make([]*corev1.Pod, len(c.Pods))
	for i, r := range c.Pods {
		pods[i] = r.Pod
	}
	return pods
}

func (c crowd) ranks() []int {
	ranks := make([]int, len(c.Pods))
	for i, r := range c.Pods {
		ranks[i] = r.Rank
	}
	return ranks
}

// lesser is the part of sort.Interface that is compared.
type lesser interface{ Less(i, j int) bool }

// order is -1 if i goes first, 1 if j does, 0 if neither.
func order(s lesser, i, j int) int {
	switch {
	case s.Less(i, j):
		return -1
	case s.Less(j, i):
		return 1
	}
	return 0
}

// The differences between the two orders.
const (
	bucketTie  = "W28: ages of one power of two are a tie, and not decided by UID at once"
	lastResort = "R12: pods that are equal so far are told apart by UID, namespace and name"
	signedZero = "W38: a cost with zeros behind its sign is invalid, and so 0"
	wholeLog   = "R9: the power of two is that of the integer, not of its nearest float64"
	several    = "several of these at once"
)

// rules is Kubernetes' order in the plainest words, with the differences that are
// set. It is what gives a difference its name: ours must be the rules with all of
// them, Kubernetes' those with none.
type rules struct{ bucketTie, lastResort, signedZero, wholeLog bool }

var (
	upstreamRules = rules{}
	ourRules      = rules{true, true, true, true}
)

// name returns which difference alone makes Kubernetes' rules decide as ours do.
func name(p, q ranked, now time.Time) string {
	ours := ourRules.compare(p, q, now)
	for _, difference := range []struct {
		name string
		rules
	}{
		{bucketTie, rules{bucketTie: true}},
		{lastResort, rules{lastResort: true}},
		{signedZero, rules{signedZero: true}},
		{wholeLog, rules{wholeLog: true}},
	} {
		if difference.compare(p, q, now) == ours {
			return difference.name
		}
	}
	return several
}

func (r rules) compare(p, q ranked, now time.Time) int {
	a, b := p.Pod, q.Pod
	ready, bothReady := isReady(a), isReady(a) && isReady(b)
	switch {
	case (a.Spec.NodeName == "") != (b.Spec.NodeName == ""):
		return first(a.Spec.NodeName == "")
	case ordinal(a) != ordinal(b):
		return cmp.Compare(ordinal(a), ordinal(b))
	case ready != isReady(b):
		return first(!ready)
	case r.cost(a) != r.cost(b):
		return cmp.Compare(r.cost(a), r.cost(b))
	case p.Rank != q.Rank:
		return cmp.Compare(q.Rank, p.Rank)
	}
	if bothReady {
		if c, decided := r.times(readyTime(a), readyTime(b), a, b, now); decided {
			return c
		}
	}
	if c := cmp.Compare(restarts(b), restarts(a)); c != 0 {
		return c
	}
	if c := cmp.Compare(sidecarRestarts(b), sidecarRestarts(a)); c != 0 {
		return c
	}
	if c, decided := r.times(a.CreationTimestamp.Time, b.CreationTimestamp.Time, a, b, now); decided {
		return c
	}
	if !r.lastResort {
		return 0
	}
	return cmp.Or(cmp.Compare(a.UID, b.UID), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// times compares two instants of the pods a and b.
func (r rules) times(t, u time.Time, a, b *corev1.Pod, now time.Time) (c int, decided bool) {
	switch {
	case t.Equal(u):
		return 0, false
	case t.IsZero() || u.IsZero():
		return first(t.IsZero()), true
	case now.IsZero():
		return u.Compare(t), true
	}
	if c := cmp.Compare(r.power(now.Sub(t)), r.power(now.Sub(u))); c != 0 {
		return c, true
	}
	return cmp.Compare(a.UID, b.UID), !r.bucketTie
}

// power returns the k of 2^k <= age < 2^(k+1), -1 if there is none.
func (r rules) power(age time.Duration) int {
	switch {
	case age <= 0:
		return -1
	case r.wholeLog:
		return bits.Len64(uint64(age)) - 1
	}
	return int(math.Log2(float64(age)))
}

func (r rules) cost(p *corev1.Pod) int32 {
	value := p.Annotations[corev1.PodDeletionCost]
	if r.signedZero && len(value) > 2 && strings.HasPrefix(value, "-0") {
		return 0
	}
	cost, _ := helper.GetDeletionCostFromPodAnnotations(p.Annotations)
	return cost
}

func first(p bool) int {
	if p {
		return -1
	}
	return 1
}

func ordinal(p *corev1.Pod) int {
	return map[corev1.PodPhase]int{corev1.PodUnknown: 1, corev1.PodRunning: 2}[p.Status.Phase]
}

func readyCondition(p *corev1.Pod) *corev1.PodCondition {
	for i, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return &p.Status.Conditions[i]
		}
	}
	return &corev1.PodCondition{}
}

func isReady(p *corev1.Pod) bool { return readyCondition(p).Status == corev1.ConditionTrue }

func readyTime(p *corev1.Pod) time.Time { return readyCondition(p).LastTransitionTime.Time }

func restarts(p *corev1.Pod) (most int32) {
	for _, c := range p.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}

func sidecarRestarts(p *corev1.Pod) (most int32) {
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
		}
	}
	for _, c := range p.Status.InitContainerStatuses {
		if sidecars[c.Name] {
			most = max(most, c.RestartCount)
		}
	}
	return most
}

func TestPairOrder(t *testing.T) {
	t.Parallel()
	t.Run("R1 R2 R3 R4 R5 R6 R7 R8 R9 R10 R11 R12 R14 R18 W28 W38 each pair of pods goes in Kubernetes' order but for the named differences", func(t *testing.T) {
		t.Parallel()
		comparison[crowd]{
			cases: 200, each: crowdSize * crowdSize, of: "pairs of pods",
			input: newCrowd,
			differ: func(c crowd, named *tally) string {
				theirs := controller.ActivePodsWithRanks{Pods: c.pods(), Rank: c.ranks(), Now: c.Now}
				ours := podrank.ActivePodsWithRanks{Pods: c.pods(), Rank: c.ranks(), Now: c.Now}
				return differOnPairs(c, theirs, ours, named)
			},
			names: []string{bucketTie, lastResort, signedZero, wholeLog, several},
		}.run(t)
	})
	t.Run("R16 each pair of pods goes in Kubernetes' order of six criteria", func(t *testing.T) {
		t.Parallel()
		comparison[crowd]{
			cases: 200, each: crowdSize * crowdSize, of: "pairs of pods",
			input: newCrowd,
			differ: func(c crowd, _ *tally) string {
				theirs, ours := controller.ActivePods(c.pods()), podrank.ActivePods(c.pods())
				for i := range c.Pods {
					for j := range c.Pods {
						if theirs.Less(i, j) != ours.Less(i, j) {
							return fmt.Sprintf("Kubernetes: %v, ours: %v, for pods %d and %d", theirs.Less(i, j), ours.Less(i, j), i, j)
						}
					}
				}
				return ""
			},
		}.run(t)
	})
	t.Run("R15 W5 a missing rank is 0, and not a panic as in Kubernetes", func(t *testing.T) {
		t.Parallel()
		const panics = "W5: Kubernetes panics"
		comparison[crowd]{
			cases: 20, each: crowdSize * crowdSize, of: "pairs of pods",
			input: newCrowd,
			differ: func(c crowd, named *tally) string {
				short := c.ranks()[:len(c.Pods)/2]
				c.Pods = slices.Clone(c.Pods)
				for i := len(short); i < len(c.Pods); i++ {
					c.Pods[i].Rank = 0
				}
				full := controller.ActivePodsWithRanks{Pods: c.pods(), Rank: c.ranks(), Now: c.Now}
				ours := podrank.ActivePodsWithRanks{Pods: c.pods(), Rank: short, Now: c.Now}
				theirs := controller.ActivePodsWithRanks{Pods: c.pods(), Rank: short, Now: c.Now}
				for i := range c.Pods {
					if panicked(func() { theirs.Less(i, len(c.Pods)-1) }) {
						named.add(panics)
					}
				}
				return differOnPairs(c, full, ours, newTally())
			},
			names: []string{panics},
		}.run(t)
	})
}

func panicked(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// differOnPairs holds both orders against the rules, and names where they
// differ.
func differOnPairs(c crowd, theirs, ours lesser, named *tally) string {
	for i, p := range c.Pods {
		for j, q := range c.Pods {
			a, b := order(theirs, i, j), order(ours, i, j)
			want, wantOurs := upstreamRules.compare(p, q, c.Now.Time), ourRules.compare(p, q, c.Now.Time)
			switch {
			case a != want:
				return fmt.Sprintf("the test's idea of Kubernetes is wrong: %d, not %d, for pods %d and %d", a, want, i, j)
			case b != wantOurs:
				return fmt.Sprintf("Kubernetes: %d, ours: %d, with all named differences: %d, for pods %d and %d", a, b, wantOurs, i, j)
			case a != b:
				named.add(name(p, q, c.Now.Time))
			}
		}
	}
	return ""
}

func TestDeletionCost(t *testing.T) {
	t.Parallel()
	t.Run("R5 W38 a cost is read as Kubernetes reads it but for zeros behind a sign", func(t *testing.T) {
		t.Parallel()
		comparison[map[string]string]{
			cases: 1_000_000, of: "annotations",
			input: func(g *gen) map[string]string {
				switch g.IntN(10) {
				case 0:
					return nil
				case 1:
					return map[string]string{corev1.PodDeletionCost: pick(g, costs...)}
				}
				value := ""
				for range g.IntN(12) {
					value += pick(g, "-", "0", "1", "2", "4", "7", "8", "0", "+", " ", ".", "e")
					if g.in(2) {
						value = strings.TrimLeft(value, "+ .e")
					}
				}
				return map[string]string{corev1.PodDeletionCost: value}
			},
			differ: func(annotations map[string]string, named *tally) string {
				theirs, theirErr := helper.GetDeletionCostFromPodAnnotations(annotations)
				ours, ourErr := podrank.ParseDeletionCost(annotations)
				value := annotations[corev1.PodDeletionCost]
				if strings.HasPrefix(value, "-0") && value != "-0" && theirErr == nil {
					named.add(signedZero)
					theirs, theirErr = 0, assert.AnError
				}
				if ours != theirs || (ourErr == nil) != (theirErr == nil) {
					return fmt.Sprintf("Kubernetes: %d, %v; ours: %d, %v", theirs, theirErr, ours, ourErr)
				}
				return ""
			},
			names: []string{signedZero},
		}.run(t)
	})
}

func TestColocationRanks(t *testing.T) {
	t.Parallel()
	t.Run("L5 L6 each pod has the rank that Kubernetes gives it", func(t *testing.T) {
		t.Parallel()
		type input struct{ Pods, Related []*corev1.Pod }
		comparison[input]{
			cases: 20_000, of: "lists of pods with related ones",
			input: func(g *gen) input {
				pod := func() *corev1.Pod {
					p := g.rankedPod(start)
					if g.in(6) {
						p.DeletionTimestamp = new(metav1.NewTime(start))
					}
					return p
				}
				c := input{Pods: some(g, 12, pod), Related: some(g, 12, pod)}
				if g.in(2) {
					c.Related = slices.Concat(c.Pods, c.Related)
				}
				return c
			},
			differ: func(c input, _ *tally) string {
				theirs, ours := upstream.PodsWithRanks(c.Pods, c.Related).Rank, podrank.ColocationRanks(c.Pods, c.Related)
				if fmt.Sprint(theirs) != fmt.Sprint(ours) {
					return fmt.Sprintf("Kubernetes: %v, ours: %v", theirs, ours)
				}
				return ""
			},
		}.run(t)
	})
}
