// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/status"
)

// Two operators whose owners have groups of children, played with the faults of recipes_test.go: KubeRay's RayCluster
// and a shard of vitess. The third, JobSet, is in inplace_test.go.

// podIn returns a pod of a group.
func podIn(r *podRig, group, name string, options ...podtest.Option) *corev1.Pod {
	p := podtest.Pod("web-"+name, append([]podtest.Option{owned(r.owner), version("7")}, options...)...)
	p.Labels = labels.Merge(p.Labels, labels.Set{"group": group})
	return p
}

// inGroups returns a rig with these groups, whose pods are changed while they have the annotation "older", and are asked
// to leave by the annotation "leave" if they are in the group "slow".
func inGroups(groups *[]string) *podRig {
	r := newRig(0)
	r.version, r.childrenVersion = "9", "8"
	withSpec(r, func(s *replicas.SpecOfPods) {
		groupsTo(s, *groups)
		listed := map[string]*string{}
		for _, g := range s.Groups {
			listed[g.Name] = &g.Name
		}
		s.Update = func(p *corev1.Pod) (c replicas.Change[*corev1.Pod]) {
			_ = *listed[groupOfPod(p)] // the template of the group
			if p.Annotations["older"] != "" {
				c.To, c.Free, c.OrReplace = clone(p), true, true
				delete(c.To.Annotations, "older")
			}
			return c
		}
		s.Retire = func(p *corev1.Pod, leaves bool) (c replicas.Change[*corev1.Pod]) {
			if leaves && groupOfPod(p) == "slow" {
				c.To = clone(p)
				setAnnotation(c.To, "leave", "yes")
			}
			return c
		}
		s.Rules.Leaving = func(p *corev1.Pod) bool { return isGoing(p) || p.Annotations["leave"] != "" }
	})
	r.patched = func(p *corev1.Pod) {
		if groupOfPod(p) == "slow" {
			setAnnotation(p, "leave", "yes")
		}
		delete(p.Annotations, "older")
	}
	return r
}

func older(p *corev1.Pod) { setAnnotation(p, "older", "yes") }

// The numbers of each group include what the pass did, as those of the owner do.
func TestTheOutcomeOfGroups(t *testing.T) {
	t.Parallel()
	groups := []string{"gpu=3", "cpu=1", "slow=1", "none=0"}
	r := inGroups(&groups)
	pods := []*corev1.Pod{
		podIn(r, "gpu", "gpu-1", older), podIn(r, "gpu", "gpu-2", podtest.NotReady, podtest.Deleting),
		podIn(r, "cpu", "cpu-1"), podIn(r, "cpu", "cpu-2"), podIn(r, "cpu", "cpu-3", podtest.NotReady),
		podIn(r, "slow", "slow-1"), podIn(r, "slow", "slow-2"), podIn(r, "gone", "gone-1"), podIn(r, "", "x"),
	}
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	counts := func(replicas, ready, terminating int32) status.Counts {
		return status.Counts{Replicas: replicas, FullyLabeled: replicas, Ready: ready, Available: ready, Terminating: terminating}
	}
	assert.Equal(t, []controller.GroupOutcome{
		{Name: "gpu", Desired: 3, Updated: 1, Counts: counts(3, 1, 1)},
		{Name: "cpu", Desired: 1, Updated: 3, Counts: counts(1, 1, 2)},
		{Name: "slow", Desired: 1, Updated: 2, Counts: counts(1, 1, 1)},
		{Name: "none"},
	}, pass.Groups)
	assert.Equal(t, counts(6, 4, 5), pass.Counts, "also of the group that is gone, and of none")
	assert.EqualValues(t, 5, pass.Desired)
	assert.EqualValues(t, 8, pass.Updated)

	gone := inGroups(&groups)
	gone.owner.DeletionTimestamp, gone.owner.Finalizers = &metav1.Time{Time: r.now}, []string{"example.com/drain"}
	withSpec(gone, func(s *replicas.SpecOfPods) { s.Finalizer = "example.com/drain" })
	pass, err = gone.pass(t, 0, pods...)
	require.NoError(t, err)
	for _, g := range pass.Groups {
		assert.Zero(t, g.Desired, g.Name)
		assert.Zero(t, g.Counts.Replicas, g.Name)
	}
	assert.Len(t, pass.Groups, 4)
}

