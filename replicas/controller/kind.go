// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

// A Kind describes how the Controller handles one kind of owner. O and C are the pointer types of owners and children,
// such as *appsv1.ReplicaSet and *corev1.Pod. ReplicaSets and ReplicationControllers return ready-made Kinds. The
// functions of a Kind must be safe for concurrent use. They must neither block nor modify their arguments, unless their
// comment says so.
type Kind[O, C Object] struct {
	// Owner and Child are the GroupVersionKinds of the owners and of their children. Required. New returns an error
	// if the Go type is one of k8s.io/api and has another kind. A pass fails if the apiVersion and kind of an owner
	// name another group or kind; the objects of typed caches usually lack them.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped is false if an owner and its children are in the same namespace. It is true if the owners have no
	// namespace. The New function of the Spec then chooses the namespace of each child, so the children of one owner may
	// be in one namespace, in several or in none. The Controller adopts orphans in all namespaces then, and its live
	// lists cover all namespaces. For an owner that ClusterScoped does not fit, Sync returns an error and does nothing.
	ClusterScoped bool

	// Spec returns the replicas.Spec of an owner, with the number of wanted children and their selector. The
	// Controller fills in Owner, Kind and Facts. Of the Facts, Spec may set Related, in place of Cache.Related,
	// and Taken, to which the Controller adds. If the children are not pods, Spec must set New.
	//
	// After an error of Spec, the Controller sends a FailedSpec event, and Sync returns the error so that the caller
	// tries again. If only a change of the owner can fix the error, Spec should return a
	// *replicas.RefusedError. The Controller then sends an event and does nothing until the owner changes, and within
	// one generation of the owner it sends another event only for another message. New and Prepare may also return a
	// RefusedError, with events by the same rules. After one of New, nothing is created, unless the Spec has Slots:
	// then the children of the other slots are still created. After one of Prepare, nothing is created or deleted.
	//
	// Spec must be deterministic, and must depend only on the owner, including the owner's status, and on other
	// objects as SpecLive says. After a status write, the Controller calls Spec again with the updated owner, and
	// another pass follows if the new result adopts, releases, changes, creates or deletes other children than the
	// earlier one, or another number of them. The same comparison decides whether a newer owner on the server wants
	// something else. Required.
	Spec func(owner O) (replicas.Spec[C], error)

	// SpecLive is the same function as Spec, but reads other objects from the server. Set SpecLive if Spec reads
	// another object than the owner, such as a template, a class or the length of a queue: Spec reads it from a
	// cache, which may be old. Before a pass deletes, discards or changes children, it reads the owner from the server,
	// and calls SpecLive with that owner. If the plan of this Spec deletes and changes the same children in the same
	// way, the pass goes on. Otherwise none is deleted or changed, and Prepare is not called. The gate InputsStale then
	// names both plans, and the pass comes again after 50 ms, doubling to a minute. So what is promised about deletions
	// holds for the owner and for the other objects as they were when they were read. But adoptions and releases come
	// before that, and like creations they follow Spec. So a child may be made from an old template, and is replaced
	// later. If SpecLive is nil, the other objects may be as old in a deletion as the cache of Spec is.
	//
	// If the two functions differ for equal objects, nothing is ever deleted. A gate InputsStale that lasts for
	// minutes is a sign of that, or of a cache that hangs, and its plans show which children are in dispute.
	//
	// SpecLive may block. Its ctx ends when the context of Sync ends, and after PrepareTimeout at the latest. After
	// an error of SpecLive, nothing is created or deleted in this pass. The Controller sends a FailedReadOwner event,
	// Sync returns the error, and the pass comes again after a second, doubling to five minutes (the gate
	// OwnerUnread).
	//
	// The Controller does not watch other objects, so after a change of one, a watch or a source that ticks must request
	// a pass for each owner that uses it. In the module replicas/controllerruntime, the function Build of the
	// Options adds them. Events of children are judged by the Spec of the owner's last pass.
	//
	// Return a Spec with Paused if another object does not exist or a number is not known. The children then stay,
	// and the status is written, whereas children would be deleted for a number 0 in place of one that is not known.
	// Only if New alone needs the object, as with a template, New may return a RefusedError in place of that, so the
	// number can still shrink. Return an error only if an object cannot be read. Two things must come from the owner
	// alone or be constant: Selector, because Cache.Children selects by it, and Finalizer. The owner's own children
	// must not be an input of Spec, because the cache lacks what the Controller knows of them. Rules, Order and Prepare
	// see them.
	SpecLive func(ctx context.Context, owner O) (replicas.Spec[C], error)

	// Status updates the status of an owner from the outcome of a pass. It is called at the end of each pass that has
	// counted the children, and once more, with a fresh copy of the owner, if the status write meets a Conflict. Its owner
	// is a copy, and Status may modify nothing but the status of it: otherwise no status is written, and an error and an
	// event say what was modified. For equal outcomes, apart from Now, Status should set the same status, because each
	// write costs a call. The gate StatusFaulty reports it if four writes in a row follow from nothing but Status itself.
	// If Status is nil, no status is written.
	Status func(owner O, outcome Outcome[C]) error
	// Refused updates the status of an owner whose spec is refused, usually with a condition. Its err is the
	// *replicas.RefusedError of Spec, or of package replicas for the result of Spec. The owner is a copy, and its status
	// is written in the same way as that of Status, also while the owner is being deleted. Status is not called in such
	// a pass, because nothing was counted and zeros would be written. But it must take the condition back when the spec
	// is mended. For the same owner and the same error, Refused must set the same status, because each write causes
	// another pass. A RefusedError of New or Prepare leads to Status and not to Refused, because the children were
	// counted. If Refused is nil, no status is written for a refused spec, as in Kubernetes.
	Refused func(owner O, err error)
	// StatusOf returns the owner's whole status, or a pointer to it. The Controller writes a new status only if it differs
	// from the old one, so changes of fields that StatusOf left out would not be written. If StatusOf is nil, the
	// Controller compares whole owners, which is slower.
	StatusOf func(owner O) any

	// PatchType is the type of the patches that adopt and release children: strategic merge patches for kinds that
	// Kubernetes itself serves, and merge patches for custom resources. If it is empty, the API group of the children
	// decides. Groups that are empty, contain no dot or end in ".k8s.io" get strategic merge patches, and all others
	// merge patches.
	PatchType types.PatchType

	// Prepare is a hook that the Controller calls in each pass before it changes, creates or deletes anything, at most
	// once. Prepare chooses which part of the plan is carried out in this pass. For example, an operator can use it to
	// create volume claims, to cordon and drain nodes, to keep a quorum, or to postpone a deletion. If Prepare is nil,
	// the whole plan is carried out.
	//
	// Prepare is called in each pass that has computed which children to change, create and delete, even if the plan
	// is empty, so that it can undo what it began for an earlier plan. For example, it may have cordoned a child that an
	// earlier plan listed for deletion. If step.Later is 0 and step.Delete does not contain that child, the child no
	// longer has to be deleted. But Prepare is not called if the pass must first wait for something, such as the cache.
	// It is also not called for a plan with deletions or changes if earlier passes have postponed all calls in it.
	// Before any other plan with deletions or changes, the Controller reads the owner from the server, and calls
	// Prepare only if the read succeeds and the owner still wants the same.
	//
	// To prevent a change, creation or deletion in this pass, Prepare removes its entry from step.Update,
	// step.Create, step.Delete or step.Discard. It may remove any entry, and may modify the lists in place. If it adds
	// one, nothing is created or deleted, and the Controller sends an InvalidStep event. The next pass plans the
	// removed entries again. It runs when a child or the owner changes, or after the delay step.RequeueAfter. If
	// Prepare returns an error or panics, nothing is created or deleted, and Sync returns the error, unless it is a
	// RefusedError. The next pass then runs after step.RequeueAfter, if that is set, instead of the rate limiter's
	// delay.
	//
	// Prepare may block, for example in calls to the API server. Its ctx ends when the context of Sync
	// ends, and after PrepareTimeout at the latest. While it blocks, only this owner and one worker are delayed.
	Prepare func(ctx context.Context, owner O, step *Step[C]) error

	// Client returns the Client that makes all calls of the Controller, usually a struct that embeds the argument and
	// has its own Create, which for example makes a second object first. The argument is the Client that was passed to
	// New, which an adapter has made. The comments of Client say what such methods must send and return. A deletion that
	// is an update needs no Client of its own, but Spec.Retire. The Controller looks for signs of a restore in what the
	// returned Client answers, and Pass.Calls lists the calls of its methods. But the methods of a Versioner are those
	// of the argument. New calls the function once, and returns an error if the result is nil. If the function is nil,
	// the Client that was passed to New makes all calls.
	Client func(client Client[O, C]) Client[O, C]

	// Observe is called at the end of every pass, for example to update metrics or to write logs. This includes
	// a pass that panicked, unless Observe itself did. Observe may be nil.
	Observe func(ctx context.Context, pass Pass[O, C])
}

