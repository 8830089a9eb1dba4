// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/replicas"
)

// A Broker is a custom resource. Its own controller writes ObservedGeneration and Running.
type Broker struct {
	metav1.ObjectMeta  `json:"metadata"`
	Image              string `json:"image"`
	ObservedGeneration int64  `json:"observedGeneration"`
	Running            bool   `json:"running"`
}

// Each of three brokers gets a new image while the two others run. A broker is ready only if its controller has seen
// the newest spec. So the broker that was changed last is not ready, and the next plan changes no other.
func ExampleSpec_update() {
	one, app := intstr.FromInt32(1), labels.Set{"app": "kafka"}
	spec := replicas.Spec[*Broker]{
		Owner:    &metav1.ObjectMeta{Namespace: "default", Name: "kafka", UID: "4a1f"},
		Kind:     schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Kafka"},
		Replicas: 3, MaxUnavailable: &one, Selector: app.AsSelector(),
		Update: func(b *Broker) replicas.Change[*Broker] {
			if b.Image == "kafka:4" {
				return replicas.Change[*Broker]{}
			}
			changed := *b
			changed.Image = "kafka:4"
			return replicas.Change[*Broker]{To: &changed}
		},
		Rules: replicas.Rules[*Broker]{Ready: func(b *Broker) bool { return b.Running && b.ObservedGeneration == b.Generation }},
		Facts: replicas.Facts[*Broker]{Now: time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)},
	}
	var brokers []*Broker
	for _, name := range []string{"kafka-a", "kafka-b", "kafka-c"} {
		brokers = append(brokers, &Broker{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, UID: types.UID("of-" + name), ResourceVersion: "7", Generation: 1, Labels: app,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(spec.Owner, spec.Kind)},
			},
			Image: "kafka:3", ObservedGeneration: 1, Running: true,
		})
	}
	for range 3 {
		plan, err := replicas.Manage(brokers, spec)
		fmt.Println(plan, err)
		for _, change := range plan.Scale.Update {
			patch, err := change.Patch()
			fmt.Println(string(patch.Data), err)

			b := change.Object // the server stores the image and raises the generation
			b.Image, b.Generation = change.To.Image, b.Generation+1
			plan, err = replicas.Manage(brokers, spec)
			fmt.Println(plan, err)
			b.ObservedGeneration = b.Generation // the broker runs again
		}
	}
	// Output:
	// change 1: default/kafka-a; 2 kept while others are missing or unavailable <nil>
	// {"image":"kafka:4","metadata":{"resourceVersion":"7","uid":"of-kafka-a"}} <nil>
	// nothing to do; 2 kept while others are missing or unavailable <nil>
	// change 1: default/kafka-b; 1 kept while others are missing or unavailable <nil>
	// {"image":"kafka:4","metadata":{"resourceVersion":"7","uid":"of-kafka-b"}} <nil>
	// nothing to do; 1 kept while others are missing or unavailable <nil>
	// change 1: default/kafka-c <nil>
	// {"image":"kafka:4","metadata":{"resourceVersion":"7","uid":"of-kafka-c"}} <nil>
	// nothing to do <nil>
}
