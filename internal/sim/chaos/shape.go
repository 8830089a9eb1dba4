// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A shape is the configuration of a story's cluster and controllers, which the seed of the story determines. With many
// seeds, all kinds of faults happen in each shape.
type shape struct {
	versions  bool // the caches report their resourceVersion to the controllers
	elsewhere bool // the process also runs a controller for another cluster
	burst     int
	backOff   bool
	delay     time.Duration // Options.StatusDelay
	ruled     bool          // labels decide which pods must be deleted and which must stay
	slow      bool          // if slow and ruled are both true, only one deletion at a time is allowed
	prepares  bool          // the Kind has Prepare, so each deletion carries a resourceVersion
	anywhere  bool          // owners are cluster-scoped, and their pods are in two namespaces
	pools     bool          // the run also has a pool, whose children are not pods
	slots     bool          // the children of the pool have ordinals
	discards  bool          // the pool discards children that have ended
	within    time.Duration // Rules.ReadyWithin
	templates bool          // the workers of the pool are made from a template, which is another object
	updates   bool          // the workers of the pool are changed in place
	limit     string        // MaxUnavailable of the pool; "" means none
	replaces  bool          // a worker whose change is refused as Invalid is replaced
	goes      bool          // a label decides which workers must go
	marks     bool          // the workers of the pool are asked to leave, and drain
	inSpec    bool          // the mark is a field of the worker's spec, not an annotation
	keeps     bool          // a leaving worker counts until it is gone
	ends      bool          // the controller of the workers deletes those that have drained, not the pool
	sheds     bool          // a worker that is not ready cannot drain, and is deleted
	groups    bool          // the pool has groups; of these, only gpu has slots or lots
	lots      bool          // a label names the slot of a worker
	surge     int32         // MaxSurge of each group
	deletions bool          // MaxDeletions of the second group is 1
	plant     Plant         // the defect of the pool's controller
}

// Templates is the first of the seeds whose shapes have templates. Otherwise the shape of Templates + n is that of n,
// with a pool, so that older seeds play the same stories as before.
const Templates = 720_720 << 20 // a multiple of the moduli in shapeOf

// Updates is the first of the seeds whose shapes have updates, like Templates.
const Updates = 2 * Templates

// Marks is the first of the seeds whose shapes have updates and marks.
const Marks = 3 * Templates

// Groups is the first of the seeds whose shapes have updates and groups, and some of them marks.
const Groups = 4 * Templates

func shapeOf(seed uint64) shape {
	s := shape{
		versions: seed%2 == 0, elsewhere: seed%8 == 1 || seed%8 == 4, backOff: seed%5 == 0,
		ruled: seed%6 == 5 || seed%12 == 2, slow: seed%11 < 4, prepares: seed%13 < 6, anywhere: seed%10 == 3 || seed%20 == 6,
		pools: seed%9 < 3, slots: seed%9 == 1 || seed%18 == 2, discards: seed%9 == 2,
	}
	switch {
	case seed >= Updates:
		s.pools, s.updates = true, true
		s.limit, s.replaces, s.goes = limits()[seed%5], seed%7 < 3, seed%4 == 0
		s.groups = seed >= Groups
		if seed >= Marks && (!s.groups || seed%16 < 5) {
			s.marks, s.inSpec, s.keeps, s.ends, s.sheds = true, seed%13 < 4, seed%11%2 == 0, seed%11 < 5, seed%13%5 == 0
		}
		if s.groups {
			s.lots, s.deletions = seed%7 > 3, seed%5 == 1
			s.goes = s.goes || s.lots
			s.slots = s.slots && !s.lots
			s.surge = int32(one(s.limit != "" && !s.slots && seed%3 == 1))
		}
	case seed >= Templates:
		s.pools, s.templates = true, true
	}
	if seed%3 == 0 {
		s.burst = 3
	}
	if seed%16 == 7 {
		s.within = 3 * time.Minute // longer than any minReadySeconds of a story
	}
	if seed%7 == 3 {
		s.delay = time.Second
	}
	return s
}

// other is the second namespace for pods. Only cluster-scoped owners create pods there.
const other = "other"

// owners returns the namespace of all owners, or "" if owners are cluster-scoped.
func (s shape) owners() string {
	if s.anywhere {
		return ""
	}
	return namespace
}

// kind returns the Kind of ReplicaSets with the settings of this shape.
func (s shape) kind() controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	kind := controller.ReplicaSets()
	spec, turn := kind.Spec, 0
	kind.ClusterScoped = s.anywhere
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		is, err := spec(rs)
		is.BurstReplicas = s.burst
		is.Rules.ReadyWithin = s.within
		if s.ruled {
			is.Rules.MustGo, is.Rules.MustStay = mustGo, mustStay
		}
		if one := 1; s.slow && s.ruled {
			is.MaxDeletions = &one
		}
		if s.anywhere {
			is.New = func(string) (*corev1.Pod, error) {
				turn++
				return podFor(rs, []string{namespace, other}[turn%2]), nil
			}
		}
		return is, err
	}
	if s.prepares {
		kind.Prepare = func(_ context.Context, rs *appsv1.ReplicaSet, step *controller.Step[*corev1.Pod]) error {
			if s.isVetoed(rs) {
				step.Create, step.Delete, step.Discard = nil, nil, nil
			}
			return nil
		}
	}
	return kind
}

// isVetoed reports whether Prepare forbids every creation, deletion and discard for an owner.
func (s shape) isVetoed(rs *appsv1.ReplicaSet) bool {
	return s.prepares && rs.Annotations[vetoed] != ""
}

func mustGo(p *corev1.Pod) bool   { return p.Labels["go"] != "" }
func mustStay(p *corev1.Pod) bool { return p.Labels["stay"] != "" }

func podFor(rs *appsv1.ReplicaSet, namespace string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *rs.Spec.Template.ObjectMeta.DeepCopy(), Spec: *rs.Spec.Template.Spec.DeepCopy()}
	p.Namespace = namespace
	return p
}

// cluster returns an empty cluster of this shape.
func (s shape) cluster(seed uint64) *replicastest.PodCluster {
	cluster, err := replicastest.NewCluster(s.kind(), replicastest.Options{Seed: seed, Nodes: 4})
	if err != nil {
		panic(err)
	}
	return cluster
}

// unmark removes the finalizers and the labels "go" and "stay" from a pod.
func unmark(p *corev1.Pod) {
	p.Finalizers = nil
	delete(p.Labels, "go")
	delete(p.Labels, "stay")
}

// refuses creates a webhook that denies new pods in the second namespace.
func refuses(op Op) func(string, *corev1.Pod) error {
	answers := []failure.Failure{failure.Forbidden, failure.Invalid, failure.BadRequest}
	return func(verb string, p *corev1.Pod) error {
		if verb != "create" || p.Namespace != other {
			return nil
		}
		call := replicastest.Call{Verb: verb, Kind: "Pod"}
		call.Namespace, call.Name = p.Namespace, p.Name
		return answers[op.M%len(answers)].Of(call)
	}
}

// newOwner returns a new owner with the settings of this shape.
func (s shape) newOwner(name string, n int32) *appsv1.ReplicaSet {
	rs := replicastest.NewReplicaSet(namespace, name, n)
	rs.Namespace = s.owners()
	always := corev1.ContainerRestartPolicyAlways
	rs.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "sidecar", RestartPolicy: &always}}
	return rs
}
