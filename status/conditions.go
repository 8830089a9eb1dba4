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

// Condition contains the condition types that the functions of this package support. They are the
// condition types of ReplicaSets and ReplicationControllers, and metav1.Condition for your own
// status types. For any other condition type, use Conditions.
type Condition interface {
	appsv1.ReplicaSetCondition | corev1.ReplicationControllerCondition | metav1.Condition
}

// ReplicaFailure is the type of the condition that SetFailure sets and removes.
const ReplicaFailure = "ReplicaFailure"

// A Failure holds the values that determine the ReplicaFailure condition in SetFailure.
type Failure struct {
	// Err is the error from creating or deleting replicas, or nil. The message of Err becomes the
	// message of the condition.
	Err error

	// Waiting is true if the owner waits for its earlier creations and deletions, and therefore
	// creates and deletes nothing. If Waiting is true and Err is nil, the condition does not
	// change. If Err is not nil, Waiting is ignored.
	Waiting bool

	// Active is the number of active replicas. Desired is the desired number of replicas, or nil if
	// this number is not known. The two numbers determine the reason of the condition. The reason
	// is FailedCreate if there are too few replicas, and FailedDelete if there are too many.
	Active  int32
	Desired *int32

	// ObservedGeneration is the generation of the owner. It is used only if the condition type has
	// a field ObservedGeneration, as metav1.Condition does.
	ObservedGeneration int64

	// Now is the lastTransitionTime of a condition that SetFailure adds.
	Now time.Time
}

// SetFailure sets, keeps or removes the ReplicaFailure condition. If Err is not nil, SetFailure
// removes the old condition and appends a new condition with the status True. But SetFailure keeps
// the old condition if it has the same reason, and if the messages differ only in the names of
// children. In this case, only the observedGeneration of a metav1.Condition is updated. In an error
// from the API server, SetFailure recognizes a name in quotes after the resource, as in pods
// "web-0". It also recognizes a name by the suffix that the API server adds to a generateName.
//
// If Err is nil and Waiting is false, SetFailure removes the condition. If no condition remains,
// the list becomes nil. The old slice is not modified. If conditions is nil, SetFailure does
// nothing.
//
// If Active equals Desired or Desired is nil, the reason is empty. In a metav1.Condition, the
// reason is then "Failed", because a metav1.Condition must have a reason. The message of a
// metav1.Condition is truncated to 32,768 bytes, because the API server accepts at most 32,768
// characters.
//
// Differs from Kubernetes: the condition is updated if the reason or the message changes.
// Kubernetes keeps the first message until the failure ends, even if the message mentions a quota
// that has been raised since then. The condition is kept while Waiting is true. The time of the
// condition is Now instead of the time of the wall clock.
func SetFailure[C Condition](conditions *[]C, f Failure) { setFailure(known[C]{}, conditions, f) }

// A form gives access to the fields of a condition type.
type form[C any] interface {
	read(c *C) (conditionType, status, reason string)
	messageOf(c *C) string
	// failure returns the condition for the failure f.
	failure(f Failure) C
	// observe copies the observedGeneration of the newer condition to c, and reports whether the
	// observedGeneration of c has changed.
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

// generated is a pattern for the end of a name that the API server made from a generateName (P4).
var generated = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)

// isSameCause reports whether two messages differ at most in the names of children. A webhook may
// include the names of children anywhere in a message. The second message comes from err.
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

// known implements form[C] if C is one of the types in the constraint Condition.
type known[C Condition] struct{}

// failure returns the condition for the failure f (T11).
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

// reason returns the reason of the condition, which depends on whether there are too few or too
// many replicas (T12).
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

// cut truncates a message to the maximum length in a metav1.Condition.
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

// SetCondition removes the old conditions of the same type and appends the given condition to the
// list. If the first old condition of the same type also has the same status and reason,
// SetCondition keeps this old condition with its message and time. In this case, only the
// observedGeneration of a metav1.Condition is updated. The old slice is not modified. If conditions
// is nil, SetCondition does nothing.
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

// replace removes all conditions of the same type and appends the given condition to the list. If
// the argument same is true, it keeps the current condition and updates only the
// observedGeneration.
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
// becomes nil. The old slice is not modified. If conditions is nil, RemoveCondition does nothing.
func RemoveCondition[C Condition, T ~string](conditions *[]C, conditionType T) {
	if conditions != nil {
		*conditions = without(known[C]{}, *conditions, string(conditionType))
	}
}

// without removes the conditions of the given type. The result is a new slice, or nil if no
// condition remains.
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
