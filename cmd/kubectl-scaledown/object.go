// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A scaleDown is the machine-readable form of an answer, for example for -o json.
type scaleDown struct {
	metav1.TypeMeta `json:",inline"`

	For      reference   `json:"for"`
	Replicas int32       `json:"replicas"`
	At       string      `json:"at"`
	Within   string      `json:"within"`
	Summary  string      `json:"summary"`
	Certain  bool        `json:"certain"` // false if any set has a tie
	Sets     []set       `json:"sets"`
	Zones    []change    `json:"zones,omitempty"`
	Budgets  []budget    `json:"budgets,omitempty"`
	Pod      *position   `json:"pod,omitempty"`
	Compared *comparison `json:"compared,omitempty"`
}

// A reference identifies an object of the API server.
type reference struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// A set describes what a controller does for one ReplicaSet or ReplicationController.
type set struct {
	reference `json:",inline"`

	Replicas int32          `json:"replicas"`
	Plan     map[string]any `json:"plan"`
	Tie      *drawn         `json:"tie,omitempty"`
	Order    []place        `json:"order,omitempty"` // with --explain
}

// drawn is the machine-readable form of a tie. If earlier steps delete pods of the tie, the fields
// Goes and Of include these pods too.
type drawn struct {
	Goes  int      `json:"goes"`
	Of    []string `json:"of"`
	cause `json:",inline"`
}

// A place describes one pod in the deletion order, and the criterion that puts the pod before the
// next one.
type place struct {
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Goes      string    `json:"goes"`
	Criterion string    `json:"criterion"`
	Value     string    `json:"value"`
	Next      string    `json:"next"` // the next pod's value for the same criterion
	Reason    string    `json:"reason"`
}

func (a *answer) object(objs *objects, o *options) (scaleDown, error) {
	object := scaleDown{
		TypeMeta: metav1.TypeMeta{APIVersion: "scaledown.replicakit.dev/v1", Kind: "ScaleDown"},
		For:      a.owner.reference(), Replicas: a.replicas, At: a.window.start.UTC().Format(time.RFC3339Nano), Within: o.within.String(),
		Summary: a.summary(), Certain: true, Sets: []set{}, Zones: a.zones(objs),
	}
	var err error
	if object.Budgets, err = a.budgets(objs); err != nil {
		return object, err
	}
	if o.pod != "" {
		position, err := a.position(o.pod)
		if err != nil {
			return object, err
		}
		object.Pod = &position
	}
	if objs.after != nil {
		c := a.compare(objs.after)
		object.Compared = &c
	}
	for _, d := range a.sets {
		plan := d.plan
		plan.Scale.Delete = plan.Scale.Delete[d.gone:]
		s := set{reference: d.owner.reference(), Replicas: d.replicas, Tie: d.drawn()}
		text, err := json.Marshal(plan)
		if err == nil {
			err = json.Unmarshal(text, &s.Plan)
		}
		if err != nil {
			return object, err
		}
		if o.explain {
			s.Order = d.places()
		}
		object.Certain = object.Certain && d.tie == nil
		object.Sets = append(object.Sets, s)
	}
	return object, nil
}

func (o owner) reference() reference {
	return reference{o.kind.name, o.GetNamespace(), o.GetName(), o.GetUID()}
}

func (d *decision) drawn() *drawn {
	if d.tie == nil {
		return nil
	}
	return &drawn{d.tie.goes, d.tied(), d.tie.cause}
}

func (d *decision) tied() (names []string) {
	for _, v := range d.order[d.tie.from:d.tie.to] {
		names = append(names, v.Object.Name)
	}
	return names
}

func (d *decision) places() []place {
	var places []place
	for i, v := range d.order {
		places = append(places, place{
			v.Object.Name, v.Object.UID, d.fate(i), v.Criterion, v.Values.Victim, v.Values.Survivor, d.whyBefore(i),
		})
	}
	return places
}