// The change of a pod was refused, so it must go. Then its group was removed, and nobody can say any more what the pod
// should be.
func TestARefusedChangeInAGroupThatIsRemoved(t *testing.T) {
	t.Parallel()
	groups := []string{"gpu=1", "cpu=1"}
	r := inGroups(&groups)
	r.patch = func(p *corev1.Pod) error { return invalid(p.Name) }
	pods := []*corev1.Pod{podIn(r, "gpu", "gpu-1", older), podIn(r, "cpu", "cpu-1")}
	pass, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	require.True(t, apierrors.IsInvalid(pass.Calls[1].Err), "%v", pass.Calls)
	groups = []string{"cpu=1"} // the groups are those of another object, so the owner has no new generation
	pass, err = r.pass(t, 1, pods...)
	require.NoError(t, err)
	require.Len(t, pass.Deleted, 1)
	assert.Equal(t, "web-gpu-1", pass.Deleted[0].Name)
}

// groupRules judge each group of an owner alone, by what the server has.
type groupRules[O replicastest.Object[O]] struct {
	story  *replicastest.Story[O, *corev1.Pod]
	mayGo  func(*corev1.Pod) bool // pods that may go whatever the number of their group is
	born   map[types.UID]string   // the group in which a pod was made
	alive  map[types.UID]*corev1.Pod
	moved  map[string]int // how many pods have left a group by a change of their label
	most   map[string]int32
	wanted []numbersThen
	// unavailable is MaxUnavailable of each group, which lets a pod outside the wanted slots go before another one is there.
	unavailable int32
}

type numbersThen struct {
	since time.Time
	of    map[string]int32
}

// rulesOf returns the rules of a story. To each group belongs what its pods' label "group" says.
func rulesOf[O replicastest.Object[O]](s *replicastest.Story[O, *corev1.Pod], mayGo func(*corev1.Pod) bool) *groupRules[O] {
	return &groupRules[O]{story: s, mayGo: mayGo, born: map[types.UID]string{}, moved: map[string]int{}, most: map[string]int32{}}
}

func groupOfPod(p *corev1.Pod) string { return p.Labels["group"] }

func isAlive(p *corev1.Pod) bool { return !isGoing(p) && metav1.GetControllerOfNoCopy(p) != nil }

// note remembers what the groups want now.
func (g *groupRules[O]) note() error {
	owner, err := g.story.Cluster.GetOwner(context.Background(), g.story.Owner.GetNamespace(), g.story.Owner.GetName())
	if err != nil {
		return nil //nolint:nilerr // it does not exist yet
	}
	spec, err := g.story.Kind.Spec(owner)
	if err != nil {
		return err
	}
	now := map[string]int32{}
	for _, of := range spec.Groups {
		now[of.Name], g.most[of.Name] = of.Replicas, max(g.most[of.Name], of.Replicas)
	}
	if n := len(g.wanted); n == 0 || !maps.Equal(g.wanted[n-1].of, now) {
		g.wanted = append(g.wanted, numbersThen{g.story.Cluster.Clock.Now(), now})
	}
	return nil
}

// least returns the least number that a group has wanted in the last minutes, in which a call may have been sent.
func (g *groupRules[O]) least(group string) int32 {
	n := len(g.wanted) - 1
	least := g.wanted[n].of[group]
	for ; n > 0 && g.story.Cluster.Clock.Now().Sub(g.wanted[n].since) < 3*time.Minute; n-- {
		least = min(least, g.wanted[n-1].of[group])
	}
	return least
}

