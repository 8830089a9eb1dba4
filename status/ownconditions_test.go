// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/status"
)

type (
	conditionStatus string
	// A machineCondition has the usual fields and LastProbeTime, like the condition type of an operator.
	machineCondition struct {
		Type               string
		Status             conditionStatus
		LastProbeTime      metav1.Time
		LastTransitionTime metav1.Time
		Reason             string
		Message            string
	}
	// A generationCondition has all fields of a metav1.Condition, but most of them are in an embedded struct.
	generationCondition struct {
		usual
		ObservedGeneration int64
	}
	usual struct {
		Type, Status, Reason, Message string
		LastTransitionTime            metav1.Time
	}
)

func machineOf(c appsv1.ReplicaSetCondition) machineCondition {
	return machineCondition{Type: string(c.Type), Status: conditionStatus(c.Status), LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message}
}

func generationOf(c metav1.Condition) generationCondition {
	return generationCondition{usual{c.Type, string(c.Status), c.Reason, c.Message, c.LastTransitionTime}, c.ObservedGeneration}
}

// each converts the elements of a list. If the list is empty, the result is nil.
func each[A, B any](list []A, convert func(A) B) (converted []B) {
	for _, c := range list {
		converted = append(converted, convert(c))
	}
	return converted
}

// After the same calls, a list of your own condition type contains the same conditions as a list of a known type.
func TestOwnConditionsAreLikeThoseThatAreKnown(t *testing.T) {
	t.Parallel()
	machines, err := status.NewConditions[machineCondition]()
	require.NoError(t, err)
	generations, err := status.NewConditions[generationCondition]()
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 200 {
		var sets []appsv1.ReplicaSetCondition
		var known []metav1.Condition
		var own []machineCondition
		var generation []generationCondition
		for range 12 {
			now, observed, zero := metav1.NewTime(noon.Add(time.Duration(random.IntN(9))*time.Second)), int64(random.IntN(3)), int32(0)
			kind, state, reason := pick("ReplicaFailure", "Progressing"), pick("True", "False"), pick("FailedCreate", "FailedDelete", "New")
			switch random.IntN(4) {
			case 0:
				f := status.Failure{Waiting: random.IntN(2) == 0, Active: int32(random.IntN(3) - 1), Desired: &zero, ObservedGeneration: observed, Now: now.Time}
				if f.Active == 0 {
					f.Active = 1
				}
				if random.IntN(2) == 0 {
					f.Err = errors.New(pick("quota", "forbidden"))
				}
				status.SetFailure(&sets, f)
				status.SetFailure(&known, f)
				machines.SetFailure(&own, f)
				generations.SetFailure(&generation, f)
			case 1:
				status.RemoveCondition(&sets, kind)
				status.RemoveCondition(&known, kind)
				machines.Remove(&own, kind)
				generations.Remove(&generation, kind)
			default:
				set := appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetConditionType(kind), Status: corev1.ConditionStatus(state), Reason: reason, Message: "m", LastTransitionTime: now}
				one := metav1.Condition{Type: kind, Status: metav1.ConditionStatus(state), Reason: reason, Message: "m", LastTransitionTime: now, ObservedGeneration: observed}
				status.SetCondition(&sets, set)
				status.SetCondition(&known, one)
				machines.Set(&own, machineOf(set))
				generations.Set(&generation, generationOf(one))
			}
			require.Equal(t, each(sets, machineOf), own)
			require.Equal(t, each(known, generationOf), generation)
			if c := status.GetCondition(sets, kind); c != nil {
				require.Equal(t, machineOf(*c), *machines.Get(own, kind))
			} else {
				require.Nil(t, machines.Get(own, kind))
			}
		}
	}
}

func TestNewConditionsNamesTheField(t *testing.T) {
	t.Parallel()
	type message struct{ Message string }
	refuses := func(want string, err error) {
		t.Helper()
		require.EqualError(t, err, want)
	}
	_, err := status.NewConditions[string]()
	refuses("status: conditions: string is not a struct", err)
	_, err = status.NewConditions[*metav1.Condition]()
	refuses("status: conditions: *v1.Condition is not a struct", err)
	_, err = status.NewConditions[struct{ Type, Status string }]()
	refuses("status: conditions: struct { Type string; Status string } has no field Reason", err)
	_, err = status.NewConditions[struct {
		Type   string
		Status bool
	}]()
	refuses("status: conditions: field Status of struct { Type string; Status bool } is of type bool: want a string", err)
	_, err = status.NewConditions[struct {
		Type, Status, Reason string
		*message
	}]()
	require.ErrorContains(t, err, "status: conditions: field Message of ")
	require.ErrorContains(t, err, " is behind an embedded pointer")
	_, err = status.NewConditions[struct {
		Type, Status, Reason, Message string
		LastTransitionTime            time.Time
	}]()
	require.ErrorContains(t, err, " is of type time.Time: want a metav1.Time")
	_, err = status.NewConditions[struct {
		usual
		ObservedGeneration string
	}]()
	require.ErrorContains(t, err, " is of type string: want an int64")
	assert.PanicsWithError(t, "status: conditions: string is not a struct", func() { status.Must(status.NewConditions[string]()) })
}

// If Conditions was not made by NewConditions, its methods do nothing.
func TestZeroConditions(t *testing.T) {
	t.Parallel()
	var none status.Conditions[machineCondition]
	list := []machineCondition{{Type: "ReplicaFailure"}}
	none.Set(&list, machineCondition{Type: "Other"})
	none.SetFailure(&list, status.Failure{})
	none.Remove(&list, "ReplicaFailure")
	assert.Equal(t, []machineCondition{{Type: "ReplicaFailure"}}, list)
	assert.Nil(t, none.Get(list, "ReplicaFailure"))
}
