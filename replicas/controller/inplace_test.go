// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// Three operators that change their children in place, played with the accidents of recipes_test.go: an operator of
// Valkey, KubeVirt's VirtualMachinePool, and JobSet.

// A resource is a custom resource. Nothing that its spec or its status points to is ever modified.
type resource[S, T any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              S `json:"spec"`
	Status            T `json:"status"`
}

func (r *resource[S, T]) DeepCopy() *resource[S, T] {
	c := *r
	r.DeepCopyInto(&c.ObjectMeta)
	return &c
}
func (r *resource[S, T]) DeepCopyObject() runtime.Object { return r.DeepCopy() }

func example(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind}
}

// neverFalls returns a rule: the number that a child bears never falls.
func neverFalls[C metav1.Object](children func() []C, number func(C) int) func() error {
	seen := map[types.UID]int{}
	return func() error {
		for _, c := range children() {
			was, is := seen[c.GetUID()], number(c)
			if is < was {
				return fmt.Errorf("%s was put back from %d to %d", c.GetName(), was, is)
			}
			seen[c.GetUID()] = is
		}
		return nil
	}
}

type (
	valkeyCluster = resource[valkeySpec, valkeyStatus]
	valkeyNode    = resource[valkeyNodeSpec, valkeyNodeStatus]
	valkeyStory   = replicastest.Story[*valkeyCluster, *valkeyNode]
)

type valkeySpec struct{ Shards, Replicas, Version int }

type valkeyStatus struct{ Ready, Updated int32 }

type valkeyNodeSpec struct{ Version int }

type valkeyNodeStatus struct {
	ObservedGeneration int64
	Ready              bool
	Primary            bool
}

func isUp(n *valkeyNode) bool {
	return n.Status.Ready && n.Status.ObservedGeneration == n.Generation
}

// shardOf returns the shard of the node db-0-1, which is db-0.
func shardOf(n *valkeyNode) string { return n.Name[:strings.LastIndex(n.Name, "-")] }

// valkeyClusters returns the Kind of an operator of Valkey. All nodes of all shards are slots, and one is changed after
// the other, replicas before primaries. A primary is never changed: a replica takes over before, and then it is a
// replica itself.
func valkeyClusters(failOver func(context.Context, *valkeyNode) error) controller.Kind[*valkeyCluster, *valkeyNode] {
	one := intstr.FromInt32(1)
	replicasFirst := podrank.Must(podrank.NewOrder(podrank.First("replica", func(n *valkeyNode) bool { return !n.Status.Primary })))
	return controller.Kind[*valkeyCluster, *valkeyNode]{
		Owner: example("ValkeyCluster"), Child: example("ValkeyNode"),
		Spec: func(v *valkeyCluster) (replicas.Spec[*valkeyNode], error) {
			own, nodes := labels.Set{"cluster": v.Name}, 1+v.Spec.Replicas
			return replicas.Spec[*valkeyNode]{
				Replicas: int32(v.Spec.Shards * nodes), Selector: own.AsSelector(), MaxUnavailable: &one,
				Slots: func(i int) string { return fmt.Sprintf("%s-%d-%d", v.Name, i/nodes, i%nodes) },
				New: func(string) (*valkeyNode, error) {
					return &valkeyNode{ObjectMeta: metav1.ObjectMeta{Labels: own}, Spec: valkeyNodeSpec{v.Spec.Version}}, nil
				},
				Update: func(n *valkeyNode) (c replicas.Change[*valkeyNode]) {
					if n.Spec.Version != v.Spec.Version {
						c.To = n.DeepCopy()
						c.To.Spec.Version = v.Spec.Version
					}
					return c
				},
				Rules: replicas.Rules[*valkeyNode]{Ready: isUp, Order: replicasFirst},
			}, nil
		},
		Prepare: func(ctx context.Context, _ *valkeyCluster, step *controller.Step[*valkeyNode]) (err error) {
			step.Update = slices.DeleteFunc(step.Update, func(c replicas.Change[*valkeyNode]) bool {
				if !c.Object.Status.Primary {
					return false
				}
				err = errors.Join(err, failOver(ctx, c.Object)) // the event of its new role brings the next pass
				step.RequeueAfter = 2 * time.Second
				return true
			})
			return err
		},
		Status: func(v *valkeyCluster, o controller.Outcome[*valkeyNode]) error {
			v.Status = valkeyStatus{o.Counts.Ready, o.Updated}
			return nil
		},
		StatusOf: func(v *valkeyCluster) any { return &v.Status },
	}
}