// check returns an error if a group has more pods than it ever wanted, or if a pod was deleted that its group wanted.
// Pods whose label was changed count for neither, because the change may not have been seen.
func (g *groupRules[O]) check() error {
	if err := g.note(); err != nil || len(g.wanted) == 0 {
		return err
	}
	now, made, all := map[types.UID]*corev1.Pod{}, map[string]int32{}, map[string]int32{}
	for _, p := range g.story.Cluster.Children("default") {
		if !isAlive(p) {
			continue
		}
		now[p.UID] = p
		group := groupOfPod(p)
		if _, known := g.born[p.UID]; !known {
			g.born[p.UID] = group
		}
		if was := g.alive[p.UID]; was != nil && groupOfPod(was) != group {
			g.moved[groupOfPod(was)]++
		}
		if all[group]++; g.born[p.UID] == group {
			made[group]++
		}
	}
	last := g.alive
	g.alive = now
	for group, n := range made {
		if most := g.most[group]; n > most {
			return fmt.Errorf("group %q has %d pods, want at most %d", group, n, most)
		}
	}
	for id, p := range last {
		group := groupOfPod(p)
		if now[id] != nil || g.born[id] != group || g.mayGo(p) {
			continue
		}
		if least := g.least(group) - g.unavailable; all[group]+int32(g.moved[group]) < least {
			return fmt.Errorf("%s was deleted, and its group %q has %d of %d", p.Name, group, all[group], least)
		}
	}
	return nil
}

// relabeler is a user who puts one pod into another group.
type relabeler[O replicastest.Object[O]] struct {
	story    *replicastest.Story[O, *corev1.Pod]
	from, to string // "" if there is nothing to do
}

func (r *relabeler[O]) Due() (time.Time, bool) {
	if r.story.Cluster.Clock == nil || r.from == "" {
		return time.Time{}, false
	}
	return r.story.Cluster.Clock.Now(), true
}

func (r *relabeler[O]) Step() {
	for _, p := range r.story.Cluster.Children("default") {
		if isAlive(p) && groupOfPod(p) == r.from {
			_, _ = r.story.Cluster.EditChild(context.Background(), p.Namespace, p.Name, func(p *corev1.Pod) { p.Labels = labels.Merge(p.Labels, labels.Set{"group": r.to}) })
			break
		}
	}
	r.from = ""
}

type (
	rayCluster = resource[raySpec, rayStatus]
	rayStory   = replicastest.Story[*rayCluster, *corev1.Pod]
)

type raySpec struct {
	Workers []rayWorkers
	Suspend bool
	Delete  []string // workers to delete by name
}

type rayWorkers struct {
	Name     string
	Replicas int32
	Image    string
	Scaled   bool // an autoscaler alone names the workers to delete
}

type rayStatus struct{ Desired, Available, Heads int32 }

const head = "head"

// rayClusters returns the Kind of an operator like KubeRay: a head, and groups of workers. Workers to delete are named
// in the owner. A cluster that is suspended has no pods.
func rayClusters() controller.Kind[*rayCluster, *corev1.Pod] {
	return controller.Kind[*rayCluster, *corev1.Pod]{
		Owner: example("RayCluster"), Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec: func(ray *rayCluster) (replicas.SpecOfPods, error) {
			own, named, scaled := labels.Set{"ray": ray.Name}, sets.New(ray.Spec.Delete...), sets.New[string]()
			spec := replicas.SpecOfPods{Selector: own.AsSelector(), GroupOf: groupOfPod}
			for _, w := range append([]rayWorkers{{Name: head, Replicas: 1}}, ray.Spec.Workers...) {
				g := replicas.Group[*corev1.Pod]{Name: w.Name, Replicas: w.Replicas, New: func(string) (*corev1.Pod, error) {
					return imagePod(labels.Merge(own, labels.Set{"group": w.Name}), w.Image), nil
				}}
				if ray.Spec.Suspend {
					g.Replicas = 0
				} else if w.Scaled {
					scaled.Insert(w.Name)
				}
				spec.Groups = append(spec.Groups, g)
			}
			spec.Rules.MustGo = func(p *corev1.Pod) bool { return named.Has(p.Name) }
			spec.Rules.MustStay = func(p *corev1.Pod) bool { return scaled.Has(groupOfPod(p)) && !named.Has(p.Name) }
			return spec, nil
		},
		Status: func(ray *rayCluster, o controller.Outcome[*corev1.Pod]) error {
			ray.Status = rayStatus{}
			for _, g := range o.Groups {
				if g.Name == head {
					ray.Status.Heads = g.Counts.Available
					continue
				}
				ray.Status.Desired += g.Desired
				ray.Status.Available += g.Counts.Available
			}
			return nil
		},
		StatusOf: func(ray *rayCluster) any { return &ray.Status },
	}
}

