// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// How a worker finds out, before its first write, whether somebody else serves the same
// kinds: two controllers would make each pod twice.
//
// The worker makes one owner of each kind that wants no pods, a probe. Who serves the
// kind writes its status. A controller that has much to do may be late with that, so the
// worker also looks for what others write meanwhile; see others.

const (
	// lookFor is how long a probe may stay without a status. A controller that has little
	// to do writes it within a tenth of this.
	lookFor = 3 * time.Second
	// lookEvery is how often the probe is read.
	lookEvery = lookFor / 6
	// lookPatience is how long a server is waited for that cannot make a probe, such as one
	// whose webhook is away: it may be away because its own pods are to be made.
	lookPatience = 30 * time.Second
)

// look returns an error if somebody else serves the kind, and nil if nobody seems to, or if
// ctx has ended. What others write from then on counts, also of a worker that begins without looking.
func (w *worker) look(ctx context.Context, c controller) error {
	if w.opts.allowOthers {
		w.others.begin(time.Now())
		return nil
	}
	config := w.manager.configFor("door")
	config.Wrap((&writes{}).wrap) // a probe whose answer is not waited for would be left behind
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	found, err := w.askUntilAnswered(ctx, c, c.prober(client, w.opts.lease.Namespace))
	switch {
	case ctx.Err() != nil || err != nil:
		return err
	case found == "":
		found = w.others.firstSeen()
	}
	if found != "" {
		return w.refusal(ctx, found)
	}
	return nil
}

// refusal is the error of a worker that does not begin, which an event tells too.
func (w *worker) refusal(ctx context.Context, found string) error {
	names := make([]string, len(w.controllers))
	for i, c := range w.controllers {
		names[i] = "-" + c.name
	}
	err := fmt.Errorf("another controller is at work: %s. Two controllers make each pod twice: run kube-controller-manager with --controllers=*,%s, or set --allow-other-controllers here if the two never serve the same objects",
		found, strings.Join(names, ","))
	w.tell(ctx, w.opts.theLease(), otherController, err.Error())
	return err
}

// askUntilAnswered asks until a probe has been there for long enough, and returns who has
// answered it, or "". What the server refuses is waited for, as other rights are; see
// rights.go.
func (w *worker) askUntilAnswered(ctx context.Context, c controller, p prober) (found string, err error) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", c.resource.Resource, "namespace", w.opts.lease.Namespace)
	began, known := time.Now(), func() {}
	defer func() { known() }()
	for first := true; ; first = false {
		by, err := w.ask(ctx, p)
		switch {
		case ctx.Err() != nil:
			return "", nil
		case err == nil && by == "":
			return "", nil
		case err == nil:
			return fmt.Sprintf("%s wrote the status of %s %s/%s", by, c.kind, w.opts.lease.Namespace, w.opts.lease.Name), nil
		case !isFinal(err) && time.Since(began) > lookPatience:
			logger.Error(err, "Whether another controller serves the resource is not known: going on")
			w.others.begin(time.Now())
			return "", nil
		case first:
			logger.Error(err, "Waiting: whether another controller serves the resource is not known until a probe can be made; --allow-other-controllers begins without")
			known = w.waiting.add(fmt.Sprintf("whether another controller serves %s is not known: %v", c.resource.Resource, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// isFinal reports whether the server refuses to make a probe, and not only cannot.
func isFinal(err error) bool {
	return isRefusal(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// ask makes a probe, waits for lookFor, and returns who has written its status, or "".
func (w *worker) ask(ctx context.Context, p prober) (by string, err error) {
	name := w.opts.lease.Name
	probe, err := p.replace(ctx, name)
	if err != nil {
		return "", err
	}
	defer func(made metav1.Object) { p.remove(ctx, made) }(probe)
	w.others.begin(probe.GetCreationTimestamp().Time)
	for began := time.Now(); by == "" && time.Since(began) < lookFor; by, _ = statusWriter(probe.GetManagedFields(), "") {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(lookEvery):
		}
		if probe, err = p.get(ctx, name); err != nil {
			return "", err
		}
	}
	return by, nil
}

// forgetProbe waits until the cache no longer shows the probe, which would be served like
// any other owner. One that could not be deleted is, after a while.
func (c *cell) forgetProbe(ctx context.Context, name string) {
	if c.opts.allowOthers {
		return
	}
	i := slices.IndexFunc(c.worker.controllers, func(kind controller) bool { return kind.name == name })
	informer := c.worker.controllers[i].informer(c.factory)
	key := cache.NewObjectName(c.opts.lease.Namespace, c.opts.lease.Name).String()
	_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, lookFor, true, func(context.Context) (bool, error) {
		_, there, err := informer.GetStore().GetByKey(key)
		return informer.HasSynced() && !there, err
	})
}

// A prober makes probes of one kind in a namespace.
type prober struct {
	create func(ctx context.Context, name string) (metav1.Object, error)
	get    func(ctx context.Context, name string) (metav1.Object, error)
	delete func(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// proberOf makes a prober of a typed client, and of what it is to create.
func proberOf[O metav1.Object](client interface {
	Create(ctx context.Context, owner O, opts metav1.CreateOptions) (O, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (O, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}, probe func(about metav1.ObjectMeta, labels map[string]string) O,
) prober {
	return prober{
		create: func(ctx context.Context, name string) (metav1.Object, error) {
			about := metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kubernetes.io/description": "replicakit-controller finds out whether another controller is at work, and deletes this."}}
			return client.Create(ctx, probe(about, map[string]string{"replicakit.io/probe": name}), metav1.CreateOptions{})
		},
		get: func(ctx context.Context, name string) (metav1.Object, error) {
			return client.Get(ctx, name, metav1.GetOptions{})
		},
		delete: client.Delete,
	}
}

// replace makes a probe, in place of one that a worker has left that was killed.
func (p prober) replace(ctx context.Context, name string) (metav1.Object, error) {
	made, err := p.create(ctx, name)
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	left, err := p.get(ctx, name)
	if err != nil {
		return nil, err
	}
	p.remove(ctx, left)
	return p.create(ctx, name)
}

// remove also does so where the worker is told to end meanwhile.
func (p prober) remove(ctx context.Context, probe metav1.Object) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	uid, propagation := probe.GetUID(), metav1.DeletePropagationBackground
	err := p.delete(ctx, probe.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &propagation})
	if err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "A probe was left behind", "probe", klog.KObj(probe))
	}
}

// probeTemplate is of pods that nobody makes.
func probeTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
	}
}