// valkeyNodes is the controller of the nodes, and Valkey itself. A node that was changed is down at once, but its status
// says so only when it has restarted, up to a minute later.
type valkeyNodes struct {
	story    *valkeyStory
	restarts map[types.UID]restart
}

type restart struct {
	generation int64
	ends       time.Time
}

func (v *valkeyNodes) all() []*valkeyNode { return v.story.Cluster.Children("default") }

func (v *valkeyNodes) next() (node *valkeyNode, ends time.Time) {
	for _, n := range v.all() {
		if n.Status.ObservedGeneration == n.Generation {
			continue
		}
		r := v.restarts[n.UID]
		if r.generation != n.Generation {
			r = restart{n.Generation, v.story.Cluster.Clock.Now().Add(time.Duration(1+v.story.Cluster.Random(60)) * time.Second)}
			v.restarts[n.UID] = r
		}
		if node == nil || r.ends.Before(ends) {
			node, ends = n, r.ends
		}
	}
	return node, ends
}

func (v *valkeyNodes) Due() (time.Time, bool) {
	node, ends := v.next()
	return ends, node != nil
}

func (v *valkeyNodes) Step() {
	node, ends := v.next()
	if node == nil || ends.After(v.story.Cluster.Clock.Now()) {
		return
	}
	v.edit(node, func(n *valkeyNode) {
		isFirst := n.Status.ObservedGeneration == 0 && strings.HasSuffix(n.Name, "-0")
		n.Status = valkeyNodeStatus{n.Generation, true, n.Status.Primary || isFirst}
	})
}

func (v *valkeyNodes) edit(n *valkeyNode, change func(*valkeyNode)) {
	_, _ = v.story.Cluster.EditChild(context.Background(), n.Namespace, n.Name, change)
}

// failOver makes another node the primary of the shard, if this one is.
func (v *valkeyNodes) failOver(ctx context.Context, primary *valkeyNode) error {
	call := replicastest.Call{Verb: "failover", Kind: "Valkey", NamespacedName: types.NamespacedName{Namespace: primary.Namespace, Name: primary.Name}}
	return v.story.Call(ctx, call, func() error {
		is, err := v.story.Cluster.GetChild(context.Background(), primary.Namespace, primary.Name)
		if err != nil || !is.Status.Primary {
			return err
		}
		for _, n := range v.all() {
			if shardOf(n) == shardOf(is) && n.Name != is.Name && isUp(n) {
				v.edit(is, func(n *valkeyNode) { n.Status.Primary = false })
				v.edit(n, func(n *valkeyNode) { n.Status.Primary = true })
				return nil
			}
		}
		return errors.New("no replica is up")
	})
}

func TestValkeyClustersInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *valkeyStory) {
		valkey := &valkeyNodes{s, map[types.UID]restart{}}
		s.Kind = valkeyClusters(valkey.failOver)
		var broken error
		prepare := s.Kind.Prepare
		s.Kind.Prepare = func(ctx context.Context, v *valkeyCluster, step *controller.Step[*valkeyNode]) error {
			changes := slices.Clone(step.Update)
			for _, c := range changes {
				for _, n := range step.Active {
					if c.Object.Status.Primary && !n.Status.Primary && n.Spec.Version != v.Spec.Version {
						broken = cmp.Or(broken, fmt.Errorf("%s comes before the replica %s", c.Object.Name, n.Name))
					}
				}
			}
			return prepare(ctx, v, step)
		}
		s.Owner = &valkeyCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: valkeySpec{Shards: 2, Replicas: 2, Version: 1}}
		s.Changes = []func(*valkeyCluster){func(v *valkeyCluster) { v.Spec.Version++ }}
		s.Parts = []replicastest.Part{valkey}
		most := 0
		s.Always = map[string]func() error{
			"replicas are changed before primaries": func() error { return broken },
			"no primary is down": func() error {
				for _, n := range valkey.all() {
					if n.Status.Primary && !isUp(n) {
						return fmt.Errorf("%s is", n.Name)
					}
				}
				return nil
			},
			"never more than one node is down": func() error {
				up := countIf(valkey.all(), isUp)
				if most = max(most, up); most == 6 && up < 5 {
					return fmt.Errorf("%d of 6 are up", up)
				}
				return nil
			},
			"no node gets an older version": neverFalls(valkey.all, func(n *valkeyNode) int { return n.Spec.Version }),
			"never more than six":           s.AtMost(6),
			"never fewer than six":          s.AtLeast(6),
		}
		s.AtEnd = map[string]func() error{
			"all are up and of the newest version, and each shard has a primary": func() error {
				v, err := s.Cluster.GetOwner(context.Background(), "default", "db")
				if err != nil {
					return err
				}
				primaries := map[string]int{}
				for _, n := range valkey.all() {
					if n.Status.Primary {
						primaries[shardOf(n)]++
					}
					if n.Spec.Version != v.Spec.Version || !isUp(n) {
						return fmt.Errorf("%s is %v, want version %d", n.Name, n, v.Spec.Version)
					}
				}
				if want := map[string]int{"db-0": 1, "db-1": 1}; !maps.Equal(primaries, want) || v.Status != (valkeyStatus{6, 6}) {
					return fmt.Errorf("the primaries are %v, and the status is %v", primaries, v.Status)
				}
				return nil
			},
		}
	}))
}

