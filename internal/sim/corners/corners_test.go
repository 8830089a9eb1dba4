// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corners_test tests a controller with one fault at a time, as Sieve does (OSDI 2022). The test
// first plays each scenario without a fault, to learn which calls the controller makes and which
// events arrive. The test then plays the scenario once more for each of these faults:
//
//   - The process crashes before or after a call. Reads of single objects are left out.
//   - The watch loses an event, and the objects are listed again some time later.
//   - The watch breaks at an event.
//   - The watch hangs at an event for minutes. In one variant, the watch then resumes with one event
//     per second.
//   - A pass sees the cache in the state that it had several events earlier.
//   - A call takes effect, but its answer is lost. There is one play for each possible error. In one
//     variant, the read after the call also fails.
//   - The client itself retries a request, or a request takes effect after its caller has stopped
//     waiting, or a webhook relabels the created pod so that the pod does not match its owner.
//   - The controller is paused before a write while another controller works.
//   - The server refuses a call once. There is one play for each possible error.
//
// Each play must end in the same state as the play without a fault, with the same counts, owners and
// status. The names of pods may differ. The rules of package invariant must hold at every step.
package corners_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/inside"
	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

var every = flag.Int("every", 61, "make only every so manieth disturbance; 1: all")

func scenarios() []scenario {
	up := func(n int32) step {
		return step{0, func(s *stage) error { return s.owner("web", n, 0) }}
	}
	scale := func(at time.Duration, n int32) step {
		return step{at, func(s *stage) error { return s.scale("web", n) }}
	}
	orphan := func(at time.Duration, name string) step {
		return step{at, func(s *stage) error { return s.orphan(name) }}
	}
	remove := func(at time.Duration, policy metav1.DeletionPropagation) step {
		return step{at, func(s *stage) error {
			return s.DeleteOwner(context.Background(), namespace, "web", policy)
		}}
	}
	again := func(at time.Duration, n int32) step {
		return step{at, func(s *stage) error { return s.owner("web", n, 0) }}
	}
	var picked string // the name of the pod that one step picked, for a later step
	pick := func(s *stage) string {
		picked = s.oldest()
		return picked
	}
	return []scenario{
		{name: "scale up", steps: []step{up(2), scale(60*time.Second, 6)}},
		{name: "scale down", steps: []step{up(5), scale(60*time.Second, 2)}},
		{name: "to zero and back", steps: []step{up(3), scale(60*time.Second, 0), scale(61*time.Second, 2)}},
		{name: "change of mind", steps: []step{up(5), scale(100*time.Millisecond, 8), scale(300*time.Millisecond, 1), scale(2*time.Second, 3)}},
		{name: "adopt", steps: []step{orphan(0, "a"), orphan(0, "b"), up(4)}},
		{name: "adopt too many", steps: []step{up(2), orphan(60*time.Second, "a"), orphan(60*time.Second, "b"), orphan(61*time.Second, "c")}},
		{name: "release", noReplay: true, steps: []step{up(3), {60 * time.Second, func(s *stage) error { return s.relabel(s.oldest(), "debug") }}}},
		{name: "label flip", steps: []step{
			up(3),
			{60 * time.Second, func(s *stage) error { return s.relabel(pick(s), "debug") }},
			{61 * time.Second, func(s *stage) error { return s.relabel(picked, "web") }},
		}},
		{name: "owner re-created, pods orphaned", steps: []step{up(3), remove(60*time.Second, metav1.DeletePropagationOrphan), again(63*time.Second, 4)}},
		{name: "owner re-created, pods collected", steps: []step{up(3), remove(60*time.Second, metav1.DeletePropagationBackground), again(60*time.Second, 4)}},
		{name: "owner deleted in the foreground", noHang: true, steps: []step{up(3), remove(60*time.Second, metav1.DeletePropagationForeground), again(110*time.Second, 2)}},
		{name: "K2 quota", steps: []step{
			{0, func(s *stage) error { s.SetQuota(namespace, 3); return s.owner("web", 6, 0) }},
			{70 * time.Second, func(s *stage) error { s.SetQuota(namespace, 100); return nil }},
		}},
		{name: "finalizers", steps: []step{
			up(3),
			{60 * time.Second, func(s *stage) error {
				return s.edit(pick(s), func(p *corev1.Pod) { p.Finalizers = []string{"example.com/hold"} })
			}},
			{61 * time.Second, func(s *stage) error {
				_, err := s.DeleteChild(context.Background(), namespace, picked, metav1.DeleteOptions{})
				return err
			}},
			{140 * time.Second, func(s *stage) error { return s.edit(picked, func(p *corev1.Pod) { p.Finalizers = nil }) }},
		}},
		{name: "two siblings", steps: []step{
			up(4),
			{0, func(s *stage) error { return s.owner("db", 3, 0) }},
			scale(60*time.Second, 2),
			{60 * time.Second, func(s *stage) error { return s.scale("db", 5) }},
		}},
		{name: "minReadySeconds", steps: []step{{0, func(s *stage) error { return s.owner("web", 3, 15) }}, scale(90*time.Second, 4)}},
		{name: "restart in mid-burst", steps: []step{up(6), {160 * time.Millisecond, func(s *stage) error { s.restart(); return nil }}}},
		{name: "node lost", steps: []step{
			up(4),
			{60 * time.Second, func(s *stage) error { s.LoseNode("node-1"); return nil }},
			{8 * time.Minute, func(s *stage) error { s.RemoveNode("node-1"); return nil }},
		}},
		{name: "W10 namespace going away", steps: []step{
			up(3), {60 * time.Second, func(s *stage) error {
				inside.Of[inside.Cluster](s.PodCluster).TerminateNamespace(namespace)
				return s.scale("web", 5)
			}},
		}},
		{name: "pods fail", steps: []step{up(3), {60 * time.Second, func(s *stage) error {
			return s.edit(s.oldest(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}}}},
		{name: "pod deleted by a user", steps: []step{up(3), {60 * time.Second, func(s *stage) error {
			_, err := s.DeleteChild(context.Background(), namespace, s.oldest(), metav1.DeleteOptions{})
			return err
		}}}},
		{name: "W26 pod replaced while it is chosen", steps: []step{
			up(3),
			{60 * time.Second, func(s *stage) error { return s.edit(pick(s), cheap) }},
			{70 * time.Second, func(s *stage) error {
				if err := s.scale("web", 2); err != nil {
					return err
				}
				return s.replace(picked)
			}},
		}},
		{name: "pod orphaned while it is chosen", noHang: true, steps: []step{
			up(3),
			{60 * time.Second, func(s *stage) error { return s.edit(pick(s), cheap) }},
			{70 * time.Second, func(s *stage) error {
				if err := s.scale("web", 2); err != nil {
					return err
				}
				return s.edit(picked, func(p *corev1.Pod) { p.OwnerReferences, p.Labels["app"] = nil, "debug" })
			}},
		}},
		{name: "W42 policy forbids adoption for a while", steps: []step{
			{0, func(s *stage) error {
				s.Webhook = func(verb string, p *corev1.Pod) error {
					if verb == "patch" {
						return failure.Invalid.Of(replicastest.Call{Verb: verb, Kind: "Pod"})
					}
					return nil
				}
				return s.orphan("a")
			}},
			up(3),
			{80 * time.Second, func(s *stage) error { s.Webhook = nil; return nil }},
		}},
	}
}

// disturbances returns the disturbances that the test tries on a play with the given trace.
func disturbances(seen trace) (all []disturbance) {
	for n, call := range seen.calls {
		if call.Verb != "get" {
			all = append(all, disturbance{kind: crashBefore, n: n}, disturbance{kind: crashAfter, n: n})
		}
		for _, failure := range failure.Lost() {
			all = append(all, disturbance{kind: unanswered, n: n, failure: failure})
		}
		switch call.Verb {
		case "create":
			all = append(all, disturbance{kind: taken, n: n})
			fallthrough
		case "delete", "patch", "status":
			all = append(all, disturbance{kind: blind, n: n, failure: failure.Timeout}, disturbance{kind: late, n: n}, disturbance{kind: paused, n: n},
				disturbance{kind: resent, n: n, failure: failure.TooManyRequests}, disturbance{kind: resent, n: n, failure: failure.ConnectionReset})
		}
		for failure := range failure.Failures {
			all = append(all, disturbance{kind: refused, n: n, failure: failure})
		}
	}
	for n := range seen.events {
		all = append(all, disturbance{kind: missed, n: n}, disturbance{kind: broken, n: n})
		if n > 3 { // if the watch hung at one of the first events, nothing would happen at all
			all = append(all, disturbance{kind: hung, n: n}, disturbance{kind: replayed, n: n})
		}
	}
	for n := range seen.passes {
		for _, back := range []int{1, 2, 3, 5, 8} {
			all = append(all, disturbance{kind: stale, n: n, back: back})
		}
	}
	return all
}

// A single thing goes wrong in a scenario, which still ends in the same state.
func TestCorners(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	plays := map[kind]int{}
	t.Cleanup(func() {
		all := 0
		for _, n := range plays {
			all += n
		}
		t.Logf("figures: %d plays: %v", all, plays)
	})
	for i, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			sc := scenarios()[i] // each parallel subtest calls scenarios itself, because the steps from one call share a variable
			learned, want, err := play(sc, disturbance{kind: undisturbed}, trace{})
			require.NoError(t, err)
			for j, d := range disturbances(learned.seen) {
				if (i+j)%*every != 0 || (d.kind == hung || d.kind == replayed) && sc.noHang || d.kind == replayed && sc.noReplay {
					continue
				}
				s, got, err := play(sc, d, learned.seen)
				where := fmt.Sprintf("%s, %s", sc.name, d)
				require.NoError(t, err, where)
				require.Equal(t, want, got, where)
				assert.True(t, s.hit, where)
				mu.Lock()
				plays[d.kind]++
				mu.Unlock()
			}
		})
	}
}
