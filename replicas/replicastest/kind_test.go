// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

// A pool is an owner, and its children are workers. Only the tests of this package use these two kinds.
type pool struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec struct {
		Replicas int32
		Image    string
	}
	Status struct{ Ready, Replicas int32 }
}

func (p *pool) DeepCopy() *pool {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (p *pool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

type worker struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Spec   struct{ Image string }
	Status struct {
		Ready              bool
		ObservedGeneration int64
	}
}

func (w *worker) DeepCopy() *worker {
	c := *w
	w.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (w *worker) DeepCopyObject() runtime.Object { return w.DeepCopy() }

func pools() controller.Kind[*pool, *worker] {
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	web := map[string]string{"app": "web"}
	return controller.Kind[*pool, *worker]{
		Owner: version.WithKind("Pool"), Child: version.WithKind("Worker"),
		Spec: func(p *pool) (replicas.Spec[*worker], error) {
			return replicas.Spec[*worker]{
				Replicas: p.Spec.Replicas, Selector: labels.SelectorFromSet(web),
				Rules: replicas.Rules[*worker]{Ready: func(w *worker) bool { return w.Status.Ready }},
				New: func(string) (*worker, error) {
					w := &worker{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(web)}}
					w.Spec.Image = p.Spec.Image
					return w, nil
				},
			}, nil
		},
		Status: func(p *pool, o controller.Outcome[*worker]) error {
			p.Status.Replicas, p.Status.Ready = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
	}
}

// A workshop is a cluster of pools and the controller that looks after them.
type workshop struct {
	*replicastest.Cluster[*pool, *worker]
	controller *replicastest.Controller[*pool, *worker]
	world      *replicastest.World
	vetoed     bool // whether Prepare forbids all deletions
}

func newWorkshop(t *testing.T, n int32) *workshop {
	t.Helper()
	s, kind := &workshop{}, pools()
	kind.Prepare = func(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
		if s.vetoed {
			step.Delete = nil
		}
		return nil
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1})
	require.NoError(t, err)
	cluster.Ready = func(w *worker) { w.Status.Ready = true }
	c := cluster.NewController()
	s.Cluster, s.controller = cluster, c
	s.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	p.Spec.Replicas, p.Status.Ready = n, 99
	p, err = cluster.CreateOwner(t.Context(), p)
	require.NoError(t, err)
	assert.Zero(t, p.Status.Ready, "the status comes from the controller")
	t.Cleanup(func() { assert.NoError(t, c.View.Intact()) })
	return s
}

func (s *workshop) scale(t *testing.T, n int32) *pool {
	t.Helper()
	p, err := s.EditOwner(t.Context(), namespace, "web", func(p *pool) { p.Spec.Replicas, p.Status.Ready, p.Generation = n, 99, 99 })
	require.NoError(t, err)
	return p
}

func TestOwnKinds(t *testing.T) {
	t.Parallel()
	t.Run("children become ready, and the status tells", func(t *testing.T) {
		t.Parallel()
		s := newWorkshop(t, 3)
		s.world.Run(time.Second)
		require.Len(t, s.Children(namespace), 3)
		assert.Zero(t, s.Owners(namespace)[0].Status.Ready)
		s.world.Run(10 * time.Second)
		got := s.Owners(namespace)[0]
		assert.Equal(t, int32(3), got.Status.Ready)
		assert.EqualValues(t, 1, got.Generation, "a status is no change of the spec")
		p := s.scale(t, 1)
		assert.EqualValues(t, 2, p.Generation)
		assert.Equal(t, int32(3), p.Status.Ready)
		s.world.Run(10 * time.Second)
		assert.Len(t, s.Children(namespace), 1)
	})
	t.Run("a hung watch and lost answers change no number", func(t *testing.T) {
		t.Parallel()
		s := newWorkshop(t, 4)
		s.controller.Client.Fail(
			replicastest.Rule{Verb: "create", Skip: 1, Times: 2, Landed: true},
			replicastest.Rule{Verb: "create", Times: 1, Late: time.Minute})
		s.world.Run(time.Minute)
		s.controller.View.ChildWatch.Hang()
		for _, n := range []int32{7, 2, 5} {
			s.scale(t, n)
			s.world.Run(time.Hour)
			assert.Len(t, s.Children(namespace), int(n))
		}
	})
	t.Run("nor do a hung watch and a number that comes back to what it shows", func(t *testing.T) {
		t.Parallel()
		for name, steps := range map[string][]struct {
			n    int32
			wait time.Duration
		}{
			"up, down":                    {{7, time.Hour}, {4, time.Hour}},
			"down, up":                    {{2, time.Hour}, {4, time.Hour}},
			"up, down at once":            {{7, time.Second}, {4, time.Hour}},
			"down, up at once":            {{2, time.Second}, {4, time.Hour}},
			"up, down later, up and down": {{7, 4 * time.Minute}, {4, time.Hour}, {6, time.Hour}, {4, time.Hour}},
		} {
			s := newWorkshop(t, 4)
			s.world.Run(time.Minute)
			s.controller.View.ChildWatch.Hang()
			for _, step := range steps {
				s.scale(t, step.n)
				s.world.Run(step.wait)
			}
			assert.Len(t, s.Children(namespace), 4, name)
		}
	})
	t.Run("nor do deletions that may not be for a while", func(t *testing.T) {
		t.Parallel()
		s := newWorkshop(t, 4)
		s.world.Run(time.Minute)
		s.controller.View.ChildWatch.Hang()
		s.scale(t, 7)
		s.world.Run(time.Hour)
		s.vetoed = true
		s.scale(t, 4)
		s.world.Run(20 * time.Minute)
		require.Len(t, s.Children(namespace), 7)
		s.vetoed = false
		s.controller.Worker.Wake(types.NamespacedName{Namespace: namespace, Name: "web"}, 0)
		s.world.Run(time.Hour)
		assert.Len(t, s.Children(namespace), 4)
	})
	t.Run("nor does the end of a child that the cache never had", func(t *testing.T) {
		t.Parallel()
		s := newWorkshop(t, 0)
		s.world.Run(time.Minute)
		s.controller.View.ChildWatch.Hang()
		s.scale(t, 2)
		s.world.Run(time.Hour)
		require.Len(t, s.Children(namespace), 2)
		_, err := s.DeleteChild(t.Context(), namespace, s.Children(namespace)[0].Name, metav1.DeleteOptions{})
		require.NoError(t, err)
		s.world.Run(time.Hour)
		assert.Len(t, s.Children(namespace), 2)
	})
	t.Run("adoption, release and what is left behind", func(t *testing.T) {
		t.Parallel()
		s := newWorkshop(t, 2)
		for _, name := range []string{"a", "b"} {
			_, err := s.CreateChild(t.Context(), namespace, &worker{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web"}}})
			require.NoError(t, err)
		}
		s.world.Run(10 * time.Second)
		children := s.Children(namespace)
		require.Len(t, children, 2)
		assert.True(t, metav1.IsControlledBy(children[0], s.Owners(namespace)[0]), "adopted")
		w, err := s.EditChild(t.Context(), namespace, "a", func(w *worker) { w.Labels = nil; w.Spec.Image = "two" })
		require.NoError(t, err)
		assert.EqualValues(t, 2, w.Generation)
		s.world.Run(10 * time.Second)
		w, err = s.GetChild(t.Context(), namespace, "a")
		require.NoError(t, err)
		assert.Empty(t, w.OwnerReferences, "released")
		require.NoError(t, s.DeleteOwner(t.Context(), namespace, "web", ""))
		s.world.Run(10 * time.Second)
		assert.Len(t, s.Children(namespace), 1, "the garbage collector takes what was the pool's")
	})
	t.Run("a restored backup brings children back, which become ready", func(t *testing.T) {
		t.Parallel()
		s := newWorkshop(t, 2)
		s.world.Run(time.Second)
		backup := s.Backup()
		s.scale(t, 0)
		s.world.Run(time.Minute)
		backup()
		restored := false
		s.controller.Passed = func(pass controller.Pass[*pool, *worker]) {
			restored = restored || errors.Is(pass.Err, controller.ErrRestored)
		}
		s.controller.View.OwnerWatch.Relist()
		s.controller.View.ChildWatch.Relist()
		s.world.Run(3 * time.Second)
		require.True(t, restored, "the cache had shown a later version of the owner")
		s.controller.View.Stop()
		s.world.Parts[1] = s.NewController()
		s.world.Run(time.Minute)
		assert.Len(t, s.Children(namespace), 2)
		assert.Equal(t, int32(2), s.Owners(namespace)[0].Status.Ready)
	})
}

func TestOwnKindsArePatchedAsCustomResourcesAre(t *testing.T) {
	t.Parallel()
	s := newWorkshop(t, 0)
	w, err := s.CreateChild(t.Context(), namespace, &worker{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"example.com/a"}}})
	require.NoError(t, err)
	patch := func(kind types.PatchType, data string) (*worker, error) {
		return s.PatchChild(t.Context(), namespace, "a", selector.Patch{Type: kind, Data: []byte(data)}, metav1.PatchOptions{})
	}
	_, err = patch(types.StrategicMergePatchType, `{}`)
	assert.True(t, apierrors.IsUnsupportedMediaType(err), err)
	_, err = patch(types.MergePatchType, `{"metadata":{"uid":"another"}}`)
	assert.True(t, apierrors.IsInvalid(err), err)
	_, err = patch(types.MergePatchType, `{"metadata":{"resourceVersion":"1"}}`)
	assert.True(t, apierrors.IsConflict(err), err)
	w, err = patch(types.MergePatchType, `{"metadata":{"resourceVersion":"`+w.ResourceVersion+`","finalizers":[]}}`)
	require.NoError(t, err)
	assert.Empty(t, w.Finalizers, "lists are replaced as a whole")
}

// If an owner of a custom kind has pods as children, the cluster simulates nodes and kubelets for these pods.
func TestPodsOfAnOwnKind(t *testing.T) {
	t.Parallel()
	kind := controller.Kind[*pool, *corev1.Pod]{
		Owner: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pool"}, Child: corev1.SchemeGroupVersion.WithKind("Pod"),
		Spec: func(p *pool) (replicas.SpecOfPods, error) {
			return replicas.SpecOfPods{
				Replicas: p.Spec.Replicas, Selector: labels.SelectorFromSet(labels.Set{"app": "web"}),
				Template: &corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
				},
			}, nil
		},
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Nodes: 2})
	require.NoError(t, err)
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	p.Spec.Replicas = 2
	_, err = cluster.CreateOwner(t.Context(), p)
	require.NoError(t, err)
	world.Run(10 * time.Second)
	pods := cluster.Children(namespace)
	require.Len(t, pods, 2)
	for _, p := range pods {
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
		assert.NotEmpty(t, p.Spec.NodeName)
	}
}

