// Package replicaset stands where k8s.io/kubernetes/pkg/controller/replicaset
// does: the unit tests of that package run in it. The controller is put together
// from the public parts of package replicas, so that the tests can take its pieces
// out and put fakes in.
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
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/test/kubernetes/unit/controller"
)

// BurstReplicas is ours.
const BurstReplicas = replicas.DefaultBurstReplicas

// A ReplicaSetController is our Reconciler and Router with a work queue.
type ReplicaSetController struct {
	podControl      controller.PodControlInterface
	syncHandler     func(ctx context.Context, key string) error
	expectations    *controller.UIDTrackingControllerExpectations
	rsLister        appslisters.ReplicaSetLister
	rsListerSynced  cache.InformerSynced
	podListerSynced cache.InformerSynced
	queue           workqueue.TypedRateLimitingInterface[string]

	burst      int
	pods       corelisters.PodLister
	reconciler *replicas.Reconciler
	router     *replicas.Router
	reporter   replicas.ReplicaSetReporter
	known      map[types.NamespacedName]types.UID // of the last owner of that name
}

// NewReplicaSetController puts the parts together.
func NewReplicaSetController(ctx context.Context, rsInformer appsinformers.ReplicaSetInformer, podInformer coreinformers.PodInformer, client clientset.Interface, burstReplicas int) *ReplicaSetController {
	owners := typedClient{client.AppsV1().ReplicaSets}
	rsc := &ReplicaSetController{
		expectations:    controller.NewUIDTrackingControllerExpectations(nil),
		rsLister:        rsInformer.Lister(),
		rsListerSynced:  rsInformer.Informer().HasSynced,
		podListerSynced: podInformer.Informer().HasSynced,
		queue:           workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		burst:           burstReplicas,
		pods:            podInformer.Lister(),
		reporter:        replicas.ReplicaSetReporter{Client: owners},
		known:           map[types.NamespacedName]types.UID{},
	}
	rsc.syncHandler = rsc.syncReplicaSet
	rsc.expectations.Key = rsc.key
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	rsc.reconciler = &replicas.Reconciler{
		Kind:         kind,
		Pods:         podControl{rsc},
		Expectations: &rsc.expectations.Ours.Store,
		Owners:       owners,
		Related: func(ctx context.Context, owner metav1.Object) ([]*corev1.Pod, error) {
			return rsc.related(owner), nil
		},
	}
	rsc.router = &replicas.Router{
		Kind:         kind,
		Owner:        rsc.owner,
		OwnersIn:     rsc.ownersIn,
		Spec:         rsc.spec,
		Expectations: &rsc.expectations.Ours.Store,
		Forget:       rsc.reconciler.Forget,
		Wake: func(owner types.NamespacedName, after time.Duration) {
			rsc.queue.AddAfter(cache.NewObjectName(owner.Namespace, owner.Name).String(), after)
		},
	}
	rsc.attach(ctx, rsInformer.Informer(), podInformer.Informer())
	return rsc
}

