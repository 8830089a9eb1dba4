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

// What our controller of ReplicaSets is made of.
type (
	setKind   = controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
	setPass   = controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]
	setClient = controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
)

// A wiring is what our controller of one scene is made of, for a test to change.
type wiring struct {
	kind   setKind
	client setClient
	cache  *sceneCache
	opts   controller.Options
	woken  []types.NamespacedName
	// onlyLooks says that Kubernetes does not read the owner before claims, so a read of ours is the one before changes.
	onlyLooks bool
}

func (w *wiring) enqueue(owner types.NamespacedName, _ time.Duration) {
	w.woken = append(w.woken, owner)
}

// ourController is ours in a scene.
type ourController struct {
	*controller.Controller
	*wiring
	server *server
	last   setPass
}

// ours connects the switchboard with the scene, and makes our controller for it,
// out of parts that may be changed.
func (b *switchboard) ours(c scene, change ...func(*wiring)) *ourController {
	ours := &ourController{server: b.connect(c)}
	ours.wiring = &wiring{
		kind:   controller.ReplicaSets(),
		client: typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().Pods),
		cache:  &sceneCache{scene: c},
		opts:   controller.Options{Events: eventList{ours.server}},
	}
	spec := ours.kind.Spec
	ours.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.PodSpec, error) {
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

// ledger is what our controller knows of the pods of an owner.
func (o *ourController) ledger(rs *appsv1.ReplicaSet) *ledger.Ledger[*corev1.Pod] {
	return inside.Of[inside.Ledgers[*ledger.Ledger[*corev1.Pod]]](o.Controller).Ledger(expectations.KeyOf(rs))
}

// awaits lets an owner wait for a pod that it has created, and that has ended since, so that it
// counts nowhere.
func (o *ourController) awaits(rs *appsv1.ReplicaSet) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: rs.Namespace, Name: "awaited", UID: "awaited", Labels: matching(rs.Spec.Selector),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rs, replicaSetKind)},
	}}
	pod.Status.Phase = corev1.PodSucceeded
	known := o.ledger(rs)
	must(known.Created(known.Start(), pod, time.Now()))
}

// looks makes a pass that looks at the server, because the first one of a process does so. Its
// owner is refused and has no pods, so it does nothing else.
func (o *ourController) looks() {
	shown := *o.cache
	rs := shown.scene.RS.DeepCopy()
	rs.Generation, rs.Spec.Replicas = rs.Generation+1, new(int32(-1))
	*o.cache = sceneCache{scene: scene{RS: rs}, version: "1"}
	_, err := o.Sync(context.Background(), types.NamespacedName{Namespace: "a", Name: "web"})
	must(err)
	*o.cache = shown
	o.server.calls, o.server.events = map[string]int{}, nil
}

// pass makes a pass, and returns what it has left behind by then.
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

// ourPass is one pass of ours.
func (b *switchboard) ourPass(c scene, change ...func(*wiring)) outcome {
	return b.ours(c, change...).pass()
}

// A sceneCache shows a scene to our controller.
type sceneCache struct {
	scene   scene
	related []*corev1.Pod // if it was asked
	err     error         // of that
	version string        // how far pods have come

	ownersVersion string // how far owners have come
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

func (c *sceneCache) OwnersVersion() string   { return c.ownersVersion }
func (c *sceneCache) ChildrenVersion() string { return c.version }

// An eventList keeps our events with its server.
type eventList struct{ *server }

func (l eventList) Event(_ metav1.Object, eventType, reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	message, _, _ = strings.Cut(message, " (Kubernetes deleted it: ") // what an order here calls its criterion
	l.events = append(l.events, eventType+" "+reason+" "+message)
}

// named notes a creation under a name of ours, and what Kubernetes would call it,
// which leaves that to the API server.
func (s *server) named(pod *corev1.Pod, alias string) {
	s.names = append(s.names, pod.Name)
	s.aliases = append(s.aliases, pod.Name, alias)
}

func (s *server) withAliases(text string) string {
	return strings.NewReplacer(s.aliases...).Replace(text)
}

// isName reports whether a name is one that the API server might have made of a
// generateName.
func isName(name, generateName string) bool {
	prefix := generateName[:min(len(generateName), 58)]
	end, ok := strings.CutPrefix(name, prefix)
	return ok && len(end) == 5 && strings.Trim(end, "bcdfghjklmnpqrstvwxz2456789") == ""
}
