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

// Operators that change their children in place, played with the faults of recipes_test.go: an operator of Valkey,
// KubeVirt's VirtualMachinePool, and JobSet. Then two that ask their children to leave: Agones' GameServerSet, and
// tidb-operator's TiKVGroup.

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
	jobSet      = resource[jobSetSpec, jobSetStatus]
	jobSetStory = replicastest.Story[*jobSet, *batchv1.Job]
)

type jobSetSpec struct {
	Jobs    []replicatedJob
	Suspend bool
	Pool    string // the nodes on which a scheduler of queues lets the jobs run
	Attempt int
}

type replicatedJob struct {
	Name      string
	Replicas  int32
	DependsOn string // the group whose jobs must run before these start
}

type jobSetStatus struct{ Ready, Updated map[string]int32 }

func isSuspended(j *batchv1.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

func attemptOf(j *batchv1.Job) int {
	n, _ := strconv.Atoi(j.Labels["attempt"])
	return n
}

// dependencyRuns reports whether all jobs run on which a group depends.
func dependencyRuns(set *jobSet, group string, jobs []*batchv1.Job) bool {
	at := func(name string) int {
		return slices.IndexFunc(set.Spec.Jobs, func(r replicatedJob) bool { return r.Name == name })
	}
	i := at(group)
	if i < 0 || set.Spec.Jobs[i].DependsOn == "" {
		return true
	}
	on := set.Spec.Jobs[at(set.Spec.Jobs[i].DependsOn)]
	return int(on.Replicas) == countIf(jobs, func(j *batchv1.Job) bool {
		return groupOfJob(j) == on.Name && attemptOf(j) == set.Spec.Attempt && j.Status.Active > 0
	})
}

func groupOfJob(j *batchv1.Job) string { return j.Labels["group"] }

// jobSets returns the Kind of JobSets. Each replicated job is a group with slots. A restart replaces the jobs. Suspending
// and resuming changes them in place. The server lets a job that is resumed move to other nodes only if it has no start
// time, so that takes two changes: the first one of the status, and the second one, in the next pass, of the spec.
func jobSets() controller.Kind[*jobSet, *batchv1.Job] {
	return controller.Kind[*jobSet, *batchv1.Job]{
		Owner: example("JobSet"), Child: batchv1.SchemeGroupVersion.WithKind("Job"),
		Spec: func(set *jobSet) (replicas.Spec[*batchv1.Job], error) {
			own, want := labels.Set{"jobset": set.Name}, set.Spec
			spec := replicas.Spec[*batchv1.Job]{
				Selector: own.AsSelector(), GroupOf: groupOfJob,
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
			}
			for _, r := range want.Jobs {
				spec.Groups = append(spec.Groups, replicas.Group[*batchv1.Job]{
					Name: r.Name, Replicas: r.Replicas, Slots: replicas.Ordinals(set.Name + "-" + r.Name),
					New: func(string) (*batchv1.Job, error) {
						all := labels.Merge(own, labels.Set{"group": r.Name, "attempt": strconv.Itoa(want.Attempt)})
						j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: all}}
						j.Spec.Suspend, j.Spec.Template.Spec.NodeSelector = &want.Suspend, map[string]string{"pool": want.Pool}
						return j, nil
					},
				})
			}
			return spec, nil
		},
		Prepare: func(_ context.Context, set *jobSet, step *controller.Step[*batchv1.Job]) error {
			waits := func(group string) bool { return !set.Spec.Suspend && !dependencyRuns(set, group, step.Active) }
			step.Create = slices.DeleteFunc(step.Create, func(name string) bool { // the last "-" ends what the group's slots begin with
				return waits(strings.TrimPrefix(name[:strings.LastIndex(name, "-")], set.Name+"-"))
			})
			step.Update = slices.DeleteFunc(step.Update, func(c replicas.Change[*batchv1.Job]) bool { return waits(groupOfJob(c.Object)) })
			return nil
		},
		Status: func(set *jobSet, o controller.Outcome[*batchv1.Job]) error {
			set.Status = jobSetStatus{map[string]int32{}, map[string]int32{}}
			for _, g := range o.Groups {
				set.Status.Ready[g.Name], set.Status.Updated[g.Name] = g.Counts.Ready, g.Updated
			}
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

// startsAfter returns a rule: no job of a group may run in an attempt before one of the group on which it depends has.
func startsAfter(all func() []*batchv1.Job, group, dependsOn string) func() error {
	ran := map[int]bool{}
	return func() error {
		for _, j := range all() {
			if groupOfJob(j) == dependsOn && j.Status.Active > 0 {
				ran[attemptOf(j)] = true
			}
			if groupOfJob(j) == group && !isSuspended(j) && !ran[attemptOf(j)] {
				return fmt.Errorf("%s may run first", j.Name)
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
		jobs := func(workers, evals int32) func(*jobSet) {
			return func(set *jobSet) {
				set.Spec.Jobs = []replicatedJob{{"work", workers, "lead"}, {"work-eval", evals, ""}, {"lead", 1, ""}}
			}
		}
		s.Owner = &jobSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"}, Spec: jobSetSpec{Pool: "a"}}
		jobs(2, 1)(s.Owner)
		moves := func(pool string) func(*jobSet) {
			return func(set *jobSet) { set.Spec.Suspend, set.Spec.Pool = false, pool }
		}
		s.Changes = []func(*jobSet){
			func(set *jobSet) { set.Spec.Suspend = true },
			func(set *jobSet) { set.Spec.Suspend = true },
			moves("a"), moves("b"),
			func(set *jobSet) { set.Spec.Attempt++ },
			jobs(1, 3), jobs(3, 1), jobs(2, 0),
			func(set *jobSet) { set.Spec.Jobs = []replicatedJob{{"lead", 1, ""}} },
		}
		s.Always = map[string]func() error{
			"no job that has started is moved":  movedOnlyBeforeTheStart(all),
			"the leader runs before the others": startsAfter(all, "work", "lead"),
			"never more than seven":             s.AtMost(7),
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
				for _, r := range set.Spec.Jobs {
					if set.Status.Updated[r.Name] != r.Replicas || set.Status.Ready[r.Name] > 0 == set.Spec.Suspend && r.Replicas > 0 {
						return fmt.Errorf("the status is %v, want %v", set.Status, set.Spec)
					}
				}
				return s.AsWanted()
			},
		}
	}))
}

type (
	gameServerSet      = resource[gameServerSetSpec, struct{ Ready, ShuttingDown int32 }]
	gameServer         = resource[struct{}, struct{ State gameState }]
	gameServerSetStory = replicastest.Story[*gameServerSet, *gameServer]
)

type gameServerSetSpec struct{ Replicas int32 }

type gameState string

const (
	gameIsReady     gameState = "Ready"
	gameHasPlayers  gameState = "Allocated"
	gameIsUnhealthy gameState = "Unhealthy"
	gameShutsDown   gameState = "Shutdown"
)

func inState(states ...gameState) func(*gameServer) bool {
	return func(g *gameServer) bool { return slices.Contains(states, g.Status.State) }
}

// stays reports whether a server is neither asked to leave nor being deleted.
func stays(g *gameServer) bool { return g.Status.State != gameShutsDown && !isGoing(g) }

// gameServerSets returns the Kind of Agones' GameServerSet. A server is asked to leave by its state, and its own
// controller deletes it. One that has players stays, one that is unhealthy goes, and none can be called back.
func gameServerSets() controller.Kind[*gameServerSet, *gameServer] {
	return controller.Kind[*gameServerSet, *gameServer]{
		Owner: example("GameServerSet"), Child: example("GameServer"),
		Spec: func(set *gameServerSet) (replicas.Spec[*gameServer], error) {
			own := labels.Set{"set": set.Name}
			return replicas.Spec[*gameServer]{
				Replicas: set.Spec.Replicas, Selector: own.AsSelector(), BurstReplicas: 64,
				New: func(string) (*gameServer, error) {
					return &gameServer{ObjectMeta: metav1.ObjectMeta{Labels: own}}, nil
				},
				Retire: func(g *gameServer, leaves bool) (c replicas.Change[*gameServer]) {
					if leaves {
						c.To, c.Subresource = g.DeepCopy(), "status"
						c.To.Status.State = gameShutsDown
					}
					return c
				},
				Rules: replicas.Rules[*gameServer]{
					Leaving: inState(gameShutsDown), Ready: inState(gameIsReady, gameHasPlayers),
					MustStay: inState(gameHasPlayers), MustGo: inState(gameIsUnhealthy),
				},
			}, nil
		},
		Status: func(set *gameServerSet, o controller.Outcome[*gameServer]) error {
			set.Status.Ready, set.Status.ShuttingDown = o.Counts.Ready, o.Counts.Terminating
			return nil
		},
		StatusOf: func(set *gameServerSet) any { return &set.Status },
	}
}

// gameServers is the controller of game servers, and their players. It deletes those that shut down. Players come some
// more times, and some more servers become unhealthy.
type gameServers struct {
	story          *gameServerSetStory
	games, crashes int
	states         map[types.UID]gameTime
}

type gameTime struct {
	state gameState
	ends  time.Time
}

func (g *gameServers) next() (server *gameServer, ends time.Time) {
	for _, s := range g.story.Cluster.Children("default") {
		if isGoing(s) || s.Status.State == gameIsUnhealthy || s.Status.State == gameIsReady && g.games+g.crashes == 0 {
			continue
		}
		t, ok := g.states[s.UID]
		if !ok || t.state != s.Status.State {
			t = gameTime{s.Status.State, g.story.Cluster.Clock.Now().Add(time.Duration(1+g.story.Cluster.Random(90)) * time.Second)}
			g.states[s.UID] = t
		}
		if server == nil || t.ends.Before(ends) {
			server, ends = s, t.ends
		}
	}
	return server, ends
}

func (g *gameServers) Due() (time.Time, bool) {
	server, ends := g.next()
	return ends, server != nil
}

func (g *gameServers) Step() {
	server, ends := g.next()
	if server == nil || ends.After(g.story.Cluster.Clock.Now()) {
		return
	}
	if server.Status.State == gameShutsDown {
		_, _ = g.story.Cluster.DeleteChild(context.Background(), server.Namespace, server.Name, metav1.DeleteOptions{})
		return
	}
	state := gameIsReady // it has started, or its players have left
	switch {
	case server.Status.State != gameIsReady:
	case g.crashes > 0 && g.story.Cluster.Random(2) == 0:
		state, g.crashes = gameIsUnhealthy, g.crashes-1
	case g.games > 0:
		state, g.games = gameHasPlayers, g.games-1
	}
	delete(g.states, server.UID)
	_, _ = g.story.Cluster.EditChild(context.Background(), server.Namespace, server.Name, func(s *gameServer) { s.Status.State = state })
}

// finishesGames returns a rule: no server is asked to leave while it has players.
func finishesGames(all func() []*gameServer) func() error {
	last := map[types.UID]gameState{}
	return func() error {
		for _, s := range all() {
			if last[s.UID] == gameHasPlayers && s.Status.State == gameShutsDown {
				return fmt.Errorf("%s is", s.Name)
			}
			last[s.UID] = s.Status.State
		}
		return nil
	}
}

func TestGameServerSetsInStories(t *testing.T) {
	t.Parallel()
	told := 0
	require.NoError(t, replicastest.Play(1, *stories, func(s *gameServerSetStory) {
		wants := func(n int32) func(*gameServerSet) {
			return func(set *gameServerSet) { set.Spec.Replicas = n }
		}
		all := func() []*gameServer { return s.Cluster.Children("default") }
		servers := &gameServers{s, 10, 0, map[types.UID]gameTime{}}
		s.Kind, s.Parts = gameServerSets(), []replicastest.Part{servers}
		s.Owner = &gameServerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lobby"}, Spec: gameServerSetSpec{4}}
		s.Changes = []func(*gameServerSet){wants(2), wants(3), wants(5)}
		most := 0
		s.Always = map[string]func() error{
			"no server with players is asked to leave": finishesGames(all),
			// Five are wanted at the most. After a scale-down a creation without an answer may land beside them.
			"from two to six stay": func() error {
				n := countIf(all(), stays)
				if most = max(most, n); n > 6 || most > 1 && n < 2 && servers.crashes == 0 {
					return fmt.Errorf("%d do", n)
				}
				return nil
			},
		}
		if told++; told%4 > 1 { // in these stories servers become unhealthy, and then as many go as are wanted
			servers.crashes = 3
			delete(s.Always, "from two to six stay")
			s.Always["no more than six stay"] = func() error {
				if n := countIf(all(), stays); n > 6 {
					return fmt.Errorf("%d do", n)
				}
				return nil
			}
		}
		s.AtEnd = map[string]func() error{"as many as wanted": s.AsWanted, "all are ready": func() error {
			set, err := s.Cluster.GetOwner(context.Background(), "default", "lobby")
			if n := countIf(all(), inState(gameIsReady)); err == nil && (n != len(all()) || set.Status.Ready != set.Spec.Replicas || set.Status.ShuttingDown > 0) {
				return fmt.Errorf("%d are, and the status is %v", n, set.Status)
			}
			return err
		}}
	}))
}

// One of three servers is unhealthy while another is missing, because a quota is full. It is asked to leave only when
// there are three again, and once.
func TestAnUnhealthyGameServerGoesWhenNoneIsMissing(t *testing.T) {
	t.Parallel()
	cluster, err := replicastest.NewCluster(gameServerSets(), replicastest.Options{Seed: 1})
	require.NoError(t, err)
	cluster.Ready = func(g *gameServer) { g.Status.State = gameIsReady }
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	_, err = cluster.CreateOwner(t.Context(), &gameServerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lobby"}, Spec: gameServerSetSpec{3}})
	require.NoError(t, err)
	world.Run(time.Minute)
	servers := cluster.Children("default")
	require.Len(t, servers, 3)
	cluster.SetQuota("default", 2)
	_, err = cluster.DeleteChild(t.Context(), "default", servers[0].Name, metav1.DeleteOptions{})
	require.NoError(t, err)
	_, err = cluster.EditChild(t.Context(), "default", servers[1].Name, func(g *gameServer) { g.Status.State = gameIsUnhealthy })
	require.NoError(t, err)
	world.Run(5 * time.Minute)
	assert.Equal(t, 1, countIf(cluster.Children("default"), inState(gameIsUnhealthy)))
	cluster.SetQuota("default", 9)
	world.Run(5 * time.Minute)
	unhealthy, err := cluster.GetChild(t.Context(), "default", servers[1].Name)
	require.NoError(t, err)
	assert.Equal(t, gameShutsDown, unhealthy.Status.State)
	assert.Len(t, cluster.Children("default"), 4)
	assert.Equal(t, 3, countIf(cluster.Children("default"), inState(gameIsReady)))
}

type (
	tikvGroup      = resource[tikvGroupSpec, struct{ Ready, Updated int32 }]
	tikvStore      = resource[tikvSpec, tikvStatus]
	tikvCluster    = replicastest.Cluster[*tikvGroup, *tikvStore]
	tikvGroupStory = replicastest.Story[*tikvGroup, *tikvStore]
)

type tikvGroupSpec struct {
	Replicas int32
	Version  int
}

type tikvSpec struct {
	Version int
	Offline bool // what asks a store to leave
}

type tikvStatus struct {
	ObservedGeneration int64
	Ready              bool
	Offline            bool // the data have moved to other stores
}

func isObserved(s *tikvStore) bool { return s.Status.ObservedGeneration == s.Generation }

// tikvGroups returns the Kind of tidb-operator's TiKVGroup. Stores are changed in place, one after the other. One that is
// not wanted is taken offline, and is deleted when its data have moved. Before that it is taken back if it is wanted
// again. What a store answered to an earlier request does not count.
func tikvGroups() controller.Kind[*tikvGroup, *tikvStore] {
	one := intstr.FromInt32(1)
	return controller.Kind[*tikvGroup, *tikvStore]{
		Owner: example("TiKVGroup"), Child: example("TiKV"),
		Spec: func(g *tikvGroup) (replicas.Spec[*tikvStore], error) {
			own := labels.Set{"group": g.Name}
			return replicas.Spec[*tikvStore]{
				Replicas: g.Spec.Replicas, Selector: own.AsSelector(), MaxUnavailable: &one,
				New: func(string) (*tikvStore, error) {
					return &tikvStore{ObjectMeta: metav1.ObjectMeta{Labels: own}, Spec: tikvSpec{Version: g.Spec.Version}}, nil
				},
				Update: func(s *tikvStore) (c replicas.Change[*tikvStore]) {
					c.To = s.DeepCopy()
					c.To.Spec.Version = g.Spec.Version
					return c
				},
				Retire: func(s *tikvStore, leaves bool) (c replicas.Change[*tikvStore]) {
					c.To = s.DeepCopy()
					c.To.Spec.Offline = leaves
					return c
				},
				Rules: replicas.Rules[*tikvStore]{
					Leaving: func(s *tikvStore) bool { return s.Spec.Offline },
					Discard: func(s *tikvStore) bool { return s.Spec.Offline && s.Status.Offline && isObserved(s) },
					Ready:   func(s *tikvStore) bool { return s.Status.Ready && isObserved(s) },
				},
			}, nil
		},
		Status: func(g *tikvGroup, o controller.Outcome[*tikvStore]) error {
			g.Status.Ready, g.Status.Updated = o.Counts.Ready, o.Updated
			return nil
		},
		StatusOf: func(g *tikvGroup) any { return &g.Status },
	}
}

// tikvStores is the controller of the stores, and TiKV itself. A store answers what it has seen when it began to restart
// or to move its data, which may have been called off since.
type tikvStores struct {
	cluster func() *tikvCluster
	takes   func() time.Duration
	begun   map[types.UID]tikvWork
	drained map[types.UID]bool // the stores without data
	last    map[types.UID]*tikvStore
}

type tikvWork struct {
	generation int64
	offline    bool
	ends       time.Time
}

func newStores(cluster func() *tikvCluster, takes func() time.Duration) *tikvStores {
	return &tikvStores{cluster: cluster, takes: takes, begun: map[types.UID]tikvWork{}, drained: map[types.UID]bool{}}
}

func (s *tikvStores) all() []*tikvStore { return s.cluster().Children("default") }

func (s *tikvStores) next() (store *tikvStore, work tikvWork) {
	for _, kv := range s.all() {
		w, isBusy := s.begun[kv.UID]
		if !isBusy && isObserved(kv) {
			continue
		}
		if !isBusy {
			w = tikvWork{kv.Generation, kv.Spec.Offline, s.cluster().Clock.Now().Add(s.takes())}
			s.begun[kv.UID] = w
		}
		if store == nil || w.ends.Before(work.ends) {
			store, work = kv, w
		}
	}
	return store, work
}

func (s *tikvStores) Due() (time.Time, bool) {
	store, work := s.next()
	return work.ends, store != nil
}

func (s *tikvStores) Step() {
	store, work := s.next()
	if store == nil || work.ends.After(s.cluster().Clock.Now()) {
		return
	}
	delete(s.begun, store.UID)
	s.drained[store.UID] = work.offline && work.generation == store.Generation
	_, _ = s.cluster().EditChild(context.Background(), store.Namespace, store.Name, func(kv *tikvStore) {
		kv.Status = tikvStatus{work.generation, !work.offline, work.offline}
	})
}

// losesNoData returns an error if a store goes, or has gone, with its data. A store that is taken back gets data again at
// once. It is a rule for each moment.
func (s *tikvStores) losesNoData() error {
	now := map[types.UID]*tikvStore{}
	for _, kv := range s.all() {
		if now[kv.UID] = kv; !kv.Spec.Offline {
			delete(s.drained, kv.UID)
		}
	}
	last := s.last
	s.last = now
	for id, kv := range last {
		if is := now[id]; (is == nil || isGoing(is)) && !s.drained[id] {
			return fmt.Errorf("%s goes with its data: %v", kv.Name, kv.Status)
		}
	}
	return nil
}

func isServing(s *tikvStore) bool { return s.Status.Ready && isObserved(s) && !s.Spec.Offline }

func newGroup(n int32) *tikvGroup {
	return &tikvGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kv"}, Spec: tikvGroupSpec{n, 1}}
}

func stores(n int32) func(*tikvGroup) { return func(g *tikvGroup) { g.Spec.Replicas = n } }

func TestTiKVGroupsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *tikvGroupStory) {
		cluster := func() *tikvCluster { return s.Cluster }
		kv := newStores(cluster, func() time.Duration { return time.Duration(1+s.Cluster.Random(90)) * time.Second })
		s.Kind, s.Owner, s.Parts = tikvGroups(), newGroup(4), []replicastest.Part{kv}
		s.Changes = []func(*tikvGroup){stores(3), stores(4), stores(5), func(g *tikvGroup) { g.Spec.Version++ }}
		most := 0
		s.Always = map[string]func() error{
			"no store goes with its data":    kv.losesNoData,
			"no store gets an older version": neverFalls(kv.all, func(s *tikvStore) int { return s.Spec.Version }),
			"two of three serve": func() error { // one may be unavailable
				n := countIf(kv.all(), isServing)
				if most = max(most, n); most > 2 && n < 2 {
					return fmt.Errorf("%d do", n)
				}
				return nil
			},
			"never more than five stay": func() error {
				if n := countIf(kv.all(), func(s *tikvStore) bool { return !s.Spec.Offline && !isGoing(s) }); n > 5 {
					return fmt.Errorf("%d do", n)
				}
				return nil
			},
		}
		s.AtEnd = map[string]func() error{"all serve, in the newest version": func() error {
			g, err := s.Cluster.GetOwner(context.Background(), "default", "kv")
			if err != nil {
				return err
			}
			for _, store := range kv.all() {
				if !isServing(store) || store.Spec.Version != g.Spec.Version {
					return fmt.Errorf("%s is %v, want version %d", store.Name, store, g.Spec.Version)
				}
			}
			return s.AsWanted()
		}}
	}))
}