// painted is a Kind whose workers get the image of their pool in place. Each function changes its Spec.
func painted(edits ...func(p *pool, spec *replicas.Spec[*worker])) controller.Kind[*pool, *worker] {
	kind := pools()
	kind.Spec = func(p *pool) (replicas.Spec[*worker], error) {
		spec, err := pools().Spec(p)
		limit := intstr.FromString("10%")
		spec.MaxUnavailable = &limit
		spec.Rules.Ready = func(w *worker) bool { return w.Status.Ready && w.Status.ObservedGeneration >= w.Generation }
		spec.Update = func(w *worker) (c replicas.Change[*worker]) {
			if w.Spec.Image != p.Spec.Image {
				c.To = w.DeepCopy()
				c.To.Spec.Image = p.Spec.Image
			}
			return c
		}
		for _, edit := range edits {
			edit(p, &spec)
		}
		return spec, err
	}
	return kind
}

// changes is a function for painted. It changes what Update returns if that is not the zero Change.
func changes(edit func(p *pool, c *replicas.Change[*worker])) func(*pool, *replicas.Spec[*worker]) {
	return func(p *pool, spec *replicas.Spec[*worker]) {
		update := spec.Update
		spec.Update = func(w *worker) replicas.Change[*worker] {
			c := update(w)
			if c.To != nil {
				edit(p, &c)
			}
			return c
		}
	}
}

