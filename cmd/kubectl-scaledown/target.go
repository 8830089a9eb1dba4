// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// A kind is a kind of owner that the plugin supports.
type kind struct {
	name   string
	short  string   // usual short form on the command line
	words  []string // all accepted names of the kind
	groups []string // accepted suffixes after the first dot, such as "apps" in "deployments.apps"; "" means no suffix
}

var (
	deploymentKind            = &kind{"Deployment", "deployment", []string{"deployment", "deployments", "deploy"}, []string{"", "apps", "v1.apps"}}
	replicaSetKind            = &kind{"ReplicaSet", "rs", []string{"rs", "replicaset", "replicasets"}, []string{"", "apps", "v1.apps"}}
	replicationControllerKind = &kind{"ReplicationController", "rc", []string{"rc", "replicationcontroller", "replicationcontrollers"}, []string{"", "v1", "v1."}}

	kinds = []*kind{deploymentKind, replicaSetKind, replicationControllerKind}
)

// kindOf returns the kind with the given resource name, such as deploy or deployments.apps. If the
// plugin does not support the kind, kindOf returns nil.
func kindOf(word string) *kind {
	resource, group, _ := strings.Cut(strings.ToLower(word), ".")
	for _, k := range kinds {
		if slices.Contains(k.words, resource) && slices.Contains(k.groups, group) {
			return k
		}
	}
	return nil
}

// foreign returns an error that says why a kind is not supported, and which kinds are supported.
func foreign(word string) error {
	why := "it does not rank pods to scale down"
	switch resource, _, _ := strings.Cut(strings.ToLower(word), "."); resource {
	case "sts", "statefulset", "statefulsets":
		why = "it removes its highest ordinals first"
	case "ds", "daemonset", "daemonsets":
		why = "it has one pod on each node, and no number of replicas"
	case "po", "pod", "pods":
		why = "ask about what owns it"
	}
	var words []string
	for _, k := range kinds {
		words = append(words, k.words...)
	}
	return fmt.Errorf("cannot answer for kind %q%s: %s; ask for deployment/NAME, rs/NAME or rc/NAME, and give a namespace with -n",
		word, didYouMean(strings.ToLower(word), words, ""), why)
}

// An owner is a Deployment, a ReplicaSet or a ReplicationController.
type owner struct {
	metav1.Object

	kind     *kind
	replicas *int32
	counted  int32 // status.replicas
}

func (o owner) String() string { return o.kind.name + " " + o.GetNamespace() + "/" + o.GetName() }

// spec returns the Spec of a ReplicaSet or ReplicationController. It also returns the related
// pods, because the order counts them on each node.
func (o owner) spec(objs *objects) (spec replicas.SpecOfPods, related []*corev1.Pod, err error) {
	switch obj := o.Object.(type) {
	case *appsv1.ReplicaSet:
		spec, err = replicas.ReplicaSetSpec(obj)
		related = replicas.Related(obj, objs.replicaSets, selector.ForReplicaSet, objs.pods)
	case *corev1.ReplicationController:
		spec, err = replicas.ReplicationControllerSpec(obj)
		related = replicas.Related(obj, objs.controllers, selector.ForReplicationController, objs.pods)
	}
	return spec, related, err
}

func ofReplicaSet(rs *appsv1.ReplicaSet) owner {
	return owner{rs, replicaSetKind, rs.Spec.Replicas, rs.Status.Replicas}
}

func ofDeployment(d *appsv1.Deployment) owner {
	return owner{d, deploymentKind, d.Spec.Replicas, d.Status.Replicas}
}

// above returns the Deployment that controls the owner, or the zero value.
func (o *objects) above(w owner) owner {
	for _, d := range o.deployments {
		if metav1.IsControlledBy(w, d) {
			return ofDeployment(d)
		}
	}
	return owner{}
}

func (o *objects) owners() []owner {
	var owners []owner
	for _, d := range o.deployments {
		owners = append(owners, ofDeployment(d))
	}
	for _, rs := range o.replicaSets {
		owners = append(owners, ofReplicaSet(rs))
	}
	for _, rc := range o.controllers {
		owners = append(owners, owner{rc, replicationControllerKind, rc.Spec.Replicas, rc.Status.Replicas})
	}
	return owners
}

