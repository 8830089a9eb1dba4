// Package replicastest is a small Kubernetes cluster for tests and examples, in memory, in
// virtual time and without a goroutine: the same program sees the same cluster
// on every run.
//
// A [Cluster] is the truth: an API server with pods and ReplicaSets, and the
// scheduler, the kubelets, the garbage collector and the controllers of nodes and
// namespaces that act on them. A [View] is what one controller knows of it: its
// watches lag, break and list anew. A [Client] makes the calls of one controller
// and can be made to fail. A [Worker] is its work queue, a [Controller] all of
// these, with a clock that may be wrong. A [World] lets time pass for all of them.
//
//	cluster := replicastest.NewCluster(replicastest.Options{Nodes: 3, Seed: 1})
//	c := replicastest.NewController(cluster)
//	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
//	cluster.CreateReplicaSet(ctx, rs)
//	world.Run(10 * time.Second)
//
// Nothing here is safe for concurrent use: a controller.Controller on top of it
// needs MaxParallel 1.
package replicastest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	podKind            = schema.GroupKind{Kind: "Pod"}
	podResource        = schema.GroupResource{Resource: "pods"}
	replicaSetKind     = schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}
	replicaSetResource = schema.GroupResource{Group: appsv1.GroupName, Resource: "replicasets"}
)

// Options shape a cluster. The zero value is one without nodes.
type Options struct {
	// Start is the instant that the clock starts at; zero: the beginning of 2026.
	Start time.Time
	// Clock is the one to live by, for clusters that share one; nil: one of its own.
	Clock *Clock
	// Seed decides all that is random: UIDs and generated names.
	Seed uint64
	// Counting makes UIDs and generated names count up instead: they tell the
	// order in which objects came.
	Counting bool
	// Name generates names, which it must not give twice; nil: as the API server
	// does, or else Counting.
	Name func(prefix string) string
	// Nodes is how many nodes there are at first: node-1, node-2 and so on.
	Nodes int
	// Timing is how fast the cluster is.
	Timing Timing
}

// A Cluster is an API server and what acts on its objects. Its methods are what
// users and administrators do; controllers use a Client. Objects that are passed
// in are copied, those returned may be changed.
type Cluster struct {
	Clock *Clock
	// Events are the events that controllers sent, the oldest first.
	Events []Event
	// Mutate changes every pod that is created through the API, before Webhook sees
	// it; nil: nobody does.
	Mutate func(p *corev1.Pod)
	// Webhook is asked about every pod that is created, patched or deleted
	// through the API, and refuses with an error; nil: everything is allowed.
	// It must only look.
	Webhook func(verb string, p *corev1.Pod) error
	// Changed is told of every change once it is stored: before is nil for an
	// object that is new, after for one that is gone. It must only look.
	Changed func(before, after metav1.Object)
	// Restored is told when a backup has been put in place of everything.
	Restored func()

	timing   Timing
	random   *rand.PCG
	counting bool
	name     func(prefix string) string
	counter  uint64
	names    uint64 // that controllers took, if Counting
	version  uint64
	pods     *table[*corev1.Pod]
	sets     *table[*appsv1.ReplicaSet]
	quota    map[string]int
	ending   map[string]ending
	nodes    []*node
	tasks    []task
	clients  int      // how many there were
	landing  *landing // the call that takes effect late at this moment
}

// NewCluster returns a cluster without pods.
func NewCluster(o Options) *Cluster {
	if o.Start.IsZero() {
		o.Start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	}
	if o.Clock == nil {
		o.Clock = NewClock(o.Start)
	}
	c := &Cluster{
		Clock:    o.Clock,
		timing:   o.Timing.withDefaults(),
		random:   rand.NewPCG(o.Seed, 0),
		counting: o.Counting,
		name:     o.Name,
		quota:    map[string]int{},
		ending:   map[string]ending{},
	}
	c.pods = &table[*corev1.Pod]{cluster: c, kind: podKind, resource: podResource}
	c.sets = &table[*appsv1.ReplicaSet]{cluster: c, kind: replicaSetKind, resource: replicaSetResource}
	for i := range o.Nodes {
		c.AddNode("node-" + strconv.Itoa(i+1))
	}
	return c
}

// CreateReplicaSet stores a new ReplicaSet. Missing replicas are 1.
func (c *Cluster) CreateReplicaSet(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.checkNamespace(replicaSetResource, rs.Namespace, rs.Name); err != nil {
		return nil, err
	}
	rs = rs.DeepCopy()
	rs.Generation = 1
	rs.Status = appsv1.ReplicaSetStatus{}
	if rs.Spec.Replicas == nil {
		one := int32(1)
		rs.Spec.Replicas = &one
	}
	return copied(c.sets.create(rs))
}

// GetReplicaSet reads a ReplicaSet.
func (c *Cluster) GetReplicaSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	return copied(c.readReplicaSet(ctx, namespace, name))
}

// ReplicaSets returns the ReplicaSets of a namespace as they really are, by name.
func (c *Cluster) ReplicaSets(namespace string) []*appsv1.ReplicaSet {
	return clone(c.sets.rows.in(namespace))
}

