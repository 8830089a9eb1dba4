// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/status"
)

// showTable shows the table and keeps it up to date until stop is called.
func (s *story) showTable(ctx context.Context) (stop func()) {
	if !s.screen.live {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for ctx.Err() == nil {
			s.screen.show(s.table())
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// table lists the pods in deletion order.
func (s *story) table() []string {
	rs := s.fleet.replicaSet(namespace, name)
	if rs == nil {
		return nil
	}
	pods := s.pods()
	active := status.FilterActivePods(pods)
	var b strings.Builder
	fmt.Fprintf(&b, "ReplicaSet %s: %d wanted, %d there, %d ready, %d terminating\n", name, *rs.Spec.Replicas, len(active), rs.Status.ReadyReplicas, len(pods)-len(active))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "  POD\tNODE\tSTATE\tAGE\tGOES BEFORE THE NEXT, AS")
	for _, v := range podrank.Explain(active, podrank.PodOptions{Now: time.Now()}) {
		row(w, v.Object, explain(v))
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			row(w, pod, "")
		}
	}
	_ = w.Flush()
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}

var uid = regexp.MustCompile(`\b([0-9a-f]{8})-[0-9a-f-]{27}\b`)

// explain returns the reason why the victim comes before the next pod. It shortens UIDs to their
// first part. For the last pod, explain returns an empty string.
func explain(victim podrank.Victim[*corev1.Pod]) string {
	if victim.Criterion == podrank.All {
		return ""
	}
	return uid.ReplaceAllString(victim.Explain(), "$1...")
}

func row(w *tabwriter.Writer, pod *corev1.Pod, why string) {
	node := pod.Spec.NodeName
	if node == "" {
		node = "-"
	}
	_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%v\t%s\n", pod.Name, node, state(pod), time.Since(pod.CreationTimestamp.Time).Round(time.Second), why)
}
