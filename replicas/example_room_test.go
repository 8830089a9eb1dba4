// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// Three pods are wanted, and one pod exists. Two creations got no response. The Room allows the controller to
// repeat these two creations with the same names. The Room allows no creation with a new name.
func ExampleRoomOf() {
	rs := replicastest.NewReplicaSet("default", "web", 3)
	rs.UID = "4a1f"
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec.Facts.Now = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	spec.Facts.CreationsInFlight = []string{"web-lost1", "web-lost2"}

	room, err := replicas.RoomOf([]*corev1.Pod{replicastest.NewPod(rs, "web-a")}, spec)
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

// Three machines exist, and two are wanted. The deletion of m-3 got no response, so the plan deletes m-3 again.
// The Room does not allow the deletion of another machine.
func ExampleRoom_Clamp() {
	machines := make([]*metav1.ObjectMeta, 3)
	for i, name := range []string{"m-1", "m-2", "m-3"} {
		machines[i] = &metav1.ObjectMeta{Name: name, UID: types.UID(name)}
	}
	spec := replicas.Spec[*metav1.ObjectMeta]{
		Owner: &metav1.ObjectMeta{Name: "pool"}, Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Pool"},
		Replicas: 2,
	}
	spec.Facts.Now, spec.Facts.DeletionsInFlight = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC), []types.UID{"m-3"}
	scale, err := replicas.ScaleTo(machines, spec)
	fmt.Println(scale.Delete[0].Object.Name, err)
	room, err := replicas.RoomOf(machines, spec)
	scale.Delete[0].Object = machines[0]
	fmt.Println(room.Clamp(scale), err)
	// Output:
	// m-3 <nil>
	// nothing to do <nil>
}
