// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/selector"
)

// A PodPlan is a Plan for pods.
type PodPlan = Plan[*corev1.Pod]

// A Plan is the result of Manage: a value that you can carry out, log, or show as a dry run. It refers to the owner and
// the children that were passed to Manage, so do not modify these objects. The zero Plan means that there is nothing to
// do.
type Plan[T metav1.Object] struct {
	// Claims says which children belong to the owner. Send the patches for the children in Adopt and Release BEFORE you
	// create, change or delete anything. The children in Owned and Ignored need no API call.
	Claims selector.Claims[T]
	// Scale says what to create, change and delete AFTER all patches for Claims have succeeded. But if one of them
	// failed, do not use Scale, because after a failed adoption it could delete a healthy child. Call ScaleTo with the
	// children that the owner really has, and use its result.
	Scale Scale[T]
	// Blocked says why the plan is blocked, and is zero if it is not. The Scale of a blocked plan contains nothing to
	// do, even if there are too few or too many children, and only its field Outdated may be set.
	Blocked Blocked
}

// IsZero reports whether the plan contains nothing to patch, create, change, delete or discard.
func (p Plan[T]) IsZero() bool {
	return len(p.Claims.Adopt) == 0 && len(p.Claims.Release) == 0 && p.Scale.IsZero()
}

// IsZero reports whether the Scale contains nothing to create, change, delete or discard.
func (s Scale[T]) IsZero() bool {
	return s.Create == 0 && len(s.Update)+len(s.Delete)+len(s.Discard) == 0
}

// String describes the plan in one line, with at most ten children from each list. Later releases may change the
// wording, but not the JSON fields that MarshalJSON writes.
func (p Plan[T]) String() string {
	var parts []string
	if n := len(p.Claims.Adopt); n > 0 {
		parts = append(parts, fmt.Sprintf("adopt %d: %s", n, list(p.Claims.Adopt, nameOf)))
	}
	if n := len(p.Claims.Release); n > 0 {
		parts = append(parts, fmt.Sprintf("release %d: %s", n, list(p.Claims.Release, nameOf)))
	}
	if p.Blocked.Reason != "" {
		parts = append(parts, "blocked: "+p.Blocked.String())
	} else if !p.Scale.IsZero() || len(parts) == 0 {
		parts = append(parts, p.Scale.String())
	}
	return strings.Join(parts, "; ")
}

// String describes the Scale in one line, with at most ten children from each list.
func (s Scale[T]) String() string {
	var parts []string
	if s.Create > 0 {
		parts = append(parts, fmt.Sprintf("create %d", s.Create))
	}
	if n := len(s.Update); n > 0 {
		parts = append(parts, fmt.Sprintf("change %d: %s", n, list(s.Update, func(c Change[T]) string {
			if c.Recall {
				return nameOf(c.Object) + " (recalled)"
			}
			return nameOf(c.Object)
		})))
	}
	if len(s.Delete) > 0 {
		parts = append(parts, fmt.Sprintf("delete %d: %s", len(s.Delete), list(s.Delete, func(d Deletion[T]) string {
			if d.Mark != nil {
				return fmt.Sprintf("%s (asked to leave: %s)", nameOf(d.Object), d.Explain())
			}
			return fmt.Sprintf("%s (%s)", nameOf(d.Object), d.Explain())
		})))
	}
	if n := len(s.Discard); n > 0 {
		parts = append(parts, fmt.Sprintf("discard %d: %s", n, list(s.Discard, func(d Deletion[T]) string { return nameOf(d.Object) })))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing to do")
	}
	if s.Kept > 0 {
		parts = append(parts, fmt.Sprintf("%d kept while others are missing or unavailable", s.Kept))
	}
	if s.MustStay > 0 {
		parts = append(parts, fmt.Sprintf("%d kept by MustStay", s.MustStay))
	}
	if n := len(s.Doubled); n > 0 {
		parts = append(parts, fmt.Sprintf("%d in slots of others: %s", n, list(s.Doubled, nameOf[T])))
	}
	if s.Deferred > 0 {
		parts = append(parts, fmt.Sprintf("%d more later", s.Deferred))
	}
	return strings.Join(parts, "; ")
}

const maxListed = 10

