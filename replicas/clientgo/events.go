package clientgo

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
)

// The handlers log events as pkg/controller/replicaset does, and hand them to
// the router. Nothing is looked up for a line that nobody reads.

func (c *Controller) podHandler(ctx context.Context) cache.ResourceEventHandler {
	debug := klog.FromContext(ctx).V(4)
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if debug.Enabled() {
				c.logPodAdded(debug, obj)
			}
			c.routed(ctx, c.router.PodAdded(obj))
		},
		UpdateFunc: func(old, cur any) {
			if debug.Enabled() {
				c.logPodUpdated(debug, old, cur)
			}
			c.logPodReady(klog.FromContext(ctx).V(2), old, cur)
			c.routed(ctx, c.router.PodUpdated(old, cur))
		},
		DeleteFunc: func(obj any) {
			if debug.Enabled() {
				c.logPodDeleted(debug, obj)
			}
			c.routed(ctx, c.router.PodDeleted(obj))
		},
	}
}

func (c *Controller) ownerHandler(ctx context.Context) cache.ResourceEventHandler {
	debug := klog.FromContext(ctx).V(4)
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			logOwner(debug, "Adding", obj)
			c.routed(ctx, c.router.OwnerAdded(obj))
		},
		UpdateFunc: func(old, cur any) {
			if debug.Enabled() {
				c.logOwnerUpdated(debug, old, cur)
			}
			c.routed(ctx, c.router.OwnerUpdated(old, cur))
		},
		DeleteFunc: func(obj any) {
			logOwner(debug, "Deleting", inTombstone(obj))
			c.routed(ctx, c.router.OwnerDeleted(obj))
		},
	}
}

// routed reports an event that the router could not make sense of.
func (c *Controller) routed(ctx context.Context, err error) {
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Ignoring an event", "kind", c.kind.Kind)
	}
}

func (c *Controller) logPodAdded(logger klog.Logger, obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	if pod.DeletionTimestamp != nil {
		c.logPodDeleted(logger, pod)
		return
	}
	if subject := c.subject(pod); subject != "" {
		logger.Info(subject+" created", "pod", klog.KObj(pod), "detail", pod)
	}
}

func (c *Controller) logPodUpdated(logger klog.Logger, oldObj, curObj any) {
	old, oldOK := oldObj.(*corev1.Pod)
	cur, curOK := curObj.(*corev1.Pod)
	if !oldOK || !curOK || old.ResourceVersion == cur.ResourceVersion {
		return
	}
	if cur.DeletionTimestamp != nil {
		c.logPodDeleted(logger, cur)
		return
	}
	if subject := c.subject(cur); subject != "" {
		logger.Info(subject+" objectMeta updated.", "pod", klog.KObj(old), "oldObjectMeta", old.ObjectMeta, "curObjectMeta", cur.ObjectMeta)
	}
}

func (c *Controller) logPodDeleted(logger klog.Logger, obj any) {
	pod, ok := inTombstone(obj).(*corev1.Pod)
	if !ok || c.ownerOf(pod) == nil {
		return
	}
	var deletionTimestamp any // a nil *metav1.Time cannot be printed
	if pod.DeletionTimestamp != nil {
		deletionTimestamp = pod.DeletionTimestamp
	}
	logger.Info("Pod deleted", "deletion_timestamp", deletionTimestamp, "pod", klog.KObj(pod))
}

// logPodReady tells of the look at a pod that just became ready, when it may be
// available (M6).
func (c *Controller) logPodReady(logger klog.Logger, oldObj, curObj any) {
	old, oldOK := oldObj.(*corev1.Pod)
	cur, curOK := curObj.(*corev1.Pod)
	if !logger.Enabled() || !oldOK || !curOK || status.IsPodReady(old) || !status.IsPodReady(cur) {
		return
	}
	owner := c.ownerOf(cur)
	if owner == nil {
		return
	}
	if spec, err := c.spec(owner); err == nil && spec.MinReadySeconds > 0 {
		logger.Info("pod will be enqueued after a while for availability check", "duration", spec.MinReadySeconds, "kind", c.kind.Kind, "pod", klog.KObj(old))
	}
}

func logOwner(logger klog.Logger, event string, obj any) {
	if owner, ok := obj.(metav1.Object); ok {
		logger.Info(event, "replicaSet", klog.KObj(owner))
	}
}

func (c *Controller) logOwnerUpdated(logger klog.Logger, oldObj, curObj any) {
	old, oldOK := oldObj.(metav1.Object)
	cur, curOK := curObj.(metav1.Object)
	if !oldOK || !curOK {
		return
	}
	was, wasErr := c.spec(old)
	is, isErr := c.spec(cur)
	if wasErr == nil && isErr == nil && was.Replicas != is.Replicas {
		logger.Info("replicaSet updated. Desired pod count change.", "replicaSet", klog.KObj(old), "oldReplicas", was.Replicas, "newReplicas", is.Replicas)
	}
}

// subject is what a log line calls a pod that an owner of this kind has or could
// adopt; "" for others.
func (c *Controller) subject(pod *corev1.Pod) string {
	switch {
	case c.ownerOf(pod) != nil:
		return "Pod"
	case len(selector.Owners(pod, c.ownersIn(pod.Namespace), c.selectorOf)) > 0:
		return "Orphan Pod"
	}
	return ""
}

// ownerOf returns the owner of this kind that the pod has, nil if none.
func (c *Controller) ownerOf(pod *corev1.Pod) metav1.Object {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != c.kind.Kind {
		return nil
	}
	owner, ok := c.owner(pod.Namespace, ref.Name)
	if !ok || owner.GetUID() != ref.UID {
		return nil
	}
	return owner
}

func inTombstone(obj any) any {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return obj
}
