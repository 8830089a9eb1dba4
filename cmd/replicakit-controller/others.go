// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// otherController is the reason of the events that report another controller at work.
const otherController = "OtherController"

// tellEvery is the minimum time between two reports about other controllers. The first proof of
// another controller is reported immediately.
const tellEvery = 10 * time.Minute

// These are the values of the metric label "what".
const (
	aStatus = "status"
	aChild  = "child"
)

// mostOwners is the maximum size of the map others.owners. A full map is cleared.
const mostOwners = 1000

func newForeignWrites() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replicakit_foreign_writes_total",
		Help: "Writes of other controllers that this manager has seen while it worked. Each write of a status counts. Creations of children count once for each owner.",
	}, []string{"controller", "what"})
}

// others detects the writes of other controllers. Managed fields contain the name of the program
// that made a write, so other processes of this program do not count as other controllers.
//
// Only a changed status proves that another controller is at work. A pod proves nothing, because a
// user with rights in one namespace can create pods for any owner under the name of any program. If
// another program creates a pod for an existing owner, the worker reports the pod, but continues to
// work. Before its first write, the worker may wait longer because other programs create pods. A
// user with rights in one namespace can also write managed fields into owners, but cannot change a
// status. So the managed fields of a status are ignored if the status itself has not changed.
//
// The probes exist while the worker is at work, and the worker never writes their statuses. If
// another controller starts later, its first passes write the statuses of the probes. Any change of
// the status of a probe proves that another controller is at work, even if another process of this
// program made the change.
type others struct {
	*manager
	telling sync.WaitGroup
	proven  func(ctx context.Context, seen string) // called once, at the first proof; nil means that the proof is only reported

	mu        sync.Mutex
	since     time.Time // writes up to this server time are ignored; if it is zero, all writes are ignored
	proof     bool      // whether a write has proved that another controller is at work; always false if the field proven is nil
	told      time.Time // the time of the last report
	lastChild time.Time // the last time at which a child from another controller was seen
	owners    map[types.UID]bool
	probes    map[types.UID]bool
}

// newOthers returns a value of type others without any detected writes. It creates all counters, so
// that the first write appears as an increase from 0.
func newOthers(m *manager) *others {
	for _, c := range m.controllers {
		m.foreignWrites.WithLabelValues(c.queue, aStatus)
		m.foreignWrites.WithLabelValues(c.queue, aChild)
	}
	return &others{manager: m, owners: map[types.UID]bool{}, probes: map[types.UID]bool{}}
}

// begin sets the time up to which writes are ignored. If a later time was already set, begin does
// nothing. Managed fields have whole seconds, so all writes in the same second are ignored.
func (o *others) begin(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.After(o.since) {
		o.since = at
	}
}

// expect records the UID of a probe. This worker never writes the status of a probe.
func (o *others) expect(probe types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probes[probe] = true
}

// isProbe reports whether an owner is a probe of this worker.
func (o *others) isProbe(owner types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.probes[owner]
}

// isNew reports whether a write at this time is counted; see begin.
func (o *others) isNew(at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero() && at.After(o.since)
}

// sawChild reports whether a child from another controller was seen recently, within the given
// duration.
func (o *others) sawChild(within time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.lastChild.IsZero() && time.Since(o.lastChild) < within
}

// statusWriter returns the program that last wrote a status, and the time of that write. The second
// argument is the name of a program, and the writes of this program are ignored. If no other
// program has written the status, statusWriter returns an empty string.
func statusWriter(fields []metav1.ManagedFieldsEntry, except string) (by string, at time.Time) {
	for i := range fields {
		f := &fields[i]
		if f.Subresource == "status" && f.Manager != except && f.Time != nil && !f.Time.Time.Before(at) {
			by, at = f.Manager, f.Time.Time
		}
	}
	return by, at
}

// statusOf returns the status of an owner.
func statusOf(owner metav1.Object) any {
	switch o := owner.(type) {
	case *appsv1.ReplicaSet:
		return o.Status
	case *corev1.ReplicationController:
		return o.Status
	}
	return nil
}

// foreignStatus compares two versions of an owner. If another program has changed the status,
// foreignStatus returns the name of that program. If the status is unchanged, or this program may
// have changed it, foreignStatus returns an empty string.
func (o *others) foreignStatus(before, after metav1.Object) string {
	if before.GetUID() != after.GetUID() || equality.Semantic.DeepEqual(statusOf(before), statusOf(after)) {
		return ""
	}
	if o.isProbe(after.GetUID()) {
		by, _ := statusWriter(after.GetManagedFields(), "")
		return cmp.Or(by, "a program") // who may update the probe may remove its managed fields, but not undo the write
	}
	by, at := statusWriter(after.GetManagedFields(), userAgent)
	_, was := statusWriter(before.GetManagedFields(), userAgent)
	if !at.After(was) || !o.isNew(at) || !ownStatus(before).Equal(ownStatus(after)) {
		return ""
	}
	return by
}

