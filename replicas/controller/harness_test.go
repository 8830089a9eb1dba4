// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A rig is a Controller of one owner, with a scripted client and scripted caches. The rig itself implements the
// Client, the Cache and the EventSink of the Controller. The first pass or the first event makes the Controller.
// Until the Controller exists, a test may change the fields kind and opts.
type rig[O, C controller.Object] struct {
	kind  controller.Kind[O, C]
	opts  controller.Options
	owner O
	now   time.Time

	// These fields are the answers of the caches.
	owners                         func() ([]O, error)
	children                       func() ([]C, error)
	related                        func() ([]C, error)
	ownersVersion, childrenVersion string

	// These fields are the answers of the server.
	version     string    // the resourceVersion of created and patched children
	silent      bool      // creations and patches return no object
	send        func(c C) // sees each child that is sent, and may change it
	mutate      func(c C) // changes each created child, as a webhook does
	patched     func(c C) // changes each patched child
	create      func(i int) error
	remove      func(c C, opts metav1.DeleteOptions) error
	patch       func(c C) error
	change      func(c C, patch selector.Patch) (C, error) // answers merge patches if it is set
	dryRun      func(c C) error
	get         func(name string) (C, error)
	live        func() ([]C, error)
	liveIn      func(ctx context.Context) ([]C, error) // the answer to a list; by default, it calls live
	liveVersion string                                 // the resourceVersion of each list
	getOwner    func() (O, error)
	serverAt    func() (string, error) // the server's version of children; if nil, the client is no Versioner
	ownersAt    func() (string, error)
	patchStatus func(write int, owner O) error // the value of write is 1 for the first status write, 2 for the second, and so on
	stored      func(owner O)                  // changes the owner that a status write stores
	noStatus    bool                           // status writes return no object
	newProcess  bool                           // the first passes check the children and the owner on the server
	tell        func()                         // called for every event
	look        func()                         // called each time the Controller reads the clock

	once       sync.Once
	controller *controller.Controller
	last       controller.Pass[O, C]
	recorder   *telemetry.Recorder[O, C]
	changes    []telemetry.GateChange // of the last pass

	mu            sync.Mutex
	created       atomic.Int64 // the number of create calls
	digits        int
	calls         []string
	events        []string
	woken         []string
	statuses      []O // the owners of all status writes, with their new status
	statusPatches []string
	ownerGets     int
}

type podRig = rig[*appsv1.ReplicaSet, *corev1.Pod]

type podPass = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]

// newRig returns a rig of a ReplicaSet that wants the given number of pods.
func newRig(want int32) *podRig { return rigOf(controller.ReplicaSets(), replicaSet(want)) }

func rigOf[O, C controller.Object](kind controller.Kind[O, C], owner O) *rig[O, C] {
	r := &rig[O, C]{kind: kind, owner: owner, now: podtest.Now, recorder: telemetry.New[O, C]()}
	r.look = func() {}
	r.opts = controller.Options{MaxParallel: 1, Now: func() time.Time { r.look(); return r.now }, Random: r.random, Events: r}
	r.owners = func() ([]O, error) { return []O{r.owner}, nil }
	r.children = func() ([]C, error) { return nil, nil }
	r.related = func() ([]C, error) { return nil, nil }
	r.send, r.mutate, r.patched, r.stored, r.tell = func(C) {}, func(C) {}, func(C) {}, func(O) {}, func() {}
	r.create = func(int) error { return nil }
	r.remove = func(C, metav1.DeleteOptions) error { return nil }
	r.patch, r.dryRun = func(C) error { return nil }, func(C) error { return nil }
	r.get = func(name string) (C, error) {
		children, _ := r.children()
		for _, c := range children {
			if c.GetName() == name {
				return c, nil
			}
		}
		return *new(C), notFound(name)
	}
	r.live = func() ([]C, error) { return nil, errors.New("no list was expected") }
	r.liveIn = func(context.Context) ([]C, error) { return r.live() }
	r.getOwner = func() (O, error) { return clone(r.owner), nil }
	r.ownersAt = func() (string, error) { return "", nil }
	r.patchStatus = func(int, O) error { return nil }
	return r
}

