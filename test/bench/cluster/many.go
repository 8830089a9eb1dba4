// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// This file contains the scenarios with many ReplicaSets.

func manyTitle(s size) string {
	return fmt.Sprintf("%s ReplicaSets of %d pods, created at once", grouped(s.sets), s.perSet)
}

func (b *bed) createSets(ctx context.Context, n, replicas int) error {
	b.sets = make([]*appsv1.ReplicaSet, n)
	return callAll(ctx, n, func(ctx context.Context, i int) error {
		b.sets[i] = replicaSet(fmt.Sprintf("%s-%04d", web, i), replicas)
		return b.create(ctx, b.sets[i])
	})
}

func runMany(ctx context.Context, b *bed) error {
	if err := b.createSets(ctx, b.size.sets, b.size.perSet); err != nil {
		return err
	}
	pods := b.size.sets * b.size.perSet
	if err := b.reach(ctx, "all pods exist", func(c counts) bool { return c.pods == pods }); err != nil {
		return err
	}
	return b.reach(ctx, "all statuses say so", func(c counts) bool { return c.replicas == pods && c.settled == b.size.sets })
}

func lifeTitle(s size) string {
	return fmt.Sprintf("%s ReplicaSets of %d pods are created, %d of them are scaled to 0, and then nothing happens for %v; default flags",
		grouped(s.sets), s.perSet, s.leaving(), s.idle)
}

// leaving returns how many of the small sets are scaled to 0.
func (s size) leaving() int { return s.sets * 2 / 5 }

func playLife(ctx context.Context, b *bed, start starter) error {
	c, err := start()
	if err != nil {
		return err
	}
	return c.stop(ctx, b.live(ctx, c))
}

func (b *bed) live(ctx context.Context, c *controller) error {
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	b.began = time.Now()
	if err := b.createSets(ctx, b.size.sets, b.size.perSet); err != nil {
		return err
	}
	all := b.size.sets * b.size.perSet
	left := all - b.size.leaving()*b.size.perSet
	// By default, kube-controller-manager makes 20 calls a second, which is slower than any single wait allows.
	for pods := all / 20; pods < all; pods += all / 20 {
		if err := b.view.awaitCounts(ctx, "some pods", func(c counts) bool { return c.pods >= pods }); err != nil {
			return err
		}
	}
	if err := b.reach(ctx, "all pods exist", func(c counts) bool { return c.pods == all }); err != nil {
		return err
	}
	if err := b.reach(ctx, "all statuses say so", func(c counts) bool { return c.replicas == all && c.settled == b.size.sets }); err != nil {
		return err
	}
	if err := b.noteUsage(ctx, c, "created"); err != nil {
		return err
	}
	b.began = time.Now()
	err := callAll(ctx, b.size.leaving(), func(ctx context.Context, i int) error { return b.scale(ctx, b.sets[i].Name, 0) })
	if err != nil {
		return err
	}
	for pods := all - all/20; pods > left; pods -= all / 20 {
		if err := b.view.awaitCounts(ctx, "fewer pods", func(c counts) bool { return c.pods <= pods }); err != nil {
			return err
		}
	}
	if err := b.reach(ctx, "scaled: all pods are gone", func(c counts) bool { return c.pods == left && c.replicas == left }); err != nil {
		return err
	}
	if err := b.noteUsage(ctx, c, "deleted"); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(b.size.idle):
	}
	return b.noteUsage(ctx, c, "idle")
}

// setOf returns the ReplicaSet of the pod with index i. The pods are distributed evenly over the ReplicaSets.
func (b *bed) setOf(i int) *appsv1.ReplicaSet { return b.sets[i%len(b.sets)] }

func (b *bed) writeStatus(ctx context.Context, rs *appsv1.ReplicaSet) error {
	rs.Status = appsv1.ReplicaSetStatus{
		Replicas: *rs.Spec.Replicas, FullyLabeledReplicas: *rs.Spec.Replicas, TerminatingReplicas: new(int32), ObservedGeneration: rs.Generation,
	}
	_, err := b.client.AppsV1().ReplicaSets(namespace).UpdateStatus(ctx, rs, metav1.UpdateOptions{})
	return err
}

func holdTitle(s size) string {
	return fmt.Sprintf("%d ReplicaSets of %s pods, of which %d change each second for %v", s.held, grouped(s.pods), s.rate, s.length)
}

func prepareHold(ctx context.Context, b *bed) (err error) {
	if err := b.createSets(ctx, b.size.held, b.size.pods); err != nil {
		return err
	}
	b.pods, err = b.createPods(ctx, b.size.held*b.size.pods, true, b.setOf)
	return err
}

// runHold makes the pods ready one at a time, and alternates between the ReplicaSets. When all pods are
// ready, runHold makes the pods not ready, in the order in which they became ready.
func runHold(ctx context.Context, b *bed) error {
	changes := int(b.size.length.Seconds() * float64(b.size.rate))
	err := b.pace(ctx, changes, func(ctx context.Context, i int) error {
		return b.setReady(ctx, b.pods[i%len(b.pods)].Name, becomesReady(i, len(b.pods)))
	})
	if err != nil {
		return err
	}
	b.note("changes each second", number, float64(changes)/time.Since(b.began).Seconds())
	ready := readyAfter(changes, len(b.pods))
	return b.view.awaitCounts(ctx, "the last change in a status", func(c counts) bool { return c.ready == ready })
}

// becomesReady reports whether the change with the given index makes a pod ready. All other changes make a
// pod not ready.
func becomesReady(change, pods int) bool { return change/pods%2 == 0 }

// readyAfter returns the number of ready pods after the given number of changes.
func readyAfter(changes, pods int) int {
	if rest := changes % (2 * pods); rest > pods {
		return 2*pods - rest
	}
	return changes % (2 * pods)
}

// pace calls the given function n times, at a rate of b.size.rate per second.
func (b *bed) pace(ctx context.Context, n int, call func(ctx context.Context, i int) error) error {
	ticker := time.NewTicker(time.Second / time.Duration(b.size.rate))
	defer ticker.Stop()
	return callAll(ctx, n, func(ctx context.Context, i int) error {
		select {
		case <-ticker.C:
			return call(ctx, i)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

func (b *bed) setReady(ctx context.Context, name string, ready bool) error {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	patch := fmt.Appendf(nil, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}}`,
		status, time.Now().UTC().Format(time.RFC3339))
	_, err := b.client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// poolSets is the number of ReplicaSets that own the pods of the lost node pool.
const poolSets = 20

func poolTitle(flags string) func(size) string {
	return func(s size) string {
		return fmt.Sprintf("a node pool of %s pods of %d ReplicaSets is lost; %s", grouped(5*s.pods), poolSets, flags)
	}
}

func preparePool(ctx context.Context, b *bed) (err error) {
	if err := b.createSets(ctx, poolSets, 5*b.size.pods/poolSets); err != nil {
		return err
	}
	b.pods, err = b.createPods(ctx, 5*b.size.pods, true, b.setOf)
	return err
}

func runPool(ctx context.Context, b *bed) error {
	err := callAll(ctx, len(b.pods), func(ctx context.Context, i int) error {
		return b.client.CoreV1().Pods(namespace).Delete(ctx, b.pods[i].Name, metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	b.note("all pods are lost", wall, time.Since(b.began).Seconds())
	if err := b.reach(ctx, "as many exist again", func(c counts) bool { return c.pods == len(b.pods) }); err != nil {
		return err
	}
	return b.reach(ctx, "all statuses say so", func(c counts) bool { return c.replicas == len(b.pods) && c.settled >= poolSets })
}
