// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// nodesWait is the delay before a deletion is retried if the nodes have not been listed yet. If the
// server has refused the list, the delay is nodesRefusedWait.
const (
	nodesWait        = time.Second
	nodesRefusedWait = 10 * time.Second
)

// nodes caches the nodes of the cluster. The watch starts when an order first needs the nodes.
// If no order needs the nodes, the manager does not need the right to watch nodes.
type nodes struct {
	wanted chan struct{} // closed when an order needs the nodes

	mu    sync.Mutex
	cache cache.SharedIndexInformer // nil until the watch starts
	// blind holds the owners whose current plan was made before the nodes were listed.
	blind sets.Set[types.UID]
	err   error // error of the last failed list or watch
}

func newNodes() *nodes {
	return &nodes{wanted: make(chan struct{}), blind: sets.New[types.UID]()}
}

// watch waits until an order needs the nodes, and then watches the nodes until ctx is done.
func (n *nodes) watch(ctx context.Context, client kubernetes.Interface) error {
	select {
	case <-n.wanted:
	case <-ctx.Done():
		return nil
	}
	informer := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes().Informer()
	if err := informer.SetTransform(trimNode); err != nil {
		return err
	}
	if err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		n.mu.Lock()
		n.err = err
		n.mu.Unlock()
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}); err != nil {
		return err
	}
	n.mu.Lock()
	n.cache = informer
	n.mu.Unlock()
	informer.RunWithContext(ctx)
	return nil
}

// want is called for each plan of an owner whose order needs the nodes. It starts the watch of
// nodes, and records whether the nodes are listed at this time.
func (n *nodes) want(owner types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.synced() {
		n.blind.Delete(owner)
	} else {
		n.blind.Insert(owner)
	}
	select {
	case <-n.wanted:
	default:
		close(n.wanted)
	}
}

// synced reports whether the nodes are listed. The caller must hold the lock.
func (n *nodes) synced() bool { return n.cache != nil && n.cache.HasSynced() }

// forget removes an owner from the set n.blind. Call forget when a pass of the owner has ended.
func (n *nodes) forget(owner types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blind.Delete(owner)
}

// known reports whether the nodes were listed when the last plan of an owner was made. If the nodes
// were not listed, known also returns the delay before the next plan. If the nodes are still not
// listed because a list or watch has failed, known also returns the error of the last failed list
// or watch.
func (n *nodes) known(owner types.UID) (known bool, again time.Duration, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.blind.Has(owner) {
		return true, 0, nil
	}
	switch {
	case n.synced():
		return false, time.Millisecond, nil
	case n.err != nil:
		return false, nodesRefusedWait, n.err
	}
	return false, nodesWait, nil
}

// get returns the node with this name, or nil if no such node is known.
func (n *nodes) get(name string) *corev1.Node {
	n.mu.Lock()
	informer := n.cache
	n.mu.Unlock()
	if informer == nil {
		return nil
	}
	found, _, _ := informer.GetStore().GetByKey(name)
	node, _ := found.(*corev1.Node)
	return node
}

// trimNode keeps the fields of a node that a scale-down order reads.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil // a tombstone
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, DeletionTimestamp: node.DeletionTimestamp,
			Labels: keepKey(node.Labels, corev1.LabelTopologyZone),
		},
		Spec: corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
	}, nil
}
