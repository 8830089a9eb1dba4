// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// objects holds the objects that were read, by kind.
type objects struct {
	origin      string // "the input", or the part of the cluster that was read
	deployments []*appsv1.Deployment
	replicaSets []*appsv1.ReplicaSet
	controllers []*corev1.ReplicationController
	pods        []*corev1.Pod
	nodes       []*corev1.Node
	budgets     []*policyv1.PodDisruptionBudget
	namespaces  []*corev1.Namespace
	quotas      []*corev1.ResourceQuota
	events      []*corev1.Event
	autoscalers []*autoscalingv2.HorizontalPodAutoscaler
	others      int       // number of objects of other kinds, which are skipped
	version     string    // the resourceVersion of the first list from the cluster
	newest      time.Time // the latest time in any object, because a dump does not contain its own time
	notes       []string
	after       *objects // the later dump of --compare; nil without --compare
}

// read reads the objects from the cluster or from the files. If ctx is done, read returns
// immediately, even if a credential plugin is still running.
func (o *options) read(ctx context.Context, files []string) (*objects, error) {
	type outcome struct {
		objs *objects
		err  error
	}
	done := make(chan outcome, 1)
	go func() {
		var read outcome
		if o.live() {
			read.objs, read.err = o.readCluster(ctx)
		} else {
			read.objs, read.err = o.readFiles(files)
		}
		done <- read
	}()
	select {
	case read := <-done:
		if read.err == nil || ctx.Err() == nil {
			return read.objs, read.err
		}
	case <-ctx.Done():
	}
	return nil, context.Cause(ctx)
}

// readCluster lists the required objects in one namespace or in all namespaces. Some lists, such as
// nodes and PodDisruptionBudgets, are optional. If the server forbids an optional list or does not
// find it, readCluster adds a note and continues.
func (o *options) readCluster(ctx context.Context) (*objects, error) {
	client, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	objs := &objects{origin: fmt.Sprintf("namespace %q of the cluster", namespace)}
	if o.all {
		objs.origin = "the cluster"
	}
	core, apps := client.CoreV1(), client.AppsV1()
	warnings := func(ctx context.Context, opts metav1.ListOptions) (*corev1.EventList, error) {
		opts.FieldSelector = "type=" + corev1.EventTypeWarning
		return core.Events(namespace).List(ctx, opts)
	}
	for _, list := range []struct {
		what, namespace string
		read, needed    bool
		page            pager.ListPageFunc
	}{
		{"replicasets", namespace, o.kind != replicationControllerKind, true, pages(apps.ReplicaSets(namespace).List, objs)},
		{"deployments", namespace, o.kind != replicationControllerKind, o.kind != replicaSetKind, pages(apps.Deployments(namespace).List, objs)},
		{"replicationcontrollers", namespace, o.kind == replicationControllerKind || o.kind == nil, true, pages(core.ReplicationControllers(namespace).List, objs)},
		{"pods", namespace, true, true, pages(core.Pods(namespace).List, objs)},
		{"poddisruptionbudgets", namespace, !o.whyNot, false, pages(client.PolicyV1().PodDisruptionBudgets(namespace).List, objs)},
		{"nodes", "", !o.whyNot, false, pages(core.Nodes().List, objs)},
		{"namespaces", "", o.whyNot, false, getOne(core.Namespaces().Get, namespace)},
		{"resourcequotas", namespace, o.whyNot, false, pages(core.ResourceQuotas(namespace).List, objs)},
		{"events", namespace, o.whyNot, false, pages(warnings, objs)},
		{"horizontalpodautoscalers", namespace, o.whyNot, false, pages(client.AutoscalingV2().HorizontalPodAutoscalers(namespace).List, objs)},
	} {
		if !list.read {
			continue
		}
		err := (&pager.ListPager{PageSize: 500, PageFn: list.page}).EachListItem(ctx, metav1.ListOptions{}, objs.add)
		if err == nil {
			continue
		}
		where := ""
		if list.namespace != "" {
			where = fmt.Sprintf(" of namespace %q", list.namespace)
		}
		err = fmt.Errorf("cannot list %s%s: %w", list.what, where, err)
		if list.needed || !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) {
			return nil, err
		}
		note := err.Error()
		if what := unknown[list.what]; what != "" {
			note += ", so it is unknown " + what
		}
		objs.notes = append(objs.notes, note)
	}
	if len(objs.owners())+len(objs.pods) == 0 && !o.all {
		// A server lists nothing in a namespace that does not exist, and reports no error.
		if _, err := core.Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("namespace %q does not exist in the cluster", namespace)
		}
	}
	return objs, nil
}

