package clientgo

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// PodControl makes the calls of a replicas.Reconciler with a client-go client,
// such as kubernetes.Interface.CoreV1(). Errors are the client's own. It is safe
// for concurrent use.
type PodControl struct{ Client typedcorev1.PodsGetter }

var _ replicas.PodControl = PodControl{}

// CreatePod creates the pod in the namespace.
func (c PodControl) CreatePod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	created, err := c.Client.Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() {
		logger.Info("Controller created pod", "controller", controllerName(pod), "pod", klog.KObj(created))
	}
	return created, nil
}

// DeletePod deletes the pod. The resourceVersion that it returns is always "":
// typed clients do not tell, and the deletion is known by its UID.
func (c PodControl) DeletePod(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) (string, error) {
	logger := klog.FromContext(ctx)
	if logger := logger.V(2); logger.Enabled() {
		logger.Info("Deleting pod", "controller", controllerName(pod), "pod", klog.KObj(pod))
	}
	err := c.Client.Pods(pod.Namespace).Delete(ctx, pod.Name, opts)
	if apierrors.IsNotFound(err) {
		logger.V(4).Info("Pod has already been deleted.", "pod", klog.KObj(pod))
	}
	return "", err
}

// PatchPod patches the pod with the patch's own content type.
func (c PodControl) PatchPod(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	return c.Client.Pods(pod.Namespace).Patch(ctx, pod.Name, patch.Type, patch.Data, metav1.PatchOptions{})
}

// GetPod reads the pod from the API server.
func (c PodControl) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return c.Client.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// pageSize is how many pods one call of a live list returns at most.
const pageSize = 500

// ListPods lists the pods from the API server, in pages of 500 of one version. If
// the version is too old for the next page, that is an error.
func (c PodControl) ListPods(ctx context.Context, namespace string, selector labels.Selector) ([]*corev1.Pod, error) {
	opts := metav1.ListOptions{LabelSelector: selector.String(), Limit: pageSize}
	var pods []*corev1.Pod
	for version := ""; ; {
		page, err := c.Client.Pods(namespace).List(ctx, opts)
		if err != nil {
			return nil, err
		}
		if version != "" && page.ResourceVersion != version {
			return nil, fmt.Errorf("clientgo: listing pods: page of version %q follows one of %q", page.ResourceVersion, version)
		}
		for i := range page.Items {
			pods = append(pods, &page.Items[i])
		}
		if page.Continue == "" {
			return pods, nil
		}
		version, opts.Continue = page.ResourceVersion, page.Continue
	}
}

func controllerName(pod *corev1.Pod) string {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.Name
	}
	return ""
}

// typedClient is what the typed clients of both kinds have in common.
type typedClient[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	UpdateStatus(ctx context.Context, owner T, opts metav1.UpdateOptions) (T, error)
}

// An ownerClient reads owners live and writes their status: given a namespace,
// it is the typed client there.
type ownerClient[T metav1.Object] func(namespace string) typedClient[T]

func (c ownerClient[T]) Get(ctx context.Context, namespace, name string) (T, error) {
	return c(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (c ownerClient[T]) GetOwner(ctx context.Context, namespace, name string) (metav1.Object, error) {
	return c.Get(ctx, namespace, name)
}

func (c ownerClient[T]) UpdateStatus(ctx context.Context, owner T) (T, error) {
	return c(owner.GetNamespace()).UpdateStatus(ctx, owner, metav1.UpdateOptions{})
}

// A statusClient is an ownerClient that logs what changes.
type statusClient[T metav1.Object] struct {
	ownerClient[T]
	cached   func(namespace, name string) (metav1.Object, bool)
	describe func(was, is T) string
}

func (c statusClient[T]) UpdateStatus(ctx context.Context, owner T) (T, error) {
	if logger := klog.FromContext(ctx).V(4); logger.Enabled() {
		was, _ := c.cached(owner.GetNamespace(), owner.GetName())
		if was, ok := was.(T); ok {
			logger.Info(c.describe(was, owner))
		}
	}
	return c.ownerClient.UpdateStatus(ctx, owner)
}

// eventSink records events on the owner itself, whatever its kind (A3).
type eventSink struct{ recorder record.EventRecorder }

func (s eventSink) Event(owner metav1.Object, eventType, reason, message string) {
	if object, ok := owner.(runtime.Object); ok {
		s.recorder.Event(object, eventType, reason, message)
	}
}

// spamKey says which events share an allowance: of each, 25 pass at once and then
// one in five minutes. The events of an owner share one by type, as in Kubernetes, but
// for those that are sent once for a state: five hundred pods created or deleted
// must not silence them.
func spamKey(event *corev1.Event) string {
	about := event.InvolvedObject
	key := []string{event.Source.Component, event.Source.Host, about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID), event.Type}
	switch event.Reason {
	case replicas.DeletionsHeld, replicas.InvalidSelector, replicas.InvalidReplicas, replicas.InvalidTemplate:
		key = append(key, event.Reason)
	}
	return strings.Join(key, "/")
}
