// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// claim returns a volume claim, whose requests are a map of quantities.
func claim(changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "data-0", UID: "u", ResourceVersion: "7", Labels: map[string]string{"app": "web", "tier": "a"},
		Finalizers: []string{"example.com/a", "example.com/b"},
	}}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, change := range changes {
		change(c)
	}
	return c
}

// unknown returns an object of a kind without a Go type.
func unknown(changes ...func(fields map[string]any)) *unstructured.Unstructured {
	fields := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Worker",
		"metadata": map[string]any{"name": "w", "uid": "u", "resourceVersion": "7"},
		"spec": map[string]any{
			"serial": int64(9007199254740993), "share": 0.5, "image": "worker:1", "on": true,
			"env":  map[string]any{"A": "1", "B": "2"},
			"args": []any{"a", map[string]any{"b": int64(1)}},
		},
	}
	for _, change := range changes {
		change(fields)
	}
	return &unstructured.Unstructured{Object: fields}
}

func inSpec(change func(spec map[string]any)) *unstructured.Unstructured {
	return unknown(func(fields map[string]any) { change(fields["spec"].(map[string]any)) })
}

func TestChangePatch(t *testing.T) {
	t.Parallel()
	const identity = `"metadata":{"resourceVersion":"7","uid":"u"}`
	for name, tt := range map[string]struct {
		object, desired metav1.Object
		want            string
		replacesList    bool
	}{
		"a copy is no difference": {claim(), claim(), `{` + identity + `}`, false},
		"a label changes, and the others are not sent": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) { c.Labels["tier"] = "b" }),
			`{"metadata":{"labels":{"tier":"b"},"resourceVersion":"7","uid":"u"}}`, false,
		},
		"null takes a label away": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, "tier") }),
			`{"metadata":{"labels":{"tier":null},"resourceVersion":"7","uid":"u"}}`, false,
		},
		"null takes a whole list away, which replaces nothing": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = nil }),
			`{"metadata":{"finalizers":null,"resourceVersion":"7","uid":"u"}}`, false,
		},
		"a list is sent whole": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) { c.Finalizers = c.Finalizers[1:] }),
			`{"metadata":{"finalizers":["example.com/b"],"resourceVersion":"7","uid":"u"}}`, true,
		},
		"an empty list is a list": {
			inSpec(func(map[string]any) {}), inSpec(func(spec map[string]any) { spec["args"] = []any{} }),
			`{` + identity + `,"spec":{"args":[]}}`, true,
		},
		"a list in a new map is a list": {
			inSpec(func(map[string]any) {}), inSpec(func(spec map[string]any) { spec["more"] = map[string]any{"args": []any{"a"}} }),
			`{` + identity + `,"spec":{"more":{"args":["a"]}}}`, true,
		},
		"a quantity changes": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("2Gi")
			}),
			`{` + identity + `,"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`, false,
		},
		"the same quantity in other words is no difference": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1024Mi")
			}),
			`{` + identity + `}`, false,
		},
		"an int64 keeps its digits": {
			unknown(), inSpec(func(spec map[string]any) { spec["serial"] = int64(math.MaxInt64) }),
			`{` + identity + `,"spec":{"serial":9223372036854775807}}`, false,
		},
		"two int64 that are the same float64 differ": {
			unknown(), inSpec(func(spec map[string]any) { spec["serial"] = int64(9007199254740992) }),
			`{` + identity + `,"spec":{"serial":9007199254740992}}`, false,
		},
		"a typed int64 keeps its digits": {
			podtest.Pod("a", podtest.UID("u")), podtest.Pod("a", podtest.UID("u"), func(p *corev1.Pod) {
				p.Spec.ActiveDeadlineSeconds = new(int64)
				*p.Spec.ActiveDeadlineSeconds = 9007199254740993
			}),
			`{"metadata":{"uid":"u"},"spec":{"activeDeadlineSeconds":9007199254740993}}`, false,
		},
		"a map changes by its fields": {
			unknown(), inSpec(func(spec map[string]any) { spec["env"] = map[string]any{"B": "3", "C": "4"} }),
			`{` + identity + `,"spec":{"env":{"A":null,"B":"3","C":"4"}}}`, false,
		},
		"a field becomes zero, or null": {
			unknown(), inSpec(func(spec map[string]any) { spec["on"], spec["image"], spec["share"] = false, "", nil }),
			`{` + identity + `,"spec":{"image":"","on":false,"share":null}}`, false,
		},
		"all fields go": {unknown(), unknown(func(fields map[string]any) { delete(fields, "spec") }), `{` + identity + `,"spec":null}`, false},
		"the UID and the version are those of the object that was judged": {
			claim(), claim(func(c *corev1.PersistentVolumeClaim) { c.UID, c.ResourceVersion, c.Labels["tier"] = "other", "9", "b" }),
			`{"metadata":{"labels":{"tier":"b"},"resourceVersion":"7","uid":"u"}}`, false,
		},
		"without a UID and a version, both are omitted": {
			&corev1.Pod{}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other", ResourceVersion: "9", Labels: web}},
			`{"metadata":{"labels":{"app":"web"},"uid":"other"}}`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := json.Marshal([]any{tt.object, tt.desired})
			require.NoError(t, err)
			change := replicas.Change[metav1.Object]{Object: tt.object, To: tt.desired, Subresource: "resize"}
			patch, err := change.Patch()
			require.NoError(t, err)
			assert.Equal(t, tt.want, string(patch.Data))
			assert.Equal(t, types.MergePatchType, patch.Type)
			assert.Equal(t, "resize", patch.Subresource)
			assert.Equal(t, tt.replacesList, change.ReplacesList())
			after, err := json.Marshal([]any{tt.object, tt.desired})
			require.NoError(t, err)
			assert.Equal(t, string(before), string(after), "both objects stay as they were")
		})
	}
}

