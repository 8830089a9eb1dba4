// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kubernetes' own controllers bring each of these situations about. The plugin then names the cause.
//
//nolint:paralleltest // these controllers look at every namespace
func TestThePluginNamesTheCauseOnAServer(t *testing.T) {
	for name, tt := range map[string]struct {
		cause func(t *testing.T, w *world)
		owner string
		want  string // a regular expression
	}{
		"a rollout that is stuck": {
			func(_ *testing.T, w *world) {
				w.createDeployment("web")
				w.patchDeployment(`{"spec":{"progressDeadlineSeconds":1,"minReadySeconds":0,"replicas":2}}`)
			}, "deployment/web",
			`\n- The rollout of Deployment \S+ makes no progress, as its condition Progressing says \(ProgressDeadlineExceeded\): ReplicaSet "web-\w+" has timed out progressing\.` +
				`(?s:.*)\n- Not ready: 2 pods of ReplicaSet \S+: web-\S+ \(no node\), web-\S+ \(no node\)\. A rollout waits`,
		},
		"an autoscaler that resets the number": {
			func(t *testing.T, w *world) {
				t.Helper()
				w.createDeployment("web")
				hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}
				hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
				hpa.Spec.MaxReplicas = 2
				_, err := w.client.AutoscalingV2().HorizontalPodAutoscalers(w.namespace).Create(t.Context(), hpa, metav1.CreateOptions{})
				require.NoError(t, err)
				w.patchDeployment(`{"spec":{"replicas":5}}`)
				w.eventually(func(c *assert.CollectT) {
					web, err := w.client.AppsV1().Deployments(w.namespace).Get(t.Context(), "web", metav1.GetOptions{})
					require.NoError(c, err)
					assert.Equal(c, int32(2), *web.Spec.Replicas)
				}, "the autoscaler")
			}, "deployment/web",
			`\n- HorizontalPodAutoscaler \S+/cpu sets spec\.replicas of Deployment \S+, and last wanted 2\. It resets any other number\. Change its minReplicas \(1\) and maxReplicas \(2\) instead\.\n`,
		},
		"an owner of another operator's kind": {
			func(_ *testing.T, w *world) {
				rs := replicaSet("web", 1)
				rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Fleet", Name: "front", UID: "d", Controller: new(true)}}
				w.create(rs)
			}, "rs/web",
			`\n- ReplicaSet \S+ belongs to Fleet front of example\.com/v1, whose operator may reset its replicas\.`,
		},
		"creations that are refused": {
			func(t *testing.T, w *world) {
				t.Helper()
				quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}}
				quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
				_, err := w.client.CoreV1().ResourceQuotas(w.namespace).Create(t.Context(), quota, metav1.CreateOptions{})
				require.NoError(t, err)
				w.create(replicaSet("web", 4))
				w.eventually(func(c *assert.CollectT) {
					events, err := w.client.CoreV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
					require.NoError(c, err)
					assert.Greater(c, len(events.Items), 2)
				}, "events")
			}, "rs/web",
			`\n- ReplicaSet \S+ has the warning FailedCreate \([0-9]+ times, last at \S+\): Error creating: pods "web-\w+" is forbidden: exceeded quota: none, [^\n]*\n\nIf replicakit`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldWith(t, settings{idle: true})
			w.startKubernetes("deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller")
			tt.cause(t, w)
			kubectl := newPlugin(t, w.cluster.kubeconfig)
			w.eventually(func(c *assert.CollectT) {
				stdout, stderr, code := kubectl.run("scaledown", tt.owner, "-n", w.namespace, "--why-not")
				require.Zero(c, code, stderr)
				assert.Regexp(c, tt.want, stdout)
			}, "the cause")
		})
	}
}

// A server lists nothing in a namespace that does not exist. The plugin tells it apart from an empty one.
func TestThePluginSaysThatANamespaceDoesNotExist(t *testing.T) {
	t.Parallel()
	kubectl := newPlugin(t, shared.kubeconfig)
	for namespace, want := range map[string]string{
		"none":            "error: namespace \"none\" does not exist in the cluster\n",
		"kube-node-lease": "error: no Deployment, ReplicaSet or ReplicationController in namespace \"kube-node-lease\" of the cluster, which holds nothing\n",
	} {
		stdout, stderr, code := kubectl.run("scaledown", "deployment/web", "-n", namespace)
		assert.Equal(t, 1, code)
		assert.Empty(t, stdout)
		assert.Equal(t, want, stderr)
	}
}
