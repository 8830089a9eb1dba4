// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
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

// A Kind describes how the Controller handles one kind of owner. O and C are the pointer types of owners
// and children, such as *appsv1.ReplicaSet and *corev1.Pod. The functions ReplicaSets and
// ReplicationControllers return ready-made Kinds. The functions of a Kind must be safe for concurrent use.
// A function may block or modify its arguments only if its comment says so.
type Kind[O, C Object] struct {
	// Owner and Child are the GroupVersionKinds of the owners and of their children. Required. New returns an error
	// if the Go type is one of k8s.io/api and has another kind. A pass fails if the apiVersion and kind of an owner
	// name another group or kind; the objects of typed caches usually lack them.
	Owner, Child schema.GroupVersionKind
	// ClusterScoped is true if the owners have no namespace. In this case, the New function of the Spec
	// chooses the namespace of each child. The children of one owner may be in one namespace, in several
	// namespaces, or in no namespace. The Controller adopts orphans in all namespaces, and its live lists
	// cover all namespaces. If ClusterScoped is false, an owner and its children are in the same namespace.
	// If ClusterScoped is true and an owner has a namespace, Sync returns an error and does nothing for
	// that owner. The same applies if ClusterScoped is false and an owner has no namespace.
	ClusterScoped bool

	// Spec returns the replicas.Spec of an owner, with the number of wanted children and their selector. The
	// Controller fills in Owner, Kind and Facts. Of the Facts, Spec may set Related, in place of Cache.Related,
	// and Taken, to which the Controller adds. If the children are not pods, Spec must set New.
	//
	// If an error can be fixed only by a change of the owner, Spec should return a *replicas.RefusedError.
	// The Controller then sends an event, and does nothing until the owner changes. Within one generation of
	// the owner, another event is sent only if the error message has changed. New and Prepare may also return
	// a RefusedError. The Controller then sends events by the same rules as after a RefusedError from Spec.
	// If New returns a RefusedError and the Spec has no Slots, nothing is created. If the Spec has Slots and
	// New returns a RefusedError for one slot, the children of the other slots are still created. If Prepare
	// returns a RefusedError, nothing is created or deleted. If Spec returns any other error, the Controller
	// sends a FailedSpec event, and Sync returns the error so that the caller tries again.
	//
	// Spec must be deterministic, and must depend only on the owner, including the owner's status, and on other
	// objects as SpecLive says. After a status write, the Controller calls Spec again with the updated owner.
	// Another pass follows if the new result adopts, releases, changes, creates or deletes other children
	// than the earlier one, or another number of them. The same comparison decides whether a newer owner on the server
	// wants something else. Required.
	Spec func(owner O) (replicas.Spec[C], error)

	// SpecLive is the same function as Spec, but reads other objects from the server. Set SpecLive if Spec reads
	// another object than the owner, such as a template, a class or the length of a queue: Spec reads it from a
	// cache, which may be old. Before a pass deletes, discards or changes children, it reads the owner from the server,
	// and calls SpecLive with that owner. Unless the plan of this Spec deletes and changes the same children in the
	// same way, none is deleted or changed, and Prepare is not called. The gate InputsStale then names both plans, and the pass comes again after 50 ms,
	// doubling to a minute. So what is promised about deletions holds for the owner and for the other objects as
	// they were when they were read. Adoptions and releases come before that, and like creations they follow Spec.
	// A child may therefore be made from an old template, and is replaced later. If SpecLive is nil, the other
	// objects may be as old in a deletion as the cache of Spec is.
	//
	// If the two functions differ for equal objects, nothing is ever deleted. A gate InputsStale that lasts for
	// minutes is a sign of that, or of a cache that hangs, and its plans show which children are in dispute.
	//
	// SpecLive may block. Its ctx ends when the context of Sync ends, and after PrepareTimeout at the latest. After
	// an error of SpecLive, nothing is created or deleted in this pass. The Controller sends a FailedReadOwner event,
	// Sync returns the error, and the pass comes again after a second, doubling to five minutes (the gate
	// OwnerUnread).
	//
	// The Controller does not watch other objects. Whoever changes one must get a pass for each owner that uses it,
	// by a watch or by a source that ticks. In the module replicas/controllerruntime, the function Build of the
	// Options adds them. Events of children are judged by the Spec of the owner's last pass.
	//
	// If another object does not exist, or a number is not known, return a Spec with Paused. The children then stay,
	// and the status is written. Do not return an error, or the number 0 for one that is not known: children would
	// be deleted for it. If only New needs the object, as with a template, New may return a RefusedError in place of
	// that, so the number can still shrink. If an object cannot be read, return the error. Two things must come from
	// the owner alone or be constant: Selector, because Cache.Children selects by it, and Finalizer. The owner's own
	// children must not be an input of Spec, because the cache lacks what the Controller knows of them. Rules, Order
	// and Prepare see them.
	SpecLive func(ctx context.Context, owner O) (replicas.Spec[C], error)

	// Status updates the status of an owner from the outcome of a pass. The argument owner is a copy, and
	// Status must modify only the status of this copy. If it modifies the metadata or the spec as well, no status is
	// written, and an error and an event say what was modified. The Controller calls Status at the end of each pass
	// that has counted the children. For equal outcomes, apart from Now, Status should set the same status, because
	// each write costs a call. If four writes in a row follow from nothing but Status itself, the gate StatusFaulty
	// reports that. If the status write fails with a Conflict, Status is called again with a
	// fresh copy of the owner. If Status is nil, no status is written.
	Status func(owner O, outcome Outcome[C]) error
	// Refused updates the status of an owner whose spec is refused, usually with a condition. The argument err is
	// the *replicas.RefusedError of Spec, or of package replicas for the result of Spec. The argument owner is a
	// copy, and its status is written in the same way as that of Status, also while the owner is being deleted.
	// Status is not called in such a pass, because nothing was counted and zeros would be written. When the spec
	// is mended, Status must take the condition back. For the same owner and the same error, Refused must set
	// the same status, because each write causes another pass. If New or Prepare returns a RefusedError, the
	// children were counted, so Status is called and Refused is not. If Refused is nil, no status is written
	// for a refused spec, as in Kubernetes.
	Refused func(owner O, err error)
	// StatusOf returns the owner's whole status, or a pointer to the whole status. The Controller
	// compares the owner's old and new status, and writes the new one only if they differ. If StatusOf
	// returned only a part of the status, changes of the other fields would not be written. If StatusOf
	// is nil, the Controller compares whole owners, which is slower.
	StatusOf func(owner O) any

	// PatchType is the type of the patches that adopt and release children. Use strategic merge patches for
	// kinds that Kubernetes itself serves, and merge patches for custom resources. If PatchType is empty, the
	// API group of the children determines the type. If the group is empty, contains no dot or ends in
	// ".k8s.io", the type is strategic merge patch. For all other groups, the type is merge patch.
	PatchType types.PatchType

	// Prepare is a hook that the Controller calls in each pass before it changes, creates or deletes anything. Prepare
	// chooses which part of the plan is carried out in this pass. For example, an operator can use Prepare to
	// create volume claims, to cordon and drain nodes, to keep a quorum, or to postpone a deletion. If Prepare
	// is nil, the whole plan is carried out.
	//
	// Prepare is called in each pass that has computed which children to change, create and delete, even if the plan
	// is empty. This allows Prepare to undo what it began for an earlier plan. For example, Prepare may have
	// cordoned a child that an earlier plan listed for deletion. If step.Later is 0 and step.Delete does not
	// contain the cordoned child, the child no longer has to be deleted. Prepare is not called if the pass
	// must first wait for something, such as the cache. If the plan contains deletions or changes, but earlier
	// passes have postponed all calls in the plan, Prepare is not called either. If the plan contains deletions or
	// changes, the Controller first reads the owner from the server. If the read fails, or shows that the owner now wants
	// something else, Prepare is not called.
	//
	// To prevent a change, creation or deletion in this pass, Prepare removes its entry from step.Update,
	// step.Create, step.Delete or step.Discard. Prepare may remove any entry, and may modify the lists in place. If
	// Prepare adds an entry, nothing is created or deleted, and the Controller sends an InvalidStep event.
	// The next pass plans the removed entries again. It runs when a child or the owner changes, or after
	// the delay step.RequeueAfter. If Prepare returns an error or panics, nothing is created or deleted.
	// Sync returns the error, except for a RefusedError. If Prepare returns an error and sets step.RequeueAfter,
	// the next pass runs after step.RequeueAfter instead of the rate limiter's delay.
	//
	// Prepare may block, for example in calls to the API server. Its ctx ends when the context of Sync
	// ends, and after PrepareTimeout at the latest. While Prepare blocks, only this owner and one worker
	// are delayed. The other functions of a Kind must not block.
	//
	// A pass calls Prepare at most once.
	Prepare func(ctx context.Context, owner O, step *Step[C]) error

	// Client returns the Client that makes all calls of the Controller. Its argument is the Client that was passed
	// to New, which an adapter has made. For example, a creation may make a second object first. The result is
	// usually a struct that embeds the argument and has its own Create. The comments of Client say what such methods
	// must send and return. A deletion that is an update needs no Client of its own, but Spec.Retire. The Controller
	// looks for signs of a restore in what the returned Client answers, and Pass.Calls lists the calls of its methods.
	// The methods of a Versioner are those of the argument. New calls the function once, and returns an error if the
	// result is nil. If the function is nil, the Client that was passed to New makes all calls.
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

// isOther reports whether T is a type of k8s.io/api for another kind. Such objects usually come without an apiVersion and
// kind, so nothing else would say that each child gets a reference to an owner that does not exist, and the garbage
// collector would delete them all.
func isOther[T Object](kind schema.GroupVersionKind) bool {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	group, _, _ := strings.Cut(cmp.Or(kind.Group, "core"), ".")
	path, is := strings.CutPrefix(t.PkgPath(), "k8s.io/api/")
	return is && (t.Name() != kind.Kind || path != group+"/"+kind.Version)
}

// A Step is the argument of Kind.Prepare. It lists the children that a pass is about to create and delete.
type Step[C Object] struct {
	// Now is the time at which the pass began.
	Now time.Time
	// Active lists the owner's active children. If an earlier delete call for an active child had no answer,
	// and the plan does not delete this child again, Active does not contain the child. Terminating lists the
	// children that are being deleted and are not active. The children must not be modified.
	Active, Terminating []C
	// Create lists the names of the children to create.
	Create []string
	// Delete lists the children to delete, including those whose deletion was postponed by an earlier pass.
	// Deletion.Replaced is true if a rule requires the deletion, and false if there are too many children.
	// Discard lists the children to clean up, for which Rules.Discard or Rules.Failed returns true.
	Delete, Discard []replicas.Deletion[C]
	// Update lists the children to change in place, including those whose change was postponed by an earlier pass.
	Update []replicas.Change[C]
	// Later is the number of creations and deletions that are left to later passes. A call is left to a later
	// pass if it would exceed MaxDeletions or BurstReplicas. A call is also left to a later pass if it must
	// wait until another child has been created or has become available. If Later is 0, Delete contains all
	// children that have to be deleted.
	Later int
	// InFlight is the number of earlier creations and deletions that had no answer and may still take effect.
	InFlight int
	// RequeueAfter is a delay that Prepare may set. After this delay, Prepare is called again, even if nothing has
	// changed. If it is 0, no such call is scheduled. A negative value is an error.
	RequeueAfter time.Duration
}

// NoneLeft reports whether the owner has no children and no earlier call can still take effect. If
// NoneLeft returns true, an owner that is being deleted no longer needs its finalizer. NoneLeft ignores
// pods that have ended and are not discarded.
func (s *Step[C]) NoneLeft() bool {
	return len(s.Active)+len(s.Terminating)+len(s.Discard)+s.InFlight == 0
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

// lingers reports whether a child continues to exist after the server has accepted its deletion. This is
// the case if the child has finalizers, or is a pod that must first stop on its node.
func lingers(c Object) bool {
	if pod, ok := c.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		grace := pod.Spec.TerminationGracePeriodSeconds
		return grace == nil || *grace > 0 || len(pod.Finalizers) > 0
	}
	return len(c.GetFinalizers()) > 0
}

// vanishes reports whether the server removes a child immediately, without a grace period. This is the case
// if the child is being deleted with a grace period of 0, and has no finalizers.
func vanishes[C Object](c C) bool {
	grace := c.GetDeletionGracePeriodSeconds()
	return c.GetDeletionTimestamp() != nil && grace != nil && *grace == 0 && len(c.GetFinalizers()) == 0
}

// patchTypeFor returns the given patch type or, if it is empty, the default. The default is a strategic
// merge patch for children that Kubernetes itself serves, and a merge patch for custom resources, which do
// not support strategic merge patches.
func patchTypeFor(asked types.PatchType, child schema.GroupVersionKind) types.PatchType {
	switch {
	case asked != "":
		return asked
	case !strings.Contains(child.Group, ".") || strings.HasSuffix(child.Group, ".k8s.io"):
		return types.StrategicMergePatchType
	}
	return types.MergePatchType
}
