// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// namespaceInterval is the interval between two checks for a missing namespace.
const namespaceInterval = 5 * time.Second

// watchNamespaces checks whether the watched namespaces exist. If a namespace does not exist,
// watchNamespaces logs the fact, and /readyz reports it until the namespace is created. The
// controllers then serve the namespace without a restart.
func (m *manager) watchNamespaces(ctx context.Context) {
	if len(m.opts.namespaces) == 0 {
		return
	}
	client, err := m.client("namespace")
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot find out whether the namespaces exist")
		return
	}
	for _, namespace := range m.opts.namespaces {
		m.watchNamespace(ctx, client, namespace)
	}
}

func (m *manager) watchNamespace(ctx context.Context, client kubernetes.Interface, namespace string) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "namespace", namespace)
	exists, err := namespaceExists(ctx, client, namespace)
	if err != nil { // the manager may lack the right to get namespaces
		logger.V(2).Info("Cannot find out whether the namespace exists", "err", err)
		return
	}
	if exists {
		return
	}
	logger.Info("Waiting for the namespace: it does not exist")
	found := m.waiting.add(fmt.Sprintf("namespace %q does not exist", namespace))
	go func() {
		err := wait.PollUntilContextCancel(ctx, namespaceInterval, false, func(ctx context.Context) (bool, error) {
			exists, err := namespaceExists(ctx, client, namespace)
			return exists && err == nil, nil
		})
		if err == nil {
			logger.Info("The namespace exists")
			found()
		}
	}()
}

func namespaceExists(ctx context.Context, client kubernetes.Interface, namespace string) (bool, error) {
	_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