func clone[T controller.Object](obj T) T { return obj.DeepCopyObject().(T) }

func clones[T controller.Object](objs []T) []T {
	var copies []T
	for _, obj := range objs {
		copies = append(copies, clone(obj))
	}
	return copies
}

// random makes the generated names count up, as in web-bbbbb, web-bbbbc and so on. All other random numbers are 0,
// so delays have no jitter.
func (r *rig[O, C]) random(n int) int {
	const letters, digits = 27, 5
	if n != letters {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name, place := r.digits/digits, digits-1-r.digits%digits
	r.digits++
	for range place {
		name /= letters
	}
	return name % letters
}

// start returns the Controller. The first call of start makes the Controller.
func (r *rig[O, C]) start() *controller.Controller {
	r.once.Do(func() {
		observe := r.kind.Observe
		r.kind.Observe = func(ctx context.Context, pass controller.Pass[O, C]) {
			r.mu.Lock()
			r.last, r.changes = pass, r.recorder.Record(pass)
			r.mu.Unlock()
			if observe != nil {
				observe(ctx, pass)
			}
		}
		c, err := controller.New(r.kind, r.client(), r, r.wake, r.opts)
		if err != nil {
			panic(err)
		}
		if !r.newProcess {
			controller.HasLooked(c, r.owner)
		}
		r.controller = c
	})
	return r.controller
}

func (r *rig[O, C]) wake(owner types.NamespacedName, after time.Duration) {
	if after == 0 {
		r.note(&r.woken, "%s", owner)
		return
	}
	r.note(&r.woken, "%s in %s", owner, after)
}

func (r *rig[O, C]) note(list *[]string, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, fmt.Sprintf(format, args...))
}

// The methods below implement the client.

func (r *rig[O, C]) client() controller.Client[O, C] {
	if r.serverAt == nil {
		return r
	}
	return versioner[O, C]{r}
}

// A versioner is a client that can also return the resourceVersions that the server has for owners and for
// children.
type versioner[O, C controller.Object] struct{ *rig[O, C] }

func (v versioner[O, C]) ServerOwnersVersion(_ context.Context, namespace string) (string, error) {
	v.note(&v.calls, "owners of %s", namespace)
	return v.ownersAt()
}

func (v versioner[O, C]) ServerChildrenVersion(_ context.Context, namespace string) (string, error) {
	v.note(&v.calls, "children of %s", namespace)
	return v.serverAt()
}

func (r *rig[O, C]) Create(_ context.Context, child C) (C, error) {
	i := int(r.created.Add(1)) - 1
	r.note(&r.calls, "create %s/%s", child.GetNamespace(), child.GetName())
	stored := clone(child)
	r.send(child)
	if err := r.create(i); err != nil || r.silent {
		return *new(C), err
	}
	stored.SetUID(types.UID("uid-" + stored.GetName()))
	stored.SetResourceVersion(r.version)
	r.mutate(stored)
	return stored, nil
}

func (r *rig[O, C]) Delete(_ context.Context, child C, opts metav1.DeleteOptions) error {
	r.note(&r.calls, "delete %s", child.GetName())
	return r.remove(child, opts)
}

func (r *rig[O, C]) Patch(_ context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	if len(opts.DryRun) > 0 {
		r.note(&r.calls, "dry-run %s %s", child.GetName(), patch.Data)
		return child, r.dryRun(child)
	}
	r.note(&r.calls, "patch %s %s", child.GetName(), patch.Data)
	if r.change != nil && patch.Type == types.MergePatchType {
		return r.change(child, patch)
	}
	if err := r.patch(child); err != nil || r.silent {
		return *new(C), err
	}
	patched := clone(child)
	patched.SetResourceVersion(r.version)
	if strings.Contains(string(patch.Data), `"controller":true`) {
		ref := metav1.NewControllerRef(r.owner, r.kind.Owner)
		patched.SetOwnerReferences(append(patched.GetOwnerReferences(), *ref))
	}
	r.patched(patched)
	return patched, nil
}

