// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package servers_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/faults"
	"github.com/replicakit/replicakit/status"
)

// A truth follows the pods of a world in the order of the server, and counts those for which the function counts
// returns true. A shared informer has another order, because it delivers all events of one pod at once.
type truth struct {
	*world
	counts func(*corev1.Pod) bool
	broken func(before, after *corev1.Pod) bool // what no change of a pod may do; may be nil
	tends  bool                                 // whether kubelets make pods ready

	mu           sync.Mutex
	pods         map[types.UID]*corev1.Pod
	tended       map[types.UID]bool // the pods that are not ready yet, and have a kubelet
	now          int
	fewest, most int
	breaks       []string
}

// follow begins to watch. Call it before there are pods.
func (tr *truth) follow() *truth {
	tr.t.Helper()
	tr.pods, tr.tended = map[types.UID]*corev1.Pod{}, map[types.UID]bool{}
	list, err := tr.client.CoreV1().Pods(tr.namespace).List(tr.t.Context(), metav1.ListOptions{})
	require.NoError(tr.t, err)
	require.Empty(tr.t, list.Items)
	watcher, err := toolswatch.NewRetryWatcherWithContext(context.Background(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: tr.client.CoreV1().Pods(tr.namespace).Watch,
	})
	require.NoError(tr.t, err)
	tr.t.Cleanup(watcher.Stop)
	go func() {
		for e := range watcher.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok {
				tr.happens(e.Type, pod)
			}
		}
	}()
	return tr
}

func (tr *truth) happens(event watch.EventType, pod *corev1.Pod) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if was := tr.pods[pod.UID]; was != nil {
		if tr.now -= oneIf(tr.counts(was)); tr.broken != nil && tr.broken(was, pod) {
			tr.breaks = append(tr.breaks, pod.Name)
		}
	}
	delete(tr.pods, pod.UID)
	if event != watch.Deleted {
		tr.pods[pod.UID] = pod
		tr.now += oneIf(tr.counts(pod))
		if tr.tends && !isUp(pod) && !tr.tended[pod.UID] {
			tr.tended[pod.UID] = true
			tr.tend(pod.UID)
		}
	}
	tr.fewest, tr.most = min(tr.fewest, tr.now), max(tr.most, tr.now)
}

// tend is a kubelet, which makes a pod ready some time after it has begun to run, or has got another image.
func (tr *truth) tend(id types.UID) {
	time.AfterFunc(time.Duration(rand.IntN(300))*time.Millisecond, func() { //nolint:gosec // how long it takes
		tr.mu.Lock()
		pod := tr.pods[id]
		isDone := pod == nil || isUp(pod)
		if isDone {
			delete(tr.tended, id)
		}
		tr.mu.Unlock()
		if isDone {
			return
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True"}]}}`, id, pod.Generation)
		_, _ = tr.client.CoreV1().Pods(tr.namespace).Patch(context.Background(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		tr.tend(id)
	})
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// since forgets the extremes until now.
func (tr *truth) since() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.fewest, tr.most = tr.now, tr.now
}

// stayed checks how many pods counted at each moment since the last call of since.
func (tr *truth) stayed(fewest, most int) {
	tr.t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	assert.GreaterOrEqual(tr.t, tr.fewest, fewest)
	assert.LessOrEqual(tr.t, tr.most, most)
	assert.Empty(tr.t, tr.breaks)
}

// until waits until there are n pods for which the function is returns true.
func (tr *truth) until(what string, n int, is func(*corev1.Pod) bool) {
	tr.t.Helper()
	require.Eventually(tr.t, func() bool { return tr.count(is) >= n }, patience, glance/10, "%d %s", n, what)
}

func (tr *truth) count(is func(*corev1.Pod) bool) (n int) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, pod := range tr.pods {
		n += oneIf(is(pod))
	}
	return n
}

func imageOf(pod *corev1.Pod) int {
	n, _ := strconv.Atoi(pod.Spec.Containers[0].Image)
	return n
}

// isUp reports whether a pod is ready with its newest spec.
func isUp(pod *corev1.Pod) bool {
	return status.IsPodReady(pod) && pod.DeletionTimestamp == nil && pod.Status.ObservedGeneration == pod.Generation
}

// inPlace returns a Kind that gives its pods new images in place, a tenth of them at once.
func inPlace() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind, tenth := controller.ReplicaSets(), intstr.FromString("10%")
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.MaxUnavailable, s.Rules.Ready = &tenth, isUp
		s.Update = func(pod *corev1.Pod) (c replicas.Change[*corev1.Pod]) {
			c.To = pod.DeepCopy()
			c.To.Spec.Containers[0].Image = rs.Spec.Template.Spec.Containers[0].Image
			return c
		}
		return s, err
	}
	return kind
}

