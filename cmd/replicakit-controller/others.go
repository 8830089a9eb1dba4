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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// otherController is the reason of the event about an owner that somebody else serves too.
const otherController = "OtherController"

// tellEvery is how often it is told that another controller is at work.
const tellEvery = 10 * time.Minute

// What others write.
const (
	aStatus = "status"
	aChild  = "child"
)

func newForeignWrites() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replicakit_foreign_writes_total",
		Help: "What other controllers wrote while this one was at work, that was seen: statuses of owners, and children that they made for owners.",
	}, []string{"controller", "what"})
}

// others finds out what other controllers write: statuses of the owners that a worker
// serves, and children of these. Who wrote what an object's managed fields tell, by the
// names of programs; so other workers of this program are not others.
type others struct {
	*manager
	telling sync.WaitGroup

	mu    sync.Mutex
	since time.Time // by the clock of the server; what is older was written before; zero: nothing counts
	first string    // what was seen first
	told  time.Time // of the last one that was told
}

// newOthers has all counts at 0, so that the first one is an increase.
func newOthers(m *manager) *others {
	for _, c := range m.controllers {
		m.foreignWrites.WithLabelValues(c.queue, aStatus)
		m.foreignWrites.WithLabelValues(c.queue, aChild)
	}
	return &others{manager: m}
}

// begin has what is written after an instant count. Managed fields have whole seconds.
func (o *others) begin(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if at.After(o.since) {
		o.since = at
	}
}

func (o *others) firstSeen() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.first
}

// isNew reports whether something was written after the worker began.
func (o *others) isNew(at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.since.IsZero() && at.After(o.since)
}

// statusWriter returns who has written a status last, and when. It passes over one name, and
// returns "" if there is no other.
func statusWriter(fields []metav1.ManagedFieldsEntry, except string) (by string, at time.Time) {
	for i := range fields {
		f := &fields[i]
		if f.Subresource == "status" && f.Manager != except && f.Time != nil && !f.Time.Time.Before(at) {
			by, at = f.Manager, f.Time.Time
		}
	}
	return by, at
}

// maker returns who else made an object that has an owner, or "" if this program wrote
// any of it, or if the object tells nothing.
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

// mark returns what is to stay of a pod's managed fields: who made it, if that was another
// controller while the worker was at work, for an owner of ours.
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

// controllerOf returns which of the controllers is to serve the owner of a pod; nil: none.
func (o *others) controllerOf(pod *corev1.Pod) *controller {
	owner := metav1.GetControllerOfNoCopy(pod)
	for i := range o.controllers {
		if c := &o.controllers[i]; owner != nil && owner.Kind == c.kind && owner.APIVersion == c.resource.GroupVersion().String() {
			return c
		}
	}
	return nil
}

// watch counts what others write of the objects that informers see.
func (o *others) watch(ctx context.Context, factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && len(pod.ManagedFields) > 0 {
			c, owner := o.controllerOf(pod), metav1.GetControllerOfNoCopy(pod)
			o.report(ctx, *c, aChild, pod.ManagedFields[0].Manager, "made a pod of", pod.Namespace, owner.Name, owner.UID)
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
			by, at := statusWriter(owner.GetManagedFields(), userAgent)
			if _, was := statusWriter(before.GetManagedFields(), userAgent); at.After(was) && o.isNew(at) {
				o.report(ctx, c, aStatus, by, "wrote the status of", owner.GetNamespace(), owner.GetName(), owner.GetUID())
			}
		}})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// report counts what was seen, and tells of it in log and event, once in a while.
func (o *others) report(ctx context.Context, c controller, what, by, did, namespace, name string, uid types.UID) {
	o.foreignWrites.WithLabelValues(c.queue, what).Inc()
	said := fmt.Sprintf("%s %s %s %s/%s", by, did, c.kind, namespace, name)
	if !o.isToBeTold(said) {
		return
	}
	klog.FromContext(ctx).Error(nil, "Another controller is at work, and two make each pod twice: take these controllers out of one of them", "seen", said)
	owner := corev1.ObjectReference{APIVersion: c.resource.GroupVersion().String(), Kind: c.kind, Namespace: namespace, Name: name, UID: uid}
	o.telling.Go(func() {
		o.tell(ctx, owner, otherController, fmt.Sprintf("%s %s this %s, which replicakit-controller serves: two controllers make each pod twice", by, did, c.kind))
	})
}

func (o *others) isToBeTold(said string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first == "" {
		o.first = said
	}
	if now := time.Now(); o.told.IsZero() || now.Sub(o.told) >= tellEvery {
		o.told = now
		return true
	}
	return false
}
