package clientgo

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
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
