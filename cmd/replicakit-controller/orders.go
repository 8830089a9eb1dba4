// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// kubernetesOrder is the word of the order that applies where nobody asks for another.
const kubernetesOrder = "kubernetes"

// invalidOrder is the reason of the event about an owner whose annotation is no order.
const invalidOrder = "InvalidScaleDownOrder"

// orders say which pods of an owner go first.
type orders struct {
	words     string // --scale-down-order
	costs     bool   // whether deletion costs count
	nodes     *nodes
	deletions *prometheus.CounterVec
}

func newOrders(opts options) *orders {
	return &orders{words: opts.scaleDownOrder, costs: opts.costs, nodes: newNodes(), deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replicakit_deletions_by_order_total",
		Help: "Pods that were deleted, by the order that chose them: what --scale-down-order says, or the annotation " + podrank.OrderAnnotation + ".",
	}, []string{"controller", "order"})}
}

// of returns the words of an owner's order: its own, or those of the flag.
func (o *orders) of(owner metav1.Object) string {
	if own, ok := owner.GetAnnotations()[podrank.OrderAnnotation]; ok {
		return own
	}
	return o.words
}

// order returns who goes first. Nothing may be deleted by it before admit.
func (o *orders) order(owner metav1.Object) podrank.Order[*corev1.Pod] {
	words := o.of(owner)
	if asksNodes(words) {
		o.nodes.want(owner.GetUID())
	}
	order, err := parseOrder(words, o.costs, o.nodes.get)
	if err != nil { // admit tells
		return podrank.Order[*corev1.Pod]{}
	}
	return order
}

// admit reports whether pods may be deleted that order chose, and if not, when to ask again
// or why never.
func (o *orders) admit(kind string, owner metav1.Object) (may bool, again time.Duration, err error) {
	words := o.of(owner)
	if _, err := parseOrder(words, o.costs, o.nodes.get); err != nil {
		return false, 0, &replicas.RefusedError{Reason: invalidOrder, Err: fmt.Errorf("%s %q: no pod is deleted: annotation %s: %w",
			kind, owner.GetNamespace()+"/"+owner.GetName(), podrank.OrderAnnotation, err)}
	}
	if !asksNodes(words) {
		return true, 0, nil
	}
	if may, again, err = o.nodes.known(owner.GetUID()); err != nil {
		err = fmt.Errorf("no pod is deleted: the order %s asks about nodes, which cannot be listed: %w", words, err)
	}
	return may, again, err
}

// note counts what a pass deleted.
func (o *orders) note(controller string, owner metav1.Object, deleted int) {
	if deleted > 0 {
		o.deletions.WithLabelValues(controller, o.of(owner)).Add(float64(deleted))
	}
}

// parseOrder is podrank's, with or without deletion costs.
func parseOrder(words string, costs bool, node func(name string) *corev1.Node) (podrank.Order[*corev1.Pod], error) {
	order, err := podrank.ParseOrder(words, node)
	if err != nil || costs {
		return order, err
	}
	return order.Without("deletion-cost")
}

func asksNodes(words string) bool {
	_, err := podrank.ParseOrder(words, nil)
	return errors.Is(err, podrank.ErrNoNodes)
}
