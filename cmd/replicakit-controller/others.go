// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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

// otherController is the reason of the event about an owner that another controller serves too.
const otherController = "OtherController"

// tellEvery is how often another controller is reported.
const tellEvery = 10 * time.Minute

// The kinds of writes of others.
const (
	aStatus = "status"
	aChild  = "child"
)

// mostOwners is how many owners with children of others are remembered.
const mostOwners = 1000

func newForeignWrites() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replicakit_foreign_writes_total",
		Help: "Writes of other controllers that this manager has seen while it worked. A status counts each time, and an owner counts once if another controller created a child for it.",
	}, []string{"controller", "what"})
}

// others finds out what other controllers write. Managed fields say which program wrote what,
// so other workers of this program are not others.
//
// Only a status is proof. A user of one namespace can make pods for any owner in any program's
// name, and can write managed fields into owners, but cannot change a status. So a pod counts only
// if its owner exists. A pod is a reason to look, but not to end. The managed fields of a status
// count only if the status changed.
//
// The probes stay while the worker works. The worker never writes their statuses, so a controller
// that begins later proves itself by its first passes.
type others struct {
	*manager
	telling sync.WaitGroup
	proven  func(ctx context.Context, seen string) // called once, with the first proof; nil means to report only

	mu        sync.Mutex
	since     time.Time // by the clock of the server; older writes do not count; zero means none count
	proof     bool      // there was one
	told      time.Time // of the last report
	lastChild time.Time // when the last child was seen
	owners    map[types.UID]bool
	probes    map[types.UID]bool
}

// newOthers starts all counts at 0, so that the first write is an increase.
func newOthers(m *manager) *others {
	for _, c := range m.controllers {
		m.foreignWrites.WithLabelValues(c.queue, aStatus)
		m.foreignWrites.WithLabelValues(c.queue, aChild)
	}
	return &others{manager: m, owners: map[types.UID]bool{}, probes: map[types.UID]bool{}}
}

// begin makes writes after an instant count. Managed fields have whole seconds.
func (o *others) begin(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.After(o.since) {
		o.since = at
	}
}

// expect leaves the status of a probe to others.
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

// isNew reports whether something was written after the worker began.
func (o *others) isNew(at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero() && at.After(o.since)
}

// sawChild reports whether a child of another controller was seen within the given time.
func (o *others) sawChild(within time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.lastChild.IsZero() && time.Since(o.lastChild) < within
}

// statusWriter returns who wrote a status last, and when. It ignores the manager in except,
// and returns "" if there is no other.
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

// foreignStatus returns which other program changed the status of an owner between two views, or
// "" if this program may have changed it.
func (o *others) foreignStatus(before, after metav1.Object) string {
	if before.GetUID() != after.GetUID() || equality.Semantic.DeepEqual(statusOf(before), statusOf(after)) {
		return ""
	}
	if o.isProbe(after.GetUID()) {
		by, _ := statusWriter(after.GetManagedFields(), "")
		return by
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

// maker returns which other program made an object that has an owner. It returns "" if this
// program wrote any of it, or if the object does not say.
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

// mark returns the managed fields of a pod that stay in the cache. They say who made the pod, if
// another controller made it for an owner of ours while the worker was at work.
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

// controllerOf returns the controller that serves the owner of a pod, or nil.
func (o *others) controllerOf(pod *corev1.Pod) *controller {
	owner := metav1.GetControllerOfNoCopy(pod)
	for i := range o.controllers {
		if c := &o.controllers[i]; owner != nil && owner.Kind == c.kind && owner.APIVersion == c.resource.GroupVersion().String() {
			return c
		}
	}
	return nil
}

// watch counts the writes of others to objects that informers see.
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

// isNewOwner notes a child of an owner, and reports whether it is the first.
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

// report counts a write. Once in a while it also logs the write and makes an event.
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
	klog.FromContext(ctx).Error(nil, "Another controller is at work, and two make each pod twice: turn these controllers off in one of the two", "seen", said)
	about := corev1.ObjectReference{APIVersion: c.resource.GroupVersion().String(), Kind: c.kind, Namespace: owner.GetNamespace(), Name: owner.GetName(), UID: owner.GetUID()}
	o.telling.Go(func() {
		o.tell(ctx, about, otherController, fmt.Sprintf("%s %s this %s, which replicakit-controller serves: two controllers make each pod twice", by, did, c.kind))
	})
}

// isToBeTold reports whether it is time for a report, and whether this is the first proof.
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
