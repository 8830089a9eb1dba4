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

// showTable keeps the table on the screen until the function that it returns is
// called.
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

// table has the pods in the order in which they would be deleted.
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
	order := inOrder(active)
	for i, pod := range order {
		why := ""
		if i+1 < len(order) {
			why = explain(podrank.Select(order[i:i+2], nil, 1, time.Now())[0])
		}
		row(w, pod, why)
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

// explain is podrank.Explain with the beginning of each UID only.
func explain(victim podrank.Victim) string {
	return uid.ReplaceAllString(podrank.Explain(victim), "$1...")
}

func row(w *tabwriter.Writer, pod *corev1.Pod, why string) {
	node := pod.Spec.NodeName
	if node == "" {
		node = "-"
	}
	_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\t%v\t%s\n", pod.Name, node, state(pod), time.Since(pod.CreationTimestamp.Time).Round(time.Second), why)
}

// inOrder returns the pods, the first to be deleted first.
func inOrder(pods []*corev1.Pod) []*corev1.Pod {
	var order []*corev1.Pod
	for _, victim := range podrank.Select(pods, nil, len(pods), time.Now()) {
		order = append(order, victim.Pod)
	}
	return order
}