// A noMap is an object whose JSON is not an object.
type noMap struct{ metav1.ObjectMeta }

func (noMap) MarshalJSON() ([]byte, error) { return []byte(`["a"]`), nil }

// A noJSON is an object that has no JSON.
type noJSON struct{ metav1.ObjectMeta }

var errNoJSON = errors.New("no JSON")

func (noJSON) MarshalJSON() ([]byte, error) { return nil, errNoJSON }

func TestChangesWithoutPatch(t *testing.T) {
	t.Parallel()
	var none *corev1.PersistentVolumeClaim
	a := metav1.ObjectMeta{Name: "a"}
	for name, tt := range map[string]struct {
		object, desired metav1.Object
		want            string
	}{
		"no object":           {nil, claim(), `replicas: change of "no object": Object is nil`},
		"nothing at all":      {none, none, `replicas: change of "no object": Object is nil`},
		"no To":               {claim(), nil, `replicas: change of "default/data-0": To is nil`},
		"a nil pointer as To": {claim(), none, `replicas: change of "default/data-0": To is nil`},
		"an error of the object": {
			&noJSON{a}, claim(), `replicas: change of "a": Object: json: error calling MarshalJSON for type *replicas_test.noJSON: no JSON`,
		},
		"a list":       {&corev1.Pod{ObjectMeta: a}, &noMap{a}, `replicas: change of "a": To: json: cannot unmarshal array into Go value of type map[string]interface {}`},
		"not a number": {&corev1.Pod{ObjectMeta: a}, unknown(func(fields map[string]any) { fields["x"] = math.NaN() }), `replicas: change of "a": To: json: `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			change := replicas.Change[metav1.Object]{Object: tt.object, To: tt.desired}
			patch, err := change.Patch()
			require.ErrorContains(t, err, tt.want)
			assert.Zero(t, patch)
			assert.False(t, change.ReplacesList())
		})
	}
	_, err := replicas.Change[metav1.Object]{Object: &noJSON{a}, To: claim()}.Patch()
	require.ErrorIs(t, err, errNoJSON)
}

// An engine has an unexported field, as the objects of Istio do. Such a field is not in the JSON of an object.
type engine struct {
	metav1.ObjectMeta

	cached int
	Image  string
}

// A spare is an object that is not a pointer and cannot be compared with ==.
type spare struct {
	*metav1.ObjectMeta

	tags map[string]string
}

// changesOf returns the changes that a plan makes of one child, without limits.
func changesOf[T metav1.Object](t *testing.T, child T, update func(T) replicas.Change[T]) replicas.Plan[T] {
	t.Helper()
	child.SetLabels(web)
	child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(replicaSet(1), replicaSetKind)})
	plan, err := replicas.Manage([]T{child}, replicas.Spec[T]{
		Owner: replicaSet(1), Kind: replicaSetKind, Replicas: 1, Selector: labels.SelectorFromSet(web), Update: update,
		New: func(string) (child T, _ error) { return child, nil }, Facts: replicas.Facts[T]{Now: podtest.Now},
	})
	require.NoError(t, err)
	assert.Len(t, plan.Scale.Update, plan.Scale.Outdated)
	return plan
}

// A child that is as it should be is not changed, in whatever way Update says so.
func TestNoChange(t *testing.T) {
	t.Parallel()
	meta := func() metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u"} }
	t.Run("the zero Change, also with options", func(t *testing.T) {
		t.Parallel()
		assert.True(t, changesOf(t, claim(), func(*corev1.PersistentVolumeClaim) replicas.Change[*corev1.PersistentVolumeClaim] {
			return replicas.Change[*corev1.PersistentVolumeClaim]{Free: true, OrReplace: true, Subresource: "a/b", Object: claim()}
		}).IsZero())
	})
	t.Run("a nil pointer in an interface", func(t *testing.T) {
		t.Parallel()
		assert.True(t, changesOf(t, metav1.Object(claim()), func(metav1.Object) replicas.Change[metav1.Object] {
			return replicas.Change[metav1.Object]{To: (*corev1.PersistentVolumeClaim)(nil)}
		}).IsZero())
	})
	t.Run("a copy, and one in which empty is nil and a quantity has another form", func(t *testing.T) {
		t.Parallel()
		for _, change := range []func(*corev1.PersistentVolumeClaim){
			func(*corev1.PersistentVolumeClaim) {},
			func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{}
				c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("1024Mi")
			},
		} {
			assert.True(t, changesOf(t, claim(), func(c *corev1.PersistentVolumeClaim) replicas.Change[*corev1.PersistentVolumeClaim] {
				changed := c.DeepCopy()
				change(changed)
				return replicas.Change[*corev1.PersistentVolumeClaim]{To: changed}
			}).IsZero())
		}
	})
	t.Run("unexported fields are not in a patch", func(t *testing.T) {
		t.Parallel()
		update := func(image string) func(e *engine) replicas.Change[*engine] {
			return func(e *engine) replicas.Change[*engine] {
				changed := *e
				changed.Image, changed.cached = image, 2
				return replicas.Change[*engine]{To: &changed}
			}
		}
		assert.True(t, changesOf(t, &engine{ObjectMeta: meta(), cached: 1, Image: "v1"}, update("v1")).IsZero())
		assert.Len(t, changesOf(t, &engine{ObjectMeta: meta(), cached: 1, Image: "v1"}, update("v2")).Scale.Update, 1)
	})
	t.Run("an object that == cannot compare", func(t *testing.T) {
		t.Parallel()
		m := meta()
		child := spare{ObjectMeta: &m, tags: web}
		assert.True(t, changesOf(t, child, func(s spare) replicas.Change[spare] { return replicas.Change[spare]{To: s} }).IsZero())
	})
	t.Run("children without UIDs that share a name are each changed once", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(2)
		spec.Update = func(w *worker) replicas.Change[*worker] { return replicas.Change[*worker]{To: relabelled(w)} }
		nameless := func(w *worker) { w.UID = "" }
		a, b := newWorker(replicaSet(2), "", 1, nameless), newWorker(replicaSet(2), "", 2, nameless)
		scale, err := replicas.ScaleTo([]*worker{a, b}, spec)
		require.NoError(t, err)
		require.Len(t, scale.Update, 2)
		assert.NotSame(t, scale.Update[0].Object, scale.Update[1].Object)
	})
}

