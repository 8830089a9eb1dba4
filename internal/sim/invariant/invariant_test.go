package invariant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim"
	"github.com/replicakit/replicakit/internal/sim/invariant"
)

const namespace = "default"

// A Checker that never complains proves nothing: here are controllers with bugs.
func TestCheckerBites(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(c *sim.Controller)
		want  string
	}{
		"a controller without a bug": {func(*sim.Controller) {}, ""},
		"one that forgets what it created": {func(c *sim.Controller) {
			c.View.Pods.Lag = time.Minute
			sync := c.Worker.Sync
			c.Worker.Sync = func(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
				_, err := sync(ctx, key)
				for key := range c.Reconciler.Expectations.All() {
					c.Reconciler.Expectations.Forget(key)
				}
				return time.Second, err
			}
		}, "acts while 3 of its creations are not seen"},
		"one that changes what its cache holds": {func(c *sim.Controller) {
			c.Listed = func() {
				for _, p := range c.View.Pods.In(namespace) {
					p.Labels["seen"] = "true"
				}
			}
		}, "was changed in the cache"},
		"one whose events settle nothing": {func(c *sim.Controller) {
			c.Router.Expectations = &expectations.Store[expectations.Key]{}
		}, "still expects something"},
		"one that never comes to work": {func(c *sim.Controller) {
			c.Worker.Sync = func(context.Context, types.NamespacedName) (time.Duration, error) { return 0, nil }
		}, "0 pods, wanted 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := sim.NewCluster(sim.Options{Seed: 1, Nodes: 2})
			checker := invariant.New(cluster)
			c := sim.NewController(cluster)
			checker.Watch(c)
			tc.spoil(c)
			create(t, cluster, 3)
			(&sim.World{Clock: cluster.Clock, Parts: []sim.Part{cluster, c}}).Run(3 * time.Minute)
			err := checker.Settled(namespace)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.Error(t, err)
			assert.Contains(t, err.Error(), tc.want)
		})
	}
}

func create(t *testing.T, c *sim.Cluster, n int32) {
	t.Helper()
	labels := map[string]string{"app": "web"}
	_, err := c.CreateReplicaSet(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}},
			},
		},
	})
	require.NoError(t, err)
}
