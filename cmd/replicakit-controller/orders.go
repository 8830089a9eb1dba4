// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

// kubernetesOrder is the keyword for Kubernetes' own order, which is the default.
const kubernetesOrder = "kubernetes"

// invalidOrder is the reason of the event about an owner whose annotation is not a valid order.
const invalidOrder = "InvalidScaleDownOrder"

// mostOrders is the maximum number of cached orders from annotations. An order is a list of
// keywords, and only a few keywords exist. So a cluster rarely has more than mostOrders different
// orders.
const mostOrders = 100

// orders determines the deletion order of each owner's pods.
type orders struct {
	flag      wordedOrder // the order of --scale-down-order
	own       *lru.Cache  // cached orders from annotations, by the value of the annotation
	costs     bool        // whether deletion costs are compared
	nodes     *nodes
	deletions *prometheus.CounterVec
}

// A wordedOrder is an order and the keywords from which it was parsed. If the keywords are not a
// valid order, err is set.
type wordedOrder struct {
	words     string
	label     string // the label in metrics; see labelOf
	order     podrank.Order[*corev1.Pod]
	asksNodes bool
	err       error
}

func newOrders(opts options) *orders {
	o := &orders{own: lru.New(mostOrders), costs: opts.costs, nodes: newNodes(), deletions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replicakit_deletions_by_order_total",
		Help: "Deleted pods, by the order that chose them. The order is that of --scale-down-order, or of the annotation " + podrank.OrderAnnotation + ".",
	}, []string{"controller", "order"})}
	o.flag = o.parse(opts.scaleDownOrder)
	return o
}

// orderFor returns the order in the owner's annotation. If the annotation is missing, it returns the order
// of --scale-down-order.
func (o *orders) orderFor(owner metav1.Object) wordedOrder {
	words, own := owner.GetAnnotations()[podrank.OrderAnnotation]
	if !own {
		return o.flag
	}
	if known, ok := o.own.Get(words); ok {
		return known.(wordedOrder) //nolint:forcetypeassert // nothing else is added
	}
	parsed := o.parse(words)
	o.own.Add(words, parsed)
	return parsed
}

// parse parses the keywords of an order. If deletion costs are turned off, the order does not
// compare deletion costs.
func (o *orders) parse(words string) wordedOrder {
	order, err := podrank.ParseOrder(words, o.nodes.get)
	if err == nil && !o.costs {
		order, err = order.Without("deletion-cost")
	}
	_, without := podrank.ParseOrder(words, nil)
	return wordedOrder{words: words, label: labelOf(words, err), order: order, asksNodes: errors.Is(without, podrank.ErrNoNodes), err: err}
}

// labelOf returns the label of an order in metrics. Equal orders have the same label, even if their
// keywords are written differently. All invalid orders share one label, so annotations cannot
// create many labels.
func labelOf(words string, err error) string {
	if err != nil {
		return "invalid"
	}
	var criteria []string
	for word := range strings.SplitSeq(words, ",") {
		if word = strings.TrimSpace(word); word != kubernetesOrder {
			criteria = append(criteria, word)
		}
	}
	return cmp.Or(strings.Join(criteria, ","), kubernetesOrder)
}

// order returns the deletion order of an owner's pods. Call admit before you delete pods in this
// order.
func (o *orders) order(owner metav1.Object) podrank.Order[*corev1.Pod] {
	its := o.orderFor(owner)
	if its.asksNodes {
		o.nodes.want(owner.GetUID())
	}
	return its.order
}

// admit reports whether a pass may delete pods of an owner. The owner's deletion order must be
// valid. If the order needs nodes, the nodes must have been listed when the deletions were planned.
// If the pods may not be deleted, admit also returns the delay before the next attempt. A delay of
// 0 means no further attempt. The error says why the order is not valid, or why the nodes cannot be
// listed.
func (o *orders) admit(kind string, owner metav1.Object) (may bool, again time.Duration, err error) {
	its := o.orderFor(owner)
	if its.err != nil {
		return false, 0, &replicas.RefusedError{Reason: invalidOrder, Err: fmt.Errorf("%s %q: no pod is deleted: annotation %s: %w",
			kind, owner.GetNamespace()+"/"+owner.GetName(), podrank.OrderAnnotation, its.err)}
	}
	if !its.asksNodes {
		return true, 0, nil
	}
	if may, again, err = o.nodes.known(owner.GetUID()); err != nil {
		err = fmt.Errorf("no pod is deleted: the order %s needs nodes, which cannot be listed: %w", its.words, err)
	}
	return may, again, err
}

// passed is called at the end of a pass of an owner. It adds the deleted pods to the metrics, and
// removes the owner from nodes.blind.
func (o *orders) passed(controller string, owner metav1.Object, deleted int) {
	o.nodes.forget(owner.GetUID())
	if deleted > 0 {
		o.deletions.WithLabelValues(controller, o.orderFor(owner).label).Add(float64(deleted))
	}
}