// relabelled returns a copy of a worker with another label.
func relabelled(w *worker) *worker {
	changed := *w
	changed.Labels = maps.Clone(w.Labels)
	changed.Labels["revision"] = "2"
	return &changed
}

// A Change that cannot be made refuses the whole plan.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	u1, u0, half := intstr.FromInt32(1), intstr.FromInt32(0), intstr.FromString("50%")
	updating := func(change func(w *worker)) func(*replicas.Spec[*worker]) {
		return func(s *replicas.Spec[*worker]) {
			s.Update = func(w *worker) replicas.Change[*worker] {
				changed := relabelled(w)
				change(changed)
				return replicas.Change[*worker]{To: changed, Free: true}
			}
		}
	}
	notFree := func(change func(s *replicas.Spec[*worker])) func(*replicas.Spec[*worker]) {
		return func(s *replicas.Spec[*worker]) {
			s.Rules.Ready = func(w *worker) bool { return w.ready }
			s.Update = func(w *worker) replicas.Change[*worker] { return replicas.Change[*worker]{To: relabelled(w)} }
			change(s)
		}
	}
	under := func(subresource string) func(*replicas.Spec[*worker]) {
		return func(s *replicas.Spec[*worker]) {
			s.Update = func(w *worker) replicas.Change[*worker] {
				return replicas.Change[*worker]{To: relabelled(w), Subresource: subresource}
			}
		}
	}
	for name, tt := range map[string]struct {
		change func(*replicas.Spec[*worker])
		want   string // "" if the Spec is not refused
	}{
		"another name":                  {updating(func(w *worker) { w.Name = "b" }), `metadata.name would become "b"`},
		"another namespace":             {updating(func(w *worker) { w.Namespace = "b" }), `metadata.namespace would become "b"`},
		"another UID":                   {updating(func(w *worker) { w.UID = "b" }), `metadata.uid would become "b"`},
		"no UID":                        {updating(func(w *worker) { w.UID = "" }), `metadata.uid would become ""`},
		"no owner":                      {updating(func(w *worker) { w.OwnerReferences = nil }), `metadata.ownerReferences would change`},
		"a label is missing":            {updating(func(w *worker) { delete(w.Labels, "app") }), `metadata.labels "revision=2" would not match the selector "app=web"`},
		"another label":                 {updating(func(w *worker) { w.Labels["app"] = "b" }), `metadata.labels "app=b,revision=2" would not match the selector "app=web"`},
		"another version is no mistake": {updating(func(w *worker) { w.ResourceVersion = "9" }), ``},
		"two segments of a path":        {under("status/scale"), `subresource "status/scale" is no name`},
		"the folder above":              {under(".."), `subresource ".." is no name`},
		"a subresource":                 {under("resize"), ``},
		"the child itself": {
			func(s *replicas.Spec[*worker]) {
				s.Update = func(w *worker) replicas.Change[*worker] { return replicas.Change[*worker]{To: w} }
			}, `To is the child itself, and must be a changed copy`,
		},
		"none may be unavailable":    {notFree(func(s *replicas.Spec[*worker]) { s.MaxUnavailable = &u0 }), `it makes the child unavailable, and maxUnavailable is 0`},
		"none, and surge for others": {notFree(func(s *replicas.Spec[*worker]) { s.MaxUnavailable, s.MaxSurge = &u0, &u1 }), `it makes the child unavailable, and maxUnavailable is 0`},
		"only surge is set":          {notFree(func(s *replicas.Spec[*worker]) { s.MaxSurge = &u1 }), `it makes the child unavailable, and maxUnavailable is 0`},
		"a surge of half of nothing": {notFree(func(s *replicas.Spec[*worker]) { s.MaxSurge, s.Replicas = &half, 0 }), `it makes the child unavailable, and maxUnavailable is 0`},
		"one may be unavailable":     {notFree(func(s *replicas.Spec[*worker]) { s.MaxUnavailable = &u1 }), ``},
		"half of one is one":         {notFree(func(s *replicas.Spec[*worker]) { s.MaxUnavailable = &half }), ``},
		"there is no limit":          {notFree(func(*replicas.Spec[*worker]) {}), ``},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(1)
			tt.change(&spec)
			children := []*worker{newWorker(replicaSet(1), "a", 1, func(w *worker) { w.ready = true })}
			plan, err := replicas.Manage(children, spec)
			scale, scaleErr := replicas.ScaleTo(children, spec)
			room, roomErr := replicas.RoomOf(children, spec)
			if tt.want == "" {
				require.NoError(t, errors.Join(err, scaleErr, roomErr))
				assert.Equal(t, 1, len(plan.Scale.Update)+len(plan.Scale.Delete))
				return
			}
			for _, err := range []error{err, scaleErr, roomErr} {
				require.EqualError(t, err, `replicas: ReplicaSet "default/web": change of "default/a": `+tt.want)
				requireRefused(t, err, replicas.InvalidChange)
			}
			assert.Zero(t, plan)
			assert.Zero(t, scale)
			assert.Zero(t, room.Create+room.Delete+room.Update)
		})
	}
}

