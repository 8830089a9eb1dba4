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

	"github.com/replicakit/replicakit/selector"
)

// Scenarios of one set of many pods.

const web = "web"

func scaleTitle(s size) string {
	return fmt.Sprintf("one ReplicaSet, 0 → %s → 0 pods", grouped(s.pods))
}

func prepareScale(ctx context.Context, b *bed) error {
	b.sets = []*appsv1.ReplicaSet{replicaSet(web, 0)}
	return b.create(ctx, b.sets[0])
}

func runScale(ctx context.Context, b *bed) error {
	for _, step := range []struct {
		replicas     int
		pods, status string
	}{
		{b.size.pods, "up: all pods exist", "up: the status says so"},
		{0, "down: all pods are gone", "down: the status says so"},
	} {
		b.began = time.Now()
		if err := b.scale(ctx, web, step.replicas); err != nil {
			return err
		}
		if err := b.reach(ctx, step.pods, func(c counts) bool { return c.pods == step.replicas }); err != nil {
			return err
		}
		if err := b.reach(ctx, step.status, func(c counts) bool { return c.replicas == step.replicas && c.settled == 1 }); err != nil {
			return err
		}
	}
	return nil
}

func floorScale(ctx context.Context, b *bed) error {
	pods, err := b.createPods(ctx, b.size.pods, true, func(int) *appsv1.ReplicaSet { return b.sets[0] })
	if err != nil {
		return err
	}
	if err := b.reach(ctx, "up: all pods exist", func(c counts) bool { return c.pods == b.size.pods }); err != nil {
		return err
	}
	b.began = time.Now()
	if err := b.deletePods(ctx, pods); err != nil {
		return err
	}
	return b.reach(ctx, "down: all pods are gone", func(c counts) bool { return c.pods == 0 })
}

func adoptTitle(s size) string { return fmt.Sprintf("one ReplicaSet adopts %s pods", grouped(s.pods)) }

func prepareAdopt(ctx context.Context, b *bed) (err error) {
	rs := replicaSet(web, 0)
	b.pods, err = b.createPods(ctx, b.size.pods, false, func(int) *appsv1.ReplicaSet { return rs })
	return err
}

func runAdopt(ctx context.Context, b *bed) error {
	if err := b.create(ctx, replicaSet(web, b.size.pods)); err != nil {
		return err
	}
	if err := b.reach(ctx, "all pods are adopted", func(c counts) bool { return c.owned == b.size.pods }); err != nil {
		return err
	}
	if err := b.reach(ctx, "the status says so", func(c counts) bool { return c.replicas == b.size.pods && c.settled == 1 }); err != nil {
		return err
	}
	if c := b.view.counts(); c.pods != b.size.pods {
		return fmt.Errorf("pods were made or deleted beside adopting: %+v", c)
	}
	return nil
}

func floorAdopt(ctx context.Context, b *bed) error {
	rs := replicaSet(web, b.size.pods)
	if err := b.create(ctx, rs); err != nil {
		return err
	}
	err := each(ctx, len(b.pods), func(ctx context.Context, i int) error { return b.adopt(ctx, rs, b.pods[i]) })
	if err != nil {
		return err
	}
	return b.reach(ctx, "all pods are adopted", func(c counts) bool { return c.owned == b.size.pods })
}

func (b *bed) adopt(ctx context.Context, rs *appsv1.ReplicaSet, pod *corev1.Pod) error {
	patch, err := selector.Claimer[*corev1.Pod]{Owner: rs, Kind: setKind}.AdoptPatch(pod)
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Pods(namespace).Patch(ctx, pod.Name, patch.Type, patch.Data, metav1.PatchOptions{})
	return err
}