func (k Kind[O, C]) check() error {
	switch {
	case k.Owner.Kind == "" || k.Owner.Version == "":
		return fmt.Errorf("controller: kind: Owner %q is incomplete", k.Owner)
	case k.Child.Kind == "" || k.Child.Version == "":
		return fmt.Errorf("controller: kind %s: Child %q is incomplete", k.Owner.Kind, k.Child)
	case isOther[O](k.Owner):
		return fmt.Errorf("controller: kind %s: Owner is %q, but the owners have the Go type %v", k.Owner.Kind, k.Owner, reflect.TypeFor[O]())
	case isOther[C](k.Child):
		return fmt.Errorf("controller: kind %s: Child is %q, but the children have the Go type %v", k.Owner.Kind, k.Child, reflect.TypeFor[C]())
	case k.Spec == nil:
		return fmt.Errorf("controller: kind %s has no Spec", k.Owner.Kind)
	}
	switch k.PatchType {
	case "", types.StrategicMergePatchType, types.MergePatchType:
		return nil
	}
	return fmt.Errorf("controller: kind %s: PatchType %q is neither a strategic nor a JSON merge patch", k.Owner.Kind, k.PatchType)
}

// isOther reports whether T is a type of k8s.io/api for another kind.
func isOther[T Object](kind schema.GroupVersionKind) bool {
	// The owners are ReplicaSets of Go, and the Kind calls them Deployments. They come without an apiVersion and kind, so
	// nothing else would show that each child refers to an owner that does not exist. The garbage collector would delete
	// all children.
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	group, _, _ := strings.Cut(cmp.Or(kind.Group, "core"), ".")
	path, found := strings.CutPrefix(t.PkgPath(), "k8s.io/api/")
	return found && (t.Name() != kind.Kind || path != group+"/"+kind.Version)
}

