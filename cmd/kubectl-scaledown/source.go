// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
)

// objects is what was read.
type objects struct {
	origin      string // "the input", or where in the cluster
	deployments []*appsv1.Deployment
	replicaSets []*appsv1.ReplicaSet
	controllers []*corev1.ReplicationController
	pods        []*corev1.Pod
	nodes       []*corev1.Node
	budgets     []*policyv1.PodDisruptionBudget
	others      int    // objects of other kinds, which are passed over
	version     string // of the pods of a cluster
	notes       []string
	after       *objects // what there was later; nil: not asked
}

// known are the kinds that are read from files; all others are passed over.
var (
	known    = runtime.NewScheme()
	versions = []schema.GroupVersion{appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion, policyv1.SchemeGroupVersion}
	decoder  = serializer.NewCodecFactory(known).UniversalDeserializer()
)

func init() {
	known.AddKnownTypes(appsv1.SchemeGroupVersion, &appsv1.Deployment{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSet{}, &appsv1.ReplicaSetList{})
	known.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.List{}, &corev1.Pod{}, &corev1.PodList{}, &corev1.Node{}, &corev1.ReplicationController{}, &corev1.ReplicationControllerList{})
	known.AddKnownTypes(policyv1.SchemeGroupVersion, &policyv1.PodDisruptionBudget{})
}

// read reads the only source there is. When the time is over it does not wait for what cannot
// be interrupted, such as a program that logs in.
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

// readFiles reads dumps as kubectl reads manifests.
func (o *options) readFiles(files []string) (*objects, error) {
	objs := &objects{origin: "the input"}
	dump := o.files.ToOptions()
	dump.Filenames = files
	builder := resource.NewLocalBuilder().WithScheme(known, versions...).ContinueOnError()
	named := slices.Clone(files)
	if i := slices.Index(files, "-"); i >= 0 {
		named[i] = "standard input"
		dump.Filenames = slices.Delete(slices.Clone(files), i, i+1)
		builder.Stream(o.In, named[i])
	}
	result := builder.FilenameParam(false, &dump).Do()
	seen := 0
	err := result.Visit(func(info *resource.Info, err error) error {
		seen++
		if err == nil {
			err = objs.add(info.Object)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", info.Source, err)
		}
		return nil
	})
	err = utilerrors.FilterOut(err, func(err error) bool {
		if isForeign(err) {
			objs.others++
			seen++
			return true
		}
		return false
	})
	if err == nil && seen == 0 {
		err = fmt.Errorf("nothing in %s: expected what 'kubectl get deployments,rs,pods -o json' prints", strings.Join(named, ", "))
	}
	return objs, err
}

// isForeign reports whether an object could not be decoded because its kind is unknown here.
func isForeign(err error) bool { return strings.Contains(err.Error(), "no kind \"") }

// add adds an object, or all of a list.
func (o *objects) add(obj runtime.Object) error {
	switch obj := obj.(type) {
	case *appsv1.Deployment:
		o.deployments = append(o.deployments, obj)
	case *appsv1.ReplicaSet:
		o.replicaSets = append(o.replicaSets, obj)
	case *corev1.ReplicationController:
		o.controllers = append(o.controllers, obj)
	case *corev1.Pod:
		o.addPods(obj)
	case *corev1.Node:
		o.nodes = append(o.nodes, obj)
	case *policyv1.PodDisruptionBudget:
		o.budgets = append(o.budgets, obj)
	case *corev1.List:
		return o.addRaw(obj.Items)
	case *appsv1.DeploymentList:
		o.deployments = append(o.deployments, pointers(obj.Items)...)
	case *appsv1.ReplicaSetList:
		o.replicaSets = append(o.replicaSets, pointers(obj.Items)...)
	case *corev1.ReplicationControllerList:
		o.controllers = append(o.controllers, pointers(obj.Items)...)
	case *corev1.PodList:
		o.addPods(pointers(obj.Items)...)
	default:
		o.others++
	}
	return nil
}