func (r *rig[O, C]) Get(_ context.Context, namespace, name string) (C, error) {
	where := ""
	if namespace != podtest.Namespace {
		where = namespace + "/"
	}
	r.note(&r.calls, "get %s%s", where, name)
	return r.get(name)
}

func (r *rig[O, C]) List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error) {
	r.note(&r.calls, "list %s %s", namespace, matching)
	items, err := r.liveIn(ctx)
	return ledger.List[C]{Items: items, Version: r.liveVersion}, err
}

func (r *rig[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	r.mu.Lock()
	r.ownerGets++
	r.mu.Unlock()
	r.note(&r.calls, "read owner")
	if name != r.owner.GetName() {
		owner, err := r.Owner(ctx, types.NamespacedName{Namespace: namespace, Name: name})
		if err != nil {
			return owner, err
		}
		return clone(owner), nil
	}
	return r.getOwner()
}

func (r *rig[O, C]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	if ctx.Err() != nil {
		return *new(O), ctx.Err()
	}
	r.mu.Lock()
	r.statuses, r.statusPatches = append(r.statuses, clone(owner)), append(r.statusPatches, string(patch.Data))
	write := len(r.statuses)
	r.mu.Unlock()
	if err := r.patchStatus(write, owner); err != nil {
		return *new(O), err
	}
	if r.noStatus {
		return *new(O), nil
	}
	stored := clone(owner)
	r.stored(stored)
	return stored, nil
}

// The methods below implement the caches and the event sink.

func (r *rig[O, C]) Owner(_ context.Context, name types.NamespacedName) (O, error) {
	owners, err := r.owners()
	if err != nil {
		return *new(O), err
	}
	for _, owner := range owners {
		if any(owner) == any(*new(O)) || owner.GetName() == name.Name && owner.GetNamespace() == name.Namespace {
			return owner, nil
		}
	}
	return *new(O), notFound(name.Name)
}

func (r *rig[O, C]) Owners(_ context.Context, namespace string) ([]O, error) {
	owners, err := r.owners()
	return slices.DeleteFunc(slices.Clone(owners), func(owner O) bool {
		return any(owner) != any(*new(O)) && namespace != "" && owner.GetNamespace() != namespace
	}), err
}

func (r *rig[O, C]) Children(context.Context, O) ([]C, error) { return r.children() }
func (r *rig[O, C]) Related(context.Context, O) ([]C, error)  { return r.related() }
func (r *rig[O, C]) OwnersVersion() string                    { return r.ownersVersion }
func (r *rig[O, C]) ChildrenVersion() string                  { return r.childrenVersion }

func (r *rig[O, C]) Event(_ metav1.Object, eventType, reason, message string) {
	r.note(&r.events, "%s %s %s", eventType, reason, message)
	r.tell()
}

// key returns the key of the owner.
func (r *rig[O, C]) key() expectations.Key { return expectations.KeyOf(r.owner) }

// pass makes a pass with these children in the cache. The pass begins the given number of seconds after
// podtest.Now.
func (r *rig[O, C]) pass(t *testing.T, seconds int, children ...C) (controller.Pass[O, C], error) {
	t.Helper()
	return r.passAt(t, time.Duration(seconds)*time.Second, children...)
}

// passAt makes a pass with these children in the cache. The pass begins at the given time after podtest.Now.
func (r *rig[O, C]) passAt(t *testing.T, at time.Duration, children ...C) (controller.Pass[O, C], error) {
	t.Helper()
	r.now = podtest.Now.Add(at)
	r.children = func() ([]C, error) { return children, nil }
	before := clones(children)
	pass, err := r.sync(t, t.Context())
	require.Equal(t, before, children, "Y14 what the cache returns is not changed")
	return pass, err
}

// sync makes one pass, and leaves the caches as they are.
func (r *rig[O, C]) sync(t *testing.T, ctx context.Context) (controller.Pass[O, C], error) { //nolint:revive // as in testify
	t.Helper()
	r.calls, r.events, r.last = nil, nil, controller.Pass[O, C]{}
	before := clone(r.owner)
	after, err := r.start().Sync(ctx, r.key().NamespacedName)
	require.Equal(t, before, r.owner, "Y14 what the cache returns is not changed")
	require.Equal(t, r.last.RequeueAfter, after)
	return r.last, err
}

// callsOf returns the calls of the last pass, and eventsOf returns the events of the last pass. Both functions
// leave out each text that does not begin with the argument start.
func (r *rig[O, C]) callsOf(start string) []string  { return r.starting(&r.calls, start) }
func (r *rig[O, C]) eventsOf(start string) []string { return r.starting(&r.events, start) }

func (r *rig[O, C]) starting(list *[]string, start string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(*list), func(s string) bool { return !strings.HasPrefix(s, start) })
}

