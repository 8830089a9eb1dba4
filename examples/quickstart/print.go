// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A narrator writes a line for each event, with the time and the object.
type narrator struct {
	text    strings.Builder
	now     func() time.Time
	acts    int
	began   time.Time // the time at which the current act began
	waited  int       // number of passes in the current act that had to wait
	why     string    // why the most recent of the waiting passes had to wait
	calls   map[string]int
	created []error                          // the results of the creations in the current pass
	victims []replicas.Deletion[*corev1.Pod] // the pods that the current pass deletes
}

// act starts the next act of the story and prints its heading: a package, a question and an explanation.
func (n *narrator) act(pkg, what, why string) {
	n.acts++
	n.began, n.waited = n.now(), 0
	n.print("\n%d. %s: %s\n   %s\n", n.acts, pkg, what, why)
}

// say writes one line, with the time since the act began.
func (n *narrator) say(what, format string, args ...any) {
	n.print("%8s  %-8s %s", elapsed(n.now().Sub(n.began)), what, fmt.Sprintf(format, args...))
}

func (n *narrator) print(format string, args ...any) { fmt.Fprintf(&n.text, format+"\n", args...) }

// call adds one to the number of API calls with the same verb. If the API call creates a pod, its result is
// also recorded.
func (n *narrator) call(call replicastest.Call, err error) {
	n.calls[call.Verb]++
	if call.Verb == "create" {
		n.created = append(n.created, err)
	}
}

// passed prints the changes of a pass. The controller calls this method at the end of each pass.
func (n *narrator) passed(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
	if pass.Waiting() {
		n.waited++
		n.why = pass.Gates[0].Reason.Sentence()
	}
	for _, pod := range pass.Released {
		n.say("release", "%s", pod.Name)
	}
	for _, pod := range pass.Adopted {
		n.say("adopt", "%s", pod.Name)
	}
	if len(n.created) > 0 {
		n.say("create", "%s", creations(n.created, pass.Skipped))
	}
	for _, v := range n.victims {
		n.say("delete", "%s: %s", v.Object.Name, v.Explain())
	}
	n.created, n.victims = nil, nil
}

// status prints the status of the ReplicaSet.
func (n *narrator) status(rs *appsv1.ReplicaSet) {
	s := rs.Status
	line := []string{
		fmt.Sprintf("%d wanted: %d replicas", *rs.Spec.Replicas, s.Replicas),
		fmt.Sprintf("%d ready", s.ReadyReplicas),
		fmt.Sprintf("%d available", s.AvailableReplicas),
	}
	if n := *replicaset.Terminating(&s); n != nil && *n > 0 {
		line = append(line, fmt.Sprintf("%d terminating", *n))
	}
	for _, c := range s.Conditions {
		line = append(line, fmt.Sprintf("%s: %s", c.Type, c.Reason))
	}
	n.say("status", "%s", strings.Join(line, ", "))
}

// creations summarizes the creation calls of a slow start. The error of call i is answers[i], and skipped
// is the number of calls that were not made.
func creations(answers []error, skipped int) string {
	wanted := count(len(answers)+skipped, "pod")
	refused := 0
	for _, err := range answers {
		if err != nil {
			refused++
		}
	}
	if refused == 0 {
		return wanted + batches(len(answers))
	}
	return fmt.Sprintf("%d of %s%s: %s refused, %d spared",
		len(answers)-refused, wanted, batches(len(answers)), count(refused, "call"), skipped)
}

// batches returns the sizes of the batches of a slow start as a string. The size doubles from batch to
// batch, but the last batch can be smaller.
func batches(calls int) string {
	if calls == 1 {
		return ""
	}
	var sizes []string
	for size := 1; calls > 0; size *= 2 {
		sizes = append(sizes, strconv.Itoa(min(size, calls)))
		calls -= size
	}
	return ", in batches of " + strings.Join(sizes, ", ")
}

// count returns a string such as "1 pod", "2 pods" or "2 passes".
func count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// elapsed returns a string such as "0s", "2.5s" or "5m 50s".
func elapsed(d time.Duration) string {
	d = d.Round(time.Second / 10)
	minutes, rest := d/time.Minute, (d % time.Minute).Seconds()
	switch {
	case minutes == 0:
		return fmt.Sprintf("%gs", rest)
	case rest == 0:
		return fmt.Sprintf("%dm", minutes)
	}
	return fmt.Sprintf("%dm %gs", minutes, rest)
}
