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
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"

	"github.com/replicakit/replicakit/internal/follow"
	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A story is a sequence of steps that happen while a controller runs. The controller manages three ReplicaSets,
// two of them siblings, or three ReplicationControllers.
type story struct {
	Controllers bool
	Burst       int
	Steps       []step
}

// A step is one change in a story. The field Which chooses one of the objects that the step can change.
type step struct {
	Do       string
	Which, N int
	Answer   string // the answer to refused calls
}

func (g *gen) story() story {
	s := story{Burst: pick(g, 2, 5, 500), Steps: make([]step, 4+g.IntN(14))}
	for i := range s.Steps {
		s.Steps[i] = step{
			Do: pick(g, "scale", "scale", "scale", "scale", "schedule", "start", "start", "vanish", "vanish", "unready", "restart", "fail",
				"evict", "orphan", "relabel", "relabel", "cost", "min ready", "refuse create", "refuse delete", "refuse patch", "refuse status",
				"replace", "steal", "finish", "new controller", "wait"),
			Which: g.IntN(30), N: g.IntN(9),
			Answer: pick(g, "Forbidden", "Timeout", "Throttled", "internal", "quota", "Conflict"),
		}
	}
	return s
}

// happen makes the changes of the step and returns all pods after these changes. It holds the lock of the world,
// so the controller makes no call before the step has ended. If the parameter called first contains the alias of a
// pod, our controller deletes this pod before other pods.
func (s step) happen(w *world, first map[string]bool) []*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step, w.refused, w.taken, w.first = time.Now(), false, map[string]bool{}, first
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
	case "refuse create", "refuse delete", "refuse patch", "refuse status":
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
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: uid, Generation: 1, Annotations: map[string]string{"deployment.kubernetes.io/revision": "1"}},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}},
		},
	}
	if name != "solo" && !w.controllers { // Kubernetes finds no siblings of ReplicationControllers (A7)
		rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)}}
	}
	w.updateSet(rs)
}

// A maker makes a controller for a world and returns the controller's method Run.
type maker func(ctx context.Context, w *world, factory informers.SharedInformerFactory, burst int) func(ctx context.Context, workers int)

func theirs(ctx context.Context, w *world, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	return replicaset.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), w, burst).Run
}

func ours(ctx context.Context, w *world, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
	if w.replays {
		return replaying(ctx, w, kit.ReplicaSets(), typed.NewClient(w.AppsV1().ReplicaSets, w.CoreV1().Pods), sets.Informer(), pods.Informer(), burst)
	}
	c, err := clientgo.NewReplicaSetController(ctx, sets, pods, w, burst)
	must(err)
	return working(c)
}

// working returns the method Run of our controller, without its error. Run returns an error if the API server was
// restored from a backup, which does not happen in these tests.
func working(c *clientgo.Controller) func(context.Context, int) {
	return func(ctx context.Context, workers int) { must(c.Run(ctx, workers)) }
}

func theirManager(ctx context.Context, w *world, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	return replication.NewReplicationManager(ctx, factory.Core().V1().Pods(), factory.Core().V1().ReplicationControllers(), w, burst).Run
}

func ourManager(ctx context.Context, w *world, factory informers.SharedInformerFactory, burst int) func(context.Context, int) {
	pods, sets := factory.Core().V1().Pods(), factory.Core().V1().ReplicationControllers()
	if w.replays {
		return replaying(ctx, w, kit.ReplicationControllers(), typed.NewClient(w.CoreV1().ReplicationControllers, w.CoreV1().Pods), sets.Informer(), pods.Informer(), burst)
	}
	c, err := clientgo.NewReplicationManager(ctx, pods, sets, w, burst)
	must(err)
	return working(c)
}

