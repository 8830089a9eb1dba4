// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

func TestNewWorker(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	mine := *metav1.NewControllerRef(rs, replicaSetKind)
	plain := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "uid-of-node"}
	made := func(change func(*worker)) *worker {
		w := &worker{ObjectMeta: metav1.ObjectMeta{Labels: web}}
		change(w)
		return w
	}
	for name, tt := range map[string]struct {
		made *worker
		want metav1.ObjectMeta
	}{
		"P6 C20 what is missing is filled in": {
			made(func(*worker) {}),
			metav1.ObjectMeta{Namespace: podtest.Namespace, GenerateName: "web-", Labels: web, OwnerReferences: []metav1.OwnerReference{mine}},
		},
		"P7 a prefix of its own stays": {
			made(func(w *worker) { w.GenerateName = "mine-" }),
			metav1.ObjectMeta{Namespace: podtest.Namespace, GenerateName: "mine-", Labels: web, OwnerReferences: []metav1.OwnerReference{mine}},
		},
		"so does a name": {
			made(func(w *worker) { w.Name, w.Namespace = "web-0", podtest.Namespace }),
			metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web-0", Labels: web, OwnerReferences: []metav1.OwnerReference{mine}},
		},
		"other owners stay, the reference to ours is the controller's, and one": {
			made(func(w *worker) {
				w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: rs.UID}, plain}
			}),
			metav1.ObjectMeta{Namespace: podtest.Namespace, GenerateName: "web-", Labels: web, OwnerReferences: []metav1.OwnerReference{plain, mine}},
		},
		"a reference that is there already stands once": {
			made(func(w *worker) { w.OwnerReferences = []metav1.OwnerReference{mine} }),
			metav1.ObjectMeta{Namespace: podtest.Namespace, GenerateName: "web-", Labels: web, OwnerReferences: []metav1.OwnerReference{mine}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(1)
			spec.New = func(string) (*worker, error) { return tt.made, nil }
			plan, err := replicas.Manage(nil, spec)
			require.NoError(t, err)
			child, err := plan.Scale.New(0)
			require.NoError(t, err)
			assert.Equal(t, tt.want, child.ObjectMeta)
		})
	}
	for name, tt := range map[string]struct {
		change func(*worker)
		want   string
	}{
		"a shared object, which an earlier call has created": {func(w *worker) { w.ResourceVersion = "7" }, `replicas: ReplicaSet "default/web": new child 0: New returned "", which was created already: it must return another object each time`},
		"a name other than the one that is chosen":           {func(w *worker) { w.Name = "mine" }, `replicas: ReplicaSet "default/web": new child 0: New named it "mine", and its name must be "web-1": New must leave the name empty or take the one that it is given, and return another object each time`},
		"the name that is chosen":                            {func(w *worker) { w.Name = "web-1" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(1)
			spec.Facts.Names = func(string) string { return "web-1" }
			spec.New = func(string) (*worker, error) { return made(tt.change), nil }
			plan, err := replicas.Manage(nil, spec)
			require.NoError(t, err)
			child, err := plan.Scale.New(0)
			if tt.want == "" {
				require.NoError(t, err)
				assert.Equal(t, "web-1", child.Name)
				return
			}
			require.EqualError(t, err, tt.want)
		})
	}
	t.Run("an owner without a namespace has children in any", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(1)
		everywhere := replicaSet(1)
		everywhere.Namespace = ""
		spec.Owner = everywhere
		spec.New = func(string) (*worker, error) { return made(func(w *worker) { w.Namespace = "other" }), nil }
		plan, err := replicas.Manage(nil, spec)
		require.NoError(t, err)
		child, err := plan.Scale.New(0)
		require.NoError(t, err)
		assert.Equal(t, "other", child.Namespace)
	})
}

