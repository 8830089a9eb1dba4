// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/selector"
)

// The types that our controller uses for ReplicaSets.
type (
	setKind   = controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
	setPass   = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]
	setClient = controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
)

// A wiring holds the parts of our controller for one scene. A test can change these parts.
type wiring struct {
	kind   setKind
	client setClient
	cache  *sceneCache
	opts   controller.Options
	woken  []types.NamespacedName
	// If onlyLooks is true, Kubernetes does not read the owner before claims in this scene. If our controller then
	// reads the owner, the read is the one before creations and deletions. Until the first deletion or status
	// write, the server therefore counts all reads of the owner in its field looks.
	onlyLooks bool
}

func (w *wiring) enqueue(owner types.NamespacedName, _ time.Duration) {
	w.woken = append(w.woken, owner)
}

// ourController is our controller in one scene.
type ourController struct {
	*controller.Controller
	*wiring
	server *server
	last   setPass
}

// ours connects the switchboard to a new server for the scene, and makes our controller for the scene. The
// functions in change can change the parts of the controller.
func (b *switchboard) ours(c scene, change ...func(*wiring)) *ourController {
	ours := &ourController{server: b.connect(c)}
	ours.wiring = &wiring{
		kind:   controller.ReplicaSets(),
		client: typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().Pods),
		cache:  &sceneCache{scene: c},
		opts:   controller.Options{Events: eventList{ours.server}},
	}
	spec := ours.kind.Spec
	ours.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		s.BurstReplicas = c.Burst
		return s, err
	}
	ours.kind.Observe = func(_ context.Context, pass setPass) { ours.last = pass }
	for _, f := range change {
		f(ours.wiring)
	}
	ours.server.deleting = ours.onlyLooks
	made, err := controller.New(ours.kind, ours.client, ours.cache, ours.enqueue, ours.opts)
	must(err)
	ours.Controller = made
	ours.looks()
	if c.Waiting {
		ours.awaits(c.RS)
	}
	return ours
}

// ledger returns the record that our controller keeps of the pods of an owner.
func (o *ourController) ledger(rs *appsv1.ReplicaSet) *ledger.Ledger[*corev1.Pod] {
	return inside.Of[inside.Ledgers[expectations.Key, *ledger.Ledger[*corev1.Pod]]](o.Controller).Ledger(expectations.KeyOf(rs))
}

// awaits makes our controller wait until the cache shows a pod that was created for the owner. The pod has already
// succeeded, so the pod does not count as a replica.
func (o *ourController) awaits(rs *appsv1.ReplicaSet) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: rs.Namespace, Name: "awaited", UID: "awaited", Labels: matching(rs.Spec.Selector),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, replicaSetKind)},
	}}
	pod.Status.Phase = corev1.PodSucceeded
	known := o.ledger(rs)
	must(known.Created(known.Start(), pod, time.Now()))
}

// looks makes the first pass of our controller. In its first pass, a controller asks the server for the current
// version of the pods. The pass does nothing else, because the spec of its owner is refused and the owner has no
// pods. looks then clears the recorded calls and events.
func (o *ourController) looks() {
	shown := *o.cache
	rs := shown.scene.RS.DeepCopy()
	rs.Generation, rs.Spec.Replicas, rs.DeletionTimestamp = rs.Generation+1, new(int32(-1)), nil // that of a deleted owner is not refused
	*o.cache = sceneCache{scene: scene{RS: rs}, version: "1"}
	_, err := o.Sync(context.Background(), types.NamespacedName{Namespace: "a", Name: "web"})
	must(err)
	*o.cache = shown
	o.server.calls, o.server.events = map[string]int{}, nil
}

// gates returns the number of gates of the pass with one reason.
func (o outcome) gates(reason controller.GateReason) (n int) {
	for _, g := range o.pass.Gates {
		if g.Reason == reason {
			n++
		}
	}
	return n
}

// pass makes one pass and returns its outcome.
func (o *ourController) pass() outcome {
	again, err := o.Sync(context.Background(), types.NamespacedName{Namespace: "a", Name: "web"})
	left := outcome{
		server: o.server, err: o.last.Err, returned: err, again: again,
		claimed: o.last.Active, related: o.cache.related, pass: o.last,
	}
	creations, deletions := o.ledger(o.cache.scene.RS).Awaited()
	left.adds, left.dels = len(creations), len(deletions)
	for i, event := range o.server.events {
		o.server.events[i] = o.server.withAliases(event)
	}
	return left
}

// ourPass makes one pass of our controller for the scene and returns its outcome.
func (b *switchboard) ourPass(c scene, change ...func(*wiring)) outcome {
	return b.ours(c, change...).pass()
}

// A sceneCache shows a scene to our controller.
type sceneCache struct {
	scene   scene
	related []*corev1.Pod // the last result of Related, nil if Related was not called
	err     error         // the error that Related returns
	version string        // the resourceVersion up to which the cache has read pods
}

func (c *sceneCache) Owner(_ context.Context, name types.NamespacedName) (*appsv1.ReplicaSet, error) {
	rs := c.scene.RS
	if rs.Namespace != name.Namespace || rs.Name != name.Name {
		return nil, apierrors.NewNotFound(appsv1.Resource("replicasets"), name.Name)
	}
	return rs, nil
}

func (c *sceneCache) Owners(context.Context, string) ([]*appsv1.ReplicaSet, error) {
	return slices.Concat(c.scene.Siblings, []*appsv1.ReplicaSet{c.scene.RS}), nil
}

func (c *sceneCache) Children(_ context.Context, owner *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return indexed(owner, c.scene.Pods), nil
}

func (c *sceneCache) Related(ctx context.Context, owner *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	owners, _ := c.Owners(ctx, owner.Namespace)
	c.related = replicas.Related(owner, owners, selector.ForReplicaSet, c.scene.Pods)
	return c.related, c.err
}

func (c *sceneCache) OwnersVersion() string   { return "" }
func (c *sceneCache) ChildrenVersion() string { return c.version }

// An eventList adds the events of our controller to the events of a server.
type eventList struct{ *server }

func (l eventList) Event(_ metav1.Object, eventType, reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	message, _, _ = strings.Cut(message, " (Kubernetes deleted it: ") // the event names the criterion that the tests add
	l.events = append(l.events, eventType+" "+reason+" "+message)
}

// named records the name that our controller gave a new pod, and an alias. The alias is the name that the
// server gives a pod without a name. Kubernetes creates all pods without names.
func (s *server) named(pod *corev1.Pod, alias string) {
	s.names = append(s.names, pod.Name)
	s.aliases = append(s.aliases, pod.Name, alias)
}

func (s *server) withAliases(text string) string {
	return strings.NewReplacer(s.aliases...).Replace(text)
}

// isName reports whether the API server could have made the name from the generateName.
func isName(name, generateName string) bool {
	prefix := generateName[:min(len(generateName), 58)]
	end, ok := strings.CutPrefix(name, prefix)
	return ok && len(end) == 5 && strings.Trim(end, "bcdfghjklmnpqrstvwxz2456789") == ""
}