// replaying makes our controller and returns the controller's method Run. This controller first deletes the pods
// that Kubernetes deleted in the same step. The aliases of these pods are in w.first.
func replaying[O kit.Object](ctx context.Context, w *world, kind kit.Kind[O, *corev1.Pod], client kit.Client[O, *corev1.Pod], owners, pods cache.SharedIndexInformer, burst int) func(context.Context, int) {
	spec := kind.Spec
	criteria := append([]podrank.Criterion[*corev1.Pod]{podrank.First("Kubernetes deleted it", w.goesFirst)}, podrank.Kubernetes().Criteria()...)
	order := podrank.Must(podrank.NewOrder(criteria...))
	kind.Spec = func(owner O) (replicas.SpecOfPods, error) {
		s, err := spec(owner)
		s.Rules.Order = order
		return s, err
	}
	c, err := clientgo.New(ctx, kind, client, owners, pods, clientgo.Options{BurstReplicas: burst, EventClient: w.CoreV1()})
	must(err)
	return working(c)
}

// A chapter records one step and its results. The field seen contains four records of the state of all owners and
// pods. The first record is made one second after the step, when both sides no longer wait for their caches. The
// next three records are made just before 30 seconds, at 31 seconds and at one minute after the step.
type chapter struct {
	seen    []look
	refused bool
	pods    []*corev1.Pod // the pods right after the step, before the controller made any calls
	now     time.Time
	calls   map[string]int  // how many calls, by verb and resource
	changes int             // how many changes of pods and owners, without status writes
	taken   map[string]bool // the aliases of the pods that the controller deleted
}

// A replay contains the aliases of the pods that Kubernetes deleted, by the number of the step. Our controller
// deletes these pods first.
type replay map[int]map[string]bool

// tell runs the story with a controller, and returns one chapter for each step.
func (s story) tell(newController maker, again replay) (chapters []chapter) {
	burst := cmp.Or(s.Burst, replicaset.BurstReplicas)
	w := newWorld(s.Controllers)
	w.replays = again != nil
	w.addSet("solo", "uid-solo", 2)
	w.addSet("web-1", "uid-1", 3)
	w.addSet("web-2", "uid-2", 0)
	w.step = time.Now()
	stop := w.start(newController, burst)
	for i, step := range s.Steps {
		if step.Do == "new controller" {
			stop()
			stop = w.start(newController, burst)
		}
		before, changes := maps.Clone(w.calls), w.version-w.statuses
		c := chapter{now: time.Now(), pods: step.happen(w, again[i])}
		for _, wait := range []time.Duration{time.Second, 29*time.Second - 1, time.Second + 1, 29 * time.Second} {
			time.Sleep(wait)
			synctest.Wait()
			c.seen = append(c.seen, w.look())
		}
		c.refused, c.calls, c.taken = w.refused, since(before, w.calls), w.taken
		c.changes = w.version - w.statuses - changes
		chapters = append(chapters, c)
	}
	stop()
	return chapters
}

// since returns how many calls of each kind were made between two counts.
func since(before, after map[string]int) map[string]int {
	calls := map[string]int{}
	for call, n := range after {
		calls[call] = n - before[call]
	}
	return calls
}

// workers is how many passes a controller makes at the same time.
const workers = 2

// The variable called never contains intervals that are longer than any story. With these intervals, our controller
// does not ask the server whether its watches are up to date. Kubernetes' controller does not check its watches.
var never = follow.Times{Look: time.Hour * 1e5, Ask: time.Hour * 1e5}

// start runs a controller until stop is called. The informers start before the controller, because the fake
// clientset loses all events between a list and the start of its watch. start returns after one minute.
func (w *world) start(newController maker, burst int) (stop func()) {
	ctx, cancel := context.WithCancel(follow.WithTimes(quiet(context.Background()), never))
	factory := informers.NewSharedInformerFactory(w, 0)
	run := newController(ctx, w, factory, burst)
	factory.Start(ctx.Done())
	synctest.Wait()
	var done sync.WaitGroup
	done.Go(func() { run(ctx, workers) })
	time.Sleep(time.Minute)
	synctest.Wait()
	return func() {
		cancel()
		done.Wait()
		factory.Shutdown()
	}
}

// These constants are the names of the intended differences between the calls of the two sides. The last constant
// is the name of a situation that must occur in at least one story.
const (
	fewerStatuses = "T1 V18: a status tells what its pass did, so fewer are written, or more if their passes see fewer events each"
	otherTries    = "U3 W41 W47: where a call is refused, more or fewer passes follow: statuses, releases and reads of the owner"
	lookedUp      = "W11 W25: what became of a creation or deletion is looked up if there was no answer, or a Conflict"
	ownersAsked   = "before its first creation, a process asks the server once which versions of owners are new to it"
	adoptedOnce   = "X11: a ReplicationController does not adopt again before the cache shows it"

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
		}, theirManager, ourManager, adoptedOnce)
	})
}