// A pod's Ready condition belongs to the containers that run, and these may be the old ones.
func TestPodsUnderALimitNeedAReadyOfTheirOwn(t *testing.T) {
	t.Parallel()
	one := intstr.FromInt32(1)
	isReady := func(*corev1.Pod) bool { return true }
	for name, tt := range map[string]struct {
		change  func(*replicas.SpecOfPods)
		free    bool
		refused bool
	}{
		"the Ready condition is refused":      {func(*replicas.SpecOfPods) {}, false, true},
		"Free changes are not":                {func(*replicas.SpecOfPods) {}, true, false},
		"a Ready of one's own is used":        {func(s *replicas.SpecOfPods) { s.Rules.Ready = isReady }, false, false},
		"an Available of one's own, too":      {func(s *replicas.SpecOfPods) { s.Rules.Available = isReady }, false, false},
		"without a limit, all go in one plan": {func(s *replicas.SpecOfPods) { s.MaxUnavailable = nil }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(1)
			spec := specOf(t, rs)
			spec.MaxUnavailable = &one
			spec.Update = func(p *corev1.Pod) replicas.Change[*corev1.Pod] {
				changed := p.DeepCopy()
				changed.Labels["revision"] = "2"
				return replicas.Change[*corev1.Pod]{To: changed, Free: tt.free}
			}
			tt.change(&spec)
			plan, err := replicas.Manage(podsOf(rs, 1), spec)
			if tt.refused {
				require.ErrorContains(t, err, `ReplicaSet "default/web": change of "default/web-000": Rules.Ready is nil`)
				requireRefused(t, err, replicas.InvalidChange)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "change 1: default/web-000", plan.String())
		})
	}
}

// A panic in Update is a mistake of its author, whom a plan that goes on would mislead.
func TestAPanicOfUpdateIsNotHidden(t *testing.T) {
	t.Parallel()
	spec := workerSpec(1)
	spec.Update = func(*worker) replicas.Change[*worker] { panic("mine") }
	assert.PanicsWithValue(t, "mine", func() { _, _ = replicas.Manage([]*worker{newWorker(replicaSet(1), "a", 1)}, spec) })
}

// While nothing may be changed, a plan still counts the children that are not up to date.
func TestNothingIsChangedNow(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change   func(*replicas.Spec[*worker])
		blocked  replicas.BlockedReason
		outdated int
		noRoom   bool
	}{
		"the owner is paused":                          {func(s *replicas.Spec[*worker]) { s.Paused = true }, replicas.Paused, 2, false},
		"expectations are pending":                     {func(s *replicas.Spec[*worker]) { s.Facts.Pending = expectations.Waiting }, replicas.ExpectationsPending, 2, false},
		"the view is stale, and nothing else is to do": {func(s *replicas.Spec[*worker]) { s.Facts.Pending, s.Rules.MustGo = expectations.Expired, nil }, replicas.ViewIsStale, 2, false},
		"the owner is deleted":                         {func(s *replicas.Spec[*worker]) { s.Owner.SetDeletionTimestamp(&metav1.Time{Time: podtest.Now}) }, replicas.OwnerDeleted, 1, true},
		"the owner is drained by a finalizer": {func(s *replicas.Spec[*worker]) {
			s.Owner.SetDeletionTimestamp(&metav1.Time{Time: podtest.Now})
			s.Owner.SetFinalizers([]string{"example.com/drain"})
			s.Finalizer = "example.com/drain"
		}, "", 1, true},
		"there is no Update": {func(s *replicas.Spec[*worker]) { s.Update, s.Rules.MustStay = nil, func(*worker) bool { return true } }, "", 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(2)
			spec.Rules.MustGo = func(w *worker) bool { return w.Name == "w-1" }
			spec.Update = func(w *worker) replicas.Change[*worker] {
				return replicas.Change[*worker]{To: relabelled(w), Free: true}
			}
			tt.change(&spec)
			children := []*worker{newWorker(replicaSet(2), "w-0", 0), newWorker(replicaSet(2), "w-1", 1)}
			plan, err := replicas.Manage(children, spec)
			require.NoError(t, err)
			assert.Equal(t, tt.blocked, plan.Blocked.Reason)
			assert.Empty(t, plan.Scale.Update)
			assert.Equal(t, tt.outdated, plan.Scale.Outdated)
			room, err := replicas.RoomOf(children, spec)
			require.NoError(t, err)
			clamped := room.Clamp(replicas.Scale[*worker]{Update: []replicas.Change[*worker]{{Object: children[0], To: relabelled(children[0]), Free: true}}})
			assert.Equal(t, tt.noRoom, len(clamped.Update) == 0)
			assert.Equal(t, tt.noRoom, room.Update == 0)
		})
	}
	clamped := new(replicas.Room[*worker]).Clamp(replicas.Scale[*worker]{Update: []replicas.Change[*worker]{{Object: &worker{}, To: &worker{}, Free: true}}})
	assert.Empty(t, clamped.Update, "the zero Room allows nothing")
}

