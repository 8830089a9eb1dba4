// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Two controllers that serve the same kinds would create each pod twice. So a worker first checks
// for other controllers.
//
// Before its first write, the worker creates a probe of each kind. A probe is an owner that wants
// no pods. If another controller serves the kind, that controller writes the status of the probe. A
// busy controller may write the status late, so the worker waits longer while other controllers
// create pods. The probes exist until the worker ends; see the type others.

const (
	// lookFor is the time that the worker waits for another controller to write the status of a
	// probe. A controller that is not busy writes the status within a tenth of this time.
	lookFor = 3 * time.Second
	// lookEvery is the interval between two reads of the probe.
	lookEvery = lookFor / 6
	// lookPatience is the time for which the worker retries if the server cannot create a probe.
	// For example, a webhook cannot answer before its own pods exist. lookPatience is also the
	// maximum wait while other controllers create pods. New pods alone do not prove that another
	// controller serves the kind.
	lookPatience = 30 * time.Second
)

// serveAlone checks for other controllers of the kind. If serveAlone finds no other controller, it
// calls the function begin, and keeps the probe until ctx is done. If serveAlone finds another
// controller, it returns an error. With --allow-other-controllers, serveAlone does not check for
// other controllers before it calls the function begin. The worker then only reports later writes
// of other controllers.
func (w *worker) serveAlone(ctx context.Context, c controller, begin func()) error {
	if w.opts.allowOthers {
		w.others.begin(time.Now())
		begin()
		return nil
	}
	config := w.manager.configFor("door")
	config.Wrap((&writes{}).wrap) // finishes each write even if ctx is done, so that no probe is left behind
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	p := c.prober(client, w.opts.lease.Namespace)
	probe, found, err := w.askUntilAnswered(ctx, c, p)
	if probe != nil {
		defer func() { p.removeMade(ctx, probe) }()
	}
	switch {
	case ctx.Err() != nil || err != nil:
		return err
	case found != "":
		err := w.isAtWork(found)
		w.tell(ctx, w.opts.theLease(), otherController, err.Error())
		return err
	}
	w.begun.Store(true)
	begin()
	<-ctx.Done()
	return nil
}

// errStoodBack is the error of a manager that has begun to work and then detects another
// controller.
var errStoodBack = errors.New("stood back")

// endedShown is the time for which a manager still serves its metrics after errStoodBack, or after a
// restore of the server. In this time, two scrapes show why the manager stopped. The lease is
// released before this time begins. The next leader also detects the controller that this manager
// has detected. A manager without a standby pays this time: no other would show that the server was
// restored.
const endedShown = time.Minute

func (w *worker) isAtWork(found string) error {
	return fmt.Errorf("another controller is at work: %s. Two controllers create each pod twice: add -%s to the --controllers of kube-controller-manager, or set --allow-other-controllers here if the two never serve the same objects",
		found, strings.Join(namesOf(w.controllers), ",-"))
}

// standBack ends the worker immediately. It is called when a changed status has proved that another
// controller is at work. Afterwards, only the other controller manages the pods.
func (w *worker) standBack(ctx context.Context, found string) {
	err := w.isAtWork(found)
	if w.begun.Load() {
		err = fmt.Errorf("%w: %w", errStoodBack, err)
	}
	w.end(err)
	klog.FromContext(ctx).Error(err, "Standing back: this manager makes no further changes, and exits")
	w.others.telling.Go(func() { w.tell(ctx, w.opts.theLease(), otherController, err.Error()) })
}

