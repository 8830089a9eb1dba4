// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quorum is an operator that you can copy. The operator creates and deletes the members of a
// Database. Each member has an ordinal, a pod and a volume claim. Members are added and removed one at a
// time, so that a quorum of members stays ready. A ready member hands over its data before it is removed.
package quorum

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/status"
)

const (
	databaseLabel = "quorum.example.com/database"
	// To drain a member, the operator sets the first of these annotations on the pod. When the member is
	// drained, the agent in the pod sets the second annotation.
	drain, drained = "quorum.example.com/drain", "quorum.example.com/drained"
	// A Database that is being deleted keeps this finalizer until its last member is gone.
	finalizer = "quorum.example.com/members"
)

// A Database is a set of spec.replicas members. At least spec.quorum of the members must stay ready.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   DatabaseSpec   `json:"spec"`
	Status DatabaseStatus `json:"status,omitzero"`
}

// A DatabaseSpec is the wanted state of a Database.
type DatabaseSpec struct {
	Replicas int32  `json:"replicas"`
	Quorum   int32  `json:"quorum"`
	Image    string `json:"image"`
	Paused   bool   `json:"paused,omitempty"`
}

// A DatabaseStatus is the current state of a Database.
type DatabaseStatus struct {
	Replicas           int32              `json:"replicas,omitempty"`
	ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopy returns a copy.
func (d *Database) DeepCopy() *Database {
	c := *d
	d.DeepCopyInto(&c.ObjectMeta)
	c.Status.Conditions = slices.Clone(d.Status.Conditions)
	return &c
}

// DeepCopyObject returns a copy.
func (d *Database) DeepCopyObject() runtime.Object { return d.DeepCopy() }

// Calls contains the API calls of the operator, except the calls that create and delete pods.
type Calls interface {
	// Claim creates a volume claim and returns it. If the claim already exists, Claim returns the existing
	// claim.
	Claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error)
	// Keep adds this package's finalizer to the Database, or removes it if keep is false.
	Keep(ctx context.Context, db *Database, keep bool) error
}

type operator struct{ Calls }

// Kind returns the controller.Kind for Databases and their pods.
func Kind(calls Calls) controller.Kind[*Database, *corev1.Pod] {
	o := operator{calls}
	return controller.Kind[*Database, *corev1.Pod]{
		Owner: schema.GroupVersionKind{Group: "quorum.example.com", Version: "v1", Kind: "Database"},
		Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec:  spec, Prepare: o.oneAtATime, Status: report,
		StatusOf: func(db *Database) any { return &db.Status },
	}
}

func spec(db *Database) (replicas.SpecOfPods, error) {
	if db.Spec.Quorum > db.Spec.Replicas {
		err := fmt.Errorf("database %s/%s: spec.quorum is %d, and spec.replicas is %d", db.Namespace, db.Name, db.Spec.Quorum, db.Spec.Replicas)
		return replicas.SpecOfPods{}, &replicas.RefusedError{Reason: "InvalidQuorum", Err: err}
	}
	return replicas.SpecOfPods{
		Replicas: db.Spec.Replicas, Paused: db.Spec.Paused, BurstReplicas: 1, Finalizer: finalizer,
		Selector: labels.SelectorFromSet(labels.Set{databaseLabel: db.Name}),
		Slots:    replicas.Ordinals(db.Name),
		New:      func(name string) (*corev1.Pod, error) { return member(db, name), nil },
		Retire: func(p *corev1.Pod, leaves bool) (c replicas.Change[*corev1.Pod]) {
			if leaves && isReady(p) { // it cannot be taken back, because the member has already lost its data
				c.To = p.DeepCopy()
				metav1.SetMetaDataAnnotation(&c.To.ObjectMeta, drain, "true")
			}
			return c
		},
		Rules: replicas.Rules[*corev1.Pod]{
			// A member keeps its ordinal, and so its volume, until its pod is gone.
			Active:  func(*corev1.Pod) bool { return true },
			Leaving: isDraining,
			Discard: func(p *corev1.Pod) bool {
				return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded ||
					isDraining(p) && (p.Annotations[drained] != "" || !isReady(p))
			},
			MustGo: func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image != db.Spec.Image },
		},
	}, nil
}

