// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"

	"github.com/replicakit/replicakit/internal/slowrank"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A story is what happens to three ReplicaSets, two of them siblings, or to three
// ReplicationControllers, while a controller looks after them.
type story struct {
	Controllers bool
	Burst       int
	Steps       []step
}

// A step is one thing that happens. Which says to which object, out of those that
// it can happen to.
type step struct {
	Do       string
	Which, N int
	Answer   string // of refusals
}

func (g *gen) story() story {
	s := story{Burst: pick(g, 2, 5, 500), Steps: make([]step, 4+g.IntN(14))}
	for i := range s.Steps {
		s.Steps[i] = step{
			Do: pick(g, "scale", "scale", "scale", "scale", "schedule", "start", "start", "vanish", "vanish", "unready", "restart", "fail",
				"evict", "orphan", "relabel", "relabel", "cost", "min ready", "refuse create", "refuse delete", "refuse patch", "refuse update",
				"replace", "steal", "finish", "new controller", "wait"),
			Which: g.IntN(30), N: g.IntN(9),
			Answer: pick(g, "Forbidden", "Timeout", "Throttled", "internal", "quota", "Conflict"),
		}
	}
	return s
}

// happen makes the step take place, and returns the pods as it left them: the
// controller waits for the lock.
func (s step) happen(w *world) []*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step, w.refused = time.Now(), false
	now := metav1.NewTime(w.step)
	sets := w.allSets()
	rs := sets[s.Which%len(sets)].DeepCopy()
	switch s.Do {
	case "scale":
		rs.Spec.Replicas = new(int32(s.N))
		rs.Generation++
		w.updateSet(rs)
	case "min ready":
		rs.Spec.MinReadySeconds = int32(30 * (s.N % 2))
		rs.Generation++
		w.updateSet(rs)
	case "finish":
		if s.N == 0 {
			rs.DeletionTimestamp, rs.Finalizers = &now, []string{"foregroundDeletion"}
			w.updateSet(rs)
		}
	case "replace":
		if s.N < 4 {
			w.remove(w.ownerResource(), rs)
			w.names["uid"]++
			w.addSet(rs.Name, types.UID(fmt.Sprintf("uid-%d", w.names["uid"])), *rs.Spec.Replicas)
		}
	case "orphan", "steal":
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "guest-", Labels: rs.Spec.Template.Labels}}
		if s.Do == "steal" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Thief", Name: "thief", UID: "thief", Controller: new(true)}}
		}
		_, err := w.createPod("a", p)
		must(err)
	case "refuse create", "refuse delete", "refuse patch", "refuse update":
		w.refusals[strings.TrimPrefix(s.Do, "refuse ")] = refusal{kind: s.Answer, left: s.N % 4}
	default:
		s.happenToPods(w, now)
	}
	return w.allPods()
}

func (s step) happenToPods(w *world, now metav1.Time) {
	touch := func(all bool, can func(p *corev1.Pod) bool, change func(p *corev1.Pod)) {
		pods := slices.DeleteFunc(w.allPods(), func(p *corev1.Pod) bool { return !can(p) })
		if !all && len(pods) > 0 {
			i := s.Which % len(pods)
			pods = pods[i : i+1]
		}
		for _, p := range pods {
			change(p)
			w.updatePod(p)
		}
	}
	running := func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil }
	ready := func(status corev1.ConditionStatus) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: now}}
	}
	switch s.Do {
	case "schedule":
		touch(true, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" }, func(p *corev1.Pod) {
			p.Spec.NodeName = "n" + strconv.Itoa((len(p.UID)+int(p.UID[0])+s.N)%3)
		})
	case "start":
		touch(true, func(p *corev1.Pod) bool {
			return p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil
		}, func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: ready(corev1.ConditionTrue)}
		})
	case "unready":
		touch(false, running, func(p *corev1.Pod) { p.Status.Conditions = ready(corev1.ConditionFalse) })
	case "restart":
		touch(false, running, func(p *corev1.Pod) {
			p.Status.Conditions = ready(corev1.ConditionTrue)
			restarts := int32(0)
			for _, c := range p.Status.ContainerStatuses {
				restarts = c.RestartCount
			}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: restarts + 1}}
		})
	case "fail":
		touch(false, running, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	case "evict":
		touch(false, running, func(p *corev1.Pod) { p.DeletionTimestamp = &now })
	case "relabel":
		touch(false, controller.IsPodActive, func(p *corev1.Pod) {
			if p.Labels = map[string]string{"app": "a", "set": p.Labels["set"], "out": p.Labels["out"]}; p.Labels["out"] == "" {
				p.Labels["out"], p.Labels["set"] = p.Labels["set"], "none"
			} else {
				p.Labels["set"] = p.Labels["out"]
				delete(p.Labels, "out")
			}
		})
	case "cost":
		touch(false, running, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: strconv.Itoa(s.N - 4)} })
	case "vanish":
		for _, p := range w.allPods() {
			if p.DeletionTimestamp != nil {
				w.remove(podResource, p)
			}
		}
	}
}