// gatesOf returns the objects of the gates with one reason.
func gatesOf(gates []controller.Gate, reason controller.GateReason) (objects []string) {
	for _, g := range gates {
		if g.Reason == reason {
			objects = append(objects, g.Object)
		}
	}
	return objects
}

// requireGate returns the first gate with this reason.
func requireGate(t *testing.T, gates []controller.Gate, reason controller.GateReason) controller.Gate {
	t.Helper()
	i := slices.IndexFunc(gates, func(g controller.Gate) bool { return g.Reason == reason })
	require.GreaterOrEqual(t, i, 0, "%v has no %v", gates, reason)
	return gates[i]
}

func count(list []string, item string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s != item }))
}

// wakes returns the owners that were woken since the last call of wakes. The result is sorted and contains each
// entry once, because a work queue also merges equal entries.
func (r *rig[O, C]) wakes() []string {
	woken := slices.Compact(slices.Sorted(slices.Values(r.woken)))
	r.woken = nil
	return woken
}

// known returns the ledger of the owner.
func (r *rig[O, C]) known() *ledger.Ledger[C] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[C]]](r.start()).Ledger(r.key())
}

// pending returns how many creations and deletions the cache does not show yet.
func (r *rig[O, C]) pending() (adds, dels int) {
	known := r.ledgers()[r.key()]
	if known == nil {
		return 0, 0
	}
	creations, deletions := known.Awaited()
	return len(creations), len(deletions)
}

func (r *rig[O, C]) ledgers() map[expectations.Key]*ledger.Ledger[C] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[C]]](r.start()).Ledgers()
}

func sum(adds, dels int) int { return adds + dels }

// awaits makes an owner wait until the cache shows children with these names. The ledger records the children as
// created. The children are pods that have already succeeded, so the passes do not count them as replicas.
func (r *rig[O, C]) awaits(owner O, names ...string) {
	known := inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[C]]](r.start()).Ledger(expectations.KeyOf(owner))
	for _, name := range names {
		pod := podtest.Pod(name, podtest.OwnedBy(owner, r.kind.Owner.GroupVersion().String(), r.kind.Owner.Kind), podtest.Phase(corev1.PodSucceeded))
		pod.Namespace = owner.GetNamespace()
		if rs, ok := any(owner).(*appsv1.ReplicaSet); ok {
			pod.Labels = rs.Spec.Selector.MatchLabels
		}
		child, ok := any(pod).(C)
		if !ok {
			panic("awaits is for pods")
		}
		if err := known.Created(known.Start(), child, r.now); err != nil {
			panic(err)
		}
	}
}

