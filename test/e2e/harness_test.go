// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

const (
	// patience is how long a test waits for something that must happen. The machine may be busy with other work.
	// After an outage, a watch may need up to a minute to start again.
	patience = 3 * time.Minute
	glance   = 20 * time.Millisecond
)

// settings are the options of a world. Most tests use the zero value.
type settings struct {
	cluster *cluster // if nil, the shared cluster is used
	burst   int      // if 0, the burst is 500
	options clientgo.Options
	idle    bool // no controllers run until the test calls start
	resends bool // the client resends requests that may have taken effect
	theirs  bool // Kubernetes' own ReplicaSet controller runs instead of ours
	// transform is the transform function of the caches of the controllers.
	transform cache.TransformFunc
}

// A world is a namespace with its controllers. It records the controllers' calls to the server, and everything
// that happens to the pods.
//
// When the test ends, the world checks that each owner never had more active pods at once than its ceiling. The
// ceiling is the largest number of replicas that the test has requested. The method allow raises the ceiling.
type world struct {
	t         *testing.T
	namespace string
	settings  settings
	cluster   *cluster
	client    kubernetes.Interface // the client of the test itself
	seen      informers.SharedInformerFactory
	history   *history
	wire      *wire

	controllers *controllers // the ones made last, unless the test sets others
	ceiling     map[types.UID]int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, settings{})
}

func newWorldWith(t *testing.T, s settings) *world {
	t.Helper()
	w := &world{t: t, settings: s, cluster: s.cluster, history: newHistory(), wire: newWire(), ceiling: map[types.UID]int{}}
	if w.cluster == nil {
		w.cluster = shared
	}
	w.client = w.cluster.client
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	namespace, err := w.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	require.NoError(t, err)
	w.namespace = namespace.Name
	w.watch()
	if !s.idle {
		w.start()
	}
	return w
}

// watch starts the informers of the test itself. It also registers a check for the end of the test. The check fails
// the test if an owner ever had more active pods at once than its number in w.ceiling.
func (w *world) watch() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	w.seen = informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithNamespace(w.namespace))
	registration, err := w.seen.Core().V1().Pods().Informer().AddEventHandler(w.history.handler())
	require.NoError(w.t, err)
	w.seen.Apps().V1().ReplicaSets().Informer()
	w.seen.Core().V1().ReplicationControllers().Informer()
	w.seen.Core().V1().Events().Informer()
	w.seen.StartWithContext(ctx)
	w.t.Cleanup(func() {
		for owner, ceiling := range w.ceiling {
			assert.LessOrEqual(w.t, w.history.mostAtOnce(owner), ceiling, "pods that owner %s had at once", owner)
		}
		cancel()
		w.seen.Shutdown()
	})
	w.seen.WaitForCacheSync(ctx.Done())
	require.True(w.t, cache.WaitForCacheSync(ctx.Done(), registration.HasSynced))
}

// start starts the controllers, and returns a function that stops them. The controllers also stop when the test
// ends.
func (w *world) start() (stop func()) {
	w.t.Helper()
	begin, stop := w.standBy()
	begin()
	return stop
}

// standBy makes controllers and starts their caches, but the controllers do no work yet. The function begin starts
// their work. The function stop stops the controllers and their caches.
func (w *world) standBy() (begin, stop func()) {
	w.t.Helper()
	var log syncBuffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(4)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(w.t.Context()), logger))
	config := rest.CopyConfig(w.cluster.config)
	config.Wrap(w.wire.wrap)
	if !w.settings.resends {
		config.Wrap(clientgo.CapRetryAfter)
	}
	c, err := newControllers(ctx, config, w.namespace, w.settings)
	require.NoError(w.t, err)
	c.factory.StartWithContext(ctx)
	w.controllers = c
	stop = sync.OnceFunc(func() {
		cancel()
		c.wait()
		assert.NotContains(w.t, log.String(), "panic", "the log of the controllers")
		if w.t.Failed() {
			w.t.Log("the log of the controllers ends:\n" + log.tail())
		}
	})
	w.t.Cleanup(stop)
	return func() { c.start(ctx) }, stop
}

// controllers contains one controller for each kind of owner, on the same informers. If settings.theirs is set,
// there is only Kubernetes' ReplicaSet controller.
type controllers struct {
	factory informers.SharedInformerFactory
	each    []runner
	running sync.WaitGroup
}

// A runner is a controller of this project or one of Kubernetes' own.
type runner interface {
	Run(ctx context.Context, workers int)
}

// ours is a controller of this project. Its Run panics if the server was restored from a backup. No test restores
// the server while such a controller runs.
type ours struct{ *clientgo.Controller }

