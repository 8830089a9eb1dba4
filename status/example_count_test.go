// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/status"
)

// A worker is a child of your own kind.
type worker struct {
	metav1.ObjectMeta
	connected bool
}

// Count returns the counts for your own status type. You define when a child is ready.
func ExampleCount() {
	deleted := metav1.Now()
	workers := []*worker{
		{ObjectMeta: metav1.ObjectMeta{Name: "worker-a"}, connected: true},
		{ObjectMeta: metav1.ObjectMeta{Name: "worker-b"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "worker-c", DeletionTimestamp: &deleted}},
	}
	counts := status.Count(workers, status.Rules[*worker]{
		Ready: func(w *worker) bool { return w.connected },
	})
	fmt.Println("replicas", counts.Replicas, "ready", counts.Ready, "terminating", counts.Terminating)
	// Output: replicas 2 ready 1 terminating 1
}