// oneAtATime removes creations and deletions from a step if they must wait for another member or for the quorum. When
// the pod of a member changes, an event starts the next pass.
func (o operator) oneAtATime(ctx context.Context, db *Database, step *controller.Step[*corev1.Pod]) error {
	isGoing := db.DeletionTimestamp != nil
	if keep := !isGoing || !step.NoneLeft(); keep != slices.Contains(db.Finalizers, finalizer) {
		if err := o.Keep(ctx, db, keep); err != nil {
			return fmt.Errorf("finalizer: %w", err)
		}
	}
	ready, unsettled, draining, quorum := 0, 0, 0, int(db.Spec.Quorum)
	for _, m := range step.Active {
		if isReady(m) {
			ready++
		} else {
			unsettled++
		}
		if isDraining(m) {
			draining++
		}
	}
	if isGoing { // no client uses a Database that is being deleted
		quorum, unsettled = 0, 0
	}
	if unsettled > 0 {
		step.Create = nil
	}
	for _, name := range step.Create {
		c, err := o.Claim(ctx, claim(db, name))
		if err != nil {
			return fmt.Errorf("volume claim of member %s: %w", name, err)
		}
		if c.DeletionTimestamp != nil { // a new pod would lose this claim; the next pass starts when the claim is gone
			step.Create = nil
		}
	}
	mustWait := func(others int) func(replicas.Deletion[*corev1.Pod]) bool {
		return func(d replicas.Deletion[*corev1.Pod]) bool {
			return isReady(d.Object) && (unsettled+draining > 0 || others < quorum)
		}
	}
	step.Delete = slices.DeleteFunc(step.Delete, mustWait(ready-1))
	step.Discard = slices.DeleteFunc(step.Discard, mustWait(ready)) // one that has drained is not in step.Active
	return nil
}

func isDraining(p *corev1.Pod) bool { return p.Annotations[drain] != "" }

func isReady(p *corev1.Pod) bool { return p.DeletionTimestamp == nil && status.IsPodReady(p) }

func report(db *Database, o controller.Outcome[*corev1.Pod]) error {
	db.Status.Replicas, db.Status.ReadyReplicas, db.Status.ObservedGeneration = o.Counts.Replicas, o.Counts.Ready, o.Generation
	heldBack := metav1.Condition{Type: "HeldBack", Status: metav1.ConditionFalse, Reason: "Nothing", LastTransitionTime: metav1.NewTime(o.Now)}
	if i := slices.IndexFunc(o.Gates, func(g controller.Gate) bool { return g.Stops != 0 && g.Reason != controller.CallsNotSeen }); i >= 0 {
		heldBack.Status, heldBack.Reason, heldBack.Message = metav1.ConditionTrue, o.Gates[i].Reason.String(), o.Gates[i].Reason.Sentence()
	}
	meta.SetStatusCondition(&db.Status.Conditions, heldBack)
	return nil
}

// member returns the pod of a member.
func member(db *Database, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: labels.Set{databaseLabel: db.Name}},
		Spec: corev1.PodSpec{
			Hostname: name, Subdomain: db.Name,
			Containers: []corev1.Container{{
				Name: "db", Image: db.Spec.Image, VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name},
			}}},
		},
	}
}

// DatabaseOf returns the name of the Database that a volume claim belongs to, or an empty name. Use
// DatabaseOf in a watch on volume claims. The watch is necessary, because a new member waits until an old
// claim with the same name is gone.
func DatabaseOf(claim metav1.Object) (db types.NamespacedName) {
	if name := claim.GetLabels()[databaseLabel]; name != "" {
		db = types.NamespacedName{Namespace: claim.GetNamespace(), Name: name}
	}
	return db
}

// claim returns the volume claim of a member. The claim remains when the member is removed.
func claim(db *Database, member string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: "data-" + member, Labels: labels.Set{databaseLabel: db.Name}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}