func (c ours) Run(ctx context.Context, workers int) {
	if err := c.Controller.Run(ctx, workers); err != nil {
		panic(err)
	}
}

func newControllers(ctx context.Context, config *rest.Config, namespace string, s settings) (*controllers, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 12*time.Hour, informers.WithNamespace(namespace), informers.WithTransform(s.transform))
	opts, pods := s.options, factory.Core().V1().Pods().Informer()
	opts.BurstReplicas, opts.EventClient = s.burst, client.CoreV1()
	if s.theirs {
		rs := replicaset.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client, replicaset.BurstReplicas)
		return &controllers{factory: factory, each: []runner{rs}}, nil
	}
	rs, err := clientgo.New(ctx, controller.ReplicaSets(), typed.NewClient(client.AppsV1().ReplicaSets, client.CoreV1().Pods),
		factory.Apps().V1().ReplicaSets().Informer(), pods, opts)
	if err != nil {
		return nil, err
	}
	rc, err := clientgo.New(ctx, controller.ReplicationControllers(), typed.NewClient(client.CoreV1().ReplicationControllers, client.CoreV1().Pods),
		factory.Core().V1().ReplicationControllers().Informer(), pods, opts)
	return &controllers{factory: factory, each: []runner{ours{rs}, ours{rc}}}, err
}

func (c *controllers) start(ctx context.Context) {
	c.factory.StartWithContext(ctx)
	for _, controller := range c.each {
		c.running.Go(func() { controller.Run(ctx, clientgo.DefaultWorkers) })
	}
}

func (c *controllers) wait() {
	c.running.Wait()
	c.factory.Shutdown()
}

// eventually waits until all assertions of the condition hold.
func (w *world) eventually(condition func(c *assert.CollectT), what string, args ...any) {
	w.t.Helper()
	require.EventuallyWithTf(w.t, condition, patience, glance, what, args...)
}

// Owners.

// replicaSet returns a ReplicaSet that selects and makes pods with app=NAME.
func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	template := template(labels(name))
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels(name)},
			Template: template,
		},
	}
}

func replicationController(name string, replicas int32) *corev1.ReplicationController {
	template := template(labels(name))
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ReplicationControllerSpec{Replicas: &replicas, Selector: labels(name), Template: &template},
	}
}

func labels(name string) map[string]string { return map[string]string{"app": name} }

func template(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "pause"}}},
	}
}

func (w *world) create(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	w.t.Helper()
	rs, err := w.client.AppsV1().ReplicaSets(w.namespace).Create(w.t.Context(), rs, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.ceiling[rs.UID] = int(*rs.Spec.Replicas)
	return rs
}

func (w *world) createController(rc *corev1.ReplicationController) *corev1.ReplicationController {
	w.t.Helper()
	rc, err := w.client.CoreV1().ReplicationControllers(w.namespace).Create(w.t.Context(), rc, metav1.CreateOptions{})
	require.NoError(w.t, err)
	w.ceiling[rc.UID] = int(*rc.Spec.Replicas)
	return rc
}

// scale sets the number of replicas through the owner's scale subresource.
func (w *world) scale(owner metav1.Object, replicas int32) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	w.patch(owner, patch, "scale")
	w.ceiling[owner.GetUID()] = max(w.ceiling[owner.GetUID()], int(replicas))
}