// A node whose version was changed is not up before it has restarted, and a machine with more memory stays ready.
func TestNodesAndMachinesCanBeChanged(t *testing.T) {
	t.Parallel()
	old := &valkeyCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: valkeySpec{Shards: 1, Version: 1}}
	updated := old.DeepCopy()
	updated.Spec.Version = 2
	node := &valkeyNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db-0-0", Generation: 1, Labels: map[string]string{"cluster": "db"}},
		Spec:       valkeyNodeSpec{1}, Status: valkeyNodeStatus{1, true, true},
	}
	require.NoError(t, replicastest.CheckUpdate(valkeyClusters(nil), old, updated, node))

	larger, machine := newPool(), &vm{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm-0", Labels: map[string]string{"pool": "vm"}}}
	needsMemory(larger)
	machine.Spec = newPool().Spec.Template
	vmReady(machine)
	require.NoError(t, replicastest.CheckUpdate(vmPools(), newPool(), larger, machine))
}

type (
	vmPool  = resource[vmPoolSpec, struct{ Replicas, Ready int32 }]
	vm      = resource[vmSpec, struct{ Ready bool }]
	vmStory = replicastest.Story[*vmPool, *vm]
)

type vmPoolSpec struct {
	Replicas int32
	Template vmSpec
}

type vmSpec struct {
	Memory  int
	Volumes []string
}

// vmPools returns the Kind of pools of virtual machines, as KubeVirt's VirtualMachinePool. A machine gets a new spec at
// once, because the running instance is not touched by that. But one with other volumes is replaced.
func vmPools() controller.Kind[*vmPool, *vm] {
	one, foreground := intstr.FromInt32(1), metav1.DeletePropagationForeground
	return controller.Kind[*vmPool, *vm]{
		Owner: example("VirtualMachinePool"), Child: example("VirtualMachine"),
		Spec: func(pool *vmPool) (replicas.Spec[*vm], error) {
			own, template := labels.Set{"pool": pool.Name}, pool.Spec.Template
			return replicas.Spec[*vm]{
				Replicas: pool.Spec.Replicas, Selector: own.AsSelector(), MaxUnavailable: &one,
				Slots: replicas.Ordinals(pool.Name), DeleteOptions: metav1.DeleteOptions{PropagationPolicy: &foreground},
				New: func(string) (*vm, error) {
					return &vm{ObjectMeta: metav1.ObjectMeta{Labels: own}, Spec: template}, nil
				},
				Update: func(m *vm) (c replicas.Change[*vm]) {
					if m.Spec.Memory != template.Memory {
						c.To, c.Free = m.DeepCopy(), true
						c.To.Spec.Memory = template.Memory
					}
					return c
				},
				Rules: replicas.Rules[*vm]{
					Ready:  func(m *vm) bool { return m.Status.Ready },
					MustGo: func(m *vm) bool { return !slices.Equal(m.Spec.Volumes, template.Volumes) },
				},
			}, nil
		},
		Status: func(pool *vmPool, o controller.Outcome[*vm]) error {
			pool.Status.Replicas, pool.Status.Ready = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
		StatusOf: func(pool *vmPool) any { return &pool.Status },
	}
}

func newPool() *vmPool {
	return &vmPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "vm"},
		Spec:       vmPoolSpec{3, vmSpec{1, []string{"disk-1"}}},
	}
}

func vmReady(m *vm) { m.Status.Ready = true }

func needsMemory(pool *vmPool) { pool.Spec.Template.Memory++ }

func needsDisk(disk string) func(*vmPool) {
	return func(pool *vmPool) { pool.Spec.Template.Volumes = []string{disk} }
}

