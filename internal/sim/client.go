package sim

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// A Client makes the calls of one controller: all that replicas asks a caller
// for. Its hooks may step other parts of a world, and may panic, as a process
// may die.
type Client struct {
	// Fault decides about every call before it is made; nil: none fails.
	Fault func(Call) Fault
	// Done is told of every call and the error it came back with; nil: nobody.
	Done func(Call, error)

	cluster *Cluster
	calling *Call
}

var (
	_ replicas.PodControl  = (*Client)(nil)
	_ replicas.OwnerReader = (*Client)(nil)
	_ replicas.EventSink   = (*Client)(nil)
)

// NewClient returns a client whose calls do not fail.
func NewClient(c *Cluster) *Client { return &Client{cluster: c} }

// Calling returns the call that takes effect at this moment: what changes on the
// cluster now is its doing.
func (c *Client) Calling() (Call, bool) {
	if c.calling == nil {
		return Call{}, false
	}
	return *c.calling, true
}

// A Call is one request.
type Call struct {
	Verb                 string // create, delete, patch, get, list or update
	Kind                 string // Pod or ReplicaSet
	types.NamespacedName        // a list has no name
}

// A Fault is what goes wrong with a call. The zero Fault is nothing.
type Fault struct {
	Before error // the call has no effect and this is its answer
	After  error // the call has its effect, and this comes instead of the answer
}

// do makes one call.
func do[T any](c *Client, call Call, effect func() (T, error)) (T, error) {
	var fault Fault
	if c.Fault != nil {
		fault = c.Fault(call)
	}
	result, err := *new(T), fault.Before
	if err == nil {
		c.calling = &call
		result, err = effect()
		c.calling = nil
	}
	if err == nil && fault.After != nil {
		result, err = *new(T), fault.After
	}
	if c.Done != nil {
		c.Done(call, err)
	}
	return result, err
}

func podCall(verb, namespace, name string) Call {
	return Call{verb, "Pod", types.NamespacedName{Namespace: namespace, Name: name}}
}

func replicaSetCall(verb, namespace, name string) Call {
	return Call{verb, "ReplicaSet", types.NamespacedName{Namespace: namespace, Name: name}}
}

// CreatePod creates a pod.
func (c *Client) CreatePod(ctx context.Context, namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	return do(c, podCall("create", namespace, pod.Name), func() (*corev1.Pod, error) {
		return c.cluster.CreatePod(ctx, namespace, pod)
	})
}

// DeletePod deletes a pod by name, under the preconditions of opts.
func (c *Client) DeletePod(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) (string, error) {
	return do(c, podCall("delete", pod.Namespace, pod.Name), func() (string, error) {
		return c.cluster.DeletePod(ctx, pod.Namespace, pod.Name, opts)
	})
}

// PatchPod sends an adopt or release patch.
func (c *Client) PatchPod(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	return do(c, podCall("patch", pod.Namespace, pod.Name), func() (*corev1.Pod, error) {
		return c.cluster.PatchPod(ctx, pod.Namespace, pod.Name, patch)
	})
}

// GetPod reads a pod live.
func (c *Client) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return do(c, podCall("get", namespace, name), func() (*corev1.Pod, error) {
		return c.cluster.GetPod(ctx, namespace, name)
	})
}

// ListPods lists pods live.
func (c *Client) ListPods(ctx context.Context, namespace string, matching labels.Selector) ([]*corev1.Pod, error) {
	return do(c, podCall("list", namespace, ""), func() ([]*corev1.Pod, error) {
		return c.cluster.ListPods(ctx, namespace, matching)
	})
}

// GetOwner reads a ReplicaSet live.
func (c *Client) GetOwner(ctx context.Context, namespace, name string) (metav1.Object, error) {
	rs, err := c.ReplicaSets().Get(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return rs, nil
}

// Event records an event on the cluster.
func (c *Client) Event(owner metav1.Object, eventType, reason, message string) {
	c.cluster.Events = append(c.cluster.Events, Event{
		At:      c.cluster.Clock.Now(),
		About:   types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()},
		Type:    eventType,
		Reason:  reason,
		Message: message,
	})
}

// ReplicaSets returns what reads ReplicaSets and writes their status.
func (c *Client) ReplicaSets() replicas.StatusClient[*appsv1.ReplicaSet] { return replicaSets{c} }

type replicaSets struct{ *Client }

func (c replicaSets) Get(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return do(c.Client, replicaSetCall("get", namespace, name), func() (*appsv1.ReplicaSet, error) {
		return c.cluster.GetReplicaSet(ctx, namespace, name)
	})
}

func (c replicaSets) UpdateStatus(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return do(c.Client, replicaSetCall("update", rs.Namespace, rs.Name), func() (*appsv1.ReplicaSet, error) {
		return c.cluster.UpdateReplicaSetStatus(ctx, rs)
	})
}