// pages returns a function that gets one page of a list. The function sets objs.version from the
// first page of the first list. The watches of --watch start at that version.
func pages[L interface {
	metav1.ListInterface
	runtime.Object
}](list func(context.Context, metav1.ListOptions) (L, error), objs *objects) pager.ListPageFunc {
	return func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		page, err := list(ctx, opts)
		if err != nil {
			return nil, err
		}
		objs.version = cmp.Or(objs.version, page.GetResourceVersion())
		return page, nil
	}
}

// getOne returns a function that gets one namespace, and returns the namespace as a list. The
// returned function needs only the right to get this namespace, not the right to list all
// namespaces.
func getOne(get func(context.Context, string, metav1.GetOptions) (*corev1.Namespace, error), name string) pager.ListPageFunc {
	return func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
		ns, err := get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return &corev1.NamespaceList{Items: []corev1.Namespace{*ns}}, nil
	}
}

// connect returns a client for the cluster, and the chosen namespace. The namespace "" means all
// namespaces.
func (o *options) connect() (*kubernetes.Clientset, string, error) {
	config, err := o.cluster.ToRESTConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := o.cluster.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err
	}
	if o.all {
		namespace = ""
	}
	client, err := kubernetes.NewForConfig(config)
	return client, namespace, err
}

// add stores an object. For most kinds, it first removes fields that the plugin never reads.
func (o *objects) add(obj runtime.Object) error {
	for _, t := range times(obj) {
		if t.After(o.newest) {
			o.newest = t.Time
		}
	}
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		obj.ManagedFields = nil
		o.deployments = append(o.deployments, obj)
	case *appsv1.ReplicaSet:
		obj.ManagedFields = nil
		o.replicaSets = append(o.replicaSets, obj)
	case *corev1.ReplicationController:
		o.controllers = append(o.controllers, obj)
	case *corev1.Pod:
		o.pods = append(o.pods, lean(obj))
	case *corev1.Node:
		o.nodes = append(o.nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: obj.Name, Labels: obj.Labels}, Spec: corev1.NodeSpec{Unschedulable: obj.Spec.Unschedulable}})
	case *policyv1.PodDisruptionBudget:
		o.budgets = append(o.budgets, obj)
	case *corev1.Namespace:
		o.namespaces = append(o.namespaces, obj)
	case *corev1.ResourceQuota:
		o.quotas = append(o.quotas, obj)
	case *corev1.Event:
		obj.ManagedFields = nil
		o.events = append(o.events, obj)
	case *autoscalingv2.HorizontalPodAutoscaler:
		obj.ManagedFields = nil
		o.autoscalers = append(o.autoscalers, obj)
	}
	return nil
}

// lean returns a copy of a pod with only those fields that the plugin reads. For most pods, the
// copy is much smaller.
func lean(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.Spec.NodeName}, Status: p.Status}
	kept.ManagedFields, kept.Annotations = nil, nil
	if cost, ok := p.Annotations[corev1.PodDeletionCost]; ok {
		kept.Annotations = map[string]string{corev1.PodDeletionCost: cost}
	}
	for _, c := range p.Spec.InitContainers {
		kept.Spec.InitContainers = append(kept.Spec.InitContainers, corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy})
	}
	return kept
}

// summary returns the number of objects that were read, by kind.
func (o *objects) summary() string {
	var list []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{len(o.deployments), "Deployment"},
		{len(o.replicaSets), "ReplicaSet"},
		{len(o.controllers), "ReplicationController"},
		{len(o.pods), "Pod"},
		{o.others + len(o.nodes) + len(o.budgets) + len(o.namespaces) + len(o.quotas) + len(o.events) + len(o.autoscalers), "other object"},
	} {
		if c.n > 0 {
			list = append(list, number(c.n, c.what))
		}
	}
	return cmp.Or(strings.Join(list, ", "), "nothing")
}

// times returns the times of an object that lie before the time at which it was read.
func times(obj runtime.Object) (times []metav1.Time) {
	if of, err := meta.Accessor(obj); err == nil {
		times = append(times, of.GetCreationTimestamp())
	}
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		for _, c := range obj.Status.Conditions {
			times = append(times, c.LastUpdateTime)
		}
	case *corev1.Pod:
		for _, c := range obj.Status.Conditions {
			times = append(times, c.LastTransitionTime)
		}
	case *corev1.Node:
		for _, c := range obj.Status.Conditions {
			times = append(times, c.LastHeartbeatTime)
		}
	case *corev1.Event:
		times = append(times, metav1.NewTime(lastSeen(obj)))
	}
	return times
}

// changed waits until a pod or a ReplicaSet has changed since the objects were read.
func (o *options) changed(ctx context.Context, objs *objects) error {
	client, namespace, err := o.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pods, err := client.CoreV1().Pods(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: objs.version})
	if err != nil {
		return err
	}
	defer pods.Stop()
	sets, err := client.AppsV1().ReplicaSets(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: objs.version})
	if err != nil {
		return err
	}
	defer sets.Stop()
	select {
	case <-pods.ResultChan():
	case <-sets.ResultChan():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}
