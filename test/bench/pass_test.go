// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas/clientgo"
	replicacontroller "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/status"
)

// pass returns Kubernetes' controller and our controller as sides. The work of both sides is a pass with nothing
// to do. Each run changes one pod, and waits until the pass for this change has ended. The change goes through
// the watch, the informer and the queue. Neither side makes a call. Each side has its own informers.
func pass(f fleet) []side {
	f.rs.Spec.Replicas, f.rs.Spec.MinReadySeconds = new(int32(len(f.pods))), 0
	f.rs.ResourceVersion, f.rs.Generation = "1", 1
	for _, p := range f.pods {
		p.ResourceVersion = "1"
	}
	features := replicaset.ReplicaSetControllerFeatures{EnableStatusTerminatingReplicas: true}
	f.rs.Status = calculateStatus(f.rs, f.pods, nil, nil, features, f.now)
	f.rs.Status.ObservedGeneration = f.rs.Generation
	return []side{theirPass(f), ourPass(f)}
}

func theirPass(f fleet) side {
	ctx, stop := context.WithCancel(context.Background())
	w, client := newWatched(f), fake.NewClientset()
	c := replicaset.NewReplicaSetController(ctx, replicaSetInformer{w.owners}, podInformer{w.pods}, client, replicaset.BurstReplicas)
	w.start(ctx)
	done := make(chan struct{}, 1)
	working, rest := context.WithCancel(ctx)
	go func() {
		defer close(done)
		for working.Err() == nil {
			processNextWorkItem(c, ctx)
			done <- struct{}{}
		}
	}()
	<-done
	end := func() {
		rest()
		w.change(0) // wakes the worker if the queue is empty
		for range done {
		}
		stop()
	}
	return side{name: kubernetes, stop: end, run: func(i int) int {
		w.change(i)
		<-done
		return nothingDone(client)
	}}
}

func ourPass(f fleet) side {
	ctx, stop := context.WithCancel(context.Background())
	w, client := newWatched(f), fake.NewClientset()
	kind, done := replicacontroller.ReplicaSets(), make(chan struct{}, 1) // room for one more pass at the end
	kind.Observe = func(context.Context, replicacontroller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) { done <- struct{}{} }
	calls := typed.NewClient(client.AppsV1().ReplicaSets, client.CoreV1().Pods)
	c := must(clientgo.New(ctx, kind, calls, w.owners, w.pods, clientgo.Options{}))
	w.start(ctx)
	go func() { _ = c.Run(ctx, 1) }()
	<-done
	client.ClearActions() // forgets the calls of the first pass, which reads the server's resourceVersion
	return side{name: ours, stop: stop, run: func(i int) int {
		w.change(i)
		<-done
		return nothingDone(client)
	}}
}

// nothingDone returns 1. It panics if there were calls.
func nothingDone(client *fake.Clientset) int {
	if calls := client.Actions(); len(calls) > 0 {
		panic(calls[0])
	}
	return 1
}

// A watched fleet is a fleet with informers that show its objects.
type watched struct {
	fleet
	owners, pods *informer
	events       *watch.FakeWatcher // the watch of the pods
	changes      int                // how often the method change was called
}

func newWatched(f fleet) *watched {
	w := &watched{fleet: f, events: watch.NewFake()}
	pods := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, p := range f.pods {
		pods.Items = append(pods.Items, *p)
	}
	w.owners = newInformer(&appsv1.ReplicaSetList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []appsv1.ReplicaSet{*f.rs}}, watch.NewFake(), &appsv1.ReplicaSet{})
	w.pods = newInformer(pods, w.events, &corev1.Pod{})
	return w
}

// start starts the informers, and waits until their handlers have received all objects.
func (w *watched) start(ctx context.Context) {
	go w.owners.RunWithContext(ctx)
	go w.pods.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), append(w.owners.told, w.pods.told...)...)
}

// change sends a pod with a new resource version. The number of pods and the status stay the same.
func (w *watched) change(i int) {
	p := *w.fleet.pods[i%len(w.fleet.pods)]
	w.changes++
	p.ResourceVersion = strconv.Itoa(w.changes + 1)
	w.events.Modify(&p)
}

// A listWatch lists and watches objects that are in memory.
type listWatch struct{ cache.ListWatch }