// More memory is given to all machines at once, and they stay. For other volumes, one is replaced after the other.
func TestPoolsOfMachinesChangeAndReplace(t *testing.T) {
	t.Parallel()
	cluster, err := replicastest.NewCluster(vmPools(), replicastest.Options{Seed: 1})
	require.NoError(t, err)
	cluster.Ready = vmReady
	least := 0
	cluster.Changed = func(_, _ metav1.Object) {
		least = min(least, countIf(cluster.Children("default"), func(m *vm) bool { return m.Status.Ready && !isGoing(m) }))
	}
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	_, err = cluster.CreateOwner(t.Context(), newPool())
	require.NoError(t, err)
	after := func(change func(*vmPool)) (ids []types.UID, specs []vmSpec) {
		_, err = cluster.EditOwner(t.Context(), "default", "vm", change)
		require.NoError(t, err)
		least = 3
		world.Run(time.Minute)
		for _, m := range cluster.Children("default") {
			ids, specs = append(ids, m.UID), append(specs, m.Spec)
		}
		return ids, specs
	}
	first, _ := after(func(*vmPool) {})
	require.Len(t, first, 3)
	ids, specs := after(needsMemory)
	assert.Equal(t, first, ids)
	assert.Equal(t, 3, least)
	assert.Equal(t, slices.Repeat([]vmSpec{{2, []string{"disk-1"}}}, 3), specs)
	ids, specs = after(needsDisk("disk-2"))
	for _, id := range first {
		assert.NotContains(t, ids, id)
	}
	assert.Equal(t, 2, least)
	assert.Equal(t, slices.Repeat([]vmSpec{{2, []string{"disk-2"}}}, 3), specs)
}

func TestPoolsOfMachinesInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *vmStory) {
		wants := func(n int32) func(*vmPool) { return func(p *vmPool) { p.Spec.Replicas = n } }
		all := func() []*vm { return s.Cluster.Children("default") }
		s.Kind, s.Owner, s.Ready = vmPools(), newPool(), vmReady
		s.Changes = []func(*vmPool){needsMemory, needsMemory, needsDisk("disk-1"), needsDisk("disk-2"), wants(2), wants(3), wants(4)}
		s.Always = map[string]func() error{
			"no machine gets back what it had": neverFalls(all, func(m *vm) int { return m.Spec.Memory }),
			"never fewer than one":             s.AtLeast(1), // two are wanted, and one of them may be unavailable
			"never more than four":             s.AtMost(4),
		}
		s.AtEnd = map[string]func() error{
			"as many as wanted, all of the template": func() error {
				pool, err := s.Cluster.GetOwner(context.Background(), "default", "vm")
				if err != nil {
					return err
				}
				for _, m := range all() {
					if m.Spec.Memory != pool.Spec.Template.Memory || !slices.Equal(m.Spec.Volumes, pool.Spec.Template.Volumes) {
						return fmt.Errorf("%s is %v, want %v", m.Name, m.Spec, pool.Spec.Template)
					}
				}
				return s.AsWanted()
			},
		}
	}))
}

type (
	jobSet      = resource[jobSetSpec, struct{ Ready, Updated int32 }]
	jobSetStory = replicastest.Story[*jobSet, *batchv1.Job]
)

type jobSetSpec struct {
	Replicas int32
	Suspend  bool
	Pool     string // the nodes on which a scheduler of queues lets the jobs run
	Attempt  int
}

func isSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

func attemptOf(j *batchv1.Job) int {
	n, _ := strconv.Atoi(j.Labels["attempt"])
	return n
}