// askUntilAnswered repeats the method ask until that method succeeds. It returns the probe. If
// another controller has written the status of the probe, it also returns a description of that
// write. If the server refuses to create a probe, askUntilAnswered retries without a limit, because
// the missing right may be granted later; see rights.go. After other errors, it gives up when
// lookPatience has passed, and returns no probe and no error. The controller then starts without
// this check.
func (w *worker) askUntilAnswered(ctx context.Context, c controller, p prober) (probe metav1.Object, found string, err error) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "resource", c.resource.Resource, "namespace", w.opts.lease.Namespace)
	began, known := time.Now(), func() {}
	defer func() { known() }()
	for first := true; ; first = false {
		probe, by, err := w.ask(ctx, p)
		switch {
		case ctx.Err() != nil:
			return probe, "", nil
		case err == nil && by == "":
			return probe, "", nil
		case err == nil:
			return probe, fmt.Sprintf("%s wrote the status of %s %s/%s", by, c.kind, w.opts.lease.Namespace, w.opts.lease.Name), nil
		case errors.Is(err, errNoProbe):
			return nil, "", fmt.Errorf("--leader-elect-resource-name=%s: a %s has the name of the lease in namespace %q: %w. Give the lease another name, or another namespace with --leader-elect-resource-namespace",
				w.opts.lease.Name, c.kind, w.opts.lease.Namespace, errNoProbe)
		case !isFinal(err) && time.Since(began) > lookPatience:
			logger.Error(err, "Cannot check for another controller of the resource. Starting without this check")
			w.others.begin(time.Now())
			return nil, "", nil
		case first:
			logger.Error(err, "Cannot check for another controller of the resource. Retrying. --allow-other-controllers starts without this check")
			known = w.waiting.add(fmt.Sprintf("it is not known whether another controller serves %s: %v", c.resource.Resource, err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// isFinal reports whether the server refuses to create a probe. Other errors may be temporary.
func isFinal(err error) bool {
	return isRefusal(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// ask creates a probe and repeatedly reads its status until the time lookFor has passed. While
// other controllers create pods, ask waits longer. If ask succeeds, it returns the probe. If a
// program has changed the status of the probe, ask also returns the name of that program. If ask
// fails, it removes the probe.
func (w *worker) ask(ctx context.Context, p prober) (probe metav1.Object, by string, err error) {
	name := w.opts.lease.Name
	made, err := p.replace(ctx, name)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if err != nil {
			p.removeMade(ctx, made)
		}
	}()
	w.others.expect(made.GetUID())
	w.others.begin(made.GetCreationTimestamp().Time)
	isLate := func(waited time.Duration) bool { return waited < lookPatience && w.others.sawChild(lookFor) }
	for began := time.Now(); by == "" && (time.Since(began) < lookFor || isLate(time.Since(began))); by = w.others.foreignStatus(made, probe) {
		select {
		case <-ctx.Done():
			return nil, "", ctx.Err()
		case <-time.After(lookEvery):
		}
		if probe, err = p.get(ctx, name); err != nil {
			return nil, "", err
		}
	}
	return made, by, nil
}

// A prober creates, reads and deletes probes of one kind in a namespace.
type prober struct {
	create func(ctx context.Context, name string) (metav1.Object, error)
	get    func(ctx context.Context, name string) (metav1.Object, error)
	delete func(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// proberOf makes a prober from a typed client and a function that builds the probe.
func proberOf[O metav1.Object](client interface {
	Create(ctx context.Context, owner O, opts metav1.CreateOptions) (O, error)
	Get(ctx context.Context, name string, opts metav1.GetOptions) (O, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}, probe func(about metav1.ObjectMeta, labels map[string]string) O,
) prober {
	return prober{
		create: func(ctx context.Context, name string) (metav1.Object, error) {
			about := metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kubernetes.io/description": "replicakit-controller uses this object to find out whether another controller is at work, and then deletes it."}}
			return client.Create(ctx, probe(about, map[string]string{probeLabel: name}), metav1.CreateOptions{})
		},
		get: func(ctx context.Context, name string) (metav1.Object, error) {
			return client.Get(ctx, name, metav1.GetOptions{})
		},
		delete: client.Delete,
	}
}

// errNoProbe is the error of a start that finds another object under the name of its probe.
var errNoProbe = errors.New("the object is no probe of this program, so it was not touched")

// probeLabel is the label in the selector of each probe. Its value is the name of the probe.
const probeLabel = "replicakit.io/probe"

// isAnyProbe reports whether an object is a probe, of any process of this program. A probe selects its own label, and
// wants no pods.
func isAnyProbe(owner metav1.Object) bool {
	var selector map[string]string
	var replicas *int32
	switch o := owner.(type) {
	case *appsv1.ReplicaSet:
		replicas = o.Spec.Replicas
		if o.Spec.Selector != nil {
			selector = o.Spec.Selector.MatchLabels
		}
	case *corev1.ReplicationController:
		replicas, selector = o.Spec.Replicas, o.Spec.Selector
	}
	return selector[probeLabel] == owner.GetName() && replicas != nil && *replicas == 0
}

// replace creates a probe. If a killed worker has left its probe behind, replace first removes that
// probe.
func (p prober) replace(ctx context.Context, name string) (metav1.Object, error) {
	made, err := p.create(ctx, name)
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	if err := p.remove(ctx, name, ""); err != nil {
		return nil, err
	}
	return p.create(ctx, name)
}

// remove deletes the probe with this name, even if ctx is done. If the UID is not empty, remove leaves any other
// probe alone.
func (p prober) remove(ctx context.Context, name string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for {
		found, err := p.get(ctx, name)
		switch {
		case apierrors.IsNotFound(err), err == nil && uid != "" && found.GetUID() != uid:
			return nil
		case err != nil:
			return err
		case !isAnyProbe(found):
			// Another ReplicaSet is named like the lease, or a person scaled the probe up. Its pods are alive.
			return errNoProbe
		}
		uid, version, propagation := found.GetUID(), found.GetResourceVersion(), metav1.DeletePropagationBackground
		err = p.delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &propagation})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err): // after a Conflict, look again: the object has changed
			return err
		}
	}
}

// removeMade removes a probe that this worker has made, and logs an error.
func (p prober) removeMade(ctx context.Context, made metav1.Object) {
	if err := p.remove(ctx, made.GetName(), made.GetUID()); err != nil {
		klog.FromContext(ctx).Error(err, "A probe was left behind", "probe", klog.KObj(made))
	}
}

// probeTemplate returns the pod template of a probe. No pod is ever created from this template.
func probeTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
	}
}