// touch changes an annotation of the owner, so that the controllers make a pass for the owner.
func (w *world) touch(owner metav1.Object) {
	w.t.Helper()
	w.patch(owner, fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e/touched":"%d"}}}`, time.Now().UnixNano()))
}

// allow raises the owner's ceiling by n, for example because the owner will adopt n pods.
func (w *world) allow(owner metav1.Object, n int) { w.ceiling[owner.GetUID()] += n }

// patch sends a merge patch to an owner or its subresource.
func (w *world) patch(owner metav1.Object, patch []byte, subresources ...string) (generation int64) {
	w.t.Helper()
	client, resource := w.client.AppsV1().RESTClient(), "replicasets"
	if _, ok := owner.(*corev1.ReplicationController); ok {
		client, resource = w.client.CoreV1().RESTClient(), "replicationcontrollers"
	}
	var answer []byte
	w.eventually(func(c *assert.CollectT) { // the server may be restarted during the call
		var err error
		answer, err = client.Patch(types.MergePatchType).Namespace(w.namespace).Resource(resource).Name(owner.GetName()).
			SubResource(subresources...).Body(patch).SetHeader("Accept", "application/json").DoRaw(w.t.Context())
		require.NoError(c, err)
	}, "patching %s", owner.GetName())
	var patched metav1.PartialObjectMetadata
	require.NoError(w.t, json.Unmarshal(answer, &patched))
	return patched.Generation
}

func (w *world) delete(owner metav1.Object, policy metav1.DeletionPropagation) {
	w.t.Helper()
	if policy != metav1.DeletePropagationBackground {
		w.collectorIsFresh()
	}
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	var err error
	if _, ok := owner.(*corev1.ReplicationController); ok {
		err = w.client.CoreV1().ReplicationControllers(w.namespace).Delete(w.t.Context(), owner.GetName(), options)
	} else {
		err = w.client.AppsV1().ReplicaSets(w.namespace).Delete(w.t.Context(), owner.GetName(), options)
	}
	require.NoError(w.t, err)
}

// collectorIsFresh waits until Kubernetes' garbage collector has seen all pods that exist now. If the garbage
// collector has not seen the pods of an owner yet, it acts as if the owner had no pods.
func (w *world) collectorIsFresh() {
	w.t.Helper()
	probe := w.createPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "probe-", Labels: labels("probe"),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "gone", UID: "gone"}},
		},
		Spec: template(nil).Spec,
	})
	w.eventually(func(c *assert.CollectT) {
		_, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), probe.Name, metav1.GetOptions{})
		assert.True(c, apierrors.IsNotFound(err), "%v", err)
	}, "the garbage collector must see the pods")
}

// A report is the status of a ReplicaSet or a ReplicationController, as the test's informers saw it last.
type report struct {
	appsv1.ReplicaSetStatus
	generation int64
	desired    int32
}

// report returns the last report of the owner. If the owner is gone, the result is the zero report, even if
// another owner has the same name now.
func (w *world) report(owner metav1.Object) report {
	key := w.namespace + "/" + owner.GetName()
	if _, ok := owner.(*corev1.ReplicationController); ok {
		obj, _, _ := w.seen.Core().V1().ReplicationControllers().Informer().GetStore().GetByKey(key)
		if rc, ok := obj.(*corev1.ReplicationController); ok && rc.UID == owner.GetUID() {
			return reportOfController(rc)
		}
		return report{}
	}
	obj, _, _ := w.seen.Apps().V1().ReplicaSets().Informer().GetStore().GetByKey(key)
	if rs, ok := obj.(*appsv1.ReplicaSet); ok && rs.UID == owner.GetUID() {
		return report{rs.Status, rs.Generation, *rs.Spec.Replicas}
	}
	return report{}
}

func reportOfController(rc *corev1.ReplicationController) report {
	status := appsv1.ReplicaSetStatus{
		Replicas:             rc.Status.Replicas,
		FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
		ReadyReplicas:        rc.Status.ReadyReplicas,
		AvailableReplicas:    rc.Status.AvailableReplicas,
		ObservedGeneration:   rc.Status.ObservedGeneration,
	}
	for _, c := range rc.Status.Conditions {
		status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status, Reason: c.Reason,
			Message: c.Message, LastTransitionTime: c.LastTransitionTime,
		})
	}
	return report{status, rc.Generation, *rc.Spec.Replicas}
}

// has waits until the owner has n active pods, and until its status reports n replicas for the current generation.
func (w *world) has(owner metav1.Object, n int) []*corev1.Pod {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		r := w.report(owner)
		assert.Len(c, w.active(owner), n, "active pods")
		assert.EqualValues(c, n, r.Replicas, "status.replicas")
		assert.Positive(c, r.ObservedGeneration)
		assert.Equal(c, r.generation, r.ObservedGeneration, "status.observedGeneration")
	}, "%s must have %d pods", owner.GetName(), n)
	return w.active(owner)
}

// hasPods waits until the owner has n active pods. It does not check the owner's status.
func (w *world) hasPods(owner metav1.Object, n int) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		assert.Len(c, w.active(owner), n)
	}, "%s must have %d pods", owner.GetName(), n)
}