// IsWatchListSemanticsUnSupported returns true. So the informer lists the objects, and does not get the existing
// objects from the watch.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// An informer remembers the HasSynced functions of its handlers.
type informer struct {
	cache.SharedIndexInformer
	told []cache.InformerSynced
}

func newInformer(list runtime.Object, events watch.Interface, example runtime.Object) *informer {
	return &informer{SharedIndexInformer: cache.NewSharedIndexInformer(&listWatch{cache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}}, example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	handler, err := i.SharedIndexInformer.AddEventHandler(h)
	i.told = append(i.told, handler.HasSynced)
	return handler, err
}

type replicaSetInformer struct{ *informer }

func (i replicaSetInformer) Informer() cache.SharedIndexInformer { return i.informer }
func (i replicaSetInformer) Lister() appslisters.ReplicaSetLister {
	return appslisters.NewReplicaSetLister(i.GetIndexer())
}

type podInformer struct{ *informer }

func (i podInformer) Informer() cache.SharedIndexInformer { return i.informer }
func (i podInformer) Lister() corelisters.PodLister       { return corelisters.NewPodLister(i.GetIndexer()) }

// podsOfEach is the number of pods of each owner in a city.
const podsOfEach = 10

// A city is many small owners in the stores of two informers, without a server.
type city struct {
	owners, pods *informer
	sets         []*appsv1.ReplicaSet
	all          []*corev1.Pod
	kind         replicacontroller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
	cache        typed.Cache[*appsv1.ReplicaSet, *corev1.Pod]
}

// newCity returns n ready pods and their owners, whose statuses say so already.
func newCity(n int) *city {
	c := &city{
		owners: newInformer(&appsv1.ReplicaSetList{}, watch.NewFake(), &appsv1.ReplicaSet{}),
		pods:   newInformer(&corev1.PodList{}, watch.NewFake(), &corev1.Pod{}),
		kind:   replicacontroller.ReplicaSets(), sets: replicaSets(n / podsOfEach),
	}
	c.cache = must(typed.NewCache(c.kind, c.owners, c.pods))
	for _, rs := range c.sets {
		rs.ResourceVersion, rs.Generation = "1", 1
		rs.Spec = replicaSet(podsOfEach).Spec
		var pods []*corev1.Pod
		for i := range podsOfEach {
			p := podtest.Pod(rs.Name+"-"+strconv.Itoa(i), podtest.OwnedBy(rs, "apps/v1", "ReplicaSet"), podtest.UID(types.UID(string(rs.UID)+strconv.Itoa(i))),
				podtest.Labels(rs.Spec.Template.Labels))
			p.Namespace, p.ResourceVersion = rs.Namespace, "1"
			pods = append(pods, p)
			_ = c.pods.GetIndexer().Add(p)
		}
		c.all = append(c.all, pods...)
		rs.Status = status.Calculate(rs, pods, status.Options{Now: time.Now()})
		_ = c.owners.GetIndexer().Add(rs)
	}
	return c
}

// A noServer is a client whose calls panic.
type noServer struct {
	replicacontroller.Client[*appsv1.ReplicaSet, *corev1.Pod]
}

func (c *city) controller() *replicacontroller.Controller {
	return must(replicacontroller.New(c.kind, noServer{}, c.cache, func(types.NamespacedName, time.Duration) {}, replicacontroller.Options{}))
}

// pass makes a pass for each owner, and returns their number.
func (c *city) pass(controller *replicacontroller.Controller) int {
	for _, rs := range c.sets {
		must(controller.Sync(context.Background(), types.NamespacedName{Namespace: rs.Namespace, Name: rs.Name}))
	}
	return len(c.sets)
}

func eachOwner(n int) []side {
	c := newCity(n)
	controller := c.controller()
	return []side{{name: ours, run: func(int) int { return c.pass(controller) }}}
}

// eachPod handles one event of each pod.
func eachPod(n int) []side {
	c := newCity(n)
	controller := c.controller()
	c.pass(controller)
	return []side{{name: ours, run: func(int) int {
		for _, p := range c.all {
			now := *p
			now.ResourceVersion = "2"
			if err := controller.ChildUpdated(p, &now); err != nil {
				panic(err)
			}
		}
		return len(c.all)
	}}}
}