func TestRetries(t *testing.T) {
	t.Parallel()
	// tries runs a controller for a day in which every creation fails, and returns the times between the
	// creations.
	tries := func(m maker, failure string) []time.Duration {
		var at []time.Duration
		synctest.Test(t, func(*testing.T) {
			w := newWorld(false)
			w.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
				at = append(at, time.Since(start))
				return true, nil, answer(failure, "")
			})
			w.addSet("solo", "uid", 1)
			stop := w.start(m, 500)
			time.Sleep(24 * time.Hour)
			stop()
		})
		return intervals(at)
	}
	t.Run("Z4 V15 a creation that fails is tried again after the same waits, but not at once because of its own status", func(t *testing.T) {
		t.Parallel()
		theirs, ours := tries(theirs, "Forbidden"), tries(ours, "Forbidden")
		assert.Equal(t, []time.Duration{0, 5 * time.Millisecond}, theirs[:2], "its status write wakes Kubernetes")
		assert.Equal(t, []time.Duration{5 * time.Millisecond, 10 * time.Millisecond}, ours[:2])
		assert.Equal(t, theirs[2:], ours[2:])
		assert.Equal(t, 1000*time.Second, ours[len(ours)-1])
	})
	t.Run("Z4 where the server fails, ours waits for a minute at most, and Kubernetes for 1,000 seconds", func(t *testing.T) {
		t.Parallel()
		theirs, ours := tries(theirs, "internal"), tries(ours, "internal")
		assert.Equal(t, 1000*time.Second, theirs[len(theirs)-1])
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second}, ours[:4])
		assert.Equal(t, time.Minute, ours[len(ours)-1])
	})
}

// intervals returns the time between each two consecutive instants.
func intervals(instants []time.Duration) []time.Duration {
	between := make([]time.Duration, len(instants)-1)
	for i := range between {
		between[i] = instants[i+1] - instants[i]
	}
	return between
}

func compareStories(t *testing.T, cases int, input func(g *gen) story, theirs, ours maker, more ...string) {
	t.Helper()
	comparison[story]{
		cases: cases, of: "stories of up to 17 steps",
		input: input,
		differ: func(s story, named *tally) string {
			var told []chapter
			synctest.Test(t, func(*testing.T) { told = s.tell(theirs, nil) })
			ours := func(again replay) (told []chapter) {
				synctest.Test(t, func(*testing.T) { told = s.tell(ours, again) })
				return told
			}
			return s.differ(told, ours, named)
		},
		names:   append([]string{disputed, fewerStatuses, otherTries, lookedUp, readFirst, ownersAsked}, more...),
		reaches: []string{refusals},
	}.run(t)
}

// differ compares the chapters of Kubernetes' controller with those of our controller. If the two sides delete
// different pods, and isDisputed allows this, our controller runs the story again. It then deletes the pods that
// Kubernetes chose, so both sides continue from the same state.
func (s story) differ(theirs []chapter, ours func(again replay) []chapter, named *tally) string {
	var again replay
	for told := ours(nil); ; told = ours(again) {
		i, difference := s.firstDifference(theirs, told)
		switch {
		case difference == nil:
			wasRefused, questions := false, 1
			for i := range theirs {
				if s.Steps[i].Do == "new controller" {
					questions = 1
				}
				wasRefused = wasRefused || theirs[i].refused || told[i].refused
				if d := cmpCalls(theirs[i], told[i], wasRefused, s.Controllers, &questions, named); d != "" {
					return fmt.Sprintf("step %d (%s): %s", i, s.Steps[i].Do, d)
				}
			}
			return ""
		case again[i] != nil || !theirs[i].isDisputed(difference.theirs, difference.ours, s.Controllers):
			return fmt.Sprintf("step %d (%s), victims replayed: %t, look %d:\nKubernetes:\n%s\nours:\n%s", i, s.Steps[i].Do, again[i] != nil, difference.look,
				onlyIn(difference.theirs.text, difference.ours.text), onlyIn(difference.ours.text, difference.theirs.text))
		}
		named.add(disputed)
		if again == nil {
			again = replay{}
		}
		again[i] = theirs[i].taken
	}
}