// A Step is the argument of Kind.Prepare. It lists the children that a pass is about to create and delete.
type Step[C Object] struct {
	// Now is the time at which the pass began.
	Now time.Time
	// Active lists the owner's active children, without those that an earlier delete call without an answer may still
	// delete, unless the plan deletes them again. Terminating lists the children that are being deleted and are not
	// active. The children must not be modified.
	Active, Terminating []C
	// Create lists the names of the children to create. Group returns the group of each.
	Create []string
	// Delete lists the children to delete, including those whose deletion was postponed by an earlier pass.
	// Deletion.Replaced is true if a rule requires the deletion, and false if there are too many children.
	// Discard lists the children to clean up, for which Rules.Discard or Rules.Failed returns true.
	Delete, Discard []replicas.Deletion[C]
	// Update lists the children to change in place, including those whose change was postponed by an earlier pass, and
	// the recalls (Change.Recall), which take the place of creations.
	Update []replicas.Change[C]
	// Later is the number of creations and deletions that are left to later passes, because they would exceed
	// MaxDeletions or BurstReplicas, or must wait until another child has been created or has become available. If
	// Later is 0, Delete contains all children that have to be deleted.
	Later int
	// InFlight is the number of earlier creations and deletions that had no answer and may still take effect.
	InFlight int
	// RequeueAfter is a delay that Prepare may set, after which it is called again even if nothing has changed. If it is
	// 0, no such call is scheduled. A negative value is an error.
	RequeueAfter time.Duration

	planned replicas.Scale[C]
}