func imagePod(set labels.Set, image string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: set}}
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: image}}
	return pod
}

// workersOf returns a change of the groups of workers.
func workersOf(change func(name string, w *rayWorkers)) func(*rayCluster) {
	return func(ray *rayCluster) {
		ray.Spec.Workers = slices.Clone(ray.Spec.Workers)
		for i := range ray.Spec.Workers {
			change(ray.Spec.Workers[i].Name, &ray.Spec.Workers[i])
		}
	}
}

func without(group string) func(*rayCluster) {
	return func(ray *rayCluster) {
		ray.Spec.Workers = slices.DeleteFunc(slices.Clone(ray.Spec.Workers), func(w rayWorkers) bool { return w.Name == group })
	}
}

// having adds a group, unless the cluster has it.
func having(w rayWorkers) func(*rayCluster) {
	return func(ray *rayCluster) {
		without(w.Name)(ray)
		ray.Spec.Workers = append(ray.Spec.Workers, w)
	}
}

func renamed(from, to string) func(*rayCluster) {
	return workersOf(func(name string, w *rayWorkers) {
		if name == from {
			w.Name = to
		}
	})
}

// rayAutoscaler wants another number of workers in the group "gpu-big" from time to time. It names the workers that are
// to go.
type rayAutoscaler struct {
	story       *rayStory
	next, until time.Time
	named       sets.Set[string]
}

func (a *rayAutoscaler) Due() (time.Time, bool) { return a.next, true }

func (a *rayAutoscaler) Step() {
	now, rest := a.story.Cluster.Clock.Now(), 10*time.Minute
	if a.next.After(now) {
		return
	}
	if a.until.IsZero() {
		a.until = now.Add(rest)
	}
	a.next = now.Add(20 * time.Second)
	var workers []string
	for _, p := range a.story.Cluster.Children("default") {
		if isAlive(p) && groupOfPod(p) == "gpu-big" {
			workers = append(workers, p.Name)
		}
	}
	wants := workersOf(func(_ string, w *rayWorkers) {
		if w.Scaled && now.Before(a.until) {
			w.Replicas = int32(1 + a.story.Cluster.Random(3))
		}
	})
	_, _ = a.story.Cluster.EditOwner(context.Background(), "default", "ray", func(ray *rayCluster) {
		wants(ray)
		ray.Spec.Delete = slices.DeleteFunc(slices.Clone(ray.Spec.Delete), func(name string) bool { return !slices.Contains(workers, name) })
		for _, w := range ray.Spec.Workers {
			if surplus := len(workers) - int(w.Replicas); w.Scaled && !ray.Spec.Suspend && surplus > len(ray.Spec.Delete) {
				ray.Spec.Delete = workers[:surplus]
			}
		}
		a.named.Insert(ray.Spec.Delete...)
	})
}

// refuser is a server that refuses some pods.
type refuser[O replicastest.Object[O]] struct {
	story  *replicastest.Story[O, *corev1.Pod]
	quotas map[string]int // of groups
}

func (r *refuser[O]) Due() (time.Time, bool) {
	if r.story.Cluster.Webhook == nil {
		r.story.Cluster.Webhook = r.admit
	}
	return time.Time{}, false
}

func (r *refuser[O]) Step() {}

func (r *refuser[O]) admit(verb string, p *corev1.Pod) error {
	group := groupOfPod(p)
	limit, limited := r.quotas[group]
	switch {
	case verb != "create":
	case p.Spec.Containers[0].Image == "bad":
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), p.Name, nil)
	case limited && countIf(r.story.Cluster.Children("default"), func(p *corev1.Pod) bool { return groupOfPod(p) == group }) >= limit:
		return forbidden(p.Name, fmt.Sprintf("exceeded quota: pods, requested: pods=1, used: pods=%d, limited: pods=%[1]d", limit))
	}
	return nil
}

func TestRayClustersInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *rayStory) {
		s.Kind = rayClusters()
		s.Owner = &rayCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ray"}, Spec: raySpec{Workers: []rayWorkers{
			{Name: "gpu", Replicas: 3}, {Name: "gpu-big", Replicas: 2, Scaled: true}, {Name: "cpu", Replicas: 2},
		}}}
		autoscaler, users, server := &rayAutoscaler{story: s, named: sets.New[string]()}, &relabeler[*rayCluster]{story: s}, &refuser[*rayCluster]{s, map[string]int{}}
		s.Parts = []replicastest.Part{autoscaler, users, server}
		scales := func(numbers map[string]int32) func(*rayCluster) {
			return workersOf(func(name string, w *rayWorkers) {
				if n, ok := numbers[name]; ok {
					w.Replicas = n
				}
			})
		}
		image := func(image string) func(*rayCluster) {
			return workersOf(func(name string, w *rayWorkers) {
				if name == "gpu" {
					w.Image = image
				}
			})
		}
		moves := func(from, to string) func(*rayCluster) { return func(*rayCluster) { users.from, users.to = from, to } }
		s.Changes = []func(*rayCluster){
			scales(map[string]int32{"gpu": 1, "cpu": 4}), scales(map[string]int32{"gpu": 4, "cpu": 1}),
			without("gpu"), having(rayWorkers{Name: "gpu", Replicas: 2}), having(rayWorkers{Name: "gpu", Replicas: 3}),
			renamed("cpu", "cpus"), renamed("cpus", "cpu"),
			moves("gpu", "cpu"), moves("cpu", "gpu-big"), moves("gpu-big", "gpu"), moves(head, "gpu"),
			image("bad"), image("one"), image("two"),
			func(*rayCluster) { server.quotas["gpu"] = 2 }, func(*rayCluster) { delete(server.quotas, "gpu") },
			func(ray *rayCluster) { ray.Spec.Suspend = true }, func(ray *rayCluster) { ray.Spec.Suspend = false },
		}
		rules := rulesOf(s, func(p *corev1.Pod) bool { return autoscaler.named.Has(p.Name) })
		s.Always = map[string]func() error{
			"each group is judged alone": rules.check,
			"a pod has the name of the group in which it was made": func() error {
				for _, p := range rules.alive {
					if base := p.Name[:strings.LastIndex(p.Name, "-")]; base != "ray-"+rules.born[p.UID] {
						return fmt.Errorf("%s was made in group %q", p.Name, rules.born[p.UID])
					}
				}
				return nil
			},
		}
		s.AtEnd = map[string]func() error{"as many as wanted in each group": func() error { return asWanted(s, server) }}
	}))
}

// asWanted returns an error unless each group has its number. One that the server refuses may have fewer.
func asWanted(s *rayStory, server *refuser[*rayCluster]) error {
	ray, err := s.Cluster.GetOwner(context.Background(), "default", "ray")
	if err != nil {
		return err
	}
	is, want, available := map[string]int32{}, map[string]int32{head: 1}, rayStatus{}
	for _, p := range s.Cluster.Children("default") {
		if isAlive(p) {
			is[groupOfPod(p)]++
		}
	}
	for _, w := range ray.Spec.Workers {
		limit, limited := server.quotas[w.Name]
		if want[w.Name] = w.Replicas; w.Image == "bad" || limited && limit < int(w.Replicas) {
			want[w.Name] = min(w.Replicas, is[w.Name])
		}
		available.Desired, available.Available = available.Desired+w.Replicas, available.Available+want[w.Name]
	}
	if available.Heads = 1; ray.Spec.Suspend {
		want, available = map[string]int32{}, rayStatus{}
	}
	maps.DeleteFunc(want, func(_ string, n int32) bool { return n == 0 })
	if !maps.Equal(is, want) || ray.Status != available {
		return fmt.Errorf("there are %v, want %v, and the status is %v, want %v", is, want, ray.Status, available)
	}
	return nil
}

