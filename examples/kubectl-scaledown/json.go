// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
)

// An object names one of the API server.
type object struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// A set is what is to be done for one owner of pods.
type set struct {
	object

	Replicas int32         `json:"replicas"`
	Plan     replicas.Plan `json:"plan"`
	Order    []place       `json:"order,omitempty"` // with --explain
}

// A place is that of a pod in the order, and what decided between it and the
// next.
type place struct {
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Goes      bool      `json:"goes"`
	Criterion string    `json:"criterion"`
	Value     string    `json:"value"`
	Next      string    `json:"next"` // the value of the next
	Reason    string    `json:"reason"`
}

func printJSON(out *bytes.Buffer, a answer) error {
	sets := []set{}
	for _, d := range a.sets {
		s := set{object: d.owner.object(), Replicas: d.replicas, Plan: d.plan}
		if a.explain {
			s.Order = d.places()
		}
		sets = append(sets, s)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "    ")
	return encoder.Encode(struct {
		For      object    `json:"for"`
		Replicas int32     `json:"replicas"`
		At       time.Time `json:"at"`
		Summary  string    `json:"summary"`
		Sets     []set     `json:"sets"`
	}{a.owner.object(), a.replicas, a.at.UTC(), a.summary(), sets})
}

func (o owner) object() object {
	return object{o.kind.name, o.GetNamespace(), o.GetName(), o.GetUID()}
}

func (d *decision) places() []place {
	var places []place
	for i, v := range d.order {
		places = append(places, place{
			v.Object.Name, v.Object.UID, i < d.goes(), v.Criterion, v.Values.Victim, v.Values.Survivor, d.because(i),
		})
	}
	return places
}
