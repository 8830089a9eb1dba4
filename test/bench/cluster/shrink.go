// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The scenario of a set that shrinks while its pods change.

// defaultRates are those that both programs have where nobody says otherwise.
var defaultRates = []string{"--kube-api-qps=20", "--kube-api-burst=30"}

// restless is how often each pod changes.
const restless = 2 * time.Second

// shrunk returns how many pods there are at first and how many are wanted then.
func (s size) shrunk() (from, to int) { return s.pods / 5, s.pods / 100 }

func shrinkTitle(s size) string {
	from, to := s.shrunk()
	return fmt.Sprintf("one ReplicaSet, %d → %d ready pods, each of which changes every %v, at 20 calls a second", from, to, restless)
}

func prepareShrink(ctx context.Context, b *bed) (err error) {
	from, _ := b.size.shrunk()
	if err := b.createSets(ctx, 1, from); err != nil {
		return err
	}
	if b.pods, err = b.createPods(ctx, from, true, b.setOf); err != nil {
		return err
	}
	return each(ctx, from, func(ctx context.Context, i int) error { return b.setReady(ctx, b.pods[i].Name, true) })
}

func runShrink(ctx context.Context, b *bed) error {
	_, to := b.size.shrunk()
	changing, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- b.keepChanging(changing) }()
	err := b.shrink(ctx, to)
	stop()
	if change := <-failed; err == nil {
		err = change
	}
	return err
}

func (b *bed) shrink(ctx context.Context, to int) error {
	time.Sleep(restless) // each pod has changed once
	b.began = time.Now()
	if err := b.scale(ctx, b.sets[0].Name, to); err != nil {
		return err
	}
	if err := b.reach(ctx, "all pods are gone", func(c counts) bool { return c.pods == to }); err != nil {
		return err
	}
	return b.reach(ctx, "the status says so", func(c counts) bool { return c.replicas == to && c.settled == 1 })
}

// keepChanging changes each pod until it is gone, or ctx ends.
func (b *bed) keepChanging(ctx context.Context) error {
	var pods sync.WaitGroup
	failed := make([]error, len(b.pods))
	for i, pod := range b.pods {
		pods.Go(func() {
			select {
			case <-ctx.Done(): // not all at the same time
			case <-time.After(restless * time.Duration(i) / time.Duration(len(b.pods))):
			}
			failed[i] = b.keepChangingOne(ctx, pod.Name)
		})
	}
	pods.Wait()
	return errors.Join(failed...)
}

func (b *bed) keepChangingOne(ctx context.Context, name string) error {
	ticker := time.NewTicker(restless)
	defer ticker.Stop()
	for i := 0; ; i++ {
		err := b.change(ctx, name, i)
		if apierrors.IsNotFound(err) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

func (b *bed) change(ctx context.Context, name string, i int) error {
	patch := fmt.Appendf(nil, `{"status":{"message":"%d"}}`, i)
	_, err := b.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
