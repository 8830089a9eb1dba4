// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
)

// servedPort is the port on which the container image in the specs serves its hostname.
const servedPort = 9376

// servePods answers HTTP requests in place of the containers of all pods. Each response is the name of the pod
// at the requested IP address. The specs send their HTTP requests to the pods through the API server's proxy.
// servePods returns when the listener is closed.
func servePods(listener net.Listener, client kubernetes.Interface) {
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			address, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
			name, err := runningAt(r.Context(), client, address)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			_, _ = io.WriteString(w, name)
		}),
	}
	_ = server.Serve(listener) // returns when the listener is closed
}

// runningAt returns the name of the pod that runs at the given IP address.
func runningAt(ctx context.Context, client kubernetes.Interface, address net.Addr) (string, error) {
	ip, _, err := net.SplitHostPort(address.String())
	if err != nil {
		return "", err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("status.podIP", ip).String(),
	})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return pod.Name, nil
		}
	}
	return "", fmt.Errorf("no pod runs at %s", ip)
}