// attach feeds the router.
func (rsc *ReplicaSetController) attach(ctx context.Context, owners, pods cache.SharedInformer) {
	logger := klog.FromContext(ctx)
	for informer, handler := range map[cache.SharedInformer]cache.ResourceEventHandlerFuncs{
		owners: {
			AddFunc:    func(obj any) { ignore(rsc.router.OwnerAdded(obj)) },
			UpdateFunc: func(old, cur any) { ignore(rsc.router.OwnerUpdated(old, cur)) },
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

// ignore takes the errors that no test causes.
func ignore(err error) {
	if err != nil {
		panic(fmt.Sprintf("replicaset: %v", err))
	}
}

func (rsc *ReplicaSetController) addPod(_ klog.Logger, obj any) {
	ignore(rsc.router.PodAdded(namedIn(obj)))
}

func (rsc *ReplicaSetController) updatePod(_ klog.Logger, old, cur any) {
	ignore(rsc.router.PodUpdated(namedIn(old), namedIn(cur)))
}

func (rsc *ReplicaSetController) deletePod(_ klog.Logger, obj any) {
	ignore(rsc.router.PodDeleted(namedIn(obj)))
}

func (rsc *ReplicaSetController) deleteRS(_ klog.Logger, obj any) {
	ignore(rsc.router.OwnerDeleted(obj))
}

func (rsc *ReplicaSetController) enqueueRS(rs *appsv1.ReplicaSet) {
	rsc.queue.Add(cache.MetaObjectToName(rs).String())
}

// key makes our key of a test's: with the UID of the owner of that name.
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

func (rsc *ReplicaSetController) owner(namespace, name string) (metav1.Object, bool) {
	rs, err := rsc.rsLister.ReplicaSets(namespace).Get(name)
	return rs, err == nil
}

func (rsc *ReplicaSetController) ownersIn(namespace string) []metav1.Object {
	sets, err := rsc.rsLister.ReplicaSets(namespace).List(labels.Everything())
	ignore(err)
	owners := make([]metav1.Object, len(sets))
	for i, rs := range sets {
		owners[i] = rs
	}
	return owners
}

func (rsc *ReplicaSetController) spec(owner metav1.Object) (replicas.Spec, error) {
	rs, ok := owner.(*appsv1.ReplicaSet)
	if !ok {
		return replicas.Spec{}, fmt.Errorf("replicaset: %T is none", owner)
	}
	return replicas.ReplicaSetSpec(stored(rs))
}

// selectorOf is the selector of a ReplicaSet.
func selectorOf(owner metav1.Object) (labels.Selector, error) {
	rs, ok := owner.(*appsv1.ReplicaSet)
	if !ok {
		return nil, fmt.Errorf("replicaset: %T is none", owner)
	}
	return selector.ForReplicaSet(rs)
}

// related is our Related over everything in the caches.
func (rsc *ReplicaSetController) related(owner metav1.Object) []*corev1.Pod {
	pods, err := rsc.podsIn(metav1.NamespaceAll, labels.Everything())
	ignore(err)
	return replicas.Related(owner, rsc.ownersIn(metav1.NamespaceAll), selectorOf, pods)
}

// getIndirectlyRelatedPods is our Related.
func (rsc *ReplicaSetController) getIndirectlyRelatedPods(_ klog.Logger, rs *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return rsc.related(rs), nil
}

// getReplicaSetsWithSameController is our Related: of pods, one of each ReplicaSet,
// it names the siblings'.
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
	for _, pod := range replicas.Related(rs, owners, selectorOf, pods) {
		sibling, err := rsc.rsLister.ReplicaSets(pod.Namespace).Get(pod.Name)
		ignore(err)
		siblings = append(siblings, sibling)
	}
	return siblings
}

// getPodReplicaSets is our Owners over those of the pod's namespace.
func (rsc *ReplicaSetController) getPodReplicaSets(pod *corev1.Pod) []*appsv1.ReplicaSet {
	sets, err := rsc.rsLister.ReplicaSets(pod.Namespace).List(labels.Everything())
	ignore(err)
	return selector.Owners(pod, sets, selector.ForReplicaSet)
}

// syncReplicaSet makes one pass.
func (rsc *ReplicaSetController) syncReplicaSet(ctx context.Context, name string) error {
	key := rsc.key(name)
	rs, err := rsc.rsLister.ReplicaSets(key.Namespace).Get(key.Name)
	if err != nil {
		rsc.reconciler.Forget(expectations.Key{NamespacedName: key.NamespacedName})
		return nil
	}
	spec, err := rsc.spec(rs)
	if err != nil {
		return err
	}
	spec.BurstReplicas = rsc.burst
	result, err := rsc.reconciler.Reconcile(ctx, spec, func(context.Context) ([]*corev1.Pod, error) {
		return rsc.podsIn(rs.Namespace, labels.Everything())
	})
	result, err = rsc.reporter.Report(ctx, rs, result, err)
	if result.RequeueAfter > 0 {
		rsc.queue.AddAfter(name, result.RequeueAfter)
	}
	return err
}

// processNextWorkItem works on the next owner and reports whether there was one.
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

// Run works until ctx ends.
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
