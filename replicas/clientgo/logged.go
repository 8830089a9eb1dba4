// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// A loggedView is a Cache that logs related pods as pkg/controller/replicaset does in Kubernetes. attach sets Cache.
type loggedView[O, C controller.Object] struct {
	typed.Cache[O, C]
	owner string // the kind
}

func (v *loggedView[O, C]) Related(ctx context.Context, owner O) ([]C, error) {
	related, err := v.Cache.Related(ctx, owner)
	if err != nil || related == nil {
		return related, err
	}
	logger := klog.FromContext(ctx)
	if logger := logger.V(2); logger.Enabled() {
		siblings, err := v.Siblings(owner)
		if err != nil {
			return related, err
		}
		logger.Info("Found related "+v.owner+"s", logKey(v.owner), klog.KObj(owner), "related"+v.owner+"s", klog.KObjSlice(siblings))
	}
	logger.V(4).Info("Found related pods", "kind", v.owner, logKey(v.owner), klog.KObj(owner), "pods", klog.KObjSlice(related))
	return related, nil
}

// A loggedClient is a Client that logs creations and deletions as pkg/controller does in Kubernetes.
type loggedClient[O, C controller.Object] struct {
	controller.Client[O, C]
	child string // the kind
}

func (c loggedClient[O, C]) Create(ctx context.Context, child C) (C, error) {
	created, err := c.Client.Create(ctx, child)
	if logger := klog.FromContext(ctx).V(4); err == nil && logger.Enabled() {
		logger.Info("Controller created "+strings.ToLower(c.child), "controller", controllerName(child), logKey(c.child), klog.KObj(created))
	}
	return created, err
}

func (c loggedClient[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	logger := klog.FromContext(ctx)
	if logger := logger.V(2); logger.Enabled() {
		logger.Info("Deleting "+strings.ToLower(c.child), "controller", controllerName(child), logKey(c.child), klog.KObj(child))
	}
	err := c.Client.Delete(ctx, child, opts)
	if apierrors.IsNotFound(err) {
		logger.V(4).Info(c.child+" has already been deleted.", logKey(c.child), klog.KObj(child))
	}
	return err
}

// logged returns a loggedClient, which is a controller.Versioner if c is one.
func logged[O, C controller.Object](c controller.Client[O, C], child string) controller.Client[O, C] {
	client := loggedClient[O, C]{c, child}
	if versioner, ok := c.(controller.Versioner); ok {
		return struct {
			controller.Client[O, C]
			controller.Versioner
		}{client, versioner}
	}
	return client
}

func controllerName(child metav1.Object) string {
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil {
		return ref.Name
	}
	return ""
}

// logKey returns the key for an object in a log line, such as "replicaSet" for a ReplicaSet.
func logKey(kind string) string { return strings.ToLower(kind[:1]) + kind[1:] }