// Pods are changed in the order in which they would be deleted, also if only some of them need a change. Facts.Related
// may be a slow function, and is called once.
func TestChangesAreMadeInTheOrderOfDeletion(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rs := replicaSet(10)
		pods := podtest.Fleet(20, 5, seed)
		for _, p := range pods {
			owned(rs)(p)
		}
		spec := specOf(t, rs)
		crowd, calls := podtest.Fleet(20, 5, seed+1000), 0
		spec.Facts.Related = func() []*corev1.Pod { calls++; return crowd }
		order, err := replicas.Explain(pods, spec)
		require.NoError(t, err)
		calls = 0
		spec.Update = func(p *corev1.Pod) (change replicas.Change[*corev1.Pod]) {
			if p.Name[len(p.Name)-1]%2 == 0 {
				change.To = p.DeepCopy()
				change.To.Labels["revision"] = "2"
			}
			return change
		}
		plan, err := replicas.Manage(pods, spec)
		require.NoError(t, err)
		require.Equal(t, 1, calls)
		var want, got []string
		for _, v := range order {
			gone := slices.ContainsFunc(plan.Scale.Delete, func(d replicas.Deletion[*corev1.Pod]) bool { return d.Object == v.Object })
			if spec.Update(v.Object).To != nil && !gone {
				want = append(want, v.Object.Name)
			}
		}
		for _, c := range plan.Scale.Update {
			got = append(got, c.Object.Name)
		}
		require.NotEmpty(t, plan.Scale.Delete)
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestAPlanShowsItsChanges(t *testing.T) {
	t.Parallel()
	rs := replicaSet(12)
	spec := specOf(t, rs)
	spec.BurstReplicas = 11
	spec.Update = func(p *corev1.Pod) replicas.Change[*corev1.Pod] {
		changed := p.DeepCopy()
		changed.Annotations = map[string]string{"revision": "2"}
		return replicas.Change[*corev1.Pod]{To: changed}
	}
	pods := podsOf(rs, 12)
	plan, err := replicas.Manage(pods, spec)
	require.NoError(t, err)
	assert.False(t, plan.IsZero())
	assert.False(t, plan.Scale.IsZero())
	assert.Contains(t, plan.String(), "change 11: default/web-")
	assert.Contains(t, plan.String(), ", and 1 more; 1 more later")
	plan.Scale.Update, plan.Claims.Owned = plan.Scale.Update[:1], nil
	data, err := json.Marshal(plan)
	require.NoError(t, err)
	name := plan.Scale.Update[0].Object.Name
	assert.JSONEq(t, `{"scale":{"create":0,"update":[{"namespace":"default","name":"`+name+`","uid":"uid-`+name+`"}],"deferred":1,"outdated":12}}`, string(data))
}

// A part is a child of a small world.
type part struct {
	ready, must, stay  bool
	leaving            bool // it is being deleted, and Rules.Active counts it
	needs, free        bool // it needs a change, which is Free
	updating, deleting bool // a call without an answer may still change or delete it
}

// A world is an owner with a few children, in which calls may be in flight.
type world struct {
	parts              []part
	wanted             int
	unavailable, surge string // "" if it is not set
	slots              bool
	burst              int // 0 for the default
	creating           int // the number of creations in flight
}

func (w *world) rolls() bool { return w.unavailable != "" || w.surge != "" }

// may returns how many children may be unavailable because of changes.
func (w *world) may() int {
	limit := intstr.Parse(w.unavailable)
	if limit.Type == intstr.Int || w.unavailable == "" {
		return limit.IntValue()
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(&limit, w.wanted, false)
	return max(n, 1)
}

// mayGo returns how many children may be unavailable because of deletions.
func (w *world) mayGo() int {
	n, surge := 0, 0
	if limit := intstr.Parse(w.unavailable); w.unavailable != "" {
		n, _ = intstr.GetScaledValueFromIntOrPercent(&limit, w.wanted, false)
	}
	if limit := intstr.Parse(w.surge); w.surge != "" {
		surge, _ = intstr.GetScaledValueFromIntOrPercent(&limit, w.wanted, true)
	}
	if n+surge == 0 && strings.Contains(w.unavailable+w.surge, "%") {
		return 1
	}
	return n
}

func (w *world) isOut(i int) bool { return w.slots && i >= w.wanted }

// goes reports whether the child i must go, and may.
func (w *world) goes(i int) bool { return (w.parts[i].must || w.isOut(i)) && !w.parts[i].stay }

// serves reports whether the child i is available, whatever becomes of the calls in flight.
func (w *world) serves(i int) bool {
	p := w.parts[i]
	return p.ready && !p.leaving && !p.updating && !p.deleting
}

func (w *world) serving() (n int) {
	for i := range w.parts {
		n += one(w.serves(i))
	}
	return n
}

func (w *world) spec() replicas.Spec[*worker] {
	spec := workerSpec(int32(w.wanted))
	at := func(c *worker) part { return w.parts[c.index()] }
	spec.New, spec.BurstReplicas = nil, w.burst
	spec.Rules = replicas.Rules[*worker]{
		Active:   func(*worker) bool { return true },
		Ready:    func(c *worker) bool { return at(c).ready },
		MustGo:   func(c *worker) bool { return at(c).must },
		MustStay: func(c *worker) bool { return at(c).stay },
	}
	if w.slots {
		spec.Slots = replicas.Ordinals("w")
	}
	limit := func(text string) *intstr.IntOrString {
		if text == "" {
			return nil
		}
		value := intstr.Parse(text)
		return &value
	}
	spec.MaxUnavailable, spec.MaxSurge = limit(w.unavailable), limit(w.surge)
	spec.Update = func(c *worker) (change replicas.Change[*worker]) {
		if p := at(c); p.needs {
			change = replicas.Change[*worker]{To: relabelled(c), Free: p.free}
		}
		return change
	}
	fresh := 0
	spec.Facts.Names = func(prefix string) string { fresh++; return fmt.Sprint(prefix, "new", fresh) }
	for i, p := range w.parts {
		id := types.UID(fmt.Sprint("uid-w-", i))
		if p.updating {
			spec.Facts.UpdatesInFlight = append(spec.Facts.UpdatesInFlight, id)
		}
		if p.deleting {
			spec.Facts.DeletionsInFlight = append(spec.Facts.DeletionsInFlight, id)
		}
	}
	for i := range w.creating {
		spec.Facts.CreationsInFlight = append(spec.Facts.CreationsInFlight, fmt.Sprint("web-lost", i))
	}
	return spec
}

// children returns the children. The first one is the newest.
func (w *world) children() (children []*worker) {
	rs := replicaSet(1)
	for i, p := range w.parts {
		c := newWorker(rs, fmt.Sprint("w-", i), i)
		if p.leaving {
			c.DeletionTimestamp = &metav1.Time{Time: podtest.Now}
		}
		children = append(children, c)
	}
	return children
}

// index returns the place of a child in its world.
func (w *worker) index() int {
	i, _ := strconv.Atoi(strings.TrimPrefix(w.Name, "w-"))
	return i
}

// mayChange reports whether the child i may be changed beside the deletion of the victims, if no limit forbids it.
func (w *world) mayChange(i int, free bool, victims map[int]bool) bool {
	p := w.parts[i]
	return !victims[i] && !w.goes(i) && (free || !p.stay) && (p.leaving || !p.deleting)
}

// left returns how many available children may be changed beside the deletion of the victims.
func (w *world) left(victims map[int]bool) int {
	if !w.rolls() {
		return len(w.parts)
	}
	gone := 0
	for i := range victims {
		gone += one(w.serves(i))
	}
	return max(w.serving()-(w.wanted-w.may())-gone, 0)
}

// costs reports whether a change takes one of the available children away.
func (w *world) costs(i int, free bool) bool { return !free && (!w.rolls() || w.serves(i)) }

// needs lists the children of which Update returns a change.
func (w *world) needs() (list []int) {
	for i, p := range w.parts {
		if p.needs && !p.must {
			list = append(list, i)
		}
	}
	return list
}

// isRollout reports whether the limits bind deletions too: some child goes or becomes unavailable.
func (w *world) isRollout() bool {
	for i, p := range w.parts {
		if p.updating || w.goes(i) && !p.leaving || p.needs && !p.must && !p.free && !p.stay {
			return w.rolls()
		}
	}
	return false
}

func indices(children []*worker) map[int]bool {
	found := map[int]bool{}
	for _, c := range children {
		found[c.index()] = true
	}
	return found
}

func changedOf(changes []replicas.Change[*worker]) (children []*worker) {
	for _, c := range changes {
		children = append(children, c.Object)
	}
	return children
}

// check compares a plan and a clamped Scale with the inequalities.
func (w *world) check(t *testing.T, r *rand.Rand) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("%+v", *w)
		}
	}()
	spec, children := w.spec(), w.children()
	scale, err := replicas.ScaleTo(children, spec)
	for _, i := range w.needs() {
		if w.rolls() && w.may() == 0 && !w.parts[i].free {
			requireRefused(t, err, replicas.InvalidChange)
			return
		}
	}
	if w.rolls() && w.mayGo() == 0 && (w.surge == "" || w.surge == "0") && err != nil {
		requireRefused(t, err, replicas.InvalidRollout)
		return
	}
	require.NoError(t, err)
	w.checkChanges(t, scale)
	w.checkDeletions(t, scale)
	w.checkLandings(t, scale)
	w.checkBesideOthers(t, scale, children)
	w.checkProgress(t, scale)
	w.checkClamp(t, r, children)
}

