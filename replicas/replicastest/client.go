// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A Client makes the API calls of one controller and receives the controller's events. It is a controller.Client and a
// controller.EventSink. Use Fail to make calls fail, and Record to record calls. The callbacks Fault and Done can call
// the method Step of other Parts, and they can panic with a Crash to simulate the death of the process.
type Client[O Object[O], C Object[C]] struct {
	// Client sends the calls, which may fail. Its methods do not change their arguments.
	controller.Client[O, C]
	controller.Versioner
	// EventSink adds each event to the cluster's Events.
	controller.EventSink

	// Fault decides how a request fails, before it is sent or sent again. It is not called for a request to which a
	// Rule of Fail applies. If Fault is nil, only Rules make requests fail.
	Fault func(Call) Fault
	// Done is called after each call, with its error. It may be nil.
	Done func(Call, error)

	cluster *Cluster[O, C]
	id      int // the clients of a cluster are numbered from 1
	calling *Call
	rules   []*programmed
	records []*Record
	hidden
}

// hidden gives this library's own tests access to internals.
type hidden = inside.Hidden

// NewClient returns a client whose calls do not fail.
func (c *Cluster[O, C]) NewClient() *Client[O, C] {
	c.clients++
	client := &Client[O, C]{cluster: c, id: c.clients}
	calls := calls[O, C]{client}
	client.Client, client.Versioner, client.EventSink = calls, calls, calls
	client.hidden = inside.Hide(&inside.Client[Call]{Calling: client.callNow, InFlight: client.inFlight})
	return client
}

func (c *Client[O, C]) callNow() (call Call, late, ok bool) {
	if l := c.cluster.landing; l != nil && l.client == c.id {
		return l.call, true, true
	}
	if c.calling == nil {
		return Call{}, false, false
	}
	return *c.calling, false, true
}

func (c *Client[O, C]) inFlight() (calls []Call) {
	for _, t := range c.cluster.tasks {
		if t.do == land && t.client == c.id {
			calls = append(calls, t.call)
		}
	}
	return calls
}

// A Call is one request to the API server.
type Call struct {
	Verb                 string // create, delete, patch, get, list, or status for a patch of the owner's status
	Kind                 string // kind of the child or owner, such as Pod
	types.NamespacedName        // the name is empty for a list, and can be empty for a creation
	Subresource          string // the subresource that a patch of a child is for; "" means the child itself
	DryRun               bool
	Limit                int // the maximum number of objects in a list; 0 means no maximum
	// ResourceVersion is the version in the preconditions of a deletion or in the metadata of a patch of a child, or ""
	// if there is none.
	ResourceVersion string
	// Err is the error that the call returned, or nil. It is set only for the calls in a Record.
	Err error
}

// An effect applies a request to the cluster. By then, the caller may have stopped waiting, or changed its objects.
type effect[T any, O Object[O], C Object[C]] func(context.Context, *Cluster[O, C]) (T, error)

func do[T any, O Object[O], C Object[C]](ctx context.Context, c *Client[O, C], call Call, effect effect[T, O, C]) (T, error) {
	result, err := send(ctx, c, call, effect)
	recorded := call
	recorded.Err = err
	for _, r := range c.records {
		r.Calls = append(r.Calls, recorded)
	}
	if c.Done != nil {
		c.Done(call, err)
	}
	return result, err
}

// resends is how often client-go sends a request again at most.
const resends = 10

// send sends a request, again and again if the Fault says so.
func send[T any, O Object[O], C Object[C]](ctx context.Context, c *Client[O, C], call Call, effect effect[T, O, C]) (result T, err error) {
	n := 0
	for again := true; again && n <= resends; n++ {
		result, again, err = try(ctx, c, call, effect)
	}
	if err != nil && n > 1 && call.Verb == "create" {
		// The first sending may have made the child, and the last one met it: AlreadyExists, or a quota that it has
		// filled. The error must not look like a refusal.
		err = fmt.Errorf("%w (%w)", err, controller.ErrResent)
	}
	return result, err
}

func try[T any, O Object[O], C Object[C]](ctx context.Context, c *Client[O, C], call Call, effect effect[T, O, C]) (result T, again bool, err error) {
	fault := c.faultOf(call)
	if fault.Before != nil {
		if fault.Late > 0 && ctx.Err() == nil {
			// The request is on its way, and the server does not notice that its caller has stopped waiting. A call
			// whose context had ended before was never sent.
			later := context.WithoutCancel(ctx)
			c.cluster.landLater(fault.Late, landing[O, C]{call, c.id, func(cluster *Cluster[O, C]) { _, _ = effect(later, cluster) }})
		}
		return result, fault.Resend, fault.Before
	}
	// In Changed, a judge asks whether this call makes the change.
	c.calling = &call
	result, err = effect(ctx, c.cluster)
	c.calling = nil
	// A refusal changes nothing, so there is no effect whose answer could be lost. A client that sends a request again
	// has seen no answer at all, so it does that after a refusal, too.
	if fault.After != nil && (err == nil || fault.Resend) {
		return *new(T), fault.Resend, fault.After
	}
	return result, false, err
}

// A landing is a call that takes effect late.
type landing[O Object[O], C Object[C]] struct {
	call   Call
	client int
	effect func(*Cluster[O, C])
}

