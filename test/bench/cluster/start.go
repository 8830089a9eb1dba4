// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// In this file's scenario, many objects already exist when the controller starts.

const pollInterval = 50 * time.Millisecond // time between two reads of the controller's metrics

func startTitle(s size) string {
	return fmt.Sprintf("a controller starts on %s pods of %s ReplicaSets; then %s of the ReplicaSets get %d more each",
		grouped(s.crowd*s.perCrowd), grouped(s.crowd), grouped(s.growing()), s.growth())
}

// growing returns the number of ReplicaSets that are scaled up. growth returns the number of pods that are
// added to each of these ReplicaSets.
func (s size) growing() int { return s.crowd / 10 }
func (s size) growth() int  { return max(s.perCrowd/10, 1) }

// prepareStart creates ReplicaSets with all their pods and a correct status, so that the controller finds no
// work when it starts.
func prepareStart(ctx context.Context, b *bed) (err error) {
	if err := b.createCrowd(ctx); err != nil {
		return err
	}
	b.pods, err = b.createPods(ctx, b.size.crowd*b.size.perCrowd, true, b.setOf)
	if err != nil {
		return err
	}
	err = callAll(ctx, len(b.sets), func(ctx context.Context, i int) error { return b.writeStatus(ctx, b.sets[i]) })
	if err != nil {
		return err
	}
	b.reported = len(b.pods)
	return b.forgetWarmUp(ctx)
}

func (b *bed) createCrowd(ctx context.Context) error {
	b.sets = make([]*appsv1.ReplicaSet, b.size.crowd)
	return callAll(ctx, len(b.sets), func(ctx context.Context, i int) error {
		b.sets[i] = replicaSet(fmt.Sprintf("%s-%04d", web, i), b.size.perCrowd)
		furnish(&b.sets[i].Spec.Template)
		return b.create(ctx, b.sets[i])
	})
}

// furnish sets the fields that are usually set in the pod templates of a real cluster.
func furnish(template *corev1.PodTemplateSpec) {
	template.Annotations = map[string]string{"prometheus.io/scrape": "true", "kubectl.kubernetes.io/restartedAt": "2026-05-04T12:00:00Z"}
	main := &template.Spec.Containers[0]
	main.Ports = []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	main.Env = []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "REGION", Value: "eu-west-1"}, {Name: "DATABASE", Value: "postgres://db.shop.svc:5432/shop"}}
	main.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}}
	main.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}}
	template.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "shop"}},
	}}}
}

func playStart(ctx context.Context, b *bed, start starter) error {
	var c *controller
	err := b.measure(ctx, func(ctx context.Context, b *bed) (err error) {
		if c, err = start(); err != nil {
			return err
		}
		return b.watchStart(ctx, c)
	})
	if c == nil {
		return err
	}
	if err == nil {
		err = b.noteUsage(ctx, c, "in the end")
	}
	return c.stop(ctx, err)
}

func (b *bed) watchStart(ctx context.Context, c *controller) error {
	if err := b.awaitPasses(ctx, c, "the first set is looked at", 1); err != nil {
		return err
	}
	if err := b.awaitPasses(ctx, c, "all sets are looked at", b.size.crowd); err != nil {
		return err
	}
	if err := b.awaitQuiet(ctx); err != nil {
		return err
	}
	if err := b.noteUsage(ctx, c, "started"); err != nil {
		return err
	}
	return b.grow(ctx)
}

// awaitPasses waits until the controller has completed the given number of passes. Then it adds the time since
// b.began to the sample.
func (b *bed) awaitPasses(ctx context.Context, c *controller, what string, times int) error {
	err := b.awaitCount(ctx, c, syncsMetric, times)
	if err == nil {
		b.note(what, wall, time.Since(b.began).Seconds())
	}
	return err
}

// awaitCount waits until a work queue metric of the controller has reached the given value.
func (b *bed) awaitCount(ctx context.Context, c *controller, metric string, count int) error {
	deadline := time.Now().Add(patience)
	for {
		n, err := c.count(ctx, metric) // returns an error until the program serves the metric
		if err == nil && n >= float64(count) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out after %v: %s is %v, %w", patience, metric, n, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollInterval):
		}
	}
}

// noteUsage records in the sample the resources that the program has used since its start.
func (b *bed) noteUsage(ctx context.Context, c *controller, when string) error {
	used, err := c.usage(ctx)
	if err != nil {
		return err
	}
	b.note(when+": controller's CPU", cpu, used.cpu)
	b.note(when+": peak memory", memory, used.peak)
	b.note(when+": memory", memory, used.resident)
	b.note(when+": syncs", number, used.syncs)
	return nil
}

// grow scales up every tenth ReplicaSet, and waits until all pods exist and all statuses are up to date.
func (b *bed) grow(ctx context.Context) error {
	b.began = time.Now()
	err := callAll(ctx, b.size.growing(), func(ctx context.Context, i int) error {
		return b.scale(ctx, b.sets[i*10].Name, b.size.perCrowd+b.size.growth())
	})
	if err != nil {
		return err
	}
	pods := b.size.crowd*b.size.perCrowd + b.size.growing()*b.size.growth()
	if err := b.reach(ctx, "scaled: all pods exist", func(c counts) bool { return c.pods == pods }); err != nil {
		return err
	}
	return b.reach(ctx, "scaled: all statuses say so", func(c counts) bool { return c.replicas == pods && c.settled == b.size.crowd })
}
