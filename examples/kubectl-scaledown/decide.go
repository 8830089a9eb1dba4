package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
)

// A decision is the answer: what is to be done for the ReplicaSet to have its
// replicas.
type decision struct {
	replicaSet *appsv1.ReplicaSet
	replicas   int32
	asked      bool // for this number, by --replicas
	at         time.Time
	plan       replicas.Plan
}

func decide(objs *objects, opts options) (decision, error) {
	rs, err := objs.find(opts.namespace, opts.name)
	if err != nil {
		return decision{}, err
	}
	if rs.UID == "" { // a file written by hand: its pods would seem to be nobody's
		return decision{}, fmt.Errorf("ReplicaSet %q: metadata.uid is empty", names([]*appsv1.ReplicaSet{rs}))
	}
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		return decision{}, err
	}
	if opts.replicas != nil {
		spec.Replicas = *opts.replicas
	}
	spec.Now = opts.at
	spec.Related = replicas.Related(rs, objs.replicaSets, selector.ForReplicaSet, objs.pods)
	spec.BurstReplicas = math.MaxInt32 // asked about is the whole surplus
	slices.SortFunc(objs.pods, byUID)  // the plan keeps the order, which shall not be that of the dump
	plan, err := replicas.Manage(objs.pods, spec)
	return decision{
		replicaSet: rs,
		replicas:   spec.Replicas,
		asked:      opts.replicas != nil,
		at:         opts.at,
		plan:       plan,
	}, err
}

func byUID(p, q *corev1.Pod) int {
	return cmp.Or(cmp.Compare(p.UID, q.UID), cmp.Compare(p.Name, q.Name))
}

// find returns the only ReplicaSet of that namespace and name, either of which
// may be left open.
func (o *objects) find(namespace, name string) (*appsv1.ReplicaSet, error) {
	if len(o.replicaSets) == 0 {
		return nil, fmt.Errorf("no ReplicaSet (apps/v1) in the input, which holds %s", o.summary())
	}
	found := filter(o.replicaSets, func(rs *appsv1.ReplicaSet) bool {
		return (namespace == "" || namespace == rs.Namespace) && (name == "" || name == rs.Name)
	})
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("no ReplicaSet %s/%s in the input, which holds %s",
			cmp.Or(namespace, "*"), cmp.Or(name, "*"), names(o.replicaSets))
	case len(found) == 1:
		return found[0], nil
	case names(found[:1]) == names(found[1:2]):
		return nil, fmt.Errorf("ReplicaSet %s is in the input twice", names(found[:1]))
	}
	return nil, fmt.Errorf("name one of these ReplicaSets: %s", names(found))
}

// names lists the ReplicaSets for an error, twenty at most.
func names(sets []*appsv1.ReplicaSet) string {
	const most = 20
	var list []string
	for _, rs := range sets[:min(len(sets), most)] {
		list = append(list, rs.Namespace+"/"+rs.Name)
	}
	if more := len(sets) - most; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, ", ")
}

// summary counts what the input holds by kind.
func (o *objects) summary() string {
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(o.kinds)) {
		list = append(list, fmt.Sprintf("%d %s", o.kinds[kind], kind))
	}
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// filter returns the items to keep in a new slice, which is never nil.
func filter[T any](items []T, keep func(T) bool) []T {
	kept := []T{}
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// incomplete says that pods seem to be missing in the input, if so.
func (d *decision) incomplete() string {
	claims := d.plan.Claims
	have, counted := len(claims.Owned)+len(claims.Release), int(d.replicaSet.Status.Replicas)
	if have >= counted {
		return ""
	}
	return fmt.Sprintf("the input holds %d pods of ReplicaSet %s/%s, whose status counts %d: is it complete?",
		have, d.replicaSet.Namespace, d.replicaSet.Name, counted)
}
