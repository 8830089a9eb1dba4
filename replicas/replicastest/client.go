package replicastest

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
)

// A Client makes the calls of one controller, and takes its events. Its hooks may step other parts of a world, and may panic, as a process
// may die.
type Client struct {
	// Fault decides about every request before it is sent, also about those that
	// are sent again; nil: none fails.
	Fault func(Call) Fault
	// Permit is asked before every write is sent, also before it is sent again. An
	// error is the answer; nil: all are permitted.
	Permit func(Call) error
	// Done is told of every call and the error it came back with; nil: nobody.
	Done func(Call, error)

	cluster *Cluster
	id      int // of those of the cluster
	calling *Call
}

var (
	_ controller.Client[*appsv1.ReplicaSet, *corev1.Pod] = (*Client)(nil)
	_ controller.EventSink                               = (*Client)(nil)
)

// NewClient returns a client whose calls do not fail.
func NewClient(c *Cluster) *Client {
	c.clients++
	return &Client{cluster: c, id: c.clients}
}

// Calling returns the call that takes effect at this moment: what changes on the
// cluster now is its doing.
func (c *Client) Calling() (Call, bool) {
	if l := c.cluster.landing; l != nil && l.client == c.id {
		return l.call, true
	}
	if c.calling == nil {
		return Call{}, false
	}
	return *c.calling, true
}

// A Call is one request.
type Call struct {
	Verb                 string // create, delete, patch, get, list or update
	Kind                 string // Pod or ReplicaSet
	types.NamespacedName        // a list has no name, a pod to create may have none
	DryRun               bool
	Late                 bool // it takes effect when nobody waits for its answer any more
}

// do makes one call.
func do[T any](c *Client, call Call, effect func(*Cluster) (T, error)) (T, error) {
	result, err := send(c, call, effect)
	if c.Done != nil {
		c.Done(call, err)
	}
	return result, err
}

// resends is how often client-go sends a request again.
const resends = 10

// send sends a request until an answer is one to be passed on.
func send[T any](c *Client, call Call, effect func(*Cluster) (T, error)) (result T, err error) {
	for again, n := true, 0; again && n <= resends; n++ {
		result, again, err = try(c, call, effect)
	}
	return result, err
}

func try[T any](c *Client, call Call, effect func(*Cluster) (T, error)) (result T, again bool, err error) {
	if c.Permit != nil && call.Verb != "get" && call.Verb != "list" {
		if err := c.Permit(call); err != nil {
			return result, false, err
		}
	}
	var fault Fault
	if c.Fault != nil {
		fault = c.Fault(call)
	}
	if fault.Before != nil {
		if fault.Late > 0 {
			c.cluster.landLater(fault.Late, landing{call, c.id, func(cluster *Cluster) { _, _ = effect(cluster) }})
		}
		return result, fault.Resend, fault.Before
	}
	c.calling = &call
	result, err = effect(c.cluster)
	c.calling = nil
	if fault.After != nil && (err == nil || fault.Resend) {
		return *new(T), fault.Resend, fault.After
	}
	return result, false, err
}

// A landing is a call that takes effect later.
type landing struct {
	call   Call
	client int
	effect func(*Cluster)
}

func (c *Cluster) landLater(d time.Duration, l landing) {
	l.call.Late = true
	c.later(d, task{do: land, landing: &l})
}

func (c *Cluster) land(l *landing) {
	c.landing = l
	l.effect(c)
	c.landing = nil
}

func podCall(verb, namespace, name string) Call {
	return Call{Verb: verb, Kind: "Pod", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func replicaSetCall(verb, namespace, name string) Call {
	return Call{Verb: verb, Kind: "ReplicaSet", NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Create creates a pod.
func (c *Client) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return do(c, podCall("create", pod.Namespace, pod.Name), func(cluster *Cluster) (*corev1.Pod, error) {
		return cluster.CreatePod(ctx, pod.Namespace, pod)
	})
}

// Delete deletes a pod by name, under the preconditions of opts.
func (c *Client) Delete(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) (string, error) {
	return do(c, podCall("delete", pod.Namespace, pod.Name), func(cluster *Cluster) (string, error) {
		return cluster.DeletePod(ctx, pod.Namespace, pod.Name, opts)
	})
}

// Patch sends an adopt or release patch.
func (c *Client) Patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch, opts metav1.PatchOptions) (*corev1.Pod, error) {
	call := podCall("patch", pod.Namespace, pod.Name)
	call.DryRun = len(opts.DryRun) > 0
	return do(c, call, func(cluster *Cluster) (*corev1.Pod, error) {
		return cluster.PatchPod(ctx, pod.Namespace, pod.Name, patch, opts)
	})
}

// Get reads a pod live.
func (c *Client) Get(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return do(c, podCall("get", namespace, name), func(cluster *Cluster) (*corev1.Pod, error) {
		return cluster.GetPod(ctx, namespace, name)
	})
}

// List lists pods live, and tells of which version the list is.
func (c *Client) List(ctx context.Context, namespace string, matching labels.Selector) (controller.List[*corev1.Pod], error) {
	return do(c, podCall("list", namespace, ""), func(cluster *Cluster) (controller.List[*corev1.Pod], error) {
		return cluster.ListPods(ctx, namespace, matching)
	})
}

// GetOwner reads a ReplicaSet live.
func (c *Client) GetOwner(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return do(c, replicaSetCall("get", namespace, name), func(cluster *Cluster) (*appsv1.ReplicaSet, error) {
		return cluster.GetReplicaSet(ctx, namespace, name)
	})
}

// UpdateStatus writes the status of a ReplicaSet.
func (c *Client) UpdateStatus(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return do(c, replicaSetCall("update", rs.Namespace, rs.Name), func(cluster *Cluster) (*appsv1.ReplicaSet, error) {
		return cluster.UpdateReplicaSetStatus(ctx, rs)
	})
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
