// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/controller"
	"sigs.k8s.io/randfill"

	"github.com/replicakit/replicakit/replicas"
)

// A mould is a template and its owner.
type mould struct {
	Owner    *appsv1.ReplicaSet
	Template *corev1.PodTemplateSpec
}

// ownerName returns the name of an owner. Some of these names are not legal in a generateName.
func (g *gen) ownerName() string {
	switch g.IntN(6) {
	case 0:
		return strings.Repeat("a", 250+g.IntN(6))
	case 1:
		return pick(g, "", "Web", "web_1", "web.", "-web", "web-", "1", "a.b", "a..b", "wéb", "web 1")
	}
	return "web-" + strings.Repeat("x", g.IntN(5))
}

func newMould(g *gen) mould {
	template := &corev1.PodTemplateSpec{}
	randfill.NewWithSeed(g.Int64()).NilChance(0.6).NumElements(0, 2).MaxDepth(12).Fill(template)
	template.Labels = g.labelSet()
	template.Annotations = pick(g, nil, map[string]string{}, map[string]string{"note": "x"})
	template.Finalizers = pick(g, nil, []string{}, []string{"b/b", "a/a"})
	return mould{
		Owner:    &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: g.ownerName(), UID: "owner"}},
		Template: template,
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	const noLabels = "P8: both refuse a template without labels"
	// All cases use one client. The channel receives each pod that the client is asked to create.
	created := make(chan *corev1.Pod, 1)
	client := fake.NewClientset()
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
		created <- pod.DeepCopy()
		return true, pod, nil
	})
	t.Run("P2 P3 P4 P5 P6 P8 P17 the pod that is asked for is the same", func(t *testing.T) {
		t.Parallel()
		comparison[mould]{
			cases: 5_000, of: "templates",
			input: newMould,
			differ: func(c mould, reached *tally) string {
				client.ClearActions() // the fake clientset keeps all actions until they are cleared
				before := c.Template.DeepCopy()
				control := controller.RealPodControl{KubeClient: client, Recorder: &record.FakeRecorder{}}
				err := control.CreatePods(quiet(context.Background()), c.Owner.Namespace, c.Template, c.Owner, metav1.NewControllerRef(c.Owner, replicaSetKind))
				ours, ourErr := replicas.PodFromTemplate(c.Template, c.Owner, replicaSetKind)
				if err != nil || ourErr != nil {
					if (err == nil) != (ourErr == nil) {
						return fmt.Sprintf("Kubernetes: %v; ours: %v", err, ourErr)
					}
					reached.reach(noLabels)
					return ""
				}
				theirs := <-created
				if theirs.Namespace = ""; !equality.Semantic.DeepEqual(theirs, ours) || (theirs.Annotations == nil) != (ours.Annotations == nil) || (theirs.Finalizers == nil) != (ours.Finalizers == nil) {
					return fmt.Sprintf("Kubernetes: %s\nours: %s", dump(theirs), dump(ours))
				}
				scribble(ours)
				if !equality.Semantic.DeepEqual(before, c.Template) {
					return "ours shares memory with the template"
				}
				return ""
			},
			reaches: []string{noLabels},
		}.run(t)
	})
}

// scribble overwrites the parts of a pod that could share memory with a template.
func scribble(p *corev1.Pod) {
	for _, m := range []map[string]string{p.Labels, p.Annotations, p.Spec.NodeSelector} {
		maps.DeleteFunc(m, func(string, string) bool { return true })
	}
	for i := range p.Finalizers {
		p.Finalizers[i] = "scribble"
	}
	for i := range p.Spec.Containers {
		p.Spec.Containers[i] = corev1.Container{Name: "scribble"}
	}
	if p.Spec.SecurityContext != nil {
		*p.Spec.SecurityContext = corev1.PodSecurityContext{}
	}
}
