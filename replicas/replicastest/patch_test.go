// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
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

	podstate "github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

func TestPatchPod(t *testing.T) {
	t.Parallel()
	owner := &metav1.ObjectMeta{Name: "web", UID: "owner"}
	kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
	ours := *metav1.NewControllerRef(owner, kind)
	plain := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "owner"}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "thing", UID: "thing"}
	rival := *metav1.NewControllerRef(&metav1.ObjectMeta{Name: "rival", UID: "rival"}, kind)

	claimer := func(finalizers []string) selector.Claimer[*corev1.Pod] {
		return selector.Claimer[*corev1.Pod]{Owner: owner, Kind: kind, Finalizers: finalizers}
	}
	adopt := func(finalizers ...string) func(*corev1.Pod) (selector.Patch, error) {
		return claimer(finalizers).AdoptPatch
	}
	release := func(finalizers ...string) func(*corev1.Pod) (selector.Patch, error) {
		return claimer(finalizers).ReleasePatch
	}
	type list = []metav1.OwnerReference
	for name, tc := range map[string]struct {
		owners     list
		finalizers []string
		patch      func(*corev1.Pod) (selector.Patch, error)
		want       list
		finalized  []string
	}{
		"an orphan is adopted":               {nil, nil, adopt(), list{ours}, nil},
		"a plain reference is upgraded":      {list{plain, other}, nil, adopt(), list{ours, other}, nil},
		"another owner stays":                {list{other}, nil, adopt(), list{other, ours}, nil},
		"adopting twice is the same":         {list{ours}, nil, adopt(), list{ours}, nil},
		"finalizers are merged":              {nil, []string{"a/a"}, adopt("a/a", "b/b"), list{ours}, []string{"a/a", "b/b"}},
		"a pod is released":                  {list{ours}, nil, release(), list{}, nil},
		"the other owner is not":             {list{other, ours}, nil, release(), list{other}, nil},
		"what is free is released all right": {list{rival}, nil, release(), list{rival}, nil},
		"a finalizer goes":                   {list{ours}, []string{"a/a", "b/b"}, release("a/a"), list{}, []string{"b/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			in := pod("web")
			in.OwnerReferences, in.Finalizers = tc.owners, tc.finalizers
			p := createPod(t, c, in)
			patch, err := tc.patch(p)
			require.NoError(t, err)
			patched, err := c.PatchChild(t.Context(), namespace, "web", patch, metav1.PatchOptions{})
			require.NoError(t, err)
			assert.ElementsMatch(t, tc.want, patched.OwnerReferences)
			assert.Equal(t, tc.finalized, patched.Finalizers)
		})
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		patch  func(*corev1.Pod) (selector.Patch, error)
	}{
		"another controller": {func(p *corev1.Pod) { p.OwnerReferences = list{rival} }, adopt()},
		"another pod": {func(*corev1.Pod) {}, func(*corev1.Pod) (selector.Patch, error) {
			return release()(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "another"}})
		}},
	} {
		t.Run(name+" is invalid", func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			in := pod("web")
			tc.change(in)
			p := createPod(t, c, in)
			patch, err := tc.patch(p)
			require.NoError(t, err)
			_, err = c.PatchChild(t.Context(), namespace, "web", patch, metav1.PatchOptions{})
			require.True(t, apierrors.IsInvalid(err), err)
			left, err := c.GetChild(t.Context(), namespace, "web")
			require.NoError(t, err)
			assert.Equal(t, p, left)
		})
	}
	t.Run("a pod that is being deleted gets no finalizer", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		in := pod("web")
		in.Finalizers = []string{"a/a"}
		p := createPod(t, c, in)
		_, err := c.DeleteChild(t.Context(), namespace, "web", metav1.DeleteOptions{})
		require.NoError(t, err)
		patch, err := adopt("b/b")(p)
		require.NoError(t, err)
		_, err = c.PatchChild(t.Context(), namespace, "web", patch, metav1.PatchOptions{})
		assert.True(t, apierrors.IsInvalid(err), err)
	})
	t.Run("a dry run checks everything and stores nothing", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		p := createPod(t, c, pod("web"))
		patch, err := adopt()(p)
		require.NoError(t, err)
		dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
		patched, err := c.PatchChild(t.Context(), namespace, "web", patch, dry)
		require.NoError(t, err)
		assert.Equal(t, list{ours}, patched.OwnerReferences)
		assert.Equal(t, p, c.Children(namespace)[0])
		c.Deny("patch", failure.BadRequest.Of)
		_, err = c.PatchChild(t.Context(), namespace, "web", patch, dry)
		assert.True(t, apierrors.IsBadRequest(err), err)
		c.Webhook = nil
		_, err = c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) { p.OwnerReferences = list{rival} })
		require.NoError(t, err)
		_, err = c.PatchChild(t.Context(), namespace, "web", patch, dry)
		assert.True(t, apierrors.IsInvalid(err), err)
	})
	t.Run("other patches are refused", func(t *testing.T) {
		t.Parallel()
		c := newCluster(0)
		createPod(t, c, pod("web"))
		_, err := c.PatchChild(t.Context(), namespace, "web", selector.Patch{Type: types.JSONPatchType, Data: []byte(`[]`)}, metav1.PatchOptions{})
		assert.True(t, apierrors.IsUnsupportedMediaType(err), err)
		for _, data := range []string{`{"spec":{}}`, `{`, ``} {
			_, err = c.PatchChild(t.Context(), namespace, "web", selector.Patch{Type: types.StrategicMergePatchType, Data: []byte(data)}, metav1.PatchOptions{})
			assert.True(t, apierrors.IsBadRequest(err), "%q: %v", data, err)
		}
		_, err = c.PatchChild(t.Context(), namespace, "none", selector.Patch{}, metav1.PatchOptions{})
		assert.True(t, apierrors.IsNotFound(err), err)
	})
}