func TestNewWorkersThatAreNobodys(t *testing.T) {
	t.Parallel()
	errNoImage := errors.New("no image")
	stranger := replicaSet(1)
	stranger.UID, stranger.Name = "uid-of-stranger", "stranger"
	labelled := func(change func(*worker)) func(string) (*worker, error) {
		return func(string) (*worker, error) {
			w := &worker{ObjectMeta: metav1.ObjectMeta{Labels: web}}
			change(w)
			return w, nil
		}
	}
	for name, tt := range map[string]struct {
		make func(string) (*worker, error)
		want string
	}{
		"none":                 {func(string) (*worker, error) { return nil, nil }, "New returned nil"},
		"an error":             {func(string) (*worker, error) { return nil, errNoImage }, "no image"},
		"of other labels":      {labelled(func(w *worker) { w.Labels = map[string]string{"app": "db"} }), `its labels "app=db" do not match selector "app=web"`},
		"of another namespace": {labelled(func(w *worker) { w.Namespace = "other" }), `its namespace is "other", the owner's is "default"`},
		"of another's already": {labelled(func(w *worker) {
			w.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(stranger, replicaSetKind)}
		}), `ReplicaSet "stranger" controls it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(3)
			spec.New = tt.make
			plan, err := replicas.Manage(nil, spec)
			require.NoError(t, err, "nothing is made for a plan")
			child, err := plan.Scale.New(2)
			require.EqualError(t, err, `replicas: ReplicaSet "default/web": new child 2: `+tt.want)
			assert.Nil(t, child)
			if name == "an error" {
				require.ErrorIs(t, err, errNoImage)
			}
		})
	}
}

var replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

func template() *corev1.PodTemplateSpec {
	grace := int64(30)
	return &corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ignored", GenerateName: "ignored-", Namespace: "ignored", UID: "ignored",
			OwnerReferences: []metav1.OwnerReference{{Name: "ignored"}},
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{"note": "kept"},
			Finalizers:      []string{"example.com/b", "example.com/a"},
		},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "web", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}},
		},
	}
}

func TestPodFromTemplate(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	t.Run("P2 P3 P5 P6 P17 the pod holds what the template says, the reference, and nothing else", func(t *testing.T) {
		t.Parallel()
		pod, err := replicas.PodFromTemplate(template(), rs, replicaSetKind)
		require.NoError(t, err)
		yes := true
		assert.Equal(t, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName: "web-",
				Labels:       map[string]string{"app": "web"},
				Annotations:  map[string]string{"note": "kept"},
				Finalizers:   []string{"example.com/b", "example.com/a"},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "uid-of-web",
					Controller: &yes, BlockOwnerDeletion: &yes,
				}},
			},
			Spec: template().Spec,
		}, pod)
	})
	t.Run("P2 annotations and finalizers are there even if the template has none", func(t *testing.T) {
		t.Parallel()
		bare := template()
		bare.Annotations, bare.Finalizers = nil, nil
		pod, err := replicas.PodFromTemplate(bare, rs, replicaSetKind)
		require.NoError(t, err)
		assert.NotNil(t, pod.Annotations)
		assert.NotNil(t, pod.Finalizers)
	})
	t.Run("P4 changing the pod leaves the template as it was", func(t *testing.T) {
		t.Parallel()
		from := template()
		pod, err := replicas.PodFromTemplate(from, rs, replicaSetKind)
		require.NoError(t, err)
		pod.Labels["app"], pod.Annotations["note"], pod.Finalizers[0] = "x", "x", "x"
		pod.Spec.Containers[0].Env[0].Value = "x"
		*pod.Spec.TerminationGracePeriodSeconds = 0
		assert.Equal(t, template(), from)
	})
	t.Run("P7 the caller may choose another generateName", func(t *testing.T) {
		t.Parallel()
		plan, err := replicas.Manage(nil, specOf(t, rs))
		require.NoError(t, err)
		pod := newPod(t, plan.Scale)
		pod.GenerateName = "mine-"
		assert.Equal(t, "web-", newPod(t, plan.Scale).GenerateName)
		mine := specOf(t, rs)
		mine.New = func(string) (*corev1.Pod, error) { return pod, nil }
		plan, err = replicas.Manage(nil, mine)
		require.NoError(t, err)
		assert.Equal(t, "mine-", newPod(t, plan.Scale).GenerateName)
	})
}

func TestGenerateName(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, owner, want string }{
		{"P6 a legal name gets a dash", "web", "web-"},
		{"P6 dots are legal", "web.v2", "web.v2-"},
		{"P6 253 characters still get a dash", strings.Repeat("a", 253), strings.Repeat("a", 253) + "-"},
		{"P6 254 characters stay bare", strings.Repeat("a", 254), strings.Repeat("a", 254)},
		{"P6 an upper-case name stays bare", "Web", "Web"},
		{"P6 a name that ends in a dash gets another", "web-", "web--"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(1)
			rs.Name = tt.owner
			pod, err := replicas.PodFromTemplate(template(), rs, replicaSetKind)
			require.NoError(t, err)
			assert.Equal(t, tt.want, pod.GenerateName)
		})
	}
}

func TestPodFromTemplateRefuses(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	unlabelled := template()
	unlabelled.Labels = nil
	tests := []struct {
		name     string
		template *corev1.PodTemplateSpec
		owner    metav1.Object
		kind     schema.GroupVersionKind
		want     string
	}{
		{"P8 a template without labels", unlabelled, rs, replicaSetKind, `replicas: ReplicaSet "default/web": template has no labels`},
		{"a nil template", nil, rs, replicaSetKind, `replicas: ReplicaSet "default/web": template is nil`},
		{"P9 a nil owner", template(), nil, replicaSetKind, `replicas: owner is nil`},
		{"P9 an owner that is a nil pointer", template(), (*appsv1.ReplicaSet)(nil), replicaSetKind, `replicas: owner is nil`},
		{"P1 an incomplete kind", template(), rs, schema.GroupVersionKind{Kind: "ReplicaSet"}, `replicas: owner "default/web": kind "/, Kind=ReplicaSet" is incomplete`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod, err := replicas.PodFromTemplate(tt.template, tt.owner, tt.kind)
			require.EqualError(t, err, tt.want)
			assert.Nil(t, pod)
		})
	}
}