func TestCheckUpdate(t *testing.T) {
	t.Parallel()
	type spec = replicas.Spec[*worker]
	type change = replicas.Change[*worker]
	old, updated := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}, &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	old.Spec.Replicas, old.Spec.Image, updated.Spec.Replicas, updated.Spec.Image = 3, "one", 3, "two"
	w := &worker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Generation: 1, Labels: map[string]string{"app": "web"}}}
	w.Spec.Image, w.Status.Ready, w.Status.ObservedGeneration = "one", true, 1
	ready := func(rule func(p *pool, w *worker) bool) func(*pool, *spec) {
		return func(p *pool, s *spec) { s.Rules.Ready = func(w *worker) bool { return rule(p, w) } }
	}
	isReady := ready(func(_ *pool, w *worker) bool { return w.Status.Ready })
	labelled := func(p *pool, s *spec) { // the change is one of a label, which has no generation
		s.Update = func(w *worker) (c change) {
			if p.Spec.Image == "two" && w.Labels["image"] == "" {
				c.To = w.DeepCopy()
				c.To.Labels["image"] = p.Spec.Image
			}
			return c
		}
	}
	calls := 0
	inGroups := func(_ *pool, s *spec) {
		limit, create := s.MaxUnavailable, s.New
		s.Replicas, s.MaxUnavailable, s.New, s.GroupOf = 0, nil, nil, func(w *worker) string { return w.Labels["app"] }
		s.Groups = []replicas.Group[*worker]{{Name: "head", New: create}, {Name: "web", New: create, MaxUnavailable: limit, Paused: true}}
	}
	for name, tt := range map[string]struct {
		edits []func(*pool, *spec)
		want  string // "" means no error
	}{
		"it is kept":                            {nil, ""},
		"it is kept in slots, by a paused pool": {[]func(*pool, *spec){func(_ *pool, s *spec) { s.Slots, s.Paused, s.Replicas = replicas.Ordinals("web"), true, 0 }}, ""},
		"it is kept in a group":                 {[]func(*pool, *spec){inGroups}, ""},
		"it is kept by Available":               {[]func(*pool, *spec){func(_ *pool, s *spec) { s.Rules.Available, s.Rules.Ready, s.MinReadySeconds = s.Rules.Ready, nil, 7 }}, ""},
		"a label makes nothing unavailable":     {[]func(*pool, *spec){labelled, changes(func(_ *pool, c *change) { c.Free = true })}, ""},
		"the child's status tells what it runs": {[]func(*pool, *spec){labelled, ready(func(_ *pool, w *worker) bool { return w.Labels["image"] == "" })}, ""},
		"a mark in the status": {[]func(*pool, *spec){
			changes(func(p *pool, c *change) { c.To.Spec.Image, c.To.Status.Ready, c.Subresource = "one", false, "status" }),
			func(_ *pool, s *spec) {
				update := s.Update
				s.Update = func(w *worker) (c change) {
					if w.Status.Ready {
						c = update(w)
					}
					return c
				}
			},
		}, ""},

		"Ready does not look": {
			[]func(*pool, *spec){isReady},
			`Rules.Ready is still true after the change of Spec.Image="two", although the child's own controller has not seen it, so MaxUnavailable would limit nothing: let it be false while status.observedGeneration is below metadata.generation`,
		},
		"Ready does not look in a group": {[]func(*pool, *spec){isReady, inGroups}, "so MaxUnavailable would limit nothing"},
		"it is in a group that is not listed": {
			[]func(*pool, *spec){func(_ *pool, s *spec) {
				s.Replicas, s.MaxUnavailable, s.New, s.GroupOf = 0, nil, nil, func(*worker) string { return "web" }
			}},
			`a plan for the updated owner does not make the change of Spec.Image="two" (delete 1: default/a`,
		},
		"Available does not look": {
			[]func(*pool, *spec){func(_ *pool, s *spec) { s.Rules.Available = func(w *worker) bool { return w.Status.Ready } }},
			`Rules.Available is still true after the change of Spec.Image="two"`,
		},
		"a label has no generation": {
			[]func(*pool, *spec){labelled},
			`metadata.generation stays the same, so let the child's controller report in its status what it has seen, and compare that`,
		},
		"Ready compares with the owner": {
			[]func(*pool, *spec){ready(func(p *pool, w *worker) bool { return w.Spec.Image == p.Spec.Image })},
			`for the updated owner, Rules.Ready is false before the change, and unavailable children are changed without a limit: compare the child's status with the child, not with the owner`,
		},
		"Ready is never true": {
			[]func(*pool, *spec){ready(func(*pool, *worker) bool { return false })},
			`for the old owner, Rules.Ready is false: pass a child that has become ready`,
		},
		"Ready is nil": {
			[]func(*pool, *spec){func(_ *pool, s *spec) { s.Rules.Ready = nil }},
			`for the old owner, Rules.Ready is nil, so no child is ever ready`,
		},
		"a Free change makes it unready": {
			[]func(*pool, *spec){changes(func(_ *pool, c *change) { c.Free = true })},
			`the change of Spec.Image="two" is Free, but Rules.Ready is false after it: do not set Free`,
		},
		"the old owner wants another": {
			[]func(*pool, *spec){func(p *pool, _ *spec) { p.Spec.Image = "three" }},
			`for the old owner, Update changes Spec.Image="three": pass a child that is as this owner wants it`,
		},
		"Update is nil": {
			[]func(*pool, *spec){func(_ *pool, s *spec) { s.Update = nil }},
			`for the updated owner, Update returns no change: pass an owner that wants another child`,
		},
		"Update returns a copy": {
			[]func(*pool, *spec){func(_ *pool, s *spec) { s.Update = func(w *worker) change { return change{To: w.DeepCopy()} } }},
			`for the updated owner, Update returns no change`,
		},
		"Update returns the child": {
			[]func(*pool, *spec){func(_ *pool, s *spec) { s.Update = func(w *worker) change { return change{To: w} } }},
			`for the old owner, Update returns the child itself: return the zero Change or a changed copy`,
		},
		"Update modifies the child": {[]func(*pool, *spec){func(p *pool, s *spec) {
			s.Update = func(w *worker) (c change) { w.Spec.Image = p.Spec.Image; return c }
		}}, `for the updated owner, Update modifies the child: change a copy`},
		"Update counts": {
			[]func(*pool, *spec){changes(func(_ *pool, c *change) { calls++; c.To.Labels["calls"] = strconv.Itoa(calls) })},
			`for the updated owner, Update returns different changes for equal children`,
		},
		"Update sets the status": {[]func(*pool, *spec){func(p *pool, s *spec) {
			s.Update = func(w *worker) (c change) {
				if p.Spec.Image == "two" && w.Status.Ready {
					c.To = w.DeepCopy()
					c.To.Status.Ready = false
				}
				return c
			}
		}}, `after the change, Update changes Status.Ready=false again: a patch of the child leaves its status as it is, and one of the subresource "status" changes nothing else`},
		"another name":   {[]func(*pool, *spec){changes(func(_ *pool, c *change) { c.To.Name = "b" })}, `metadata.name would become "b"`},
		"the number 0":   {[]func(*pool, *spec){func(_ *pool, s *spec) { *s.MaxUnavailable = intstr.FromInt32(0) }}, `maxUnavailable is 0`},
		"it must go":     {[]func(*pool, *spec){func(_ *pool, s *spec) { s.Rules.MustGo = func(*worker) bool { return true } }}, `a plan for the updated owner does not make the change of Spec.Image="two" (delete 1: default/a`},
		"it has ended":   {[]func(*pool, *spec){func(_ *pool, s *spec) { s.Rules.Active = func(*worker) bool { return false } }}, `Rules.Active must be true`},
		"a long label":   {[]func(*pool, *spec){changes(func(_ *pool, c *change) { c.To.Labels["hash"] = strings.Repeat("a", 64) })}, `the server refuses the change of Spec.Image="two"`},
		"a bad selector": {[]func(*pool, *spec){func(_ *pool, s *spec) { s.Selector = labels.SelectorFromSet(labels.Set{"app": "other"}) }}, `would not match the selector "app=other"`},
	} {
		t.Run(name, func(t *testing.T) {
			was := [3]any{old.DeepCopy(), updated.DeepCopy(), w.DeepCopy()}
			err := replicastest.CheckUpdate(painted(tt.edits...), old.DeepCopy(), updated.DeepCopy(), w)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
				require.ErrorContains(t, err, `replicastest: Worker "default/a": `)
			}
			assert.Equal(t, [3]any{old, updated, w}, was)
		})
	}
	for want, err := range map[string]error{ //nolint:paralleltest // the calls were made already
		"replicastest: the kind has no Spec": replicastest.CheckUpdate(controller.Kind[*pool, *worker]{}, old, updated, w),
		"replicastest: an owner is nil":      errors.Join(replicastest.CheckUpdate(painted(), nil, updated, w), replicastest.CheckUpdate(painted(), old, nil, w)),
		"replicastest: the child is nil":     replicastest.CheckUpdate(painted(), old, updated, nil),
	} {
		require.Error(t, err)
		assert.Equal(t, want, strings.Split(err.Error(), "\n")[0])
		assert.NotContains(t, err.Error(), "%!")
	}
	refuses := painted()
	refuses.Spec = func(p *pool) (s replicas.Spec[*worker], err error) {
		if p.Spec.Image == "two" {
			return s, errors.New("no such image")
		}
		return painted().Spec(p)
	}
	require.EqualError(t, replicastest.CheckUpdate(refuses, old, updated, w), `replicastest: Worker "default/a": the Spec of the updated owner: no such image`)
	gone := updated.DeepCopy()
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	assert.ErrorContains(t, replicastest.CheckUpdate(painted(), old, gone, w), `a plan for the updated owner does not make the change of Spec.Image="two" (nothing to do)`)
}