// find returns the owners that match the options. It returns an error if no owner matches, or if
// several owners match and the options allow only one.
func (o *objects) find(opts *options) ([]owner, error) {
	all := o.owners()
	if len(all) == 0 {
		return nil, fmt.Errorf("no Deployment, ReplicaSet or ReplicationController in %s, which holds %s", o.origin, o.summary())
	}
	found := filter(all, opts.means)
	if opts.name == "" {
		found = likely(found)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no %s in %s, which holds %s%s", opts.describe(), o.origin, listed(all, *opts.cluster.Namespace), opts.similar(all))
	}
	for i, w := range found[1:] {
		if w.String() == found[i].String() {
			return nil, fmt.Errorf("%s is in %s twice", w, o.origin)
		}
	}
	if len(found) > 1 && !opts.several() {
		return nil, fmt.Errorf("more than one object matches: name one of these: %s", listed(found, found[0].GetNamespace()))
	}
	return found, nil
}

// similar returns a question that suggests owners with similar names. It returns an empty string if
// the options contain no name, if an owner with that name exists, or if no name is similar.
func (o *options) similar(all []owner) string {
	var names []string
	for _, w := range all {
		names = append(names, w.GetName())
	}
	if o.name == "" || slices.Contains(names, o.name) {
		return ""
	}
	var meant []string
	for _, name := range similarTo(o.name, names) {
		for _, w := range all {
			if w.GetName() == name {
				meant = append(meant, w.kind.short+"/"+name)
			}
		}
	}
	return question(meant)
}

func (o *options) means(w owner) bool {
	namespace := *o.cluster.Namespace
	return (o.kind == nil || o.kind == w.kind) &&
		(o.name == "" || o.name == w.GetName()) &&
		(o.all || namespace == "" || namespace == w.GetNamespace()) &&
		(o.selector == nil || o.selector.Matches(labels.Set(w.GetLabels())))
}

// describe returns a description of the owners that the options select, for an error message.
func (o *options) describe() string {
	text := "Deployment, ReplicaSet or ReplicationController"
	if o.kind != nil {
		text = o.kind.name
	}
	if o.name != "" {
		text += " " + o.name
	}
	if o.selector != nil {
		text += " with labels " + o.selector.String()
	}
	if namespace := *o.cluster.Namespace; namespace != "" && !o.all {
		text += " of namespace " + namespace
	}
	return text
}

// likely selects the owners that a user probably means by a command without a name. It omits each
// owner that is controlled by another owner in the list. If any remaining owner has replicas,
// likely also omits owners without replicas, such as old revisions.
func likely(owners []owner) []owner {
	uids := map[any]bool{}
	for _, w := range owners {
		uids[w.GetUID()] = w.GetUID() != ""
	}
	top := filter(owners, func(w owner) bool {
		above := metav1.GetControllerOfNoCopy(w)
		return above == nil || !uids[above.UID]
	})
	busy := filter(top, func(w owner) bool { return w.counted > 0 || w.replicas == nil || *w.replicas != 0 })
	if len(busy) == 0 {
		return top
	}
	return busy
}

// listed formats at most twenty owners for an error message, in the form that the command line
// accepts. If any owner is in another namespace than the given one, listed adds the namespace of
// each owner. An empty namespace means the namespace of the first owner.
func listed(owners []owner, namespace string) string {
	const most = 20
	namespace = cmp.Or(namespace, owners[0].GetNamespace())
	elsewhere := slices.ContainsFunc(owners, func(w owner) bool { return w.GetNamespace() != namespace })
	var list []string
	for _, w := range owners {
		text := w.kind.short + "/" + w.GetName()
		if elsewhere {
			text += " -n " + w.GetNamespace()
		}
		list = append(list, text)
	}
	return firstOf(list, most)
}

// firstOf formats a list with commas. Items beyond the given number are only counted, as in
// "a, b, and 3 more".
func firstOf(list []string, most int) string {
	if more := len(list) - most; more > 0 {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// filter returns a new slice with the items for which the given function returns true.
func filter[T any](items []T, keep func(T) bool) []T {
	var kept []T
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
