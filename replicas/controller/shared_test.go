// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A client that decodes the answer into its argument writes to the maps of the child, and sends several children at
// once. The maps may be one map for all children, or a map of the owner in the cache.
func TestTheClientGetsACopyOfTheChild(t *testing.T) {
	t.Parallel()
	shared := map[string]string{"app": "web"}
	for name, of := range map[string]func(r *podRig) map[string]string{
		"with one map for all children": func(*podRig) map[string]string { return shared },
		"with a map of the owner":       func(r *podRig) map[string]string { return r.owner.Labels },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(30)
			r.owner.Labels = map[string]string{"app": "web"}
			was := clone(r.owner)
			made := make(chan *corev1.Pod, 30)
			withSpec(r, func(s *replicas.PodSpec) {
				s.New = func(string) (*corev1.Pod, error) {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: of(r), Annotations: of(r)}}
					made <- pod
					return pod, nil
				}
			})
			r.opts.MaxParallel = 16
			r.send = func(p *corev1.Pod) {
				p.UID, p.Labels[p.Name], p.Annotations[p.Name] = "answered", "hooked", "hooked"
			}
			pass, err := r.pass(t, 0)
			require.NoError(t, err)
			require.Len(t, pass.Created, 30)
			for _, p := range pass.Created {
				assert.Equal(t, map[string]string{"app": "web"}, p.Labels)
			}
			assert.Equal(t, was, r.owner, "the owner in the cache")
			assert.Equal(t, map[string]string{"app": "web"}, shared)
			close(made)
			for pod := range made {
				assert.Empty(t, pod.UID)
			}
		})
	}
}

// A box is a child whose DeepCopyObject returns something else.
type box struct {
	corev1.Pod
	copied runtime.Object
}

func (b *box) DeepCopyObject() runtime.Object { return b.copied }

func TestAChildWithoutACopyIsNotSent(t *testing.T) {
	t.Parallel()
	for name, copied := range map[string]runtime.Object{"nothing": nil, "another type": &corev1.Pod{}, "a nil child": (*box)(nil)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pods := controller.ReplicaSets()
			r := rigOf(controller.Kind[*appsv1.ReplicaSet, *box]{
				Owner: pods.Owner, Child: pods.Child,
				Spec: func(rs *appsv1.ReplicaSet) (replicas.Spec[*box], error) {
					return replicas.Spec[*box]{Replicas: 1, Selector: labels.SelectorFromSet(web), New: func(string) (*box, error) {
						return &box{corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: web}}, copied}, nil
					}}, nil
				},
			}, replicaSet(1))
			_, err := r.pass(t, 0)
			require.ErrorContains(t, err, "*controller_test.box.DeepCopyObject returned another type")
			assert.Zero(t, r.created.Load())
		})
	}
}