// A hundred pods get a new image, and then a third one while they get the second. At each moment, ninety of them are ready
// with what their spec says, and no pod gets an older image. A pod is patched about once for each image.
func TestARolloutInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runtimeOf(inPlace()))
	var sent atomic.Int64
	w.before = func(request *http.Request) {
		if request.Method == http.MethodPatch && strings.Contains(request.URL.Path, "/pods/") {
			sent.Add(1)
		}
	}
	tr := (&truth{world: w, counts: isUp, tends: true, broken: func(was, is *corev1.Pod) bool { return imageOf(is) < imageOf(was) }}).follow()
	runs := func(image int) func(*corev1.Pod) bool {
		return func(pod *corev1.Pod) bool { return isUp(pod) && imageOf(pod) == image }
	}
	rollout := func(image, until int) {
		w.patch(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"%d"}]}}}}`, image)
		tr.until(fmt.Sprintf("pods run image %d", image), until, runs(image))
		tr.stayed(90, 100)
	}
	w.start()
	w.create(100)
	tr.until("pods are ready", 100, isUp)
	tr.since()
	rollout(1, 100)
	t.Logf("%d patches for 100 pods", sent.Load())
	assert.LessOrEqual(t, sent.Load(), int64(110))
	rollout(2, 30)
	rollout(3, 100)
	t.Logf("%d patches, with those for the second and the third image", sent.Load())
	assert.LessOrEqual(t, sent.Load(), int64(330))
	w.has(100)
	assert.Len(t, w.ever, 100)
}

// The annotation leave asks a pod to leave. When it has the same value as the annotation left, the pod is deleted.
const leave, left = "example.com/leave", "example.com/left"

func isAsked(pod *corev1.Pod) bool { return pod.Annotations[leave] != "" }

func stays(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !isAsked(pod) }

// isDraining reports whether a pod is asked to leave, and nobody has deleted it. A process that dies while it deletes a pod
// without a node may leave a pod with a deletionTimestamp, and no other program is there that would remove it.
func isDraining(pod *corev1.Pod) bool { return isAsked(pod) && pod.DeletionTimestamp == nil }

// retiring returns a Kind whose pods are asked to leave.
func retiring() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.Retire = func(pod *corev1.Pod, leaves bool) (c replicas.Change[*corev1.Pod]) {
			c.To = pod.DeepCopy()
			if delete(c.To.Annotations, leave); leaves {
				metav1.SetMetaDataAnnotation(&c.To.ObjectMeta, leave, pod.ResourceVersion)
			}
			return c
		}
		s.Rules.Leaving = isAsked
		s.Rules.Discard = func(pod *corev1.Pod) bool { return isAsked(pod) && pod.Annotations[left] == pod.Annotations[leave] }
		return s, err
	}
	return kind
}

// leave lets the ten pods leave that are asked to.
func (tr *truth) leave() {
	tr.t.Helper()
	pods, err := tr.client.CoreV1().Pods(tr.namespace).List(tr.t.Context(), metav1.ListOptions{})
	require.NoError(tr.t, err)
	n := 0
	for _, pod := range pods.Items {
		if !isDraining(&pod) {
			continue
		}
		n++
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, pod.UID, left, pod.Annotations[leave])
		_, err := tr.client.CoreV1().Pods(tr.namespace).Patch(tr.t.Context(), pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		require.NoError(tr.t, err)
	}
	require.Equal(tr.t, 10, n)
}

var (
	operator  = flag.String("operator", "", "a kubeconfig: run the operator of TestMarksOfAProcessThatIsKilled, and no test")
	namespace = flag.String("namespace", "", "the namespace of the operator")
)

// operate is the process that TestMarksOfAProcessThatIsKilled kills. It makes few calls in a second, so that it dies
// between two of them.
func operate() int {
	config, err := clientcmd.BuildConfigFromFlags("", *operator)
	if err == nil {
		config.QPS, config.Burst = 50, 1
		err = runtimeOf(retiring())(context.Background(), config, *namespace)
	}
	fmt.Fprintln(os.Stderr, "operator:", err)
	return 1
}

// Twenty pods, of which ten are asked to leave, wanted again, asked again and deleted. A process is killed in the middle
// of each of these steps, and the next one goes on. It asks no other pods, and makes none in the place of those that it can
// take back.
func TestMarksOfAProcessThatIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	user, err := shared.AddUser("operator", "system:masters")
	require.NoError(t, err)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, user, 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	var process *controlplane.Program
	start := func() {
		process, err = controlplane.StartProgram("operator", filepath.Join(t.TempDir(), "log"), self, "-operator="+kubeconfig, "-namespace="+w.namespace)
		require.NoError(t, err)
	}
	restart := func() {
		require.NoError(t, process.Signal(syscall.SIGKILL))
		<-process.Ended()
		start()
	}
	start()
	t.Cleanup(func() { _ = process.Signal(syscall.SIGKILL) })
	tr := (&truth{world: w, counts: stays}).follow()
	w.create(20)
	w.has(20)
	for round := range 3 {
		tr.since()
		w.scale(10)
		tr.until("pods are asked to leave", 1+rand.IntN(9), isDraining) //nolint:gosec // when the process dies
		restart()
		w.has(10)
		tr.until("pods are asked to leave", 10, isDraining)
		w.scale(20)
		tr.until("pods stay", 11+rand.IntN(9), stays) //nolint:gosec // when the process dies
		restart()
		w.has(20)
		w.scale(10)
		w.has(10)
		tr.leave()
		require.Eventually(t, func() bool { return tr.count(isDraining) < 10 }, patience, glance/10)
		restart()
		require.Eventually(t, func() bool { return tr.count(isDraining) == 0 }, patience, glance)
		w.has(10)
		tr.stayed(10, 20)
		w.mu.Lock()
		assert.Len(t, w.ever, 20+10*round)
		w.mu.Unlock()
		w.scale(20)
		w.has(20)
	}
}

// Ten of twenty pods are asked to leave and wanted again, sometimes before the caches show it, and a fifth of all patches
// have no answer. All twenty are still there. When ten are asked to leave at last, and have left, the other ten are.
func TestMarksWithinTheLagOfTheCache(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runtimeOf(retiring()))
	w.faults.Rules = []faults.Rule{
		{Verb: "watch", Resource: "replicasets", Fault: faults.WatchLate, Delay: 700 * time.Millisecond},
		{Verb: "watch", Resource: "pods", Fault: faults.WatchLate, Delay: 500 * time.Millisecond},
		{Verb: "patch", Resource: "pods", Share: 0.2, Fault: faults.LoseAnswer},
	}
	var marks atomic.Int64
	tr := (&truth{world: w, counts: stays, broken: func(was, is *corev1.Pod) bool {
		marks.Add(int64(oneIf(isAsked(is) && !isAsked(was))))
		return false
	}}).follow()
	w.start()
	w.create(20)
	w.has(20)
	tr.since()
	for round := range 8 {
		before, n := marks.Load(), round%4
		w.scale(10)
		if n > 0 { // otherwise at once
			tr.until("pods are asked to leave", 3*n, isAsked)
		}
		w.scale(20)
		if w.has(20); n == 0 {
			assert.Equal(t, before, marks.Load(), "the owner is read before pods are asked to leave")
		}
	}
	w.scale(10)
	w.has(10)
	tr.leave()
	require.Eventually(t, func() bool { return tr.count(isAsked) == 0 }, patience, glance)
	w.has(10)
	tr.stayed(10, 20)
	assert.Len(t, w.ever, 20)
	lost := 0
	for _, c := range w.faults.Calls() {
		lost += len(c.Faults)
	}
	assert.Positive(t, lost)
}

// grouped returns a Kind whose groups and their numbers are an annotation of the template, such as "gpu=3 cpu=1".
func grouped() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := replicas.ReplicaSetSpec(rs)
		s.Replicas, s.Template = 0, nil
		s.GroupOf = groupOf
		for word := range strings.FieldsSeq(rs.Spec.Template.Annotations["groups"]) {
			name, number, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(number)
			s.Groups = append(s.Groups, replicas.Group[*corev1.Pod]{
				Name: name, Replicas: int32(n), //nolint:gosec // small
				New: func(string) (*corev1.Pod, error) {
					pod, err := replicas.PodFromTemplate(&rs.Spec.Template, rs, kind.Owner)
					if err == nil {
						pod.Labels["group"] = name
					}
					return pod, err
				},
			})
		}
		return s, err
	}
	return kind
}

func groupOf(pod *corev1.Pod) string { return pod.Labels["group"] }

// Three groups, whose names begin with each other, are scaled in opposite directions at once, while answers are lost and the
// cache is late. At no moment has a group more pods or fewer than the numbers between which it is scaled, and in the end it
// has exactly as many as it wants.
func TestGroupsInOppositeDirections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, runtimeOf(grouped()))
	w.faults.Rules = []faults.Rule{
		{Verb: "watch", Resource: "pods", Fault: faults.WatchLate, Delay: 300 * time.Millisecond},
		{Verb: "create", Resource: "pods", Share: 0.1, Fault: faults.LoseAnswer},
		{Verb: "delete", Resource: "pods", Share: 0.1, Fault: faults.LoseAnswer},
	}
	names := []string{"gpu", "gpu-big", "cpu"}
	truths := map[string]*truth{}
	for _, name := range names {
		truths[name] = (&truth{world: w, counts: func(pod *corev1.Pod) bool { return groupOf(pod) == name && pod.DeletionTimestamp == nil }}).follow()
	}
	scale := func(numbers ...int) {
		var groups []string
		for i, n := range numbers {
			groups = append(groups, fmt.Sprintf("%s=%d", names[i], n))
		}
		w.patch(`{"spec":{"template":{"metadata":{"annotations":{"groups":%q}}}}}`, strings.Join(groups, " "))
		for i, n := range numbers {
			tr := truths[names[i]]
			require.Eventually(t, func() bool { return tr.count(tr.counts) == n }, patience, glance, "%s: want %d", names[i], n)
		}
	}
	w.start()
	w.create(0)
	is := []int{10, 40, 20}
	scale(is...)
	for _, next := range [][]int{{40, 5, 20}, {3, 30, 20}, {25, 1, 20}, {0, 30, 20}} {
		for _, tr := range truths {
			tr.since()
		}
		scale(next...)
		for i, name := range names {
			truths[name].stayed(min(is[i], next[i]), max(is[i], next[i]))
		}
		is = next
	}
	scale(0, 30) // cpu is not listed any more
	require.Eventually(t, func() bool { return truths["cpu"].count(truths["cpu"].counts) == 0 }, patience, glance)
	w.mu.Lock()
	defer w.mu.Unlock()
	assert.Len(t, w.ever, 10+40+20+30+25+22+29, "each pod was made once")
}