// settle waits until the controllers have made a whole pass for the owner. The controllers begin this pass only
// after they have seen everything that was in the namespace when settle was called. If the controllers do not
// write something in this pass, they do not write it in a later pass either, unless an object has changed in the
// meantime. So after settle, a test can immediately check that something does not happen.
func (w *world) settle(owner metav1.Object) {
	w.t.Helper()
	w.cachesAreFresh()
	nudge := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"e2e/nudge":"%d"}}}}}`, time.Now().UnixNano())
	generation := w.patch(owner, nudge)
	w.eventually(func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, w.report(owner).ObservedGeneration, generation)
	}, "a pass for %s", owner.GetName())
	w.cachesAreFresh()
}

// cachesAreFresh waits until the controllers and the test have seen the current state of every pod.
func (w *world) cachesAreFresh() {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		pods, err := w.client.CoreV1().Pods(w.namespace).List(w.t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		live, cached := map[string]string{}, map[string]string{}
		for _, pod := range pods.Items {
			live[pod.Name] = pod.ResourceVersion
		}
		for _, obj := range w.controllers.factory.Core().V1().Pods().Informer().GetStore().List() {
			cached[obj.(*corev1.Pod).Name] = obj.(*corev1.Pod).ResourceVersion
		}
		assert.Equal(c, live, cached)
		assert.Equal(c, live, w.history.versions())
	}, "the caches must be fresh")
}

// Pods.

// orphan returns a pod that has no owner and has the label app=web.
func orphan(name string) *corev1.Pod {
	template := template(labels("web"))
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: template.Labels}, Spec: template.Spec}
}

// ref returns a reference to the owner. If controller is true, the reference says that the owner is the
// controller.
func ref(owner metav1.Object, apiVersion, kind string, controller bool) metav1.OwnerReference {
	r := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}
	if controller {
		r.Controller = &controller
	}
	return r
}

func (w *world) createPod(pod *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return pod
}

// active returns the owner's active pods, sorted by name.
func (w *world) active(owner metav1.Object) []*corev1.Pod {
	return w.history.find(func(pod *corev1.Pod) bool { return ownerOf(pod) == owner.GetUID() && active(pod) })
}

// pod reads the pod from the server.
func (w *world) pod(name string) *corev1.Pod {
	w.t.Helper()
	pod, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return pod
}

// podIs waits until a pod with the name exists and meets the condition. The second argument describes the condition
// in the failure message, for example "released".
func (w *world) podIs(name, what string, is func(*corev1.Pod) bool) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		found := w.history.find(func(pod *corev1.Pod) bool { return pod.Name == name && is(pod) })
		assert.Len(c, found, 1)
	}, "pod %s must be %s", name, what)
}

func ownedBy(owner metav1.Object) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return ownerOf(pod) == owner.GetUID() }
}

func (w *world) patchPod(name, patch string) {
	w.t.Helper()
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

func (w *world) deletePod(name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// bind assigns the pod to the node, as a scheduler does.
func (w *world) bind(pod *corev1.Pod, node string) {
	w.t.Helper()
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node}}
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Bind(w.t.Context(), binding, metav1.CreateOptions{}))
}

// run assigns the pod to the node, and marks the pod as running and as ready since the given time. A scheduler and
// a kubelet do the same.
func (w *world) run(pod *corev1.Pod, node string, ready time.Time) {
	w.t.Helper()
	w.bind(pod, node)
	w.setStatus(pod.Name, func(status *corev1.PodStatus) {
		status.Phase = corev1.PodRunning
		status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(ready),
		}}
	})
}

// runAll runs each pod on a node of its own.
func (w *world) runAll(pods []*corev1.Pod) {
	w.t.Helper()
	ready := time.Now()
	for i, pod := range pods {
		w.run(pod, fmt.Sprintf("node-%d", i), ready)
	}
}

func (w *world) phase(name string, phase corev1.PodPhase) {
	w.t.Helper()
	w.setStatus(name, func(status *corev1.PodStatus) { status.Phase = phase })
}

func (w *world) setStatus(name string, edit func(*corev1.PodStatus)) {
	w.t.Helper()
	pods := w.client.CoreV1().Pods(w.namespace)
	require.NoError(w.t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod := w.pod(name)
		edit(&pod.Status)
		_, err := pods.UpdateStatus(w.t.Context(), pod, metav1.UpdateOptions{})
		return err
	}))
}

// reap deletes the pods without a grace period. A kubelet does this when a terminating pod has ended.
func (w *world) reap(names ...string) {
	w.t.Helper()
	for _, name := range names {
		options := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
		require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, options))
	}
}

// events returns the events about the owner that have the given reason.
func (w *world) events(owner metav1.Object, reason string) []*corev1.Event {
	var found []*corev1.Event
	for _, obj := range w.seen.Core().V1().Events().Informer().GetStore().List() {
		if event := obj.(*corev1.Event); event.InvolvedObject.UID == owner.GetUID() && event.Reason == reason {
			found = append(found, event)
		}
	}
	return found
}

// syncBuffer is a log in memory.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// tail returns the last lines of the log. Long lines are cut.
func (b *syncBuffer) tail() string {
	const lines, width = 100, 300
	all := strings.Split(b.String(), "\n")
	all = all[max(0, len(all)-lines):]
	for i, line := range all {
		all[i] = line[:min(len(line), width)]
	}
	return strings.Join(all, "\n")
}