// Four stores, whose data take an hour to move. Whatever happens, none is created, and none goes with its data.
func TestStoresThatAreAskedToLeave(t *testing.T) {
	t.Parallel()
	type fault struct {
		*tikvCluster
		t        *testing.T
		operator *replicastest.Controller[*tikvGroup, *tikvStore]
		world    *replicastest.World
		scale    func(n int32)
	}
	loses := func(rule replicastest.Rule) func(*fault) {
		rule.Verb, rule.Kind, rule.Times = "patch", "TiKV", 1
		return func(a *fault) {
			a.operator.Client.Fail(rule)
			a.scale(3)
			if a.world.Run(time.Millisecond); rule.Late > 0 {
				assert.Equal(a.t, 4, countIf(a.Children("default"), isServing), "it is not sent again yet")
				a.scale(4)
			}
		}
	}
	goesDown := func(n int32, then func(a *fault)) func(*fault) {
		return func(a *fault) {
			a.scale(n)
			a.world.Run(10 * time.Minute)
			then(a)
		}
	}
	for name, tt := range map[string]struct {
		happens      func(*fault)
		stay, marked int // how many of the four are left, and how many were asked to leave
	}{
		"scaled down and up before the cache shows it": {func(a *fault) {
			a.operator.View.OwnerWatch.Lag = 5 * time.Second
			a.scale(2)
			a.world.Run(time.Second)
			a.scale(4)
		}, 4, 0},
		"scaled up again while two move their data": {goesDown(2, func(a *fault) { a.scale(4) }), 4, 2},
		"one of the two is wanted again":            {goesDown(2, func(a *fault) { a.scale(3) }), 3, 2},
		"scaled up and down while two move their data": {goesDown(2, func(a *fault) {
			a.scale(4)
			a.world.Run(time.Minute)
			a.scale(2)
		}), 2, 4},
		"the answer to the mark is lost":           {loses(replicastest.Rule{Landed: true}), 3, 1},
		"the mark is lost":                         {loses(replicastest.Rule{}), 3, 1},
		"the mark comes after its store is wanted": {loses(replicastest.Rule{Late: time.Minute}), 4, 1},
		"another becomes the first to go while the mark is under way": {func(a *fault) {
			asked := ""
			a.operator.Client.Done = func(call replicastest.Call, _ error) {
				if call.Kind == "TiKV" && call.Verb == "patch" {
					asked = cmp.Or(asked, call.Name)
				}
			}
			loses(replicastest.Rule{Late: time.Minute})(a)
			a.scale(3)
			others := slices.DeleteFunc(a.Children("default"), func(s *tikvStore) bool { return s.Name == asked })
			require.Len(a.t, others, 3)
			for _, isReady := range []bool{false, true} {
				_, err := a.EditChild(a.t.Context(), "default", others[0].Name, func(s *tikvStore) { s.Status.Ready = isReady })
				require.NoError(a.t, err)
				a.world.Run(2 * time.Minute)
			}
		}, 3, 1},
		"another process takes over before they leave": {goesDown(2, func(a *fault) {
			a.operator.View.Stop()
			a.operator = a.NewController()
			a.world.Parts[1] = a.operator
		}), 2, 2},
		"a person asks one to leave that is wanted": {func(a *fault) {
			_, err := a.EditChild(a.t.Context(), "default", a.Children("default")[0].Name, func(s *tikvStore) { s.Spec.Offline = true })
			require.NoError(a.t, err)
		}, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, err := replicastest.NewCluster(tikvGroups(), replicastest.Options{Seed: 1})
			require.NoError(t, err)
			kv := newStores(func() *tikvCluster { return cluster }, func() time.Duration { return time.Hour })
			a := &fault{t: t, tikvCluster: cluster, operator: cluster.NewController()}
			a.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, a.operator, kv}}
			a.scale = func(n int32) {
				_, err := cluster.EditOwner(t.Context(), "default", "kv", stores(n))
				require.NoError(t, err)
			}
			_, err = cluster.CreateOwner(t.Context(), newGroup(4))
			require.NoError(t, err)
			a.world.Run(2 * time.Hour)
			first := cluster.Children("default")
			require.Equal(t, 4, countIf(first, isServing))
			ever := map[types.UID]bool{}
			for _, s := range first {
				ever[s.UID] = true
			}
			marked, broken := 0, error(nil)
			cluster.Changed = func(before, after metav1.Object) {
				broken = cmp.Or(broken, kv.losesNoData())
				was, _ := before.(*tikvStore)
				if is, _ := after.(*tikvStore); was != nil && is != nil && is.Spec.Offline && !was.Spec.Offline {
					marked++
				}
			}
			tt.happens(a)
			a.world.Run(5 * time.Hour)
			require.NoError(t, broken)
			left := cluster.Children("default")
			assert.Len(t, left, tt.stay)
			assert.Equal(t, tt.stay, countIf(left, func(s *tikvStore) bool { return isServing(s) && ever[s.UID] }))
			assert.Equal(t, tt.marked, marked)
		})
	}
}
