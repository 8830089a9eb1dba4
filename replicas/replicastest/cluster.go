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

	"github.com/replicakit/replicakit/replicas/controller"
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
	// Nodes is how many nodes there are at first, for children that are pods:
	// node-1, node-2 and so on. Pods without a node never become ready.
	Nodes int
	// Timing is how fast the cluster is.
	Timing Timing
}

// A ClusterOf is an API server with owners and children of one kind, and what
// acts on its objects. Its methods are what users and administrators do;
// controllers use a Client. Objects that are passed in are copied, those returned
// may be changed. NewCluster and NewClusterOf make one.
type ClusterOf[O Object[O], C Object[C]] struct {
	Clock *Clock
	// Events are the events that controllers sent, the oldest first.
	Events []Event
	// Ready makes a child ready: it is called with a copy of each child that is
	// not being deleted, Timing.StartUp after its creation, and what it changes is
	// stored. nil: children stay as they are created. For pods it is not called:
	// they become ready on nodes.
	Ready func(child C)
	// Mutate changes every child that is created through the API, before Webhook
	// sees it; nil: nobody does.
	Mutate func(child C)
	// Webhook is asked about every child that is created, patched or deleted
	// through the API, and refuses with an error; nil: everything is allowed.
	// It must only look.
	Webhook func(verb string, child C) error
	// Changed is told of every change once it is stored: before is nil for an
	// object that is new, after for one that is gone. It must only look.
	Changed func(before, after metav1.Object)
	// Restored is told when a backup has been put in place of everything.
	Restored func()

	kind     controller.Kind[O, C]
	timing   Timing
	random   *rand.PCG
	counting bool
	name     func(prefix string) string
	counter  uint64
	names    uint64 // that controllers took, if Counting
	version  uint64
	owners   *table[O]
	children *table[C]
	life     life[C]
	quota    map[string]int
	ending   map[string]ending
	nodes    []*node
	tasks    []task[O, C]
	clients  int            // how many there were
	landing  *landing[O, C] // the call that takes effect late at this moment
}

// A Cluster is a ClusterOf ReplicaSets and pods.
type Cluster = ClusterOf[*appsv1.ReplicaSet, *corev1.Pod]

// NewCluster returns a cluster without ReplicaSets and pods.
func NewCluster(o Options) *Cluster { return newCluster(controller.ReplicaSets(), o) }

// NewClusterOf returns a cluster without owners and children. A Kind that can
// never work is an error, as it is to controller.New.
func NewClusterOf[O Object[O], C Object[C]](kind controller.Kind[O, C], o Options) (*ClusterOf[O, C], error) {
	c := newCluster(kind, o)
	if _, err := c.NewControllerWith(controller.Options{}); err != nil {
		return nil, fmt.Errorf("replicastest: %w", err)
	}
	return newCluster(kind, o), nil
}

func newCluster[O Object[O], C Object[C]](kind controller.Kind[O, C], o Options) *ClusterOf[O, C] {
	if o.Start.IsZero() {
		o.Start = beginning
	}
	if o.Clock == nil {
		o.Clock = NewClock(o.Start)
	}
	c := &ClusterOf[O, C]{
		Clock:    o.Clock,
		kind:     kind,
		timing:   o.Timing.withDefaults(),
		random:   rand.NewPCG(o.Seed, 0),
		counting: o.Counting,
		name:     o.Name,
		quota:    map[string]int{},
		ending:   map[string]ending{},
	}
	c.owners = newTable[O](c, kind.Owner)
	c.owners.owners = true
	c.children = newTable[C](c, kind.Child)
	c.owners.anywhere, c.children.anywhere = kind.ClusterScoped, kind.ClusterScoped
	c.life = lifeOf(c)
	for i := range o.Nodes {
		c.AddNode("node-" + strconv.Itoa(i+1))
	}
	return c
}

func newTable[T Object[T]](s server, kind schema.GroupVersionKind) *table[T] {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	_, arePods := any((*table[T])(nil)).(*table[*corev1.Pod])
	return &table[T]{server: s, kind: kind.GroupKind(), resource: plural.GroupResource(), counts: !arePods}
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
func (c *ClusterOf[O, C]) Version() uint64 { return c.version }

func (c *ClusterOf[O, C]) newVersion() string {
	c.version++
	return strconv.FormatUint(c.version, 10)
}

func (c *ClusterOf[O, C]) newUID() types.UID {
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

// newName returns a name that no child of the namespace has, as the API server
// generates it.
func (c *ClusterOf[O, C]) newName(namespace, prefix string) string {
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
		if _, taken := c.children.rows.get(namespace, prefix+string(suffix)); !taken {
			return prefix + string(suffix)
		}
	}
}

// Random returns a number from 0 to n-1, the next one of the cluster's; 0 if n is
// less than 1.
func (c *ClusterOf[O, C]) Random(n int) int {
	if n < 1 {
		return 0
	}
	return rand.New(c.random).IntN(n)
}

func (c *ClusterOf[O, C]) now() time.Time { return c.Clock.Now() }

// timestamp is the present as API objects hold it, in whole seconds.
func (c *ClusterOf[O, C]) timestamp() metav1.Time {
	return metav1.NewTime(c.Clock.Now().Truncate(time.Second))
}

func (c *ClusterOf[O, C]) changed(before, after metav1.Object) {
	if c.Changed != nil {
		c.Changed(before, after)
	}
}

// copied lets a stored object leave the package.
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
