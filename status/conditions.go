// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"errors"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Condition is a condition of a ReplicaSet, of a ReplicationController, or, as metav1.Condition,
// of your own status type. For a condition type of your own, see Conditions.
type Condition interface {
	appsv1.ReplicaSetCondition | corev1.ReplicationControllerCondition | metav1.Condition
}

// ReplicaFailure is the type of the condition that SetFailure sets and removes.
const ReplicaFailure = "ReplicaFailure"

// A Failure is what SetFailure makes the ReplicaFailure condition from.
type Failure struct {
	// Err is the error of creating or deleting replicas, or nil. Its text becomes
	// the message.
	Err error

	// Waiting says that nothing was tried because the owner waits for its earlier
	// creations and deletions. The condition then stays as it is. If Err is set,
	// Waiting is ignored.
	Waiting bool

	// Active is how many active replicas there are, and Desired how many are wanted. Nil means not
	// known. They decide the reason, which is FailedCreate if there are too few and FailedDelete if
	// there are too many.
	Active  int32
	Desired *int32

	// ObservedGeneration is the owner's generation. Only metav1.Condition has a
	// field for it.
	ObservedGeneration int64

	// Now becomes the time of a condition that is set.
	Now time.Time
}

// SetFailure sets, keeps or removes the ReplicaFailure condition. If Err is set, the condition is
// True and becomes the last. If the current condition has the same reason and its message differs
// only in the names of children, it stays as it is. Then only the observedGeneration of a
// metav1.Condition is updated. These names stand in quotes behind the resource that the error of
// the API server names, or end as the API server makes names of a generateName.
//
// If Err is nil, the condition is removed, unless Waiting is true. If no condition remains, the
// list becomes nil. The old slice is not changed. If conditions is nil, SetFailure does nothing.
//
// The reason is empty if Active equals Desired or Desired is nil. A metav1.Condition must have a
// reason, so it has "Failed". Its message is cut at 32,768 bytes, since the API server accepts at
// most as many characters.
//
// Differs from Kubernetes: the condition is updated if the reason or the message changes.
// Kubernetes keeps the first message for as long as there is a failure, such as a quota that was
// raised since. The condition stays while Waiting, and its time is Now instead of the wall clock.
func SetFailure[C Condition](conditions *[]C, f Failure) { setFailure(known[C]{}, conditions, f) }

// A form is how the rules access a type of conditions.
type form[C any] interface {
	read(c *C) (conditionType, status, reason string)
	messageOf(c *C) string
	// failure returns the condition for the failure.
	failure(f Failure) C
	// observe gives c the observedGeneration of the newer condition, and reports whether it was
	// different.
	observe(c, newer *C) bool
}

func setFailure[C any, F form[C]](of F, conditions *[]C, f Failure) {
	if conditions == nil {
		return
	}
	current := get(of, *conditions, ReplicaFailure)
	if f.Err == nil {
		if !f.Waiting && current != nil {
			*conditions = without(of, *conditions, ReplicaFailure)
		}
		return
	}
	failure, same := of.failure(f), false
	if current != nil {
		_, _, oldReason := of.read(current)
		_, _, reason := of.read(&failure)
		same = oldReason == reason && isSameCause(of.messageOf(current), of.messageOf(&failure), f.Err)
	}
	replace(of, conditions, current, failure, same)
}

// generated is the end of a name that was made of a generateName (P4).
var generated = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)

// isSameCause reports whether two messages differ at most in the names of children, at any place
// where a webhook writes them. The second message is that of err.
func isSameCause(was, is string, err error) bool {
	was, is = generated.ReplaceAllLiteralString(was, "-?"), generated.ReplaceAllLiteralString(is, "-?")
	var answer interface{ Status() metav1.Status } // an apierrors.APIStatus
	if was == is || !errors.As(err, &answer) {
		return was == is
	}
	details := answer.Status().Details
	if details == nil || details.Kind == "" {
		return false
	}
	resource := schema.GroupResource{Group: details.Group, Resource: details.Kind}
	name := regexp.MustCompile(regexp.QuoteMeta(resource.String()) + ` "[^"]*"`)
	return name.ReplaceAllLiteralString(was, "") == name.ReplaceAllLiteralString(is, "")
}

// known is the form of the types that this package knows.
type known[C Condition] struct{}

