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

// A recording records events about owners of any kind (A3). Call its method start before the first event,
// and call the returned function stop after the last event.
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

// start starts the event broadcaster, and returns a function that stops it. The broadcaster continues
// after ctx has ended, because the last pass may still send events.
func (r *recording) start(ctx context.Context) (stop func()) {
	if r.client == nil {
		return func() {}
	}
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

// An endingSink suppresses errors after the controller has ended. Without an endingSink, the broadcaster
// would log an error for each event that it can no longer send.
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

// spamKey returns the key by which the broadcaster limits the rate of events. Events with the same key
// share one token bucket. The bucket allows a burst of 25 events, and then one event every five minutes. As
// in Kubernetes, all events of one type about the creations and deletions of an owner's children share one
// key. For all other events, the key also contains the reason. Hundreds of creations or deletions therefore
// do not suppress an event that is sent only once.
func spamKey(event *corev1.Event) string {
	about := event.InvolvedObject
	key := []string{event.Source.Component, event.Source.Host, about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID), event.Type}
	switch event.Reason {
	case controller.SuccessfulCreate, controller.FailedCreate, controller.SuccessfulDelete, controller.FailedDelete:
	default:
		key = append(key, event.Reason)
	}
	return strings.Join(key, "/")
}