func list[S ~[]E, E any](items S, text func(E) string) string {
	var names []string
	for _, item := range items[:min(len(items), maxListed)] {
		names = append(names, text(item))
	}
	if more := len(items) - maxListed; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// MarshalJSON encodes the plan. Each child is represented by its namespace, name and UID.
func (p Plan[T]) MarshalJSON() ([]byte, error) {
	return marshal(struct {
		Owned   []reference `json:"owned,omitempty"`
		Adopt   []reference `json:"adopt,omitempty"`
		Release []reference `json:"release,omitempty"`
		Ignored []reference `json:"ignored,omitempty"`
		Scale   Scale[T]    `json:"scale"`
		Blocked Blocked     `json:"blocked,omitzero"`
	}{
		Owned:   references(p.Claims.Owned),
		Adopt:   references(p.Claims.Adopt),
		Release: references(p.Claims.Release),
		Ignored: references(p.Claims.Ignored),
		Scale:   p.Scale,
		Blocked: p.Blocked,
	})
}

// MarshalJSON encodes the Scale. Each child is represented by its namespace, name and UID, and a child in Delete also
// by the criterion by which it was chosen.
func (s Scale[T]) MarshalJSON() ([]byte, error) {
	discard := make([]reference, len(s.Discard))
	for i, d := range s.Discard {
		discard[i] = referenceTo(d.Object)
	}
	changed := make([]reference, len(s.Update))
	for i, c := range s.Update {
		changed[i] = referenceTo(c.Object)
	}
	victims := make([]victim, len(s.Delete))
	for i, v := range s.Delete {
		victims[i] = victim{
			reference: referenceTo(v.Object),
			Criterion: v.Criterion,
			Value:     v.Values.Victim,
			Survivor:  v.Values.Survivor,
			Reason:    v.Explain(),
			Mark:      v.Mark != nil,
		}
	}
	return marshal(struct {
		Create   int         `json:"create"`
		Names    []string    `json:"names,omitempty"`
		Update   []reference `json:"update,omitempty"`
		Delete   []victim    `json:"delete,omitempty"`
		Discard  []reference `json:"discard,omitempty"`
		Deferred int         `json:"deferred,omitempty"`
		Kept     int         `json:"kept,omitempty"`
		MustStay int         `json:"mustStay,omitempty"`
		Doubled  []reference `json:"doubled,omitempty"`
		Outdated int         `json:"outdated,omitempty"`
	}{s.Create, s.Names, changed, victims, discard, s.Deferred, s.Kept, s.MustStay, references(s.Doubled), s.Outdated})
}

// marshal returns the JSON encoding of v without escaping "<", although an encoder that calls MarshalJSON may.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return b.Bytes(), err
}

type reference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
}

type victim struct {
	reference
	Criterion string `json:"criterion"`
	Value     string `json:"value,omitempty"`
	Survivor  string `json:"survivor,omitempty"`
	Reason    string `json:"reason"`
	Mark      bool   `json:"mark,omitempty"`
}

func referenceTo(child metav1.Object) reference {
	if object.IsNil(child) {
		return reference{}
	}
	return reference{Namespace: child.GetNamespace(), Name: child.GetName(), UID: string(child.GetUID())}
}

func references[T metav1.Object](children []T) []reference {
	refs := make([]reference, len(children))
	for i, child := range children {
		refs[i] = referenceTo(child)
	}
	return refs
}

func nameOf[T metav1.Object](child T) string {
	if object.IsNil(child) {
		return "no object"
	}
	return object.Name(child)
}

// Blocked says why a plan creates, changes and deletes nothing. The zero value is that of a plan that is not blocked.
type Blocked struct {
	Reason BlockedReason `json:"reason"`
	// Until is the time when the expectation expires, if Reason is ExpectationsPending, and zero otherwise. Make a new
	// plan at this time or earlier.
	Until time.Time `json:"until,omitzero"`
}

// String returns the reason, followed by the time in Until if it is set, and "" for the zero value.
func (b Blocked) String() string {
	if b.Until.IsZero() {
		return string(b.Reason)
	}
	return string(b.Reason) + " until " + b.Until.UTC().Format(time.RFC3339)
}

// A BlockedReason says why a plan creates, changes and deletes nothing.
type BlockedReason string

// The reasons of Plan.Blocked.
const (
	// ExpectationsPending means that some creations or deletions that the owner expects have not been observed yet.
	// Make a new plan when all of them have been, or when the expectation expires. The expiry causes no event, so
	// requeue the owner for the time in Blocked.Until.
	ExpectationsPending BlockedReason = "expectations are pending"
	// ViewIsStale means that the expectation has expired, so the cache may be stale. It blocks every plan that would
	// create, delete or discard a child, every plan whose children need a change, and every plan of an owner with the
	// wrong number of children: the active ones, the orphans in Claims.Adopt and those in Facts.Undecided are together
	// not as many as Spec.Replicas. List the children from the API server instead of the cache. Then call Manage with
	// them, and with Facts.Pending set to expectations.Satisfied. If the list call fails, change nothing.
	//
	// Call expectations.SyncLive to correct the owner's record of expectations. The record then contains only the
	// changes that the cache does not show yet, and while it contains any, the next plan is not made from the stale
	// cache. Record the calls of the new plan with expectations.Store.Add, because Set would drop the changes that
	// SyncLive has kept.
	ViewIsStale BlockedReason = "view is stale"
	// OwnerDeleted means that the owner has a deletionTimestamp and that Spec.Draining returns false. The garbage
	// collector decides what happens to its children.
	OwnerDeleted BlockedReason = "owner is being deleted"
	// Paused means that Spec.Paused is set, and that the owner is not being deleted.
	Paused BlockedReason = "paused"
)
