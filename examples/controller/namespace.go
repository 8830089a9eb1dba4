package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// namespaceInterval is how often a namespace that does not exist is asked for.
const namespaceInterval = 5 * time.Second

// watchNamespace finds out whether the one namespace that is watched exists. It
// may come into being later, and the controllers will see it; until then log and
// /readyz say so.
func (m *manager) watchNamespace(ctx context.Context) {
	if m.opts.namespace == corev1.NamespaceAll {
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "namespace", m.opts.namespace)
	client, err := m.client("namespace")
	if err != nil {
		logger.Error(err, "Whether the namespace exists is not known")
		return
	}
	exists, err := m.namespaceExists(ctx, client)
	if err != nil { // as who asks may not know
		logger.V(2).Info("Whether the namespace exists is not known", "err", err)
		return
	}
	if exists {
		return
	}
	logger.Info("Waiting for the namespace: it does not exist")
	m.noNamespace.Store(true)
	go func() {
		err := wait.PollUntilContextCancel(ctx, namespaceInterval, false, func(ctx context.Context) (bool, error) {
			exists, err := m.namespaceExists(ctx, client)
			return exists && err == nil, nil
		})
		if err == nil {
			logger.Info("The namespace exists")
			m.noNamespace.Store(false)
		}
	}()
}

func (m *manager) namespaceExists(ctx context.Context, client kubernetes.Interface) (bool, error) {
	_, err := client.CoreV1().Namespaces().Get(ctx, m.opts.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