// A pod's Ready condition does not show whether the pod runs its newest spec, but its observedGeneration does.
func TestCheckUpdateOfPods(t *testing.T) {
	t.Parallel()
	kind := controller.ReplicaSets()
	var ready func(*corev1.Pod) bool
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := replicas.ReplicaSetSpec(rs)
		spec.Rules.Ready = ready
		spec.Update = func(p *corev1.Pod) (c replicas.Change[*corev1.Pod]) {
			if image := rs.Spec.Template.Spec.Containers[0].Image; p.Spec.Containers[0].Image != image {
				c.To = p.DeepCopy()
				c.To.Spec.Containers[0].Image = image
			}
			return c
		}
		return spec, err
	}
	old := replicastest.NewReplicaSet("default", "web", 3)
	old.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "one"}}
	updated := old.DeepCopy()
	updated.Spec.Template.Spec.Containers[0].Image = "two"
	p := replicastest.NewPod(old, "web-a")
	require.ErrorContains(t, replicastest.CheckUpdate(kind, old, updated, p), `Rules.Ready is still true after the change of spec.containers=[{"image":"two",`)
	ready = func(p *corev1.Pod) bool { return podstate.IsReady(p) && p.Status.ObservedGeneration >= p.Generation }
	require.NoError(t, replicastest.CheckUpdate(kind, old, updated, p))
}

func TestAKindThatCanNeverWork(t *testing.T) {
	t.Parallel()
	kind := pools()
	kind.Spec = nil
	_, err := replicastest.NewCluster(kind, replicastest.Options{})
	assert.EqualError(t, err, "replicastest: controller: kind Pool has no Spec")
}

// A Kind whose status contains the time of the pass writes another status in each pass. The events of these writes
// wake no pass, so nothing is called while nothing happens.
func TestAStatusWithATimeIsQuiet(t *testing.T) {
	t.Parallel()
	kind := pools()
	kind.Status = func(p *pool, o controller.Outcome[*worker]) error {
		p.Status.Ready = int32(o.Now.Unix() % 1e9)
		return nil
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1})
	require.NoError(t, err)
	c := cluster.NewController()
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}
	p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	p.Spec.Replicas = 2
	_, err = cluster.CreateOwner(t.Context(), p)
	require.NoError(t, err)
	world.Run(time.Hour)
	require.Len(t, cluster.Children(namespace), 2)
	calls := 0
	c.Client.Done = func(replicastest.Call, error) { calls++ }
	world.Run(24 * time.Hour)
	assert.Zero(t, calls)
}