type (
	vtShard      = resource[vtShardSpec, struct{ Ready, Draining int32 }]
	vtShardStory = replicastest.Story[*vtShard, *corev1.Pod]
)

type vtShardSpec struct {
	Pools []tabletPool
	Image string
	Team  string // a label of all tablets
}

type tabletPool struct {
	Cell, Type string
	Replicas   int32
}

func (p tabletPool) name() string { return p.Cell + "-" + p.Type }

// The annotation drainStarted asks a tablet to drain, and its agent answers with the request in drainFinished. In the
// annotation released, a user releases the changes of a tablet.
const drainStarted, drainFinished, released = "drain-started", "drain-finished", "released"

func isDrainedFor(p *corev1.Pod) bool {
	return p.Annotations[drainStarted] != "" && p.Annotations[drainFinished] == p.Annotations[drainStarted]
}

// vtShards returns the Kind of the tablets of a vitess shard, with a group for each cell and type. The names of slots are
// hashes. Labels are changed at once, and a tablet of another image is replaced if that was released. A tablet drains
// before it is deleted, and is called back if it is wanted again.
func vtShards() controller.Kind[*vtShard, *corev1.Pod] {
	one := intstr.FromInt32(1)
	return controller.Kind[*vtShard, *corev1.Pod]{
		Owner: example("VitessShard"), Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec: func(shard *vtShard) (replicas.SpecOfPods, error) {
			own, image := labels.Set{"shard": shard.Name}, shard.Spec.Image
			spec := replicas.SpecOfPods{Selector: own.AsSelector(), GroupOf: groupOfPod}
			for _, pool := range shard.Spec.Pools {
				spec.Groups = append(spec.Groups, replicas.Group[*corev1.Pod]{
					Name: pool.name(), Replicas: pool.Replicas, MaxUnavailable: &one,
					Slots: func(i int) string { return "tablet-" + hashed(fmt.Sprint(pool.name(), i)) },
					New: func(string) (*corev1.Pod, error) {
						return imagePod(labels.Merge(own, labels.Set{"group": pool.name(), "team": shard.Spec.Team}), image), nil
					},
				})
			}
			spec.Update = func(p *corev1.Pod) (c replicas.Change[*corev1.Pod]) {
				if p.Labels["team"] != shard.Spec.Team {
					c.To, c.Free = p.DeepCopy(), true
					c.To.Labels["team"] = shard.Spec.Team
				}
				return c
			}
			spec.Retire = func(p *corev1.Pod, leaves bool) replicas.Change[*corev1.Pod] {
				to := p.DeepCopy()
				if delete(to.Annotations, drainStarted); leaves {
					setAnnotation(to, drainStarted, p.ResourceVersion) // no other request was made from this version
				}
				return replicas.Change[*corev1.Pod]{To: to}
			}
			spec.Rules = replicas.Rules[*corev1.Pod]{
				Leaving: func(p *corev1.Pod) bool { return isGoing(p) || p.Annotations[drainStarted] != "" },
				Discard: isDrainedFor,
				MustGo:  func(p *corev1.Pod) bool { return p.Annotations[released] != "" && p.Spec.Containers[0].Image != image },
			}
			return spec, nil
		},
		Status: func(shard *vtShard, o controller.Outcome[*corev1.Pod]) error {
			shard.Status.Ready, shard.Status.Draining = 0, 0
			for _, g := range o.Groups {
				shard.Status.Ready += g.Counts.Ready
				shard.Status.Draining += g.Counts.Terminating
			}
			return nil
		},
		StatusOf: func(shard *vtShard) any { return &shard.Status },
	}
}

func hashed(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%08x", h.Sum32())
}

// tabletAgents drain tablets in rounds of five seconds.
type tabletAgents struct {
	story    *vtShardStory
	next     time.Time
	releases bool // a user releases all changes
	last     map[types.UID]*corev1.Pod
}

func (a *tabletAgents) Due() (time.Time, bool) { return a.next, true }

