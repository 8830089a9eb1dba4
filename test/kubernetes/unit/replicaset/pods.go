package replicaset

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// named returns the pod with its name as UID: the tests tell of deletions with
// pods that have no UID, and in TestDeletionTimestamp make one pod twice.
func named(pod *corev1.Pod) *corev1.Pod {
	if pod == nil {
		return nil
	}
	pod = pod.DeepCopy()
	pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	return pod
}

// namedIn is named for what a handler is given, tombstones too.
func namedIn(obj any) any {
	switch obj := obj.(type) {
	case *corev1.Pod:
		return named(obj)
	case cache.DeletedFinalStateUnknown:
		obj.Obj = namedIn(obj.Obj)
		return obj
	default:
		return obj
	}
}

// podsIn returns the pods of a namespace that the selector matches.
func (rsc *ReplicaSetController) podsIn(namespace string, sel labels.Selector) ([]*corev1.Pod, error) {
	pods, err := rsc.pods.Pods(namespace).List(sel)
	if err != nil {
		return nil, err
	}
	for i, pod := range pods {
		pods[i] = named(pod)
	}
	return pods, nil
}

// podControl makes our calls with the tests' fake. Its answers are what a server
// would answer.
type podControl struct{ rsc *ReplicaSetController }

var _ replicas.PodControl = podControl{}

func (c podControl) CreatePod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	template := &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	ref := metav1.GetControllerOf(pod)
	if err := c.rsc.podControl.CreatePods(ctx, namespace, template, &appsv1.ReplicaSet{}, ref); err != nil {
		return nil, err
	}
	return pod, nil
}

func (c podControl) DeletePod(ctx context.Context, pod *corev1.Pod, _ metav1.DeleteOptions) (string, error) {
	return "", c.rsc.podControl.DeletePod(ctx, pod.Namespace, pod.Name, &appsv1.ReplicaSet{})
}

func (c podControl) PatchPod(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	return pod, c.rsc.podControl.PatchPod(ctx, pod.Namespace, pod.Name, patch.Data)
}

func (c podControl) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := c.rsc.pods.Pods(namespace).Get(name)
	return named(pod), err
}

func (c podControl) ListPods(_ context.Context, namespace string, sel labels.Selector) ([]*corev1.Pod, error) {
	return c.rsc.podsIn(namespace, sel)
}

// stored makes of a test's ReplicaSet one as an API server stores it: the tests say
// that its version is v1, and their template does not fit their selector. Ours
// refuses both.
func stored(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	rs = rs.DeepCopy()
	rs.TypeMeta = metav1.TypeMeta{}
	if rs.Spec.Selector != nil {
		rs.Spec.Template.Labels = labels.Merge(rs.Spec.Template.Labels, rs.Spec.Selector.MatchLabels)
	}
	return rs
}
