// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/podrank"
)

// If two annotations name the same deletion order in different words, the metric uses the same label for both. All
// invalid annotations share one label.
func TestLabelsOfOrders(t *testing.T) {
	t.Parallel()
	o := newOrders(defaults())
	for words, label := range map[string]string{
		"kubernetes": "kubernetes", "packed": "packed", " packed ": "packed", "kubernetes,packed": "packed", "zones, packed": "zones,packed",
		"packed,zones": "packed,zones", "": "invalid", "kubernetes,kubernetes": "invalid", strings.Repeat("kubernetes,", 20000): "invalid",
	} {
		owner := newReplicaSet("web", 1)
		owner.Annotations = map[string]string{podrank.OrderAnnotation: words}
		assert.Equal(t, label, o.orderFor(owner).label, "%.30q", words)
		o.passed("replicaset", owner, 1)
	}
	labels := make(chan prometheus.Metric, 10)
	o.deletions.Collect(labels)
	assert.Len(t, labels, 5)
}

// zones contains three nodes, each in its own zone. The duration says how long ago the pods on the node became
// ready.
var zones = map[string]time.Duration{"orders-a": 10 * time.Minute, "orders-b": 5 * time.Hour, "orders-c": 50 * time.Hour}

// scheduler is the scheduler name of the pods in this test. The name differs from the default, so that
// kube-scheduler ignores the pods of other tests.
const scheduler = "orders"

// startScheduler creates the nodes, and starts kube-scheduler.
func startScheduler(t *testing.T, client kubernetes.Interface, kubeconfig string) {
	t.Helper()
	for name := range zones {
		node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "zone-of-" + name},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
		node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room}
		node, err = client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
		node.Spec.Taints = nil // removes the not-ready taint
		_, err = client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q, qps: 200, burst: 200}
profiles: [{schedulerName: %q}]
`, kubeconfig, scheduler), 0o600))
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	program, err := controlplane.StartProgram("kube-scheduler", filepath.Join(dir, "log"), filepath.Join(binaries, "kube-scheduler"), "--config="+config, "--secure-port=0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Stop() })
}

// An ordered is a ReplicaSet with 36 ready pods. The scheduler has put twelve pods on each of the three nodes.
type ordered struct {
	t      *testing.T
	client kubernetes.Interface
	name   string
}

const orderedNamespace = "orders"

func newOrdered(t *testing.T, client kubernetes.Interface, name, order string) *ordered {
	t.Helper()
	o := &ordered{t, client, name}
	rs := newReplicaSet(name, 36)
	rs.Spec.Template.Spec.SchedulerName = scheduler
	rs.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: rs.Spec.Selector,
	}}
	if order != "" {
		rs.Annotations = map[string]string{podrank.OrderAnnotation: order}
	}
	_, err := client.AppsV1().ReplicaSets(orderedNamespace).Create(t.Context(), rs, metav1.CreateOptions{})
	require.NoError(t, err)
	o.has(func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 36 })
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, map[string]int{"orders-a": 12, "orders-b": 12, "orders-c": 12}, o.on())
	}, patience, 50*time.Millisecond)
	for _, p := range o.pods() {
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-zones[p.Spec.NodeName]))}}
		p.ResourceVersion = ""
		_, err := client.CoreV1().Pods(orderedNamespace).UpdateStatus(t.Context(), &p, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	o.has(func(s appsv1.ReplicaSetStatus) bool { return s.ReadyReplicas == 36 })
	return o
}

// pods returns the pods that are not being deleted.
func (o *ordered) pods() (pods []corev1.Pod) {
	o.t.Helper()
	list, err := o.client.CoreV1().Pods(orderedNamespace).List(o.t.Context(), metav1.ListOptions{LabelSelector: "app=" + o.name})
	require.NoError(o.t, err)
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods
}

func (o *ordered) on() map[string]int {
	o.t.Helper()
	counts := map[string]int{}
	for _, p := range o.pods() {
		counts[p.Spec.NodeName]++
	}
	return counts
}

func (o *ordered) has(is func(appsv1.ReplicaSetStatus) bool) {
	o.t.Helper()
	require.Eventually(o.t, func() bool {
		rs, err := o.client.AppsV1().ReplicaSets(orderedNamespace).Get(o.t.Context(), o.name, metav1.GetOptions{})
		return err == nil && rs.Status.ObservedGeneration == rs.Generation && is(rs.Status)
	}, patience, 50*time.Millisecond)
}

// change sets the number of replicas, and the order in the annotation.
func (o *ordered) change(replicas int, order string) {
	o.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}},"spec":{"replicas":%d}}`, podrank.OrderAnnotation, order, replicas)
	_, err := o.client.AppsV1().ReplicaSets(orderedNamespace).Patch(o.t.Context(), o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(o.t, err)
}

// tells waits for an event with the given reason. The message of the event must start with the given text.
func (o *ordered) tells(reason, text string) {
	o.t.Helper()
	require.Eventually(o.t, func() bool {
		list, err := o.client.CoreV1().Events(orderedNamespace).List(o.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + o.name + ",reason=" + reason})
		if err != nil {
			return false
		}
		for _, e := range list.Items {
			if strings.HasPrefix(e.Message, text) {
				return true
			}
		}
		return false
	}, patience, 50*time.Millisecond, "%s: %s", reason, text)
}

