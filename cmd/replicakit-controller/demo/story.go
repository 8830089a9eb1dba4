// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/status"
)

const (
	namespace = metav1.NamespaceDefault
	name      = "web"
	// patience is the maximum time that the controller may take for one step.
	patience = time.Minute
)

// A story is the sequence of steps that the demo takes with one ReplicaSet.
type story struct {
	screen     *screen
	fleet      *fleet
	client     kubernetes.Interface
	controller *controlplane.Program
	faults     *faults
}

func (s *story) tell(ctx context.Context) error {
	acts := []func(context.Context) error{s.create, s.scaleUp, s.rob, s.spoil, s.scaleDown, s.loseAnswer}
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return err
		}
		if s.screen.live {
			s.pause(ctx)
		}
	}
	return nil
}

// pause gives the user time to read the table.
func (s *story) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
}

func (s *story) create(ctx context.Context) error {
	s.screen.say("1. A ReplicaSet of 5 pods is created.")
	labels := map[string]string{"app": name}
	_, err := s.client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(5)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.k8s.io/pause:3.10"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return s.settle(ctx, 5)
}

func (s *story) scaleUp(ctx context.Context) error {
	s.screen.say("2. The ReplicaSet is scaled to 12. Slow start creates 1 pod, then 2, then 4.")
	if err := s.scale(ctx, 12); err != nil {
		return err
	}
	return s.settle(ctx, 12)
}

func (s *story) rob(ctx context.Context) error {
	victim := s.pods()[0].Name
	s.screen.say("3. Someone deletes %s: a new pod takes its place, at once.", victim)
	if err := s.client.CoreV1().Pods(namespace).Delete(ctx, victim, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err := s.until(ctx, "a pod that goes", func() bool {
		return !slices.ContainsFunc(s.pods(), func(pod *corev1.Pod) bool { return pod.Name == victim })
	})
	if err != nil {
		return err
	}
	return s.settle(ctx, 12)
}

// spoil makes one pod not ready, and gives another pod a low deletion cost.
func (s *story) spoil(ctx context.Context) error {
	pods := s.pods()
	broken, cheap := pods[3], pods[7]
	s.screen.say("4. %s stops being ready, and %s gets a deletion cost of -100.", broken.Name, cheap.Name)
	if err := s.fleet.setReady(ctx, broken, corev1.ConditionFalse); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"-100"}}}`, corev1.PodDeletionCost)
	_, err := s.client.CoreV1().Pods(namespace).Patch(ctx, cheap.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return s.until(ctx, "the two pods", func() bool {
		changed := slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool {
			return status.IsPodReady(pod) && pod.Annotations[corev1.PodDeletionCost] == ""
		})
		return len(changed) == 2
	})
}

// scaleDown asks the library which pods will be deleted. It then scales down, and compares the
// answer with the pods that the controller has deleted.
func (s *story) scaleDown(ctx context.Context) error {
	const wanted = 7
	before := s.pods()
	plan, err := s.plan(before, wanted)
	if err != nil {
		return err
	}
	s.screen.say("5. The ReplicaSet is scaled to %d. replicas.Manage says which pods will go, and why:", wanted)
	var foretold []string
	for _, victim := range plan.Scale.Delete {
		foretold = append(foretold, victim.Object.Name)
		s.screen.say("     %-12s %s", victim.Object.Name, explain(victim.Victim))
	}
	if err := s.scale(ctx, wanted); err != nil {
		return err
	}
	if err := s.settle(ctx, wanted); err != nil {
		return err
	}
	after := s.pods()
	var gone []string
	for _, pod := range before {
		if !slices.ContainsFunc(after, func(p *corev1.Pod) bool { return p.UID == pod.UID }) {
			gone = append(gone, pod.Name)
		}
	}
	slices.Sort(foretold)
	if !slices.Equal(foretold, gone) {
		s.screen.say("   The controller decided a moment later, when the ages were different. It deleted %s.", strings.Join(gone, ", "))
		return nil
	}
	s.screen.say("   The controller deleted exactly these.")
	return nil
}

// loseAnswer creates a pod whose existence neither an answer nor the watch shows to the controller.
func (s *story) loseAnswer(ctx context.Context) error {
	const wanted, late = 8, 5 * time.Second
	before := s.pods()
	s.screen.say("6. The controller's watch of the pods hangs for %v, and the answer to its next creation is lost. The ReplicaSet is scaled to %d.", late, wanted)
	s.faults.hang()
	goOn := sync.OnceFunc(s.faults.goOn)
	defer goOn()
	s.faults.loses.Store(true)
	if err := s.scale(ctx, wanted); err != nil {
		return err
	}
	if err := s.until(ctx, "the pod", func() bool { return len(s.pods()) >= wanted }); err != nil {
		return err
	}
	made := slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(before, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	})
	s.screen.say("   %s was created, but the controller cannot see it. Kubernetes' controller takes such a call for a failed one, and creates another pod.", made[0].Name)
	most, end := 0, time.Now().Add(late)
	err := s.until(ctx, "the watch", func() bool {
		most = max(most, len(s.pods()))
		return time.Now().After(end)
	})
	if err != nil {
		return err
	}
	if most > wanted {
		return fmt.Errorf("there were %d pods instead of %d; see %s", most, wanted, s.controller.Log())
	}
	s.screen.say("   This controller chose the name before the call, asked the server for %s, and created no other pod.", made[0].Name)
	goOn()
	return s.settle(ctx, wanted)
}

func (s *story) plan(pods []*corev1.Pod, wanted int32) (replicas.PodPlan, error) {
	spec, err := replicas.ReplicaSetSpec(s.fleet.replicaSet(namespace, name))
	if err != nil {
		return replicas.PodPlan{}, err
	}
	spec.Replicas, spec.Facts.Now = wanted, time.Now()
	return replicas.Manage(pods, spec)
}

// pods returns the pods, sorted by name.
func (s *story) pods() []*corev1.Pod { return s.fleet.pods(namespace) }

func (s *story) scale(ctx context.Context, wanted int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, wanted)
	_, err := s.client.AppsV1().ReplicaSets(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "scale")
	return err
}

// settle waits until the ReplicaSet has the wanted number of pods, and its status reports all of
// them as available.
func (s *story) settle(ctx context.Context, wanted int32) error {
	err := s.until(ctx, fmt.Sprintf("%d pods", wanted), func() bool {
		rs := s.fleet.replicaSet(namespace, name)
		return rs != nil && *rs.Spec.Replicas == wanted && rs.Status.ObservedGeneration == rs.Generation &&
			rs.Status.Replicas == wanted && rs.Status.AvailableReplicas == wanted && len(s.pods()) == int(wanted)
	})
	if !s.screen.live && err == nil {
		s.screen.say("%s\n", strings.Join(s.table(), "\n"))
	}
	return err
}

func (s *story) until(ctx context.Context, what string, done func() bool) error {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.controller.Ended():
			return s.controller.Err()
		case <-timeout.C:
			return fmt.Errorf("gave up after waiting %v for %s; see %s", patience, what, s.controller.Log())
		case <-ticker.C:
		}
	}
	return nil
}