// failure is T11.
func (known[C]) failure(f Failure) (condition C) {
	reason, message, now := f.reason(), f.Err.Error(), metav1.NewTime(f.Now)
	switch c := any(&condition).(type) {
	case *appsv1.ReplicaSetCondition:
		*c = appsv1.ReplicaSetCondition{Type: ReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: reason, Message: message}
	case *corev1.ReplicationControllerCondition:
		*c = corev1.ReplicationControllerCondition{Type: ReplicaFailure, Status: corev1.ConditionTrue, LastTransitionTime: now, Reason: reason, Message: message}
	case *metav1.Condition:
		if reason == "" {
			reason = "Failed"
		}
		*c = metav1.Condition{
			Type: ReplicaFailure, Status: metav1.ConditionTrue, LastTransitionTime: now, Reason: reason,
			Message: cut(message), ObservedGeneration: f.ObservedGeneration,
		}
	}
	return condition
}

// reason says whether there are too few or too many replicas (T12).
func (f Failure) reason() string {
	switch {
	case f.Desired == nil:
		return ""
	case f.Active < *f.Desired:
		return "FailedCreate"
	case f.Active > *f.Desired:
		return "FailedDelete"
	}
	return ""
}

// cut shortens a message to the longest that a metav1.Condition may have.
func cut(message string) string {
	const longest = 32768
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:longest-len("...")], "") + "..."
}

// GetCondition returns a copy of the first condition of the given type, or nil if
// there is none.
func GetCondition[C Condition, T ~string](conditions []C, conditionType T) *C {
	return get(known[C]{}, conditions, string(conditionType))
}

func get[C any, F form[C]](of F, conditions []C, conditionType string) *C {
	for i := range conditions {
		if is, _, _ := of.read(&conditions[i]); is == conditionType {
			c := conditions[i]
			return &c
		}
	}
	return nil
}

// SetCondition replaces the conditions of the same type by the given condition, which becomes the
// last. If the first of them has the same status and reason, it stays with its old message and
// time. Then only the observedGeneration of a metav1.Condition is updated. The old slice is not
// changed. If conditions is nil, it does nothing.
func SetCondition[C Condition](conditions *[]C, condition C) { set(known[C]{}, conditions, condition) }

func set[C any, F form[C]](of F, conditions *[]C, condition C) {
	if conditions == nil {
		return
	}
	conditionType, status, reason := of.read(&condition)
	current, same := get(of, *conditions, conditionType), false
	if current != nil {
		_, oldStatus, oldReason := of.read(current)
		same = oldStatus == status && oldReason == reason
	}
	replace(of, conditions, current, condition, same)
}

// replace replaces the conditions of the type by a new one. If the new one is the same as the
// current one, only the observedGeneration changes.
func replace[C any, F form[C]](of F, conditions *[]C, current *C, condition C, same bool) {
	if same {
		if !of.observe(current, &condition) {
			return
		}
		condition = *current
	}
	conditionType, _, _ := of.read(&condition)
	*conditions = append(without(of, *conditions, conditionType), condition)
}

// RemoveCondition removes all conditions of the given type. If no condition remains, the list
// becomes nil. The old slice is not changed. If conditions is nil, it does nothing.
func RemoveCondition[C Condition, T ~string](conditions *[]C, conditionType T) {
	if conditions != nil {
		*conditions = without(known[C]{}, *conditions, string(conditionType))
	}
}

// without returns a new slice of the conditions of other types, or nil if there are none.
func without[C any, F form[C]](of F, conditions []C, conditionType string) []C {
	var rest []C
	for i := range conditions {
		if is, _, _ := of.read(&conditions[i]); is != conditionType {
			rest = append(rest, conditions[i])
		}
	}
	return rest
}

func (known[C]) observe(c, newer *C) bool {
	own, isOwn := any(c).(*metav1.Condition)
	now, ok := any(newer).(*metav1.Condition)
	if !isOwn || !ok || own.ObservedGeneration == now.ObservedGeneration {
		return false
	}
	own.ObservedGeneration = now.ObservedGeneration
	return true
}

func (known[C]) read(c *C) (conditionType, status, reason string) {
	switch c := any(c).(type) {
	case *appsv1.ReplicaSetCondition:
		return string(c.Type), string(c.Status), c.Reason
	case *corev1.ReplicationControllerCondition:
		return string(c.Type), string(c.Status), c.Reason
	case *metav1.Condition:
		return c.Type, string(c.Status), c.Reason
	}
	return "", "", ""
}

func (known[C]) messageOf(c *C) string {
	switch c := any(c).(type) {
	case *appsv1.ReplicaSetCondition:
		return c.Message
	case *corev1.ReplicationControllerCondition:
		return c.Message
	case *metav1.Condition:
		return c.Message
	}
	return ""
}