// The user chooses the order of deletion. In this test, three ReplicaSets with twelve pods in each of three zones
// are scaled from 36 to 24. Kubernetes' order deletes all pods in the zone with the youngest pods. With the order
// "zones", eight pods remain in each zone (kubernetes#124149, #124306).
func TestOrdersOnARealServer(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: orderedNamespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig := writeKubeconfig(t, cluster.Kubeconfig)
	startScheduler(t, client, kubeconfig)
	p := start(t, "--kubeconfig="+kubeconfig, "--namespace="+orderedNamespace, "--leader-elect=false",
		"--allow-other-controllers", "--scale-down-order=packed", openMetrics, "--kube-api-qps=200", "--kube-api-burst=200")
	flagged, zoned, theirs := newOrdered(t, client, "flagged", ""), newOrdered(t, client, "zoned", "zones"), newOrdered(t, client, "theirs", "kubernetes")
	for _, o := range []*ordered{flagged, zoned, theirs} {
		_, err := client.AppsV1().ReplicaSets(orderedNamespace).Patch(t.Context(), o.name, types.MergePatchType, []byte(`{"spec":{"replicas":24}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		o.has(func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 24 })
	}
	assert.Equal(t, map[string]int{"orders-a": 8, "orders-b": 8, "orders-c": 8}, zoned.on())
	assert.Equal(t, map[string]int{"orders-b": 12, "orders-c": 12}, theirs.on())
	assert.Equal(t, map[string]int{"orders-b": 12, "orders-c": 12}, flagged.on(), "one node is emptied")
	zoned.change(20, "zonez")
	zoned.tells(invalidOrder, `ReplicaSet "orders/zoned": no pod is deleted: annotation replicakit.dev/scale-down-order: podrank: order "zonez": "zonez" is not one of `)
	assert.Len(t, zoned.pods(), 24)
	zoned.change(20, "packed")
	zoned.has(func(s appsv1.ReplicaSetStatus) bool { return s.Replicas == 20 })
	assert.Equal(t, map[string]int{"orders-a": 4, "orders-b": 8, "orders-c": 8}, zoned.on())

	_, text := p.get("/metrics")
	for order, n := range map[string]int{"zones": 12, "kubernetes": 12, "packed": 16} {
		assert.Contains(t, text, fmt.Sprintf("replicakit_deletions_by_order_total{controller=\"replicaset\",order=%q} %d\n", order, n))
	}
	p.stop()
}

// If an order needs the nodes, no pod is deleted before the nodes are listed. If the server refuses to list the
// nodes, admit returns an error.
func TestOrdersWaitForNodes(t *testing.T) {
	t.Parallel()
	owner := newReplicaSet("web", 1)
	owner.UID = "uid"
	orders := newOrders(options{scaleDownOrder: "zones", costs: true})
	asked := func() (may bool, again time.Duration, err error) {
		orders.order(owner)
		return orders.admit("ReplicaSet", owner)
	}
	may, again, err := asked()
	require.NoError(t, err)
	assert.False(t, may, "nothing watches nodes yet")
	assert.Equal(t, nodesWait, again)

	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{corev1.LabelTopologyZone: "a", "other": "b"}}})
	var forbidden sync.Mutex // while it is locked, the server refuses to list nodes
	forbidden.Lock()
	client.PrependReactor("list", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		if !forbidden.TryLock() {
			return true, nil, apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
		}
		forbidden.Unlock()
		return false, nil, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, orders.nodes.watch(ctx, client)) })
	defer running.Wait()
	defer cancel()
	require.Eventually(t, func() bool {
		may, again, err = asked()
		return err != nil
	}, patience, 10*time.Millisecond)
	require.ErrorContains(t, err, "no pod is deleted: the order zones needs nodes, which cannot be listed: ")
	require.ErrorContains(t, err, "nodes is forbidden")
	assert.False(t, may)
	assert.Equal(t, nodesRefusedWait, again)
	orders.passed("replicaset", owner, 0)
	assert.Empty(t, orders.nodes.blind, "nothing is kept of passes that have ended, as their owners may have")
	orders.order(owner) // a plan that is made before the nodes are listed
	forbidden.Unlock()
	require.Eventually(t, func() bool {
		may, again, err = orders.admit("ReplicaSet", owner)
		return err == nil && again < nodesWait // the wait is shorter after the nodes have been listed
	}, patience, 10*time.Millisecond)
	assert.False(t, may, "that plan did not know the nodes")
	may, _, err = asked()
	require.NoError(t, err)
	assert.True(t, may)
	assert.Equal(t, map[string]string{corev1.LabelTopologyZone: "a"}, orders.nodes.get("n").Labels)

	owner.Annotations = map[string]string{podrank.OrderAnnotation: "kubernetes"}
	orders = newOrders(options{scaleDownOrder: "zones", costs: false})
	may, _, err = asked()
	require.NoError(t, err)
	assert.True(t, may, "its own order asks about no node")
	assert.NotContains(t, orders.order(owner).String(), "deletion-cost")
	assert.Empty(t, orders.nodes.blind)
}

// The order of the flag is parsed when the manager starts. The order of an annotation is parsed only when the
// manager first sees this value of the annotation.
func TestOrdersAreParsedOnce(t *testing.T) {
	t.Parallel()
	orders := newOrders(defaults())
	owner := newReplicaSet("web", 1)
	assert.Equal(t, podrank.Kubernetes().String(), orders.order(owner).String())
	assert.Zero(t, orders.own.Len())
	owner.Annotations = map[string]string{podrank.OrderAnnotation: "packed,zones"}
	parsed := orders.order(owner).String()
	assert.Equal(t, 1, orders.own.Len())
	orders.own.Add("packed,zones", wordedOrder{})
	assert.NotEqual(t, parsed, orders.order(owner).String(), "what is kept is taken")
}