func (w *world) checkChanges(t *testing.T, scale replicas.Scale[*worker]) {
	t.Helper()
	victims, changed := indices(objectsOf(scale.Delete)), indices(changedOf(scale.Update))
	require.Len(t, changed, len(scale.Update), "a child is changed once")
	outdated, may, cost, mayCost := 0, 0, 0, 0
	for i, p := range w.parts {
		outdated += one(p.must || p.needs)
		if !p.needs || p.must || !w.mayChange(i, p.free, victims) {
			require.False(t, changed[i], "w-%d is changed", i)
			continue
		}
		may++
		mayCost += one(w.costs(i, p.free))
		cost += one(changed[i] && w.costs(i, p.free))
	}
	require.Equal(t, outdated, scale.Outdated)
	require.LessOrEqual(t, cost, w.left(victims), "changes of available children")
	want := may - mayCost + min(mayCost, w.left(victims))
	if w.burst > 0 {
		want = min(want, w.burst)
	}
	require.Len(t, changed, want, "of %d", may)
	require.GreaterOrEqual(t, scale.Kept+scale.Deferred, may-want)
	require.True(t, slices.IsSortedFunc(changedOf(scale.Update), w.compare), "%v", scale)
}

// compare returns a negative number if the child a is changed before b.
func (w *world) compare(a, b *worker) int {
	i, j := a.index(), b.index()
	p, q := w.parts[i], w.parts[j]
	isIn := func(i int) int { return one(!w.isOut(i)) }
	slot := 0
	if w.isOut(i) && w.isOut(j) {
		slot = j - i
	}
	unavailable := 0
	if w.rolls() {
		unavailable = one(w.serves(i)) - one(w.serves(j))
	}
	return cmp.Or(one(q.updating)-one(p.updating), unavailable, isIn(i)-isIn(j), slot, one(p.ready)-one(q.ready), i-j)
}