func (a *tabletAgents) Step() {
	now := a.story.Cluster.Clock.Now()
	if a.next.After(now) {
		return
	}
	a.next = now.Add(5 * time.Second)
	if a.releases {
		a.release()
	}
	for _, p := range a.story.Cluster.Children("default") {
		if request := p.Annotations[drainStarted]; request != p.Annotations[drainFinished] && request != "" {
			_, _ = a.story.Cluster.EditChild(context.Background(), p.Namespace, p.Name, func(p *corev1.Pod) { setAnnotation(p, drainFinished, request) })
		}
	}
}

// release lets the tablets that exist be replaced if they have an old image.
func (a *tabletAgents) release() {
	a.releases = false
	for _, p := range a.story.Cluster.Children("default") {
		_, _ = a.story.Cluster.EditChild(context.Background(), p.Namespace, p.Name, func(p *corev1.Pod) { setAnnotation(p, released, "yes") })
	}
}

// check returns an error if a tablet is being deleted, or has gone, without having been drained.
func (a *tabletAgents) check() error {
	now := map[types.UID]*corev1.Pod{}
	for _, p := range a.story.Cluster.Children("default") {
		now[p.UID] = p
	}
	last := a.last
	a.last = now
	for id, p := range last {
		if is := now[id]; !isGoing(p) && (is == nil || isGoing(is)) && !isDrainedFor(p) {
			return fmt.Errorf("%s goes, and was asked %q and drained for %q", p.Name, p.Annotations[drainStarted], p.Annotations[drainFinished])
		}
	}
	return nil
}

func TestVitessShardsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *vtShardStory) {
		s.Kind = vtShards()
		pools := func(pools ...tabletPool) func(*vtShard) { return func(shard *vtShard) { shard.Spec.Pools = pools } }
		image := func(image string) func(*vtShard) { return func(shard *vtShard) { shard.Spec.Image = image } }
		s.Owner = &vtShard{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x-80"}, Spec: vtShardSpec{Image: "one", Team: "a"}}
		pools(tabletPool{"eu", "replica", 2}, tabletPool{"eu", "rdonly", 2}, tabletPool{"us", "replica", 2})(s.Owner)
		agents := &tabletAgents{story: s}
		s.Parts = []replicastest.Part{agents}
		s.Changes = []func(*vtShard){
			pools(tabletPool{"eu", "replica", 3}, tabletPool{"eu", "rdonly", 1}, tabletPool{"us", "replica", 2}),
			pools(tabletPool{"eu", "replica", 1}, tabletPool{"eu", "rdonly", 3}, tabletPool{"us", "replica", 2}),
			pools(tabletPool{"us", "replica", 2}, tabletPool{"eu", "replica", 2}),
			pools(tabletPool{"eu", "replica", 2}, tabletPool{"eu", "rdonly", 2}, tabletPool{"us", "replica", 3}),
			pools(tabletPool{"eu", "replicas", 2}, tabletPool{"us", "replica", 2}),
			image("one"), image("two"),
			func(shard *vtShard) { shard.Spec.Team += "a" },
			func(*vtShard) { agents.releases = true },
		}
		rules := rulesOf(s, func(p *corev1.Pod) bool { return p.Annotations[released] != "" })
		rules.unavailable = 1
		s.Always = map[string]func() error{
			"each group is judged alone": rules.check,
			"no tablet goes undrained":   agents.check,
		}
		s.AtEnd = map[string]func() error{
			"as many as wanted in each group": s.AsWanted,
			"no tablet that stays is asked to drain, and each has its labels": func() error {
				shard, err := s.Cluster.GetOwner(context.Background(), "default", "x-80")
				if err != nil {
					return err
				}
				ready := int32(0)
				for _, p := range s.Cluster.Children("default") {
					if ready++; p.Annotations[drainStarted] != "" || p.Labels["team"] != shard.Spec.Team || p.Annotations[released] != "" && p.Spec.Containers[0].Image != shard.Spec.Image {
						return fmt.Errorf("%s has %v and %v, want %v", p.Name, p.Labels, p.Annotations, shard.Spec)
					}
				}
				if shard.Status.Ready != ready || shard.Status.Draining != 0 {
					return fmt.Errorf("the status is %v, want %d ready", shard.Status, ready)
				}
				return nil
			},
		}
	}))
}