// EditReplicaSet changes anything of a ReplicaSet but its status.
func (c *Cluster) EditReplicaSet(ctx context.Context, namespace, name string, change func(*appsv1.ReplicaSet)) (*appsv1.ReplicaSet, error) {
	old, err := c.readReplicaSet(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	defer c.collectLater()
	return copied(c.sets.update(old, func(rs *appsv1.ReplicaSet) {
		change(rs)
		rs.Status = *old.Status.DeepCopy()
		if !apiequality.Semantic.DeepEqual(rs.Spec, old.Spec) {
			rs.Generation = old.Generation + 1
		}
	}))
}

// UpdateReplicaSetStatus stores the status of rs and nothing else of it. With a
// resourceVersion that is not the latest, or another UID, it is a Conflict.
func (c *Cluster) UpdateReplicaSetStatus(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	old, err := c.readReplicaSet(ctx, rs.Namespace, rs.Name)
	if err != nil {
		return nil, err
	}
	if err := checkWritten(replicaSetResource, rs, old); err != nil {
		return nil, err
	}
	return copied(c.sets.update(old, func(obj *appsv1.ReplicaSet) { obj.Status = *rs.Status.DeepCopy() }))
}

// DeleteReplicaSet deletes a ReplicaSet, once it has no finalizers. What becomes
// of its pods the garbage collector decides: in the background, which is what an
// empty policy means, it deletes them afterwards, in the foreground before, and
// as orphans they are left.
func (c *Cluster) DeleteReplicaSet(ctx context.Context, namespace, name string, policy metav1.DeletionPropagation) error {
	old, err := c.readReplicaSet(ctx, namespace, name)
	if err != nil {
		return err
	}
	if finalizer := finalizers[policy]; finalizer != "" && old.DeletionTimestamp == nil {
		changed := old.DeepCopy()
		changed.Finalizers = append(changed.Finalizers, finalizer)
		old = c.sets.write(old, changed)
	}
	c.sets.delete(old, 0)
	c.collectLater()
	return nil
}

func (c *Cluster) readReplicaSet(ctx context.Context, namespace, name string) (*appsv1.ReplicaSet, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.sets.get(namespace, name)
}

// checkWritten refuses to overwrite what the writer has not seen.
func checkWritten(resource schema.GroupResource, obj, stored metav1.Object) error {
	switch {
	case obj.GetUID() != "" && obj.GetUID() != stored.GetUID():
		return mismatch(resource, stored, "UID", obj.GetUID(), stored.GetUID())
	case obj.GetResourceVersion() != "" && obj.GetResourceVersion() != stored.GetResourceVersion():
		return apierrors.NewConflict(resource, stored.GetName(),
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// checkPreconditions refuses to delete what the caller does not mean.
func checkPreconditions(resource schema.GroupResource, stored metav1.Object, want *metav1.Preconditions) error {
	switch {
	case want == nil:
		return nil
	case want.UID != nil && *want.UID != stored.GetUID():
		return mismatch(resource, stored, "UID", *want.UID, stored.GetUID())
	case want.ResourceVersion != nil && *want.ResourceVersion != stored.GetResourceVersion():
		return mismatch(resource, stored, "ResourceVersion", *want.ResourceVersion, stored.GetResourceVersion())
	}
	return nil
}

func mismatch(resource schema.GroupResource, stored metav1.Object, field string, want, got any) error {
	return apierrors.NewConflict(resource, stored.GetName(),
		fmt.Errorf("the %s in the precondition (%v) does not match the %s in record (%v)", field, want, field, got))
}

// copied lets a stored object leave the package.
func copied[T object[T]](obj T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return obj.DeepCopy(), nil
}

// An Event is what a controller told about an object.
type Event struct {
	At      time.Time
	About   types.NamespacedName
	Type    string
	Reason  string
	Message string
}

// Version returns how many writes there have been: the latest resourceVersion.
func (c *Cluster) Version() uint64 { return c.version }

func (c *Cluster) newVersion() string {
	c.version++
	return strconv.FormatUint(c.version, 10)
}

func (c *Cluster) newUID() types.UID {
	if c.counting {
		c.counter++
		return types.UID(fmt.Sprintf("%06d", c.counter))
	}
	high, low := c.random.Uint64(), c.random.Uint64()
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		high>>32, high>>16&0xffff, high&0xfff, 0x8000|low>>48&0x3fff, low&0xffffffffffff))
}

// alphabet is what generated names end in.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// newName returns a name that no pod of the namespace has, as the API server
// generates it.
func (c *Cluster) newName(namespace, prefix string) string {
	const longest = 63
	prefix = prefix[:min(len(prefix), longest-suffixLength)]
	if c.name != nil {
		return c.name(prefix)
	}
	if c.counting {
		return fmt.Sprintf("%s%06d", prefix, c.counter+1) // as its UID will be
	}
	r := rand.New(c.random)
	for {
		suffix := make([]byte, suffixLength)
		for i := range suffix {
			suffix[i] = alphabet[r.IntN(letters)]
		}
		if _, taken := c.pods.rows.get(namespace, prefix+string(suffix)); !taken {
			return prefix + string(suffix)
		}
	}
}

// Random returns a number from 0 to n-1, the next one of the cluster's.
func (c *Cluster) Random(n int) int { return rand.New(c.random).IntN(n) }

// timestamp is the present as API objects hold it, in whole seconds.
func (c *Cluster) timestamp() metav1.Time { return metav1.NewTime(c.Clock.Now().Truncate(time.Second)) }

func clone[T object[T]](objs []T) []T {
	objs = slices.Clone(objs)
	for i, obj := range objs {
		objs[i] = obj.DeepCopy()
	}
	return objs
}
