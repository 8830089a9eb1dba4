// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

const (
	rollingNodes    = 50
	rollingReplicas = 1000
	rollingUpdates  = 3
	// leastReady is what a Deployment promises by default: a quarter less than
	// all.
	leastReady = rollingReplicas - rollingReplicas/4
)

// A rolling is what one rolling update of a Deployment took.
type rolling struct {
	seconds     float64
	fewestReady int
	// Of the side's program.
	cpu    float64
	writes map[string]float64 // by method
	// Of the API server.
	serverCPU    float64
	statusWrites float64 // of ReplicaSets
}

// writeMethods are the calls that change something.
var writeMethods = []string{"POST", "PUT", "PATCH", "DELETE"}

// runRolling has Kubernetes' Deployment controller replace all pods of a
// Deployment, several times, while the side keeps its ReplicaSets.
func (o options) runRolling(ctx context.Context, sd side, dir string) ([]rolling, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errors.New("the rolling updates did not end in "+o.timeout.String()))
	defer cancel()
	ctx, c, err := startCluster(ctx, o.binaries, dir, sd, rollingNodes)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	done, err := c.rollingUpdates(ctx, sd)
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return done, err
}

func (c *cluster) rollingUpdates(ctx context.Context, sd side) ([]rolling, error) {
	if err := c.awaitNodes(ctx); err != nil {
		return nil, err
	}
	d, err := c.client.AppsV1().Deployments(metav1.NamespaceDefault).Create(ctx, deployment(), metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	if err := c.awaitRollout(ctx, d.Generation); err != nil {
		return nil, err
	}
	readiness, err := watchReadiness(ctx, c.client)
	if err != nil {
		return nil, err
	}
	done := make([]rolling, rollingUpdates)
	for i := range done {
		if done[i], err = c.rollingUpdate(ctx, sd, i, readiness); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// rollingUpdate replaces all pods and measures it.
func (c *cluster) rollingUpdate(ctx context.Context, sd side, i int, readiness *readiness) (rolling, error) {
	before, err := c.measure(ctx, sd)
	if err != nil {
		return rolling{}, err
	}
	readiness.reset()
	began := time.Now()
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"update":"%d"}}}}}`, i+1)
	d, err := c.client.AppsV1().Deployments(metav1.NamespaceDefault).Patch(ctx, rollingName, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return rolling{}, err
	}
	if err := c.awaitRollout(ctx, d.Generation); err != nil {
		return rolling{}, err
	}
	took := rolling{seconds: time.Since(began).Seconds()}
	if err := readiness.await(ctx, rollingReplicas); err != nil {
		return rolling{}, err
	}
	took.fewestReady = readiness.fewest()
	after, err := c.measure(ctx, sd)
	return took.fill(before, after), err
}

// measured are the counts of the two programs at one time.
type measured struct{ controller, server tally }

func (c *cluster) measure(ctx context.Context, sd side) (m measured, err error) {
	if m.controller, err = sd.tally(ctx); err != nil {
		return m, err
	}
	m.server, err = serverTally(ctx, c.client)
	return m, err
}

// fill adds what was counted between two times.
func (r rolling) fill(before, after measured) rolling {
	r.cpu = after.controller.cpu() - before.controller.cpu()
	r.serverCPU = after.server.cpu() - before.server.cpu()
	r.writes = map[string]float64{}
	for _, method := range writeMethods {
		labels := map[string]string{"method": method}
		r.writes[method] = after.controller.sum("rest_client_requests_total", labels) - before.controller.sum("rest_client_requests_total", labels)
	}
	for _, verb := range []string{"PUT", "PATCH"} {
		labels := map[string]string{"verb": verb, "resource": "replicasets", "subresource": "status"}
		r.statusWrites += after.server.sum("apiserver_request_total", labels) - before.server.sum("apiserver_request_total", labels)
	}
	return r
}

const rollingName = "rolling"

func deployment() *appsv1.Deployment {
	labels := map[string]string{"app": rollingName}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: rollingName},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(rollingReplicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "pause"}}},
			},
		},
	}
}

const pollInterval = 200 * time.Millisecond

// awaitRollout waits until a Deployment says that all its pods are new and
// available.
func (c *cluster) awaitRollout(ctx context.Context, generation int64) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		d, err := c.client.AppsV1().Deployments(metav1.NamespaceDefault).Get(ctx, rollingName, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		s := d.Status
		return s.ObservedGeneration >= generation && s.Replicas == rollingReplicas &&
			s.UpdatedReplicas == rollingReplicas && s.AvailableReplicas == rollingReplicas, nil
	})
}

func (c *cluster) awaitNodes(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, node := range list.Items {
			if len(node.Spec.Taints) > 0 || len(node.Status.Allocatable) == 0 {
				return false, nil
			}
		}
		return len(list.Items) == c.nodes, nil
	})
}

// rollingResults says which of the rolling updates kept the Deployment's promise.
func rollingResults(done []rolling) (results []suite.Result) {
	for i, r := range done {
		results = append(results, suite.Result{
			Test:   fmt.Sprintf("rolling update %d", i+1),
			Passed: r.fewestReady >= leastReady,
			Output: fmt.Sprintf("only %d pods were ready; a Deployment promises %d", r.fewestReady, leastReady),
		})
	}
	return results
}

// rollingTable has a line for each rolling update.
func rollingTable(sd side, done []rolling) (lines string) {
	for i, r := range done {
		lines += fmt.Sprintf("| %s | %d | %.1f s | %d | %.2f s | %.2f s | %s | %.0f |\n", sd.title, i+1, r.seconds, r.fewestReady, r.cpu, r.serverCPU,
			writesText(r.writes), r.statusWrites)
	}
	return lines
}

const rollingHead = "| rolling updates of 1,000 pods | no. | time | fewest ready | controller's CPU | API server's CPU | controller's writes | status writes |\n" +
	"|---|--:|--:|--:|--:|--:|---|--:|\n"

func writesText(writes map[string]float64) (text string) {
	for i, method := range writeMethods {
		if i > 0 {
			text += ", "
		}
		text += method + " " + strconv.FormatFloat(writes[method], 'f', 0, 64)
	}
	return text
}