// A difference contains the first recorded states in which the two sides differ after the same step. The index of
// these states in chapter.seen is in the field look.
type difference struct {
	look         int
	theirs, ours look
}

// firstDifference returns the number of the first chapter in which the two sides differ, and the difference. If a
// call was refused in a chapter, the two sides try again at different times. firstDifference then compares only
// the states one minute after the step.
func (s story) firstDifference(theirs, ours []chapter) (chapter int, found *difference) {
	for i := range theirs {
		from := 0
		if theirs[i].refused || ours[i].refused {
			from = len(theirs[i].seen) - 1
		}
		for j := from; j < len(theirs[i].seen); j++ {
			if a, b := theirs[i].seen[j], ours[i].seen[j]; a.text != b.text {
				return i, &difference{j, a, b}
			}
		}
	}
	return 0, nil
}

// cmpCalls compares how many calls of each verb and resource the two sides made after the same step. It is called
// only if the objects on both sides are the same after this step. If a call was refused after this step or after
// an earlier step, wasRefused is true. The parameter questions is the number of times that our controller may
// still ask the server for its current resourceVersion of owners.
func cmpCalls(theirs, ours chapter, wasRefused, controllers bool, questions *int, named *tally) string {
	refused := theirs.refused || ours.refused
	if refused {
		named.reach(refusals)
	}
	all := maps.Clone(theirs.calls)
	maps.Copy(all, ours.calls)
	for call := range all {
		a, b := theirs.calls[call], ours.calls[call]
		verb, resource, _ := strings.Cut(call, " ")
		onPods := resource == "pods"
		switch {
		case a == b:
		case wasRefused && onPods && (verb == "get" || verb == "list") && b > a:
			named.add(lookedUp)
		case refused && (verb == "patch" || verb == "status" || !onPods && verb == "get"):
			named.add(otherTries)
		case verb == "status" && (b < a || a > 0 && b <= 2*ours.changes): // a change can make a pod ready at once and available 30 seconds later
			named.add(fewerStatuses)
		case !onPods && verb == "get" && b > a && b-a <= ours.calls["delete pods"]:
			named.add(readFirst)
		case !onPods && verb == "get" && b > a && b-a <= ours.calls["delete pods"]+ours.calls["create pods"]:
			named.add(readFirst)
		case !onPods && verb == "list" && b-a == 1 && *questions == 1 && ours.calls["create pods"] > 0:
			*questions = 0
			named.add(ownersAsked)
		case controllers && (verb == "patch" || !onPods && verb == "get") && b < a:
			named.add(adoptedOnce) // the owner is read before an adoption
		default:
			return fmt.Sprintf("calls: %s, refusals: %t: Kubernetes: %d, ours: %d", call, refused, a, b)
		}
	}
	return ""
}

// onlyIn returns the lines of the text a that are not in the text b.
func onlyIn(a, b string) string {
	lines := strings.Split(b, "\n")
	return strings.Join(slices.DeleteFunc(strings.Split(a, "\n"), func(line string) bool { return slices.Contains(lines, line) }), "\n")
}

// isDisputed reports whether the active pods of the two sides differ in a way that is allowed. Each owner must have
// the same number of active pods on both sides. If an owner does not have the same active pods on both sides, the
// result of c.disputes must be true for this owner. The call of c.disputes covers all active pods of the owner, and
// not only the deleted pods. Kubernetes' order can contain cycles, so any pod of the owner may come first.
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

// activeOf returns the names of the active pods that have the labels of a set.
func activeOf(l look, set string) map[string]bool {
	names := map[string]bool{}
	for _, p := range l.pods {
		if controller.IsPodActive(p) && p.Labels["set"] == set {
			names[p.Name] = true
		}
	}
	return names
}

// disputes reports whether the two sides may delete different pods of an owner. It returns true if Kubernetes'
// order and our order differ on two active pods of the owner. It also returns true if two of the active pods are
// equal in Kubernetes' order.
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
