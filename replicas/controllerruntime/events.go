// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
)

// events is an event sink that passes each event to a recorder.
type events struct{ recorder record.EventRecorder }

func (e events) Event(owner metav1.Object, eventType, reason, message string) {
	if obj, ok := owner.(runtime.Object); ok {
		e.recorder.Event(obj, eventType, reason, message)
	}
}
