// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// A stock is a control plane in which only Kubernetes' own kube-controller-manager manages Deployments and
// ReplicaSets.
type stock struct {
	t       *testing.T
	client  kubernetes.Interface
	kubectl *plugin
}

func newStock(t *testing.T) *stock {
	t.Helper()
	cluster, err := startCluster(20 * time.Second)
	require.NoError(t, err)
	t.Cleanup(cluster.stop)
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	log, err := os.Create(filepath.Join(cluster.dir, "stock.log"))
	require.NoError(t, err)
	manager := exec.Command(filepath.Join(binaries, "kube-controller-manager"),
		"--kubeconfig="+cluster.kubeconfig, "--controllers=deployment-controller,replicaset-controller", "--leader-elect=false",
		"--kube-api-qps=5000", "--kube-api-burst=5000", "--bind-address=127.0.0.1", "--secure-port=0")
	manager.Stdout, manager.Stderr = log, log
	require.NoError(t, manager.Start())
	t.Cleanup(stopAtExit(func() {
		_ = manager.Process.Kill()
		_ = manager.Wait() // an error, because the process was killed
		_ = log.Close()
	}))
	return &stock{t, cluster.client, newPlugin(t, cluster.kubeconfig)}
}

// deploy creates a Deployment in a new namespace, and acts as the scheduler and the kubelet for its pods. It waits
// until kube-controller-manager has seen all pods that are ready. The functions node and differ choose the node of
// each pod, and the differences between the pods.
func (s *stock) deploy(namespace string, replicas int, node func(int) string, differ func(i int, pod *corev1.Pod)) {
	s.t.Helper()
	ctx := s.t.Context()
	_, err := s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = s.client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: labels("web")}, Template: template(labels("web"))},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	pods := s.client.CoreV1().Pods(namespace)
	var list *corev1.PodList
	s.eventually(func(c *assert.CollectT) {
		list, err = pods.List(ctx, metav1.ListOptions{})
		require.NoError(c, err)
		require.Len(c, list.Items, replicas)
	})
	unready := 0
	// Pod 0 comes last and is always ready. If a controller has seen that pod 0 is ready, the controller has also
	// seen the changes of all other pods.
	for i := range slices.Backward(list.Items) {
		pod := &list.Items[i]
		require.NoError(s.t, pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node(i)}}, metav1.CreateOptions{}))
		pod.ResourceVersion = ""
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		differ(i, pod)
		if cost, ok := pod.Annotations[corev1.PodDeletionCost]; ok {
			_, err = pods.Patch(ctx, pod.Name, "application/merge-patch+json", []byte(`{"metadata":{"annotations":{"`+corev1.PodDeletionCost+`":"`+cost+`"}}}`), metav1.PatchOptions{})
			require.NoError(s.t, err)
		}
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		require.NoError(s.t, err)
		if pod.Status.Conditions[0].Status != corev1.ConditionTrue {
			unready++
		}
	}
	s.awaitStatus(namespace, func(status appsv1.DeploymentStatus) bool {
		return status.ReadyReplicas == int32(replicas-unready) && status.ObservedGeneration > 0
	})
}

func (s *stock) awaitStatus(namespace string, is func(appsv1.DeploymentStatus) bool) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		d, err := s.client.AppsV1().Deployments(namespace).Get(s.t.Context(), "web", metav1.GetOptions{})
		require.NoError(c, err)
		assert.True(c, is(d.Status), "%+v", d.Status)
	})
}

func (s *stock) eventually(is func(*assert.CollectT)) {
	s.t.Helper()
	require.EventuallyWithT(s.t, is, patience, 5*glance)
}

// A said is the part of the JSON output of the plugin that the tests read.
type said struct {
	Sets []struct {
		Plan struct {
			Scale struct{ Delete []struct{ Name string } }
		}
		Tie struct {
			Goes int
			Of   []string
		}
	}
}