// Group returns the name of the group of a child in Create. It is "" without Spec.Groups, and for any other name.
func (s *Step[C]) Group(name string) string {
	return s.planned.Group(slices.Index(s.planned.Names, name))
}

// NoneLeft reports whether the owner has no children and no earlier call can still take effect, so that an owner that
// is being deleted no longer needs its finalizer. It ignores pods that have ended and that no rule discards.
func (s *Step[C]) NoneLeft() bool {
	return len(s.Active)+len(s.Terminating)+len(s.Discard)+s.InFlight+s.planned.MustStay == 0 // one that must stay may have ended
}

// PrepareTimeout is the timeout of the context that the Controller passes to Kind.Prepare.
const PrepareTimeout = 30 * time.Second

// ReplicaSets returns the Kind of ReplicaSets. The caller may modify the result, for example to set
// Prepare and Observe, or to wrap Spec in a function that sets BurstReplicas or an order.
func ReplicaSets() Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	return Kind[*appsv1.ReplicaSet, *corev1.Pod]{
		Owner: appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  replicas.ReplicaSetSpec,
		Status: func(rs *appsv1.ReplicaSet, o Outcome[*corev1.Pod]) error {
			s := &rs.Status
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = o.Counts.Replicas, o.Counts.FullyLabeled, o.Counts.Ready, o.Counts.Available
			*replicaset.Terminating(s), s.ObservedGeneration = &o.Counts.Terminating, o.Generation
			status.SetFailure(&s.Conditions, o.Failure())
			return nil
		},
		StatusOf: func(rs *appsv1.ReplicaSet) any { return &rs.Status },
	}
}

// ReplicationControllers returns the Kind of ReplicationControllers. The status of a
// ReplicationController has no terminatingReplicas.
func ReplicationControllers() Kind[*corev1.ReplicationController, *corev1.Pod] {
	return Kind[*corev1.ReplicationController, *corev1.Pod]{
		Owner: corev1.SchemeGroupVersion.WithKind("ReplicationController"),
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  replicas.ReplicationControllerSpec,
		Status: func(rc *corev1.ReplicationController, o Outcome[*corev1.Pod]) error {
			s := &rc.Status
			s.Replicas, s.FullyLabeledReplicas, s.ReadyReplicas, s.AvailableReplicas = o.Counts.Replicas, o.Counts.FullyLabeled, o.Counts.Ready, o.Counts.Available
			s.ObservedGeneration = o.Generation
			status.SetFailure(&s.Conditions, o.Failure())
			return nil
		},
		StatusOf: func(rc *corev1.ReplicationController) any { return &rc.Status },
	}
}

// lingers reports whether a child continues to exist after the server has accepted its deletion, because it has
// finalizers or is a pod that must first stop on its node.
func lingers(c Object) bool {
	if pod, ok := c.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace := pod.Spec.TerminationGracePeriodSeconds
		return grace == nil || *grace > 0 || len(pod.Finalizers) > 0
	}
	return len(c.GetFinalizers()) > 0
}

// vanishes reports whether the server has removed a child, although the cache may still show it as terminating.
func vanishes[C Object](c C) bool {
	grace := c.GetDeletionGracePeriodSeconds()
	return c.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(c.GetFinalizers()) == 0
}

// patchTypeFor returns the given patch type or, if it is empty, the default of Kind.PatchType.
func patchTypeFor(asked types.PatchType, child schema.GroupVersionKind) types.PatchType {
	switch {
	case asked != "":
		return asked
	case !strings.Contains(child.Group, ".") || strings.HasSuffix(child.Group, ".k8s.io"):
		return types.StrategicMergePatchType
	}
	// The server refuses strategic merge patches of custom resources, so their orphans would never be adopted.
	return types.MergePatchType
}