// ownStatus returns the time at which this program last wrote the status of an owner, or zero.
func ownStatus(owner metav1.Object) (at time.Time) {
	for _, f := range owner.GetManagedFields() {
		if f.Subresource == "status" && f.Manager == userAgent && f.Time != nil {
			at = f.Time.Time
		}
	}
	return at
}

// maker returns the name of the other program that created an object. If this program wrote any
// field of the object, or the managed fields name no program, maker returns an empty string.
func maker(object metav1.Object) (by string) {
	fields := object.GetManagedFields()
	for i := range fields {
		if fields[i].Manager == userAgent {
			return ""
		}
		if by == "" && fields[i].Subresource == "" {
			by = fields[i].Manager
		}
	}
	return by
}

// mark returns the managed fields to keep for a cached pod. If the pod has no owner of a kind that
// this manager serves, mark returns nil. If the pod has such an owner, and another program created
// the pod while the worker was at work, mark keeps the name of that program. In all other cases,
// mark returns nil.
func (o *others) mark(pod *corev1.Pod) []metav1.ManagedFieldsEntry {
	if !o.isNew(pod.CreationTimestamp.Time) || o.controllerOf(pod) == nil {
		return nil
	}
	by := maker(pod)
	if by == "" {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Manager: by}}
}

// controllerOf returns the controller of this manager that serves the owner of a pod, or nil.
func (o *others) controllerOf(pod *corev1.Pod) *controller {
	owner := metav1.GetControllerOfNoCopy(pod)
	for i := range o.controllers {
		if c := &o.controllers[i]; owner != nil && owner.Kind == c.kind && owner.APIVersion == c.resource.GroupVersion().String() {
			return c
		}
	}
	return nil
}

// watch adds event handlers that count the writes of other controllers.
func (o *others) watch(ctx context.Context, factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || len(pod.ManagedFields) == 0 {
			return
		}
		c, ref := o.controllerOf(pod), metav1.GetControllerOfNoCopy(pod)
		known, _, _ := c.informer(factory).GetStore().GetByKey(cache.NewObjectName(pod.Namespace, ref.Name).String())
		if owner, ok := known.(metav1.Object); ok && owner.GetUID() == ref.UID && o.isNewOwner(ref.UID) {
			o.report(ctx, *c, aChild, pod.ManagedFields[0].Manager, "made a pod of", owner)
		}
	}})
	errs := []error{err}
	for _, c := range o.controllers {
		_, err := c.informer(factory).AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(old, cur any) {
			before, ok := old.(metav1.Object)
			owner, ok2 := cur.(metav1.Object)
			if !ok || !ok2 {
				return
			}
			if by := o.foreignStatus(before, owner); by != "" {
				o.report(ctx, c, aStatus, by, "wrote the status of", owner)
			}
		}})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// isNewOwner records that another controller has created a child for an owner. It reports whether
// this is the first record for the owner.
func (o *others) isNewOwner(owner types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastChild = time.Now()
	if o.owners[owner] {
		return false
	}
	if len(o.owners) >= mostOwners {
		clear(o.owners)
	}
	o.owners[owner] = true
	return true
}

// report adds a write of another controller to the metrics. If isToBeTold allows it, report also
// logs the write and creates an event.
func (o *others) report(ctx context.Context, c controller, what, by, did string, owner metav1.Object) {
	o.foreignWrites.WithLabelValues(c.queue, what).Inc()
	said := fmt.Sprintf("%s %s %s %s/%s", by, did, c.kind, owner.GetNamespace(), owner.GetName())
	tell, prove := o.isToBeTold(what)
	if prove {
		o.proven(ctx, said)
	}
	if !tell {
		return
	}
	klog.FromContext(ctx).Error(nil, "Another controller is at work, and two controllers create each pod twice: turn these controllers off in one of the two programs", "seen", said)
	about := corev1.ObjectReference{APIVersion: c.resource.GroupVersion().String(), Kind: c.kind, Namespace: owner.GetNamespace(), Name: owner.GetName(), UID: owner.GetUID()}
	o.telling.Go(func() {
		o.tell(ctx, about, otherController, fmt.Sprintf("%s %s this %s, which replicakit-controller serves: two controllers create each pod twice", by, did, c.kind))
	})
}

// isToBeTold reports whether to log a write. The result prove is true if the function o.proven must
// be called, because this write is the first one that proves that another controller is at work.
// If prove is true, the write is always logged. Other writes are logged at most once per tellEvery.
func (o *others) isToBeTold(what string) (tell, prove bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	prove = what == aStatus && !o.proof && o.proven != nil
	o.proof = o.proof || prove
	now := time.Now()
	if tell = prove || o.told.IsZero() || now.Sub(o.told) >= tellEvery; tell {
		o.told = now
	}
	return tell, prove
}
