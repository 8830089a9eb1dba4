package status

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// GetCondition returns a copy of the first condition of a type, or nil if there
// is none (T18).
func GetCondition(status appsv1.ReplicaSetStatus, conditionType appsv1.ReplicaSetConditionType) *appsv1.ReplicaSetCondition {
	return first(status.Conditions, ofType(conditionType))
}

// SetCondition replaces the conditions of the same type by the given one, which
// becomes the last. Where the first of them has the same status and reason it
// changes nothing: the old message and time are kept (T17). The slice that status
// held is not written to. A nil status is left alone.
func SetCondition(status *appsv1.ReplicaSetStatus, condition appsv1.ReplicaSetCondition) {
	if status == nil {
		return
	}
	current := GetCondition(*status, condition.Type)
	if current != nil && current.Status == condition.Status && current.Reason == condition.Reason {
		return
	}
	status.Conditions = append(without(status.Conditions, ofType(condition.Type)), condition)
}

// RemoveCondition removes all conditions of a type; where no other remains, nil
// conditions are left (T14). The slice that status held is not written to. A nil
// status is left alone.
func RemoveCondition(status *appsv1.ReplicaSetStatus, conditionType appsv1.ReplicaSetConditionType) {
	if status != nil {
		status.Conditions = without(status.Conditions, ofType(conditionType))
	}
}

// GetReplicationControllerCondition is GetCondition for a ReplicationController
// (A8).
func GetReplicationControllerCondition(status corev1.ReplicationControllerStatus, conditionType corev1.ReplicationControllerConditionType) *corev1.ReplicationControllerCondition {
	return first(status.Conditions, ofControllerType(conditionType))
}

// SetReplicationControllerCondition is SetCondition for a ReplicationController
// (A8).
func SetReplicationControllerCondition(status *corev1.ReplicationControllerStatus, condition corev1.ReplicationControllerCondition) {
	if status == nil {
		return
	}
	current := GetReplicationControllerCondition(*status, condition.Type)
	if current != nil && current.Status == condition.Status && current.Reason == condition.Reason {
		return
	}
	status.Conditions = append(without(status.Conditions, ofControllerType(condition.Type)), condition)
}

// RemoveReplicationControllerCondition is RemoveCondition for a
// ReplicationController (A8).
func RemoveReplicationControllerCondition(status *corev1.ReplicationControllerStatus, conditionType corev1.ReplicationControllerConditionType) {
	if status != nil {
		status.Conditions = without(status.Conditions, ofControllerType(conditionType))
	}
}

func ofType(t appsv1.ReplicaSetConditionType) func(appsv1.ReplicaSetCondition) bool {
	return func(c appsv1.ReplicaSetCondition) bool { return c.Type == t }
}

func ofControllerType(t corev1.ReplicationControllerConditionType) func(corev1.ReplicationControllerCondition) bool {
	return func(c corev1.ReplicationControllerCondition) bool { return c.Type == t }
}

// first returns a copy of the first condition that is meant, or nil.
func first[C any](conditions []C, meant func(C) bool) *C {
	i := slices.IndexFunc(conditions, meant)
	if i < 0 {
		return nil
	}
	c := conditions[i]
	return &c
}

// without returns a new slice of the conditions that are not meant, nil if there
// are none.
func without[C any](conditions []C, meant func(C) bool) []C {
	var rest []C
	for _, c := range conditions {
		if !meant(c) {
			rest = append(rest, c)
		}
	}
	return rest
}

func toReplicaSetCondition(c corev1.ReplicationControllerCondition) appsv1.ReplicaSetCondition {
	return appsv1.ReplicaSetCondition{
		Type:               appsv1.ReplicaSetConditionType(c.Type),
		Status:             c.Status,
		LastTransitionTime: c.LastTransitionTime,
		Reason:             c.Reason,
		Message:            c.Message,
	}
}

func toReplicationControllerCondition(c appsv1.ReplicaSetCondition) corev1.ReplicationControllerCondition {
	return corev1.ReplicationControllerCondition{
		Type:               corev1.ReplicationControllerConditionType(c.Type),
		Status:             c.Status,
		LastTransitionTime: c.LastTransitionTime,
		Reason:             c.Reason,
		Message:            c.Message,
	}
}

// convert returns a new slice of the converted conditions, nil for nil.
func convert[A, B any](conditions []A, to func(A) B) []B {
	if conditions == nil {
		return nil
	}
	converted := make([]B, len(conditions))
	for i, c := range conditions {
		converted[i] = to(c)
	}
	return converted
}