// jobSets returns the Kind of JobSets that have one replicated job. A restart replaces the jobs. Suspending and resuming
// changes them in place. The server lets a job that is resumed move to other nodes only if it has no start time, so that
// takes two changes: the first one of the status, and the second one, in the next pass, of the spec.
func jobSets() controller.Kind[*jobSet, *batchv1.Job] {
	return controller.Kind[*jobSet, *batchv1.Job]{
		Owner: example("JobSet"), Child: batchv1.SchemeGroupVersion.WithKind("Job"),
		Spec: func(set *jobSet) (replicas.Spec[*batchv1.Job], error) {
			own, want := labels.Set{"jobset": set.Name}, set.Spec
			return replicas.Spec[*batchv1.Job]{
				Replicas: want.Replicas, Selector: own.AsSelector(), Slots: replicas.Ordinals(set.Name),
				New: func(string) (*batchv1.Job, error) {
					j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: labels.Merge(own, labels.Set{"attempt": strconv.Itoa(want.Attempt)})}}
					j.Spec.Suspend, j.Spec.Template.Spec.NodeSelector = &want.Suspend, map[string]string{"pool": want.Pool}
					return j, nil
				},
				Update: func(j *batchv1.Job) (c replicas.Change[*batchv1.Job]) {
					if isSuspended(j) == want.Suspend {
						return c
					}
					c.To = j.DeepCopy()
					switch {
					case want.Suspend:
						c.To.Spec.Suspend = &want.Suspend
					case j.Status.StartTime != nil:
						c.To.Status.StartTime, c.Subresource = nil, "status"
					default:
						c.To.Spec.Suspend, c.To.Spec.Template.Spec.NodeSelector = &want.Suspend, map[string]string{"pool": want.Pool}
					}
					return c
				},
				Rules: replicas.Rules[*batchv1.Job]{
					Ready:  func(j *batchv1.Job) bool { return j.Status.Active > 0 },
					MustGo: func(j *batchv1.Job) bool { return attemptOf(j) < want.Attempt },
				},
			}, nil
		},
		Status: func(set *jobSet, o controller.Outcome[*batchv1.Job]) error {
			set.Status.Ready, set.Status.Updated = o.Counts.Ready, o.Updated
			return nil
		},
		StatusOf: func(set *jobSet) any { return &set.Status },
	}
}

// jobRunner is the controller of jobs, which starts and stops them in rounds of five seconds.
type jobRunner struct {
	story *jobSetStory
	next  time.Time
}

func (r *jobRunner) behind() []*batchv1.Job {
	return slices.DeleteFunc(r.story.Cluster.Children("default"), func(j *batchv1.Job) bool { return (j.Status.Active > 0) != isSuspended(j) })
}

func (r *jobRunner) Due() (time.Time, bool) { return r.next, len(r.behind()) > 0 }

func (r *jobRunner) Step() {
	now := r.story.Cluster.Clock.Now()
	if r.next.After(now) {
		return
	}
	r.next = now.Add(5 * time.Second)
	for _, j := range r.behind() {
		_, _ = r.story.Cluster.EditChild(context.Background(), j.Namespace, j.Name, func(j *batchv1.Job) {
			if isSuspended(j) {
				j.Status.Active = 0
				return
			}
			j.Status.Active, j.Status.StartTime = 1, &metav1.Time{Time: now}
		})
	}
}

// movedOnlyBeforeTheStart returns a rule: no job moves to other nodes while it has a start time.
func movedOnlyBeforeTheStart(all func() []*batchv1.Job) func() error {
	last := map[types.UID]*batchv1.Job{}
	return func() error {
		for _, j := range all() {
			was := last[j.UID]
			last[j.UID] = j
			if was != nil && was.Status.StartTime != nil && !maps.Equal(was.Spec.Template.Spec.NodeSelector, j.Spec.Template.Spec.NodeSelector) {
				return fmt.Errorf("%s was", j.Name)
			}
		}
		return nil
	}
}

func TestJobSetsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *jobSetStory) {
		all := func() []*batchv1.Job { return s.Cluster.Children("default") }
		s.Kind, s.Parts = jobSets(), []replicastest.Part{&jobRunner{story: s}}
		s.Owner = &jobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"}, Spec: jobSetSpec{Replicas: 3, Pool: "a"}}
		moves := func(pool string) func(*jobSet) {
			return func(set *jobSet) { set.Spec.Suspend, set.Spec.Pool = false, pool }
		}
		s.Changes = []func(*jobSet){
			func(set *jobSet) { set.Spec.Suspend = true },
			func(set *jobSet) { set.Spec.Suspend = true },
			moves("a"), moves("b"),
			func(set *jobSet) { set.Spec.Attempt++ },
		}
		s.Always = map[string]func() error{
			"no job that has started is moved": movedOnlyBeforeTheStart(all),
			"never more than three":            s.AtMost(3),
		}
		s.AtEnd = map[string]func() error{
			"all jobs run, or none": func() error {
				set, err := s.Cluster.GetOwner(context.Background(), "default", "train")
				if err != nil {
					return err
				}
				for _, j := range all() {
					if isSuspended(j) != set.Spec.Suspend || attemptOf(j) != set.Spec.Attempt || j.Status.Active > 0 == set.Spec.Suspend {
						return fmt.Errorf("%s is %v, want %v", j.Name, j, set.Spec)
					}
				}
				if set.Status.Updated != 3 {
					return fmt.Errorf("the status is %v", set.Status)
				}
				return s.AsWanted()
			},
		}
	}))
}
