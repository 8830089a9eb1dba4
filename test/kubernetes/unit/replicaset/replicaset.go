// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicaset replaces k8s.io/kubernetes/pkg/controller/replicaset. The unit tests of the replaced
// package run in this package. Our controller uses the fake clients and caches of the tests.
package replicaset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	kit "github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/test/kubernetes/unit/controller"
)

// BurstReplicas is the default burst limit of our package replicas.
const BurstReplicas = replicas.DefaultBurstReplicas

// A ReplicaSetController is our controller for ReplicaSets, with a work queue.
type ReplicaSetController struct {
	podControl      controller.PodControlInterface
	syncHandler     func(ctx context.Context, key string) error
	expectations    *controller.UIDTrackingControllerExpectations
	rsLister        appslisters.ReplicaSetLister
	rsListerSynced  cache.InformerSynced
	podListerSynced cache.InformerSynced
	queue           workqueue.TypedRateLimitingInterface[string]

	pods   corelisters.PodLister
	ours   *kit.Controller
	record record
	known  map[types.NamespacedName]types.UID // maps the name of an owner to the UID of the last owner with that name
	names  map[types.NamespacedName]string    // maps the pod names in the tests to the names that our controller expects
	went   sets.Set[types.UID]                // UIDs of the pods that events have reported as deleted
}

// NewReplicaSetController connects our controller with the work queue and the informers.
func NewReplicaSetController(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, clients clientset.Interface, burstReplicas int) *ReplicaSetController {
	rsc := &ReplicaSetController{
		rsLister:        rsInformer.Lister(),
		rsListerSynced:  rsInformer.Informer().HasSynced,
		podListerSynced: podInformer.Informer().HasSynced,
		queue:           workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		pods:            podInformer.Lister(),
		known:           map[types.NamespacedName]types.UID{},
		names:           map[types.NamespacedName]string{},
		went:            sets.New[types.UID](),
	}
	rsc.syncHandler = rsc.syncReplicaSet
	kind := kit.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := replicas.ReplicaSetSpec(stored(rs))
		spec.BurstReplicas = burstReplicas
		return spec, err
	}
	ours, err := kit.New(kind, setClient(client{rsc, clientOf(clients.AppsV1().ReplicaSets)}), listers{rsc}, rsc.enqueue, kit.Options{})
	ignore(err)
	rsc.ours, rsc.record = ours, record{rsc}
	rsc.expectations = &controller.UIDTrackingControllerExpectations{Ours: rsc.record, Key: rsc.key}
	rsc.attach(ctx, rsInformer.Informer(), podInformer.Informer())
	return rsc
}

func (rsc *ReplicaSetController) enqueue(owner types.NamespacedName, after time.Duration) {
	rsc.queue.AddAfter(cache.NewObjectName(owner.Namespace, owner.Name).String(), after)
}

// attach registers event handlers that pass the events to our controller.
func (rsc *ReplicaSetController) attach(ctx context.Context, owners, pods cache.SharedInformer) {
	logger := klog.FromContext(ctx)
	for informer, handler := range map[cache.SharedInformer]cache.ResourceEventHandlerFuncs{
		owners: {
			AddFunc:    func(obj any) { ignore(rsc.ours.OwnerAdded(obj)) },
			UpdateFunc: func(old, cur any) { ignore(rsc.ours.OwnerUpdated(old, cur)) },
			DeleteFunc: func(obj any) { rsc.deleteRS(logger, obj) },
		},
		pods: {
			AddFunc:    func(obj any) { rsc.addPod(logger, obj) },
			UpdateFunc: func(old, cur any) { rsc.updatePod(logger, old, cur) },
			DeleteFunc: func(obj any) { rsc.deletePod(logger, obj) },
		},
	} {
		_, err := informer.AddEventHandler(handler)
		ignore(err)
	}
}

// The function ignore causes a panic if err is not nil. In the tests, err is always nil.
func ignore(err error) {
	if err != nil {
		panic(fmt.Sprintf("replicaset: %v", err))
	}
}

func (rsc *ReplicaSetController) addPod(_ klog.Logger, obj any) {
	pod := rsc.added(obj)
	if p, ok := pod.(*corev1.Pod); ok && p.DeletionTimestamp != nil {
		rsc.went.Insert(p.UID)
	}
	ignore(rsc.ours.ChildAdded(pod))
}

func (rsc *ReplicaSetController) updatePod(_ klog.Logger, old, cur any) {
	was, is := rsc.namedIn(old), rsc.namedIn(cur)
	former, _ := was.(*corev1.Pod)
	if p, ok := is.(*corev1.Pod); ok {
		if former != nil && former.ResourceVersion != p.ResourceVersion {
			former.ResourceVersion = "0" // TestDeletionTimestamp decreases the resourceVersion from 2 to 1, which no server does
		}
		if p.DeletionTimestamp != nil {
			rsc.went.Insert(p.UID)
		}
	}
	ignore(rsc.ours.ChildUpdated(was, is))
}