func (o *objects) addRaw(items []runtime.RawExtension) error {
	for i, item := range items {
		obj, _, err := decoder.Decode(item.Raw, nil, nil)
		if err != nil && isForeign(err) {
			o.others++
			continue
		}
		if err == nil {
			err = o.add(obj)
		}
		if err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

func pointers[T any](items []T) []*T {
	list := make([]*T, len(items))
	for i := range items {
		list[i] = &items[i]
	}
	return list
}

// readCluster lists all that counts in a namespace, or in all of them. What is only told
// about besides, nodes and budgets, may be forbidden.
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
	var errs []error
	if o.kind != replicationControllerKind {
		errs = append(errs, all(ctx, "replicasets", namespace, apps.ReplicaSets(namespace).List, func(l *appsv1.ReplicaSetList) { objs.replicaSets = append(objs.replicaSets, pointers(l.Items)...) }))
	}
	if o.kind == deploymentKind || o.kind == nil {
		errs = append(errs, all(ctx, "deployments", namespace, apps.Deployments(namespace).List, func(l *appsv1.DeploymentList) { objs.deployments = append(objs.deployments, pointers(l.Items)...) }))
	}
	if o.kind == replicationControllerKind || o.kind == nil {
		errs = append(errs, all(ctx, "replicationcontrollers", namespace, core.ReplicationControllers(namespace).List, func(l *corev1.ReplicationControllerList) {
			objs.controllers = append(objs.controllers, pointers(l.Items)...)
		}))
	}
	errs = append(errs, all(ctx, "pods", namespace, core.Pods(namespace).List, func(l *corev1.PodList) {
		objs.version = l.ResourceVersion
		objs.addPods(pointers(l.Items)...)
	}))
	errs = append(errs, optional(all(ctx, "poddisruptionbudgets", namespace, client.PolicyV1().PodDisruptionBudgets(namespace).List, func(l *policyv1.PodDisruptionBudgetList) { objs.budgets = append(objs.budgets, pointers(l.Items)...) }), objs))
	errs = append(errs, optional(all(ctx, "nodes", "", core.Nodes().List, func(l *corev1.NodeList) { objs.nodes = append(objs.nodes, pointers(l.Items)...) }), objs))
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return objs, nil
}

// connect returns a client of the cluster, and the namespace that is meant.
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

// all lists in pages, as kubectl does.
func all[L metav1.ListInterface](ctx context.Context, what, namespace string, list func(context.Context, metav1.ListOptions) (L, error), add func(L)) error {
	opts := metav1.ListOptions{Limit: 500}
	for ctx.Err() == nil {
		page, err := list(ctx, opts)
		if err != nil && namespace != "" {
			return fmt.Errorf("cannot list %s of namespace %q: %w", what, namespace, err)
		}
		if err != nil {
			return fmt.Errorf("cannot list %s: %w", what, err)
		}
		add(page)
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
	return context.Cause(ctx)
}

// optional notes what must not be read, and goes on without it.
func optional(err error, objs *objects) error {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		objs.notes = append(objs.notes, err.Error())
		return nil
	}
	return err
}

func (o *objects) addPods(pods ...*corev1.Pod) {
	for _, p := range pods {
		o.pods = append(o.pods, lean(p))
	}
}

// lean keeps of a pod what counts here, which is a fraction of it.
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

// summary counts what was read by kind.
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
		{o.others + len(o.nodes) + len(o.budgets), "other object"},
	} {
		if c.n > 0 {
			list = append(list, number(c.n, c.what))
		}
	}
	return cmp.Or(strings.Join(list, ", "), "nothing")
}

// newest is the last instant that anything in the input tells: about when it was read.
func (o *objects) newest() (last time.Time) {
	for _, p := range o.pods {
		for _, t := range []time.Time{p.CreationTimestamp.Time, readySince(p)} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

// changed waits until a pod or a set of pods has changed since the objects were read.
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
