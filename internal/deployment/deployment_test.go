// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package deployment_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/deployment"
)

// web returns a Deployment with 10 replicas, a surge of a quarter and the template v2. The given functions change
// it.
func web(changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	replicas, surge := int32(10), intstr.FromString("25%")
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Template: template("v2"),
		Strategy: appsv1.DeploymentStrategy{
			Type:          appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge},
		},
	}}
	for _, change := range changes {
		change(d)
	}
	return d
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

// set returns a ReplicaSet whose template has the given image. The annotations of the ReplicaSet say that it was
// last scaled for 10 replicas and a surge of 3. A ReplicaSet with a later hour is younger.
func set(image string, hour int, replicas int32, changes ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name:              fmt.Sprintf("web-%s-%d", image, hour),
			CreationTimestamp: metav1.Date(2026, time.May, 4, hour, 0, 0, 0, time.UTC),
			Annotations:       map[string]string{"deployment.kubernetes.io/desired-replicas": "10", "deployment.kubernetes.io/max-replicas": "13"},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: template(image)},
	}
	rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = image
	for _, change := range changes {
		change(rs)
	}
	return rs
}

func annotate(key, value string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Annotations["deployment.kubernetes.io/"+key] = value }
}

func TestScale(t *testing.T) {
	t.Parallel()
	paused := func(d *appsv1.Deployment) { d.Spec.Paused = true }
	deleting := func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	recreate := func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	counts := func(n int32) func(*appsv1.Deployment) { return func(d *appsv1.Deployment) { d.Status.Replicas = n } }
	type sets []*appsv1.ReplicaSet
	for name, tt := range map[string]struct {
		d        *appsv1.Deployment
		sets     sets
		replicas int32
		want     []int32
		how      deployment.How
	}{
		"the only one with replicas gets all":                  {web(), sets{set("v1", 1, 0), set("v2", 2, 10)}, 4, []int32{0, 4}, deployment.Whole},
		"even if it is not the newest":                         {web(), sets{set("v1", 1, 10), set("v2", 2, 0)}, 4, []int32{4, 0}, deployment.Whole},
		"no template is needed for that":                       {web(), sets{set("v0", 1, 0), set("v1", 2, 10)}, 0, []int32{0, 0}, deployment.Whole},
		"a number that it was sized for is no scaling":         {web(), sets{set("v2", 1, 12)}, 10, []int32{12}, deployment.Unscaled},
		"unless it is paused":                                  {web(paused), sets{set("v2", 1, 12)}, 10, []int32{10}, deployment.Whole},
		"without a note the Deployment itself tells":           {web(), sets{set("v2", 1, 12, annotate("desired-replicas", "many"))}, 10, []int32{12}, deployment.Unscaled},
		"without a note any other number is a scaling":         {web(), sets{set("v2", 1, 12, annotate("desired-replicas", ""))}, 9, []int32{9}, deployment.Whole},
		"if none has replicas the newest template gets all":    {web(paused), sets{set("v2", 1, 0), set("v1", 2, 0)}, 3, []int32{3, 0}, deployment.Whole},
		"or the youngest if there is none":                     {web(paused), sets{set("v0", 1, 0), set("v1", 2, 0)}, 3, []int32{0, 3}, deployment.Whole},
		"no ReplicaSet at all":                                 {web(paused), nil, 3, nil, deployment.Whole},
		"a rollout shrinks in proportion":                      {web(), sets{set("v1", 1, 8), set("v2", 2, 5)}, 5, []int32{4, 3}, deployment.Proportions},
		"what rounding leaves falls to the largest":            {web(), sets{set("v0", 1, 4), set("v1", 2, 4), set("v2", 3, 5)}, 4, []int32{2, 2, 1}, deployment.Proportions},
		"it grows in proportion":                               {web(), sets{set("v1", 1, 8), set("v2", 2, 5)}, 20, []int32{15, 10}, deployment.Proportions},
		"of two of a size the oldest shrinks most":             {web(), sets{set("v2", 2, 3), set("v1", 1, 3)}, 1, []int32{2, 0}, deployment.Proportions},
		"nothing is left of zero":                              {web(), sets{set("v1", 1, 8), set("v2", 2, 5)}, 0, []int32{0, 0}, deployment.Proportions},
		"a finished rollout takes what is left":                {web(), sets{set("v1", 1, 2, annotate("desired-replicas", "9")), set("v2", 2, 10, func(rs *appsv1.ReplicaSet) { rs.Status.AvailableReplicas = 10 })}, 10, []int32{0, 10}, deployment.Finished},
		"without a note the status tells how large it was":     {web(counts(13)), sets{set("v1", 1, 8, annotate("max-replicas", "2147483648")), set("v2", 2, 5, annotate("max-replicas", "-1"))}, 5, []int32{4, 3}, deployment.Proportions},
		"if that is zero the largest pays":                     {web(), sets{set("v1", 1, 8, annotate("max-replicas", "0")), set("v2", 2, 5, annotate("max-replicas", "0"))}, 5, []int32{2, 5}, deployment.Proportions},
		"a Deployment that is being deleted scales nothing":    {web(deleting), sets{set("v2", 1, 10)}, 5, []int32{10}, deployment.Unscaled},
		"Recreate does not choose between two":                 {web(recreate), sets{set("v1", 1, 8), set("v2", 2, 5)}, 5, []int32{8, 5}, deployment.Unscaled},
		"a surge that is not a number or a percentage is none": {web(func(d *appsv1.Deployment) { d.Spec.Strategy.RollingUpdate.MaxSurge.StrVal = "some" }), sets{set("v1", 1, 8), set("v2", 2, 5)}, 5, []int32{3, 2}, deployment.Proportions},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sizes, how := deployment.Scale(tt.d, tt.sets, tt.replicas)
			assert.Equal(t, tt.want, sizes)
			assert.Equal(t, tt.how, how)
		})
	}
}

// If a paused Deployment is scaled twice, both scalings keep the proportions of its ReplicaSets. The second
// scaling starts from the copies that Scaled returns.
func TestScaled(t *testing.T) {
	t.Parallel()
	d := web(func(d *appsv1.Deployment) { d.Spec.Paused = true })
	before := []*appsv1.ReplicaSet{set("v1", 1, 8, func(rs *appsv1.ReplicaSet) { rs.Annotations = nil }), set("v2", 2, 5)}
	d.Status.Replicas = 13
	sizes, how := deployment.Scale(d, before, 6)
	assert.Equal(t, deployment.Proportions, how)
	assert.Equal(t, []int32{5, 3}, sizes)
	after := deployment.Scaled(d, before, 6, sizes)
	assert.Equal(t, int32(8), *before[0].Spec.Replicas, "copies")
	assert.Nil(t, before[0].Annotations, "copies")
	assert.Equal(t, map[string]string{"deployment.kubernetes.io/desired-replicas": "6", "deployment.kubernetes.io/max-replicas": "8"}, after[0].Annotations)
	sizes, how = deployment.Scale(d, after, 3)
	assert.Equal(t, deployment.Proportions, how)
	assert.Equal(t, []int32{2, 2}, sizes)
}
