// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"maps"
	"net"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// namespace is the namespace of all objects in the bench.
const namespace = "bench"

// parallel is the maximum number of API calls that the bench makes at the same time. A larger number does not
// make the bench faster.
const parallel = 128

// A bed is a control plane that only the bench and the measured controller use. The field view counts the
// objects in this control plane.
type bed struct {
	size   size
	client *clientset.Clientset
	view   *view
	began  time.Time
	sample sample

	proxy *proxy // forwards the controller's calls to the API server; nil if the scenario has no proxy

	// The scenario's prepare function has created these objects.
	sets     []*appsv1.ReplicaSet
	pods     []*corev1.Pod
	reported int // sum of status.replicas over all ReplicaSets
}

func newBed(ctx context.Context, config *rest.Config, size size) (*bed, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.Dial = (&net.Dialer{}).DialContext
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	v, err := watch(ctx, client)
	return &bed{size: size, client: client, view: v}, err
}

// note adds a measured value to the sample.
func (b *bed) note(measure string, unit unit, value float64) {
	b.sample = append(b.sample, figure{measure, unit, value})
}

// reach waits until the given function returns true for the counts of the view. Then it adds the time since
// b.began to the sample.
func (b *bed) reach(ctx context.Context, what string, come func(counts) bool) error {
	if err := b.view.awaitCounts(ctx, what, come); err != nil {
		return err
	}
	b.note(what, wall, time.Since(b.began).Seconds())
	return nil
}

// tally reads the metrics of the API server.
func (b *bed) tally(ctx context.Context) (tally, error) {
	text, err := b.client.RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return tally{}, err
	}
	return readTally(bytes.NewReader(text))
}

// awaitQuiet waits until no controller has made a call for one second.
func (b *bed) awaitQuiet(ctx context.Context) error {
	last, err := b.tally(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		var now tally
		if now, err = b.tally(ctx); maps.Equal(now.calls, last.calls) {
			break
		}
		last = now
	}
	return err
}

// callAll executes call(ctx, i) for every i below n, and returns the first error. The maximum number of
// simultaneous calls is the value of the constant parallel.
func callAll(ctx context.Context, n int, call func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var clients sync.WaitGroup
	for range parallel {
		clients.Go(func() {
			for i := range next {
				if err := call(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	clients.Wait()
	return context.Cause(ctx)
}