func (w *world) checkDeletions(t *testing.T, scale replicas.Scale[*worker]) {
	t.Helper()
	gone := 0
	for i := range indices(objectsOf(scale.Delete)) {
		require.False(t, w.parts[i].leaving || w.parts[i].stay, "w-%d is deleted", i)
		gone += one(w.serves(i))
	}
	if w.isRollout() {
		require.LessOrEqual(t, gone, max(w.serving()-(w.wanted-w.mayGo()), 0))
	}
}

// checkLandings tries all outcomes of the calls in flight. In none, the new calls of a plan leave too few available
// children, if there were enough without them.
func (w *world) checkLandings(t *testing.T, scale replicas.Scale[*worker]) {
	t.Helper()
	if !w.isRollout() {
		return
	}
	least := w.wanted - max(w.may(), w.mayGo())
	victims, changed := indices(objectsOf(scale.Delete)), indices(changedOf(scale.Update))
	var inFlight []int
	for i, p := range w.parts {
		if p.updating || p.deleting {
			inFlight = append(inFlight, i)
		}
	}
	ends(inFlight, func(took map[int]bool) {
		before, after := 0, 0
		for i, p := range w.parts {
			if !p.ready || p.leaving || took[i] {
				continue
			}
			before++
			isNew := !p.updating && !p.deleting // a call that is sent again does what the first one may do anyway
			after += one(!isNew || !victims[i] && (!changed[i] || p.free))
		}
		require.GreaterOrEqual(t, after, min(before, least), "outcome %v", took)
	})
}

// checkBesideOthers compares the creations and deletions with those of a plan without Update.
func (w *world) checkBesideOthers(t *testing.T, scale replicas.Scale[*worker], children []*worker) {
	t.Helper()
	spec := w.spec()
	spec.Update = nil
	other, err := replicas.ScaleTo(children, spec)
	require.NoError(t, err)
	require.Empty(t, other.Update)
	rollsAnyway := false
	for i, p := range w.parts {
		rollsAnyway = rollsAnyway || p.updating || w.goes(i) && !p.leaving
	}
	if !w.isRollout() || rollsAnyway {
		require.Equal(t, other.Names, scale.Names)
		require.Equal(t, other.Delete, scale.Delete)
	}
	for i, p := range w.parts {
		w.parts[i].needs = false
		defer func() { w.parts[i] = p }()
	}
	calm, err := replicas.ScaleTo(children, w.spec())
	require.NoError(t, err)
	require.Equal(t, other, calm, "Update returns no change")
}

// checkProgress shows that a plan does something if it can.
func (w *world) checkProgress(t *testing.T, scale replicas.Scale[*worker]) {
	t.Helper()
	movable := false
	for i, p := range w.parts {
		if !w.serves(i) || w.creating > 0 {
			return
		}
		movable = movable || w.goes(i) || p.needs && !p.must && (p.free || !p.stay)
	}
	require.False(t, movable && scale.IsZero(), "nothing is in flight, all children are available, and the plan does nothing: %v", scale)
}

// checkClamp clamps a random Scale.
func (w *world) checkClamp(t *testing.T, r *rand.Rand, children []*worker) {
	t.Helper()
	room, err := replicas.RoomOf(children, w.spec())
	require.NoError(t, err)
	want := len(children)
	if w.rolls() {
		want = min(w.left(nil), w.serving())
	}
	require.Equal(t, want, room.Update)
	asked := replicas.Scale[*worker]{Update: []replicas.Change[*worker]{{}, {Object: &worker{}}, {To: &worker{}}}}
	for _, i := range r.Perm(len(children)) {
		if r.IntN(4) == 0 {
			asked.Delete = append(asked.Delete, deletionOf(children[i]))
		}
		if r.IntN(4) > 0 {
			asked.Update = append(asked.Update, replicas.Change[*worker]{Object: children[i], To: relabelled(children[i]), Free: r.IntN(3) == 0})
		}
	}
	clamped := room.Clamp(asked)
	victims := indices(objectsOf(clamped.Delete))
	mayAll := func(changes []replicas.Change[*worker]) bool {
		cost := 0
		for _, c := range changes {
			if c.To == nil || c.Object == nil || !w.mayChange(c.Object.index(), c.Free, victims) {
				return false
			}
			cost += one(w.costs(c.Object.index(), c.Free))
		}
		return cost <= w.left(victims)
	}
	require.True(t, mayAll(clamped.Update), "%v of %v", clamped, asked)
	require.Len(t, clamped.Update, most(asked.Update, mayAll), "%v of %v", clamped, asked)
	next := 0
	for _, c := range asked.Update { // in the order of the Scale
		if next < len(clamped.Update) && c == clamped.Update[next] {
			next++
		}
	}
	require.Len(t, clamped.Update, next)
}

