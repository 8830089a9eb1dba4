// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas/controller"
)

// Options configures a cluster. The zero Options describes a cluster without nodes.
type Options struct {
	// Start is the time at which the clock starts. The default is the beginning of 2026.
	Start time.Time
	// Clock is the cluster's clock. Several clusters may share a clock. The default is a new clock.
	Clock *Clock
	// Seed is the seed of the random number generator, for example for UIDs and generated names.
	Seed uint64
	// Counting puts consecutive numbers into UIDs and generated names, which then show the order of creation.
	Counting bool
	// Nodes is the number of nodes at the start, which are named node-1, node-2 and so on. Only pods need nodes: a pod
	// without a node never becomes ready.
	Nodes int
	// Timing contains the delays in the cluster.
	Timing Timing
}

// A Cluster simulates an API server with one kind of owners and one kind of children, and the components that act on
// these objects. The methods of a Cluster do what users and administrators do, while controllers use a Client. A
// Cluster copies the objects that are passed to its methods, and you may change the objects that its methods return. A
// Cluster is a Part. NewPodCluster and NewCluster make a Cluster. For a second kind of children of the same owners,
// NewClusterBeside makes a second Cluster.
type Cluster[O Object[O], C Object[C]] struct {
	Clock *Clock
	// Events lists the events that controllers have sent, oldest first.
	Events []Event
	// Ready makes a child ready, as the child's own controller does: it changes a copy of the child, which the cluster
	// then stores. It is called when the child has existed for Timing.StartUp, and again Timing.StartUp after each
	// change of its spec, unless the child is being deleted by then. Pods become ready on nodes, without Ready. Other
	// children do not change by themselves if Ready is nil.
	Ready func(child C)
	// Mutate may change each child that is created through the API, before Webhook sees it. It may be nil.
	Mutate func(child C)
	// Webhook is called for each child that is created, patched or deleted through the API, and must not change it. The
	// child of a patch is the child before the patch. The call fails with the error that Webhook returns. A nil Webhook
	// allows all calls.
	Webhook func(verb string, child C) error
	// Changed is called after each change of an object, and must not change the objects. The first argument is nil for
	// an object that was created, and the second for one that was removed. Changed may be nil.
	Changed func(before, after metav1.Object)

	kind     controller.Kind[O, C]
	timing   Timing
	random   *rand.PCG
	counting bool
	counter  uint64
	names    uint64 // the number of names that controllers have generated, if counting is set
	version  uint64
	owners   *table[O]
	children *table[C]
	life     life[C]
	quota    map[string]int
	ending   map[string]ending
	nodes    []*node
	nodeSkew time.Duration // how far the clocks of the nodes are ahead of Clock
	tasks    []task[O, C]
	clients  int            // the number of clients of the cluster
	beside   server         // the cluster that this one was made next to; nil for the first cluster
	others   []server       // the clusters that were made next to the first cluster
	landing  *landing[O, C] // the late call that is taking effect at the moment; nil if there is none
	hidden
}

// A PodCluster is a Cluster of ReplicaSets and pods.
type PodCluster = Cluster[*appsv1.ReplicaSet, *corev1.Pod]

// NewPodCluster returns an empty cluster for ReplicaSets and pods.
func NewPodCluster(o Options) *PodCluster { return newCluster(controller.ReplicaSets(), o) }

// NewCluster returns an empty cluster for the owners and children of a Kind, or the error of controller.New if the Kind
// is invalid.
func NewCluster[O Object[O], C Object[C]](kind controller.Kind[O, C], o Options) (*Cluster[O, C], error) {
	c := newCluster(kind, o)
	if _, err := c.NewControllerWith(controller.Options{}); err != nil {
		return nil, fmt.Errorf("replicastest: %w", err)
	}
	// The trial controller has left its client and its watches in c, so the caller gets another cluster.
	return newCluster(kind, o), nil
}

// NewClusterBeside returns a Cluster for another kind of children of the owners of the first cluster. The two clusters
// stand for one API server: they have the same owners, the same clock and the same resourceVersions, and the garbage
// collector of the first cluster deletes the children of both. Put both into the World. A Controller of either cluster
// sees only the children of its own cluster. Events contains the events of the cluster's own controllers, but for a
// change of an owner only the Changed of the first cluster is called. From the Options, Start and Clock are ignored.
// The owners of both Kinds must be the same kind.
func NewClusterBeside[O Object[O], C Object[C], D Object[D]](first *Cluster[O, D], kind controller.Kind[O, C], o Options) (*Cluster[O, C], error) {
	switch {
	case first == nil:
		return nil, errors.New("replicastest: the first cluster is nil")
	case kind.Owner != first.kind.Owner || kind.ClusterScoped != first.kind.ClusterScoped:
		return nil, fmt.Errorf("replicastest: the owners of the first cluster are of kind %s, and those of the Kind are of kind %s", first.kind.Owner, kind.Owner)
	}
	o.Clock = first.Clock
	c, err := NewCluster(kind, o)
	if err != nil {
		return nil, err
	}
	// The table of the owners stays the first cluster's, whose Changed and garbage collector see each change of an
	// owner.
	c.owners, c.ending, c.beside = first.owners, first.ending, first.join(c)
	return c, nil
}