// ask returns the answer of the plugin. The map certain contains the pods that are certain to be deleted. The map
// tied contains the pods that are tied, and the result named drawn says how many of the tied pods are deleted.
func (s *stock) ask(namespace string, replicas int) (certain, tied map[string]bool, drawn int) {
	s.t.Helper()
	stdout, stderr, code := s.kubectl.run("scaledown", "deployment/web", "-n", namespace, "--replicas", strconv.Itoa(replicas), "-o", "json", "--within", patience.String())
	require.Zero(s.t, code, stderr)
	var answer said
	require.NoError(s.t, json.Unmarshal([]byte(stdout), &answer))
	certain, tied = map[string]bool{}, map[string]bool{}
	for _, set := range answer.Sets {
		for _, name := range set.Tie.Of {
			tied[name] = true
		}
		drawn += set.Tie.Goes
		for _, pod := range set.Plan.Scale.Delete {
			if !tied[pod.Name] {
				certain[pod.Name] = true
			}
		}
	}
	return certain, tied, drawn
}

// scale scales the Deployment down, and returns the pods that Kubernetes deletes. There is no kubelet, so these
// pods still exist, and have a deletionTimestamp.
func (s *stock) scale(namespace string, replicas int) map[string]bool {
	s.t.Helper()
	_, stderr, code := s.kubectl.run("scale", "deployment/web", "-n", namespace, "--replicas", strconv.Itoa(replicas))
	require.Zero(s.t, code, stderr)
	s.awaitStatus(namespace, func(status appsv1.DeploymentStatus) bool { return status.Replicas == int32(replicas) })
	list, err := s.client.CoreV1().Pods(namespace).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	gone := map[string]bool{}
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			gone[list.Items[i].Name] = true
		}
	}
	return gone
}

// If the plugin names a pod as certain, Kubernetes deletes this pod. If pods are tied, the plugin says how many of
// them are deleted, and Kubernetes deletes as many. Kubernetes deletes no other pod. Fresh Deployments have many
// ties, because their pods hardly differ.
func TestThePluginIsSureOnlyWhereItCanKnow(t *testing.T) {
	t.Parallel()
	s := newStock(t)
	r := rand.New(rand.NewPCG(1, 2))
	evenly := func(i int) string { return fmt.Sprintf("node-%d", i) }
	packed := func(i int) string { return fmt.Sprintf("node-%d", i*i%7) }
	alike := func(int, *corev1.Pod) {}
	varied := func(i int, pod *corev1.Pod) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", RestartCount: int32(r.IntN(3))}}
		if i == 0 {
			return
		}
		switch r.IntN(6) {
		case 0:
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
		case 1:
			pod.Annotations = map[string]string{corev1.PodDeletionCost: strconv.Itoa(-i)}
		}
	}
	named, went, ties, drew := 0, 0, 0, 0
	for _, tt := range []struct {
		name           string
		size, replicas int
		node           func(int) string
		differ         func(int, *corev1.Pod)
	}{
		{"alike-2", 2, 1, evenly, alike},
		{"alike-24", 24, 13, evenly, alike},
		{"alike-60", 60, 20, evenly, alike},
		{"packed-5", 5, 2, packed, alike},
		{"packed-24", 24, 13, packed, alike},
		{"packed-50", 50, 25, packed, alike},
		{"varied-6", 6, 3, packed, varied},
		{"varied-25", 25, 15, evenly, varied},
		{"varied-40", 40, 20, packed, varied},
		{"varied-60", 60, 20, packed, varied},
		{"zero-12", 12, 0, evenly, alike},
	} {
		s.deploy(tt.name, tt.size, tt.node, tt.differ)
		certain, tied, drawn := s.ask(tt.name, tt.replicas)
		require.Equal(t, tt.size-tt.replicas, len(certain)+drawn, tt.name)
		gone := s.scale(tt.name, tt.replicas)
		for name := range certain {
			assert.True(t, gone[name], "%s: %s was certain to go", tt.name, name)
		}
		of := 0
		for name := range gone {
			switch {
			case tied[name]:
				of++
			default:
				assert.True(t, certain[name], "%s: %s was certain to stay", tt.name, name)
			}
		}
		assert.Equal(t, drawn, of, tt.name)
		named, went, ties, drew = named+len(certain), went+len(gone), ties+len(tied), drew+drawn
	}
	assert.Greater(t, named, 50, "certain")
	assert.Greater(t, drew, 50, "drawn from ties")
	t.Logf("%d pods went: %d were certain, and %d were drawn from %d", went, named, drew, ties)
}