// change returns the patch that a Controller sends for a change of a child.
func change[C replicastest.Object[C]](t *testing.T, child C, subresource string, edit func(C)) selector.Patch {
	t.Helper()
	c := replicas.Change[C]{Object: child, To: child.DeepCopy(), Subresource: subresource}
	edit(c.To)
	patch, err := c.Patch()
	require.NoError(t, err)
	return patch
}

// A change of a pod reaches the spec or the status, but never both. The generation counts the changes of the spec.
func TestPatchGoesToTheSubresource(t *testing.T) {
	t.Parallel()
	c := newCluster(1)
	in, deadline := pod("web"), int64(1<<53+1)
	in.Spec.Containers, in.Spec.ActiveDeadlineSeconds = []corev1.Container{{Name: "web", Image: "one"}}, &deadline
	p := createPod(t, c, in)
	assert.EqualValues(t, 1, p.Generation)
	run(c, time.Minute)
	p, err := c.GetChild(t.Context(), namespace, "web")
	require.NoError(t, err)
	require.True(t, podstate.IsReady(p))
	assert.EqualValues(t, 1, p.Status.ObservedGeneration)
	edit := func(p *corev1.Pod) {
		p.Labels["tier"], p.Spec.Containers[0].Image, p.Status.Message = "front", "two", "moved"
		p.Generation, p.CreationTimestamp = 7, metav1.Time{}
	}
	client := c.NewClient()
	calls := client.Record()
	send := func(subresource string) *corev1.Pod {
		patched, err := client.Patch(t.Context(), p, change(t, p, subresource, edit), metav1.PatchOptions{})
		require.NoError(t, err)
		assert.Equal(t, p.CreationTimestamp, patched.CreationTimestamp)
		assert.Equal(t, deadline, *patched.Spec.ActiveDeadlineSeconds)
		return patched
	}

	patched := send("status")
	assert.Equal(t, "moved", patched.Status.Message)
	assert.Equal(t, "one", patched.Spec.Containers[0].Image)
	assert.Empty(t, patched.Labels["tier"])
	assert.EqualValues(t, 1, patched.Generation)

	for i, subresource := range []string{"", "resize"} {
		p, err = c.EditChild(t.Context(), namespace, "web", func(p *corev1.Pod) {
			p.Status.Message, p.Spec.Containers[0].Image = "here", "one"
			delete(p.Labels, "tier")
		})
		require.NoError(t, err)
		patched = send(subresource)
		assert.Equal(t, "here", patched.Status.Message)
		assert.Equal(t, "two", patched.Spec.Containers[0].Image)
		assert.Equal(t, "front", patched.Labels["tier"])
		assert.EqualValues(t, 2*i+2, patched.Generation)
	}
	assert.Equal(t, "patch Pod default/web/status\npatch Pod default/web\npatch Pod default/web/resize\n", calls.String())

	run(c, 2*time.Second-1)
	p, err = c.GetChild(t.Context(), namespace, "web")
	require.NoError(t, err)
	assert.Equal(t, patched, p, "the kubelet has not seen it yet, and the pod is still ready")
	run(c, 1)
	p, err = c.GetChild(t.Context(), namespace, "web")
	require.NoError(t, err)
	assert.EqualValues(t, 4, p.Status.ObservedGeneration)
	assert.Equal(t, "two", p.Status.ContainerStatuses[0].Image)
	assert.Equal(t, patched.Status.StartTime, p.Status.StartTime)
}

