// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

// observe updates the metrics, logs the pass, and then calls the Observe function of the Kind.
func (a attachment[O, C]) observe(ctx context.Context, pass controller.Pass[O, C]) {
	a.count(pass)
	a.logError(ctx, pass.Name, pass.Err, pass.StatusErr != nil && pass.Err == pass.StatusErr && apierrors.IsConflict(pass.Err)) //nolint:errorlint // the same error: nothing else failed
	logger := klog.FromContext(ctx)
	if len(pass.Created) > 0 || len(pass.Deleted) > 0 {
		logger.Info("Changed the number of replicas", "kind", a.kind, logKey(a.kind), klog.KObj(pass.Owner), "need", pass.Desired, "created", len(pass.Created), "deleted", len(pass.Deleted))
	}
	for _, g := range a.passes.Record(pass) {
		message, values := g.Log()
		logger.Info(message, append(values, "kind", a.kind, logKey(a.kind), klog.KRef(pass.Name.Namespace, pass.Name.Name))...)
	}
	if logger.V(2).Enabled() {
		a.logPass(logger, pass)
	}
	if i := slices.IndexFunc(pass.Gates, func(g controller.Gate) bool { return g.Reason == controller.RelatedFailed }); i >= 0 {
		utilruntime.HandleErrorWithContext(ctx, pass.Gates[i].Err, "Ranking without related pods", "kind", a.kind, logKey(a.kind), klog.KObj(pass.Owner))
	}
	if a.typed.Observe != nil {
		a.typed.Observe(ctx, pass)
	}
}

func (a attachment[O, C]) count(pass controller.Pass[O, C]) {
	m := a.metrics
	if telemetry.Has(pass.Gates, controller.OwnWriteNotSeen) {
		m.staleOwners.Inc()
	}
	if telemetry.Has(pass.Gates, controller.CallsNotSeen) {
		m.staleChildren.Inc()
	}
	if victims, ok := any(pass.Scale.Delete).([]replicas.Deletion[*corev1.Pod]); ok && len(victims) > 0 {
		pods, _ := any(pass.Active).([]*corev1.Pod)
		m.observeAgeRatio(pods, victims, pass.Now)
	}
}

// logPass logs a pass, except for its error, as pkg/controller/replicaset does in Kubernetes.
func (a attachment[O, C]) logPass(logger klog.Logger, pass controller.Pass[O, C]) {
	defer logger.V(4).Info("Finished syncing", "kind", a.kind, "key", pass.Name, "duration", pass.Took)
	if isNone(pass.Owner) {
		if pass.Err == nil {
			logger.V(4).Info("deleted", "kind", a.kind, "key", pass.Name)
		}
		return
	}
	name, owner := logKey(a.kind), klog.KObj(pass.Owner)
	for _, child := range pass.Released { // also one whose release the server refuses; Kubernetes logs the attempt, too
		logger.V(2).Info("Releasing "+strings.ToLower(a.typed.Child.Kind), logKey(a.typed.Child.Kind), klog.KObj(child), "labels", child.GetLabels(), "kind", a.kind, name, owner)
	}
	if n := pass.Scale.Create; n > 0 {
		logger.V(2).Info("Too few replicas", name, owner, "need", pass.Desired, "creating", n)
	}
	if n := len(pass.Scale.Delete); n > 0 {
		logger.V(2).Info("Too many replicas", name, owner, "need", pass.Desired, "deleting", n)
	}
	if pass.Scale.Create > 0 && pass.Failed > 0 {
		logger.V(2).Info("Slow-start failure. Skipping creation of pods, decrementing expectations", "podsSkipped", pass.Failed+pass.Skipped, "kind", a.kind, name, owner)
	}
	if n := telemetry.Conflicts(pass.Calls); n > 0 {
		logger.V(2).Info("Listed pods live, because some changed before their deletion", "conflicts", n, "deleted", len(pass.Deleted), "waiting", pass.Waiting(), "kind", a.kind, name, owner)
	}
	if n := telemetry.LiveLists(pass.Calls); n > 0 {
		logger.V(2).Info("Listed pods live", "lists", n, "waiting", pass.Waiting(), "kind", a.kind, name, owner)
	}
	if logger := logger.V(4); !isNone(pass.Status) && logger.Enabled() {
		logger.Info(describeStatus(pass.Owner, pass.Status))
	}
}

// describeStatus returns the log line for a status that was written.
func describeStatus(was, is metav1.Object) string {
	switch is := is.(type) {
	case *appsv1.ReplicaSet:
		if was, ok := was.(*appsv1.ReplicaSet); ok {
			return describeReplicaSetStatus(was, is)
		}
	case *corev1.ReplicationController:
		if was, ok := was.(*corev1.ReplicationController); ok {
			return describeReplicationControllerStatus(was, is)
		}
	}
	return fmt.Sprintf("Updating status: %s/%s", is.GetNamespace(), is.GetName())
}

func isNone[T any](obj T) bool { return any(obj) == any(*new(T)) }
