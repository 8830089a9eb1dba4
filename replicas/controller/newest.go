// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// newest is the newest version that an event about a child had.
type newest struct {
	mu      sync.Mutex
	version string
}

func (n *newest) saw(child metav1.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	version := child.GetResourceVersion()
	if isNumber := resourceversion.Reached(version, version); isNumber && !resourceversion.Older(version, n.version) {
		n.version = version
	}
}

func (n *newest) get() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.version
}