// Of two changes that were made from one version, the second is a Conflict, and so is a change for a child that has
// been replaced under its name.
func TestPatchOfAnOldVersion(t *testing.T) {
	t.Parallel()
	s, err := replicastest.NewCluster(pools(), replicastest.Options{})
	require.NoError(t, err)
	s.Ready = func(w *worker) { w.Status.Ready = true }
	world := &replicastest.World{Clock: s.Clock, Parts: []replicastest.Part{s}}
	create := func() *worker {
		w, err := s.CreateChild(t.Context(), namespace, &worker{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"app": "web"}}})
		require.NoError(t, err)
		return w
	}
	send := func(w *worker, edit func(*worker)) (*worker, error) {
		return s.PatchChild(t.Context(), namespace, "a", change(t, w, "", edit), metav1.PatchOptions{})
	}
	paint := func(image string) func(*worker) {
		return func(w *worker) { w.Spec.Image, w.Labels["image"], w.Status.Ready = image, image, true }
	}
	w := create()
	dry, err := s.PatchChild(t.Context(), namespace, "a", change(t, w, "", paint("two")), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	assert.EqualValues(t, 2, dry.Generation)
	patched, err := send(w, paint("two"))
	require.NoError(t, err)
	assert.Equal(t, "two", patched.Spec.Image)
	assert.Equal(t, map[string]string{"app": "web", "image": "two"}, patched.Labels)
	assert.EqualValues(t, 2, patched.Generation)
	assert.False(t, patched.Status.Ready, "the status is a subresource")
	_, err = send(w, paint("three"))
	assert.True(t, apierrors.IsConflict(err), err)
	again, err := send(patched, paint("two"))
	require.NoError(t, err)
	assert.Equal(t, patched, again, "nothing has changed")
	again, err = send(patched, func(w *worker) { delete(w.Labels, "image") })
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"app": "web"}, again.Labels)
	assert.EqualValues(t, 2, again.Generation)

	world.Run(2 * time.Second)
	w, err = s.GetChild(t.Context(), namespace, "a")
	require.NoError(t, err)
	assert.True(t, w.Status.Ready)
	_, err = s.EditChild(t.Context(), namespace, "a", func(w *worker) { w.Status.Ready = false })
	require.NoError(t, err)
	world.Run(time.Hour)
	w, err = s.GetChild(t.Context(), namespace, "a")
	require.NoError(t, err)
	assert.False(t, w.Status.Ready, "its own controller has nothing to do")
	_, err = send(w, paint("four"))
	require.NoError(t, err)
	world.Run(2 * time.Second)
	w, err = s.GetChild(t.Context(), namespace, "a")
	require.NoError(t, err)
	assert.True(t, w.Status.Ready)

	_, err = s.DeleteChild(t.Context(), namespace, "a", metav1.DeleteOptions{})
	require.NoError(t, err)
	fresh := create()
	_, err = send(w, paint("five"))
	assert.True(t, apierrors.IsConflict(err), err)
	w.ResourceVersion = fresh.ResourceVersion
	_, err = send(w, paint("five"))
	assert.True(t, apierrors.IsInvalid(err), err)
	for _, data := range []string{`null`, `7`, `{"Spec":7}`, `{"metadata":{"labels":7}}`} {
		_, err = s.PatchChild(t.Context(), namespace, "a", selector.Patch{Type: types.MergePatchType, Data: []byte(data)}, metav1.PatchOptions{})
		assert.True(t, apierrors.IsBadRequest(err), "%s: %v", data, err)
	}
	left, err := s.GetChild(t.Context(), namespace, "a")
	require.NoError(t, err)
	assert.Equal(t, fresh, left)
}

// A ConfigMap has neither a generation nor a status.
func TestPatchOfAConfigMap(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	m, err := d.configs.CreateChild(t.Context(), namespace, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	require.NoError(t, err)
	edit := func(m *corev1.ConfigMap) { m.Data = map[string]string{"a": "b"} }
	_, err = d.configs.PatchChild(t.Context(), namespace, "a", change(t, m, "status", edit), metav1.PatchOptions{})
	assert.True(t, apierrors.IsNotFound(err), err)
	m, err = d.configs.PatchChild(t.Context(), namespace, "a", change(t, m, "", edit), metav1.PatchOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"a": "b"}, m.Data)
	assert.Zero(t, m.Generation)
}

// A dial is a custom resource without a field Spec, so its generation counts the changes of all other fields.
type dial struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Turns             int64
	Status            struct{ Turns int64 }
}

func (d *dial) DeepCopy() *dial {
	c := *d
	d.DeepCopyInto(&c.ObjectMeta)
	return &c
}

func (d *dial) DeepCopyObject() runtime.Object { return d.DeepCopy() }

func TestGenerationOfATypeWithoutASpec(t *testing.T) {
	t.Parallel()
	version := schema.GroupVersion{Group: "example.com", Version: "v1"}
	kind := controller.Kind[*pool, *dial]{
		Owner: version.WithKind("Pool"), Child: version.WithKind("Dial"),
		Spec: func(*pool) (replicas.Spec[*dial], error) {
			return replicas.Spec[*dial]{Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}, nil
		},
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{})
	require.NoError(t, err)
	d, err := cluster.CreateChild(t.Context(), namespace, &dial{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	require.NoError(t, err)
	for i, step := range []struct {
		subresource string
		edit        func(*dial)
	}{
		{"", func(d *dial) { d.Turns = 1<<53 + 1 }},
		{"", func(d *dial) { d.Labels = map[string]string{"a": "b"} }},
		{"status", func(d *dial) { d.Status.Turns = 1<<53 + 1 }},
	} {
		d, err = cluster.PatchChild(t.Context(), namespace, "a", change(t, d, step.subresource, step.edit), metav1.PatchOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 2, d.Generation, i)
	}
	assert.Equal(t, d.Turns, d.Status.Turns)
	assert.Equal(t, map[string]string{"a": "b"}, d.Labels)
}