func (w *world) addSet(name string, uid types.UID, replicas int32) {
	labels := map[string]string{"app": "a", "set": name}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid, Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}},
		},
	}
	if name != "solo" && !w.controllers { // siblings of which are not found by Kubernetes (A7)
		rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)}}
	}
	w.updateSet(rs)
}

// A maker makes a controller and returns its Run.
type maker func(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, burst int) func(ctx context.Context, workers int)

func theirs(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	return replicaset.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, burst).Run
}

func ours(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	c, err := clientgo.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, burst)
	must(err)
	return c.Run
}

func theirManager(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	return replication.NewReplicationManager(ctx, factory.Core().V1().Pods(), factory.Core().V1().ReplicationControllers(), client, burst).Run
}

func ourManager(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	c, err := clientgo.NewReplicationManager(ctx, factory.Core().V1().Pods(), factory.Core().V1().ReplicationControllers(), client, burst)
	must(err)
	return c.Run
}

// A chapter is what was seen of one step: a second after it, when both sides have
// waited for their caches if they had to, just before 30 seconds, after 31, and
// after a minute.
type chapter struct {
	seen    []look
	refused bool
	pods    []*corev1.Pod // as the step left them, before the controller looked
	now     time.Time
}

// tell runs the story with a controller, and adds up the calls that it made.
func (s story) tell(newController maker, calls map[string]int) (chapters []chapter) {
	burst := cmp.Or(s.Burst, replicaset.BurstReplicas)
	w := newWorld(s.Controllers)
	w.addSet("solo", "uid-solo", 2)
	w.addSet("web-1", "uid-1", 3)
	w.addSet("web-2", "uid-2", 0)
	w.step = time.Now()
	stop := w.start(newController, burst)
	for _, step := range s.Steps {
		if step.Do == "new controller" {
			stop()
			stop = w.start(newController, burst)
		}
		c := chapter{now: time.Now(), pods: step.happen(w)}
		for _, wait := range []time.Duration{time.Second, 29*time.Second - 1, time.Second + 1, 29 * time.Second} {
			time.Sleep(wait)
			synctest.Wait()
			c.seen = append(c.seen, w.look())
		}
		c.refused = w.refused
		chapters = append(chapters, c)
	}
	stop()
	for verb, n := range w.calls {
		calls[verb] += n
	}
	return chapters
}

// start runs a controller until stop is called. Its informers come first: the fake
// clientset loses what happens between their lists and their watches.
func (w *world) start(newController maker, burst int) (stop func()) {
	ctx, cancel := context.WithCancel(quiet(context.Background()))
	factory := informers.NewSharedInformerFactory(w, 0)
	run := newController(ctx, w, factory, burst)
	factory.Start(ctx.Done())
	synctest.Wait()
	var done sync.WaitGroup
	done.Go(func() { run(ctx, 2) })
	time.Sleep(time.Minute)
	synctest.Wait()
	return func() {
		cancel()
		done.Wait()
		factory.Shutdown()
	}
}

const (
	toTheEnd = "a story is told to its end"
	refusals = "a call is refused"
)

func TestControllers(t *testing.T) {
	t.Parallel()
	t.Run("K4 V1 V2 V4 V7 V8 V9 V10 V12 V14 V15 V16 V17 V18 B2 Y3 Z5 Z7 after the same events of ReplicaSets there are the same objects", func(t *testing.T) {
		t.Parallel()
		compareStories(t, 2_000, (*gen).story, theirs, ours)
	})
	t.Run("A1 A2 A3 A4 A9 after the same events of ReplicationControllers there are the same objects", func(t *testing.T) {
		t.Parallel()
		compareStories(t, 1_000, func(g *gen) story {
			s := g.story()
			s.Controllers = true
			return s
		}, theirManager, ourManager)
	})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	t.Run("Z4 V15 a creation that fails is tried again after the same waits, but not at once because of its own status", func(t *testing.T) {
		t.Parallel()
		tries := map[string][]time.Duration{}
		for side, m := range map[string]maker{"theirs": theirs, "ours": ours} {
			synctest.Test(t, func(*testing.T) {
				w := newWorld(false)
				w.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
					tries[side] = append(tries[side], time.Since(start))
					return true, nil, answer("internal", "")
				})
				w.addSet("solo", "uid", 1)
				stop := w.start(m, 500)
				time.Sleep(24 * time.Hour)
				stop()
			})
		}
		theirs, ours := intervals(tries["theirs"]), intervals(tries["ours"])
		assert.Equal(t, []time.Duration{0, 5 * time.Millisecond}, theirs[:2], "its status write wakes Kubernetes")
		assert.Equal(t, []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, ours[:2])
		assert.Equal(t, theirs[2:], ours[2:])
		assert.Equal(t, 1000*time.Second, ours[len(ours)-1])
	})
}