func (c *Cluster[O, C]) join(other server) (first server) {
	if c.beside != nil {
		return c.beside.join(other)
	}
	c.others = append(c.others, other)
	return c
}

// together returns the first cluster, on which it is called, and those next to it.
func (c *Cluster[O, C]) together() []server { return append([]server{c}, c.others...) }

func newCluster[O Object[O], C Object[C]](kind controller.Kind[O, C], o Options) *Cluster[O, C] {
	if o.Start.IsZero() {
		o.Start = beginning
	}
	if o.Clock == nil {
		o.Clock = newClock(o.Start)
	}
	c := &Cluster[O, C]{
		Clock:    o.Clock,
		kind:     kind,
		timing:   o.Timing.withDefaults(),
		random:   rand.NewPCG(o.Seed, 0),
		counting: o.Counting,
		quota:    map[string]int{},
		ending:   map[string]ending{},
	}
	c.hidden = inside.Hide((*insideCluster[O, C])(c))
	c.owners = newTable[O](c, kind.Owner)
	c.owners.owners = true
	c.children = newTable[C](c, kind.Child)
	c.owners.anywhere, c.children.anywhere = kind.ClusterScoped, kind.ClusterScoped
	c.life = lifeOf(c)
	for i := range o.Nodes {
		(*insideCluster[O, C])(c).AddNode("node-" + strconv.Itoa(i+1))
	}
	return c
}

func newTable[T Object[T]](s server, kind schema.GroupVersionKind) *table[T] {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return &table[T]{server: s, kind: kind.GroupKind(), resource: plural.GroupResource(), counts: hasGeneration(kind.GroupKind())}
}

// hasGeneration reports whether the server sets the generation of a kind.
func hasGeneration(kind schema.GroupKind) bool {
	// All kinds outside the core group are taken to have a generation. Inside it only a few have one: no ConfigMap, no
	// Service.
	return kind.Group != "" || slices.Contains([]string{"Pod", "PodTemplate", "ReplicationController"}, kind.Kind)
}

// An Event is an event that a controller sent about an object.
type Event struct {
	At      time.Time
	About   types.NamespacedName
	Type    string
	Reason  string
	Message string
}

func (c *Cluster[O, C]) latest() uint64 {
	if c.beside != nil {
		return c.beside.latest()
	}
	return c.version
}

func (c *insideCluster[O, C]) Version() uint64 { return (*Cluster[O, C])(c).latest() }

func (c *Cluster[O, C]) newVersion() string {
	if c.beside != nil {
		return c.beside.newVersion()
	}
	c.version++
	return strconv.FormatUint(c.version, 10)
}

func (c *Cluster[O, C]) newUID() types.UID {
	if c.beside != nil {
		return c.beside.newUID()
	}
	if c.counting {
		c.counter++
		return types.UID(fmt.Sprintf("%06d", c.counter))
	}
	high, low := c.random.Uint64(), c.random.Uint64()
	return types.UID(fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x",
		high>>32, high>>16&0xffff, high&0xfff, 0x8000|low>>48&0x3fff, low&0xffffffffffff))
}

// alphabet contains the characters that the API server uses in the suffix of a generated name.
const alphabet = "bcdfghjklmnpqrstvwxz2456789"

// newName generates a name for a child as the API server does.
func (c *Cluster[O, C]) newName(namespace, prefix string) string {
	const longest = 63
	// A server, too, cuts a long prefix, so that the name has 63 characters at most.
	prefix = prefix[:min(len(prefix), longest-suffixLength)]
	if c.counting {
		return fmt.Sprintf("%s%06d", prefix, c.counter+1) // the child's UID will contain the same number
	}
	r := rand.New(c.random)
	for {
		suffix := make([]byte, suffixLength)
		for i := range suffix {
			suffix[i] = alphabet[r.IntN(letters)]
		}
		if _, taken := c.children.rows.get(namespace, prefix+string(suffix)); !taken {
			return prefix + string(suffix)
		}
	}
}

// Random returns the cluster's next random number, from 0 to n-1, or 0 if n is less than 1.
func (c *Cluster[O, C]) Random(n int) int {
	if n < 1 {
		return 0
	}
	return rand.New(c.random).IntN(n)
}

func (c *Cluster[O, C]) now() time.Time { return c.Clock.Now() }

func (c *Cluster[O, C]) timestamp() metav1.Time {
	// Times in API objects have whole seconds, so children that are made close to each other are equally old.
	return metav1.NewTime(c.Clock.Now().Truncate(time.Second))
}

func (c *Cluster[O, C]) changed(before, after metav1.Object) {
	if c.Changed != nil {
		c.Changed(before, after)
	}
}

// copied returns a copy of a stored object for callers outside the package.
func copied[T Object[T]](obj T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return obj.DeepCopy(), nil
}

func clone[T Object[T]](objs []T) []T {
	objs = slices.Clone(objs)
	for i, obj := range objs {
		objs[i] = obj.DeepCopy()
	}
	return objs
}

var errNil = errors.New("replicastest: the object is nil")
