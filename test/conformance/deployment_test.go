// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	deploymentcontroller "k8s.io/kubernetes/pkg/controller/deployment"
	deploymentutil "k8s.io/kubernetes/pkg/controller/deployment/util"

	"github.com/replicakit/replicakit/internal/deployment"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A scaling is a Deployment with its ReplicaSets, and the number of replicas to which it is scaled.
type scaling struct {
	Deployment *appsv1.Deployment
	Sets       []*appsv1.ReplicaSet
	Replicas   int32
}

func newScaling(g *gen) scaling {
	replicas := int32(g.IntN(30))
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", UID: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Paused: g.in(6), Template: revision(g.IntN(4)),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{
					MaxSurge: pick(g, nil, new(intstr.FromInt32(0)), new(intstr.FromInt32(3)), new(intstr.FromString("25%")), new(intstr.FromString("100%"))),
				},
			},
		},
		Status: appsv1.DeploymentStatus{Replicas: int32(g.IntN(30))},
	}
	if g.in(8) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	}
	c := scaling{Deployment: d, Replicas: pick(g, replicas, int32(g.IntN(30)), 0, 1)}
	for i := range g.IntN(5) {
		c.Sets = append(c.Sets, c.newSet(g, i))
	}
	return c
}

// revision returns a pod template. Templates with different numbers are different.
func revision(n int) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Hostname: strconv.Itoa(n)},
	}
}

func (c *scaling) newSet(g *gen, i int) *appsv1.ReplicaSet {
	size := pick(g, 0, int32(g.IntN(30)), int32(g.IntN(30)), c.Replicas, 5)
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: fmt.Sprintf("web-%d", i), UID: types.UID(strconv.Itoa(i)), Annotations: map[string]string{},
			CreationTimestamp: metav1.NewTime(start.Add(time.Duration(g.IntN(4)) * time.Hour)),
		},
		Spec:   appsv1.ReplicaSetSpec{Replicas: &size, Template: revision(g.IntN(4))},
		Status: appsv1.ReplicaSetStatus{AvailableReplicas: pick(g, size, 0, c.Replicas)},
	}
	rs.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = strconv.Itoa(i)
	for key, values := range map[string][]string{
		deploymentutil.DesiredReplicasAnnotation: {strconv.Itoa(int(*c.Deployment.Spec.Replicas)), strconv.Itoa(g.IntN(30)), strconv.Itoa(int(c.Replicas)), "-1", "many", ""},
		deploymentutil.MaxReplicasAnnotation:     {strconv.Itoa(1 + g.IntN(60)), strconv.Itoa(1 + g.IntN(60)), "0", "-1", "2147483648", ""},
	} {
		if value := pick(g, values...); value != "" {
			rs.Annotations[key] = value
		}
	}
	return rs
}

// noted reports whether each ReplicaSet with replicas has a valid annotation with the size of the Deployment at
// the last scaling.
func (c scaling) noted() bool {
	return !slices.ContainsFunc(c.Sets, func(rs *appsv1.ReplicaSet) bool {
		_, err := strconv.ParseUint(rs.Annotations[deploymentutil.DesiredReplicasAnnotation], 10, 31)
		return *rs.Spec.Replicas > 0 && err != nil
	})
}

func TestScaledDeployments(t *testing.T) {
	t.Parallel()
	const guessed = "a ReplicaSet that does not tell what it was sized for: ours takes it for the Deployment's own number"
	theirs := newDeployments(t)
	comparison[scaling]{
		cases:   20_000,
		of:      "Deployments that are scaled",
		input:   newScaling,
		names:   []string{guessed},
		reaches: []string{"unscaled", "whole", "finished", "proportions"},
		differ: func(c scaling, named *tally) string {
			ours, how := deployment.Scale(c.Deployment, c.Sets, c.Replicas)
			want, isScaling := theirs.scale(t.Context(), c)
			switch {
			case slices.Equal(want, ours) && c.Deployment.Spec.Paused && c.Replicas > 1:
				named.reach(string(how))
				return theirs.differNext(t.Context(), c, ours)
			case slices.Equal(want, ours):
				named.reach(string(how))
				return ""
			case !isScaling && !c.noted():
				named.add(guessed)
				return ""
			}
			return fmt.Sprintf("sizes: Kubernetes %v, ours %v, %s", want, ours, how)
		},
	}.run(t)
}

// differNext scales a paused Deployment a second time. Each side continues from its own result of the first
// scaling.
func (d *deployments) differNext(ctx context.Context, c scaling, sizes []int32) string {
	replicas := c.Replicas / 2
	ours, how := deployment.Scale(c.Deployment, deployment.Scaled(c.Deployment, c.Sets, c.Replicas, sizes), replicas)
	next := scaling{c.Deployment, nil, replicas}
	for _, rs := range c.Sets {
		next.Sets = append(next.Sets, cmp.Or(d.written[rs.Name], rs))
	}
	if want, _ := d.scale(ctx, next); !slices.Equal(want, ours) {
		return fmt.Sprintf("sizes of a second step, to %d: Kubernetes %v, ours %v, %s", replicas, want, ours, how)
	}
	return ""
}

// deployments is Kubernetes' Deployment controller, with the ReplicaSets that the last call of scale wrote.
type deployments struct {
	*deploymentcontroller.DeploymentController

	written map[string]*appsv1.ReplicaSet
}

func newDeployments(t *testing.T) *deployments {
	t.Helper()
	d, client := &deployments{}, fake.NewClientset()
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj := action.(clienttesting.UpdateAction).GetObject()
		if rs, ok := obj.(*appsv1.ReplicaSet); ok {
			d.written[rs.Name] = rs
		}
		return true, obj, nil
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	var err error
	d.DeploymentController, err = deploymentcontroller.NewDeploymentController(quiet(t.Context()),
		factory.Apps().V1().Deployments(), factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), client)
	require.NoError(t, err)
	return d
}

// scale returns the sizes that Kubernetes gives the ReplicaSets, and whether Kubernetes treats the change as a
// scaling.
func (d *deployments) scale(ctx context.Context, c scaling) (sizes []int32, isScaling bool) {
	ctx, d.written = quiet(ctx), map[string]*appsv1.ReplicaSet{}
	scaled, sets := c.Deployment.DeepCopy(), []*appsv1.ReplicaSet(nil)
	*scaled.Spec.Replicas = c.Replicas
	for i, rs := range c.Sets {
		if rs.Name != fmt.Sprintf("web-%d", i) || rs.UID == "" {
			panic("no two ReplicaSets are one")
		}
		sets = append(sets, rs.DeepCopy())
	}
	isScaling, err := upstream.IsScalingEvent(d.DeploymentController, ctx, scaled, slices.Clone(sets))
	if err != nil {
		panic(err)
	}
	if isScaling = isScaling || scaled.Spec.Paused; isScaling {
		_, old := deploymentutil.FindOldReplicaSets(scaled, slices.Clone(sets))
		if err := upstream.ScaleDeployment(d.DeploymentController, ctx, scaled, deploymentutil.FindNewReplicaSet(scaled, slices.Clone(sets)), old); err != nil {
			panic(err)
		}
	}
	for _, rs := range c.Sets {
		sizes = append(sizes, *cmp.Or(d.written[rs.Name], rs).Spec.Replicas)
	}
	return sizes, isScaling
}