// intervals returns how long after the one before it each of the instants is.
func intervals(instants []time.Duration) []time.Duration {
	between := make([]time.Duration, len(instants)-1)
	for i := range between {
		between[i] = instants[i+1] - instants[i]
	}
	return between
}

func compareStories(t *testing.T, cases int, input func(g *gen) story, theirs, ours maker) {
	t.Helper()
	theirCalls, ourCalls := map[string]int{}, map[string]int{}
	comparison[story]{
		cases: cases, of: "stories of up to 17 steps",
		input: input,
		differ: func(s story, named *tally) string {
			var told, toldByUs []chapter
			synctest.Test(t, func(*testing.T) { told = s.tell(theirs, theirCalls) })
			synctest.Test(t, func(*testing.T) { toldByUs = s.tell(ours, ourCalls) })
			return cmpStories(s, told, toldByUs, named)
		},
		names:   []string{disputed},
		reaches: []string{toTheEnd, refusals},
	}.run(t)
	t.Logf("calls: Kubernetes: %v, ours: %v", theirCalls, ourCalls)
}

// cmpStories compares chapter by chapter. Where a call is refused the two sides
// try again at different times: only the end of that chapter counts then.
func cmpStories(s story, theirs, ours []chapter, named *tally) string {
	for i := range theirs {
		from := 0
		if theirs[i].refused || ours[i].refused {
			named.reach(refusals)
			from = len(theirs[i].seen) - 1
		}
		for j := from; j < len(theirs[i].seen); j++ {
			a, b := theirs[i].seen[j], ours[i].seen[j]
			if a.text == b.text {
				continue
			}
			if theirs[i].isDisputed(a, b, s.Controllers) {
				named.add(disputed)
				return ""
			}
			return fmt.Sprintf("step %d (%s), look %d:\nKubernetes:\n%s\nours:\n%s", i, s.Steps[i].Do, j, onlyIn(a.text, b.text), onlyIn(b.text, a.text))
		}
	}
	named.reach(toTheEnd)
	return ""
}

// onlyIn returns the lines of a that b lacks.
func onlyIn(a, b string) string {
	lines := strings.Split(b, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(a, "\n"), func(line string) bool { return slices.Contains(lines, line) }), "\n")
}

// isDisputed reports whether two looks differ only by which pods of a set were
// deleted, and the two orders differ on some of that set. Those need not be the
// ones that were deleted: as Kubernetes' order goes round in circles, any of the
// set may come first.
func (c chapter) isDisputed(theirs, ours look, controllers bool) (yes bool) {
	for _, set := range []string{"solo", "web-1", "web-2"} {
		a, b := activeOf(theirs, set), activeOf(ours, set)
		switch {
		case len(a) != len(b):
			return false
		case !maps.Equal(a, b) && !c.disputes(set, controllers):
			return false
		case !maps.Equal(a, b):
			yes = true
		}
	}
	return yes
}

// activeOf returns the names of the active pods with the labels of a set.
func activeOf(l look, set string) map[string]bool {
	names := map[string]bool{}
	for _, p := range l.pods {
		if controller.IsPodActive(p) && p.Labels["set"] == set {
			names[p.Name] = true
		}
	}
	return names
}

// disputes reports whether the two orders differ on two pods of the set.
func (c chapter) disputes(set string, controllers bool) bool {
	var pods, related []*corev1.Pod
	for _, p := range c.pods {
		if controller.IsPodActive(p) && p.Labels["set"] == set {
			pods = append(pods, p)
		}
		if set != "solo" && !controllers && strings.HasPrefix(p.Labels["set"], "web") {
			related = append(related, p)
		}
	}
	ranks := upstream.PodsWithRanks(pods, related).Rank
	for i, p := range pods {
		for j, q := range pods {
			theirs, ours := orders(slowrank.Pod{Pod: p, Rank: ranks[i]}, slowrank.Pod{Pod: q, Rank: ranks[j]}, c.now)
			if i != j && (theirs == 0 || theirs != ours) {
				return true
			}
		}
	}
	return false
}