// settle informs the ledger about all awaited creations and deletions, as if their events had arrived.
func (r *rig[O, C]) settle() {
	creations, deletions := r.known().Awaited()
	for _, name := range creations {
		r.known().ObserveLeaving(types.UID("uid-" + name))
	}
	children, _ := r.children()
	for _, c := range children { // the cache still has these children, so they were not deleted
		if !object.IsNil(c) && slices.Contains(deletions, object.ID(c)) {
			_ = r.known().Observe(r.known().Start(), c, r.now)
		}
	}
}

// forget sends the event of the owner's deletion.
func (r *rig[O, C]) forget(t *testing.T) {
	t.Helper()
	require.NoError(t, r.start().OwnerDeleted(r.owner))
	r.woken = nil
}

// forgetName makes a pass that does not find the owner in the cache.
func (r *rig[O, C]) forgetName(t *testing.T) {
	t.Helper()
	owners := r.owners
	r.owners = func() ([]O, error) { return nil, nil }
	_, err := r.sync(t, t.Context())
	require.NoError(t, err)
	r.owners = owners
}

var web = map[string]string{"app": "web"}

// replicaSet returns the ReplicaSet default/web that wants n pods labelled
// app=web.
func replicaSet(n int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid-of-web", Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: web},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1"}}},
			},
		},
	}
}

func owned(rs *appsv1.ReplicaSet) podtest.Option {
	return podtest.OwnedBy(rs, "apps/v1", "ReplicaSet")
}

// podsOf returns n pods of the ReplicaSet, named web-000, web-001 and so on. They differ only in their names and
// UIDs.
func podsOf(rs *appsv1.ReplicaSet, n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = podtest.Pod(fmt.Sprintf("web-%03d", i), owned(rs))
	}
	return pods
}

// versioned sets the resourceVersion of each pod, because podtest.Pod leaves it empty.
func versioned(pods []*corev1.Pod) []*corev1.Pod {
	for _, p := range pods {
		p.ResourceVersion = "7"
	}
	return pods
}

func version(v string) podtest.Option { return func(p *corev1.Pod) { p.ResourceVersion = v } }

func names[T metav1.Object](objs []T) []string {
	var names []string
	for _, obj := range objs {
		names = append(names, obj.GetName())
	}
	return names
}

func find(pods []*corev1.Pod, name string) (*corev1.Pod, error) {
	for _, p := range pods {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, notFound(name)
}

func requireRefused(t *testing.T, err error, reason string) {
	t.Helper()
	var refused *replicas.RefusedError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, reason, refused.Reason)
}

var podResource = schema.GroupResource{Resource: "pods"}

func notFound(name string) error { return apierrors.NewNotFound(podResource, name) }
func conflict(name string) error {
	return apierrors.NewConflict(podResource, name, errors.New("the object has been modified"))
}

func alreadyExists(name string) error { return apierrors.NewAlreadyExists(podResource, name) }

func invalid(name string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, name, nil)
}

func forbidden(name, why string) error {
	return apierrors.NewForbidden(podResource, name, errors.New(why))
}

func quotaFull() error {
	return forbidden("web-x", "exceeded quota: pods, requested: pods=1, used: pods=3, limited: pods=3")
}

func namespaceTerminating() error {
	err := apierrors.NewForbidden(podResource, "", errors.New("unable to create new content in namespace default because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func namespaceGone() error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "default")
}

func busy(seconds int) error { return apierrors.NewTooManyRequests("slow down", seconds) }

// resent wraps an error as the error of a request that the client sent more than once.
func resent(err error) error { return fmt.Errorf("%w (%w)", err, controller.ErrResent) }

func timeout() error { return apierrors.NewTimeoutError("the request has timed out", 0) }

// nothing is a Prepare that removes all calls from the step.
func nothing(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
	s.Create, s.Delete, s.Discard = nil, nil, nil
	return nil
}