// All pairs of children, and many larger worlds.
func TestSmallWorldsOfChanges(t *testing.T) {
	t.Parallel()
	var kinds []part
	for bits := range 1 << 8 {
		p := part{
			ready: bits&1 > 0, must: bits&2 > 0, stay: bits&4 > 0, leaving: bits&8 > 0, needs: bits&16 > 0, free: bits&32 > 0,
			updating: bits&64 > 0, deleting: bits&128 > 0,
		}
		if (!p.free || p.needs) && (!p.must || !p.needs) && (!p.leaving || !p.deleting) {
			kinds = append(kinds, p)
		}
	}
	for i, a := range kinds {
		for j, b := range kinds[:i+1] {
			w := world{parts: []part{a, b}, wanted: 1 + (i+j)%3, unavailable: []string{"", "1", "1", "1%"}[(i+2*j)%4], slots: (i+j)%2 == 0}
			w.check(t, rand.New(rand.NewPCG(uint64(i), uint64(j))))
		}
	}
	for seed := range uint64(5000) {
		w := randomWorld(seed)
		w.check(t, rand.New(rand.NewPCG(seed, 21)))
	}
}

func FuzzChanges(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		w := randomWorld(seed)
		w.check(t, rand.New(rand.NewPCG(seed, 23)))
	})
}

func randomWorld(seed uint64) world {
	r := rand.New(rand.NewPCG(seed, 22))
	few := func(oneIn int) bool { return r.IntN(oneIn) == 0 }
	w := world{wanted: r.IntN(6), slots: few(3), burst: max(r.IntN(8)-4, 0), creating: max(r.IntN(5)-2, 0)}
	w.unavailable = []string{"", "0", "1", "2", "9", "1%", "40%", "100%"}[r.IntN(8)]
	if !w.slots {
		w.surge = []string{"", "", "0", "1", "20%"}[r.IntN(5)]
	}
	for range r.IntN(7) {
		w.parts = append(w.parts, part{
			ready: !few(4), must: few(6), stay: few(6), leaving: few(8), needs: few(2), free: few(4), updating: few(6), deleting: few(8),
		})
	}
	return w
}

// Two of four children are available, and three are wanted. As long as a change is needed, the limit binds deletions too.
func TestSurplusStaysWhileChangesNeedIt(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		needs part
		want  string
	}{
		"no change":                      {part{ready: true}, "delete 1: default/w-0 (age 0s < 3m)"},
		"a Free change":                  {part{ready: true, needs: true, free: true}, "change 1: default/w-3; delete 1: default/w-0 (age 0s < 3m)"},
		"a change":                       {part{ready: true, needs: true}, "nothing to do; 2 kept while others are missing or unavailable"},
		"a change of one that must stay": {part{ready: true, needs: true, stay: true}, "delete 1: default/w-0 (all others must stay); 1 kept by MustStay"},
		"a change without an answer":     {part{ready: true, updating: true}, "delete 1: default/w-3 (unavailable)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := world{parts: []part{{ready: true}, {stay: true}, {stay: true}, tt.needs}, wanted: 3, unavailable: "1"}
			scale, err := replicas.ScaleTo(w.children(), w.spec())
			require.NoError(t, err)
			assert.Equal(t, tt.want, scale.String())
			w.check(t, rand.New(rand.NewPCG(1, 25)))
		})
	}
}

// If plans are carried out one after another, each child is changed or replaced, and there are as many as are wanted.
// Meanwhile as many are available as before, or as the limit asks for.
func TestChangesReachEveryChild(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 24))
		w := randomWorld(seed)
		w.creating = 0
		if w.may() == 0 && w.rolls() {
			w.unavailable = "1"
		}
		for i := range w.parts {
			w.parts[i].updating, w.parts[i].deleting, w.parts[i].stay = false, false, false
		}
		for round := 0; ; round++ {
			require.Less(t, round, 200, "no end: %+v", w)
			scale, err := replicas.ScaleTo(w.children(), w.spec())
			require.NoError(t, err)
			if scale.IsZero() && w.serving() == len(w.parts) {
				require.Zero(t, scale.Outdated, "%+v", w)
				require.Len(t, w.parts, w.wanted, "%+v", w)
				break
			}
			before, rolls := w.serving(), w.isRollout()
			w.carryOut(scale)
			if rolls {
				require.GreaterOrEqual(t, w.serving(), min(before, w.wanted-max(w.may(), w.mayGo())), "%+v after %v", w, scale)
			}
			w.parts = slices.DeleteFunc(w.parts, func(p part) bool { return p.leaving })
			for i := range w.parts {
				w.parts[i].ready = w.parts[i].ready || r.IntN(2) == 0
			}
		}
	}
}

// carryOut does what a plan says. A deleted child is leaving, and new and changed children are not ready.
func (w *world) carryOut(scale replicas.Scale[*worker]) {
	for _, c := range scale.Update {
		p := &w.parts[c.Object.index()]
		p.needs, p.ready = false, p.ready && p.free
	}
	for _, d := range scale.Delete {
		w.parts[d.Object.index()].leaving = true
	}
	w.parts = append(w.parts, make([]part, scale.Create)...)
}
