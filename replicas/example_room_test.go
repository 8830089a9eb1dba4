// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// The answers of two creations were lost. Of three pods that are wanted one is there.
func ExampleRoomOf() {
	rs := replicastest.NewReplicaSet("default", "web", 3)
	rs.UID = "4a1f"
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	spec.CreationsInFlight = []string{"web-lost1", "web-lost2"}
	there := []*corev1.Pod{replicastest.NewPod(rs, "web-a")}

	room, err := replicas.RoomOf(there, spec)
	fmt.Println(room.Create, err)
	for _, names := range [][]string{{"web-lost1", "web-lost2"}, {"web-lost1", "web-new"}, {"web-new1", "web-new2"}} {
		fmt.Printf("%q of %q\n", room.Clamp(replicas.PodScale{Create: 2, Names: names}).Names, names)
	}
	// Output:
	// 2 <nil>
	// ["web-lost1" "web-lost2"] of ["web-lost1" "web-lost2"]
	// ["web-lost1"] of ["web-lost1" "web-new"]
	// [] of ["web-new1" "web-new2"]
}

// The answer of a deletion was lost. Of three pods two are wanted.
func ExampleRoom_Clamp() {
	rs := replicastest.NewReplicaSet("default", "web", 2)
	rs.UID = "4a1f"
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	var there []*corev1.Pod
	for _, name := range []string{"web-a", "web-b", "web-c"} {
		pod := replicastest.NewPod(rs, name)
		pod.UID, pod.Status.Phase = types.UID(name), corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		pod.CreationTimestamp = metav1.NewTime(spec.Now.Add(-time.Hour))
		there = append(there, pod)
	}
	spec.DeletionsInFlight = []types.UID{"web-c"}

	scale, err := replicas.ScaleTo(there, spec)
	fmt.Println(scale.Delete[0].Object.Name, err)
	room, err := replicas.RoomOf(there, spec)
	scale.Delete[0].Object = there[0] // another one goes
	fmt.Println(room.Clamp(scale), err)
	// Output:
	// web-c <nil>
	// nothing to do <nil>
}