func (rsc *ReplicaSetController) deletePod(_ klog.Logger, obj any) {
	pod := rsc.namedIn(obj)
	if p, ok := pod.(*corev1.Pod); ok {
		rsc.went.Insert(p.UID)
	}
	ignore(rsc.ours.ChildDeleted(pod))
}

func (rsc *ReplicaSetController) deleteRS(_ klog.Logger, obj any) {
	ignore(rsc.ours.OwnerDeleted(obj))
}

func (rsc *ReplicaSetController) enqueueRS(rs *appsv1.ReplicaSet) {
	rsc.queue.Add(cache.MetaObjectToName(rs).String())
}

// key converts a key of the tests into our expectations.Key. The result contains the UID of the last owner
// with this name.
func (rsc *ReplicaSetController) key(name string) expectations.Key {
	namespace, name, err := cache.SplitMetaNamespaceKey(name)
	ignore(err)
	key := expectations.Key{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
	if rs, err := rsc.rsLister.ReplicaSets(namespace).Get(name); err == nil {
		rsc.known[key.NamespacedName] = rs.UID
	}
	key.UID = rsc.known[key.NamespacedName]
	return key
}

// ownersIn returns the ReplicaSets in a namespace.
func (rsc *ReplicaSetController) ownersIn(namespace string) []*appsv1.ReplicaSet {
	found, err := rsc.rsLister.ReplicaSets(namespace).List(labels.Everything())
	ignore(err)
	owners := make([]*appsv1.ReplicaSet, len(found))
	for i, rs := range found {
		owners[i] = stored(rs)
	}
	return owners
}

// related calls our replicas.Related with all ReplicaSets and pods in the caches.
func (rsc *ReplicaSetController) related(rs *appsv1.ReplicaSet) []*corev1.Pod {
	pods, err := rsc.podsIn(metav1.NamespaceAll, labels.Everything())
	ignore(err)
	return replicas.Related(rs, rsc.ownersIn(metav1.NamespaceAll), selector.ForReplicaSet, pods)
}

// getIndirectlyRelatedPods returns the result of our replicas.Related.
func (rsc *ReplicaSetController) getIndirectlyRelatedPods(_ klog.Logger, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return rsc.related(rs), nil
}

// getReplicaSetsWithSameController calls our replicas.Related with one made-up pod for each ReplicaSet. The
// result contains the ReplicaSets of the pods that Related returns.
func (rsc *ReplicaSetController) getReplicaSetsWithSameController(_ klog.Logger, rs *appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	owners := rsc.ownersIn(metav1.NamespaceAll)
	pods := make([]*corev1.Pod, len(owners))
	for i, owner := range owners {
		ref := metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: owner.GetName(), Namespace: owner.GetNamespace(), OwnerReferences: []metav1.OwnerReference{*ref},
		}}
	}
	var siblings []*appsv1.ReplicaSet
	for _, pod := range replicas.Related(rs, owners, selector.ForReplicaSet, pods) {
		sibling, err := rsc.rsLister.ReplicaSets(pod.Namespace).Get(pod.Name)
		ignore(err)
		siblings = append(siblings, sibling)
	}
	return siblings
}

// getPodReplicaSets calls our selector.Owners with the ReplicaSets in the pod's namespace.
func (rsc *ReplicaSetController) getPodReplicaSets(pod *corev1.Pod) []*appsv1.ReplicaSet {
	found, err := rsc.rsLister.ReplicaSets(pod.Namespace).List(labels.Everything())
	ignore(err)
	return selector.Owners(pod, found, selector.ForReplicaSet)
}

// syncReplicaSet makes one pass.
func (rsc *ReplicaSetController) syncReplicaSet(ctx context.Context, name string) error {
	after, err := rsc.ours.Sync(ctx, rsc.key(name).NamespacedName)
	if after > 0 {
		rsc.queue.AddAfter(name, after)
	}
	return err
}

// processNextWorkItem makes a pass for the next key in the queue. It returns false if the queue has been shut
// down.
func (rsc *ReplicaSetController) processNextWorkItem(ctx context.Context) bool {
	key, shutdown := rsc.queue.Get()
	if shutdown {
		return false
	}
	defer rsc.queue.Done(key)
	if err := rsc.syncHandler(ctx, key); err != nil {
		rsc.queue.AddRateLimited(key)
		return true
	}
	rsc.queue.Forget(key)
	return true
}

func (rsc *ReplicaSetController) worker(ctx context.Context) {
	for rsc.processNextWorkItem(ctx) {
	}
}

// Run runs the workers until ctx ends.
func (rsc *ReplicaSetController) Run(ctx context.Context, workers int) {
	defer rsc.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), rsc.podListerSynced, rsc.rsListerSynced) {
		return
	}
	for range workers {
		go rsc.worker(ctx)
	}
	<-ctx.Done()
}
