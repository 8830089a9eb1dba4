// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas/controller"
)

// A recording records events about owners of any kind (A3), between start and the stop that it returns.
type recording struct {
	client    typedcorev1.EventsGetter // nil: no events are recorded
	kind      schema.GroupVersionKind
	component string
	recorder  record.EventRecorder // set by start
}

func newRecording(kind schema.GroupVersionKind, opts Options) *recording {
	return &recording{client: opts.EventClient, kind: kind, component: opts.Component}
}

// sink returns the EventSink for the controller, or nil if no events are recorded.
func (r *recording) sink(opts Options) controller.EventSink {
	if opts.Events != nil {
		r.client = nil
		return opts.Events
	}
	if r.client == nil {
		return nil
	}
	return r
}

// start starts the event broadcaster, and returns a function that stops it.
func (r *recording) start(ctx context.Context) (stop func()) {
	if r.client == nil {
		return func() {}
	}
	// Not with ctx: when the program ends, the last passes still send events.
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)),
		record.WithCorrelatorOptions(record.CorrelatorOptions{SpamKeyFunc: spamKey}))
	broadcaster.StartStructuredLogging(3)
	sink := &endingSink{EventSink: &typedcorev1.EventSinkImpl{Interface: r.client.Events("")}}
	broadcaster.StartRecordingToSink(sink)
	r.recorder = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: r.component}).WithLogger(klog.FromContext(ctx))
	return func() {
		sink.ended.Store(true)
		broadcaster.Shutdown()
	}
}

// An endingSink hides errors after the controller has ended, where the broadcaster would log one for each event that
// it can no longer send.
type endingSink struct {
	record.EventSink
	ended atomic.Bool
}

func (s *endingSink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.answer(event)(s.EventSink.Create(event))
}

func (s *endingSink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.answer(event)(s.EventSink.Patch(event, data))
}

func (s *endingSink) answer(event *corev1.Event) func(*corev1.Event, error) (*corev1.Event, error) {
	return func(stored *corev1.Event, err error) (*corev1.Event, error) {
		if err != nil && s.ended.Load() {
			return event, nil
		}
		return stored, err
	}
}

func (r *recording) Event(owner metav1.Object, eventType, reason, message string) {
	apiVersion, kind := r.kind.ToAPIVersionAndKind()
	r.recorder.Event(&corev1.ObjectReference{
		APIVersion: apiVersion, Kind: kind,
		Namespace: owner.GetNamespace(), Name: owner.GetName(), UID: owner.GetUID(), ResourceVersion: owner.GetResourceVersion(),
	}, eventType, reason, message)
}

// spamKey returns the key of the token bucket by which the broadcaster limits events: a burst of 25, and then one
// every five minutes.
func spamKey(event *corev1.Event) string {
	about := event.InvolvedObject
	key := []string{event.Source.Component, event.Source.Host, about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID), event.Type}
	switch event.Reason {
	case controller.SuccessfulCreate, controller.FailedCreate, controller.SuccessfulDelete, controller.FailedDelete:
		// As in Kubernetes, these share one bucket, which hundreds of creations empty.
	default: // an event that is sent only once has its own
		key = append(key, event.Reason)
	}
	return strings.Join(key, "/")
}