func (c *Cluster[O, C]) landLater(d time.Duration, l landing[O, C]) {
	c.later(d, task[O, C]{do: land, landing: &l})
}

func (c *Cluster[O, C]) land(l *landing[O, C]) {
	c.landing = l
	l.effect(c)
	c.landing = nil
}

// call returns a Call about one object of the table.
func (t *table[T]) call(verb, namespace, name string) Call {
	return Call{
		Verb: verb, Kind: t.kind.Kind,
		NamespacedName: types.NamespacedName{Namespace: namespace, Name: name},
	}
}

// callFor returns a Call for obj, which may be nil.
func (t *table[T]) callFor(verb string, obj T) Call {
	if object.IsNil(obj) {
		return t.call(verb, "", "")
	}
	return t.call(verb, obj.GetNamespace(), obj.GetName())
}

// sent copies an object for a request, which keeps its content if the caller changes the object later.
func sent[T Object[T]](obj T) T { return changed(obj, func(T) {}) }

// calls implements the API calls of a Client.
type calls[O Object[O], C Object[C]] struct{ *Client[O, C] }

func (c calls[O, C]) Create(ctx context.Context, child C) (C, error) {
	call, asked := c.cluster.children.callFor("create", child), sent(child)
	return do(ctx, c.Client, call, func(ctx context.Context, cluster *Cluster[O, C]) (C, error) {
		return cluster.CreateChild(ctx, call.Namespace, asked)
	})
}

func (c calls[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	call := c.cluster.children.callFor("delete", child)
	call.DryRun = len(opts.DryRun) > 0
	opts = *opts.DeepCopy()
	if only := opts.Preconditions; only != nil && only.ResourceVersion != nil {
		call.ResourceVersion = *only.ResourceVersion
	}
	_, err := do(ctx, c.Client, call, func(ctx context.Context, cluster *Cluster[O, C]) (string, error) {
		return cluster.DeleteChild(ctx, call.Namespace, call.Name, opts)
	})
	return err
}

func (c calls[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	call := c.cluster.children.callFor("patch", child)
	call.Subresource, call.DryRun = patch.Subresource, len(opts.DryRun) > 0
	var body metav1.PartialObjectMetadata
	if json.Unmarshal(patch.Data, &body) == nil { // the server answers a patch that is no object with an error
		call.ResourceVersion = body.ResourceVersion
	}
	return do(ctx, c.Client, call, func(ctx context.Context, cluster *Cluster[O, C]) (C, error) {
		return cluster.patchChild(ctx, call.Namespace, call.Name, patch, opts)
	})
}

func (c calls[O, C]) Get(ctx context.Context, namespace, name string) (C, error) {
	return do(ctx, c.Client, c.cluster.children.call("get", namespace, name), func(ctx context.Context, cluster *Cluster[O, C]) (C, error) {
		return cluster.GetChild(ctx, namespace, name)
	})
}

func (c calls[O, C]) List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error) {
	return do(ctx, c.Client, c.cluster.children.call("list", namespace, ""), func(ctx context.Context, cluster *Cluster[O, C]) (ledger.List[C], error) {
		return cluster.listChildren(ctx, namespace, matching)
	})
}

func (c calls[O, C]) ServerOwnersVersion(ctx context.Context, namespace string) (string, error) {
	return c.serverVersion(ctx, c.cluster.owners.call("list", namespace, ""))
}

func (c calls[O, C]) ServerChildrenVersion(ctx context.Context, namespace string) (string, error) {
	return c.serverVersion(ctx, c.cluster.children.call("list", namespace, ""))
}

func (c calls[O, C]) serverVersion(ctx context.Context, list Call) (string, error) {
	// Any list has the server's version, so one object is enough.
	list.Limit = 1
	return do(ctx, c.Client, list, func(ctx context.Context, cluster *Cluster[O, C]) (string, error) {
		return strconv.FormatUint(cluster.latest(), 10), ctx.Err()
	})
}

func (c calls[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	return do(ctx, c.Client, c.cluster.owners.call("get", namespace, name), func(ctx context.Context, cluster *Cluster[O, C]) (O, error) {
		return cluster.GetOwner(ctx, namespace, name)
	})
}

func (c calls[O, C]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	call := c.cluster.owners.callFor("status", owner)
	return do(ctx, c.Client, call, func(ctx context.Context, cluster *Cluster[O, C]) (O, error) {
		return cluster.patchOwnerStatus(ctx, call.Namespace, call.Name, patch)
	})
}

// isDeath reports whether a message is about a panic with a Crash.
func isDeath(message string) bool { return strings.HasSuffix(message, Crash{}.String()) }

func (c calls[O, C]) Event(owner metav1.Object, eventType, reason, message string) {
	if object.IsNil(owner) || reason == controller.Panicked && isDeath(message) {
		return // a process that died sends no events
	}
	c.cluster.Events = append(c.cluster.Events, Event{
		At:      c.cluster.Clock.Now(),
		About:   types.NamespacedName{Namespace: owner.GetNamespace(), Name: owner.GetName()},
		Type:    eventType,
		Reason:  reason,
		Message: message,
	})
}
