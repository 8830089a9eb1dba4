package replicas

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/status"
)

// A StatusClient reads owners of one kind live and writes their status.
type StatusClient[T metav1.Object] interface {
	// Get returns the owner as the server has it; the caller may change it.
	Get(ctx context.Context, namespace, name string) (T, error)
	// UpdateStatus writes the owner's status and returns what the server
	// stored.
	UpdateStatus(ctx context.Context, owner T) (T, error)
}

// A ReplicaSetReporter writes the status of ReplicaSets after a pass. Client is
// required. It is made for one server, must not be copied after its first use and
// may be shared between goroutines.
type ReplicaSetReporter struct {
	Client StatusClient[*appsv1.ReplicaSet]
	// Consistency records the write; the Reconciler's. nil: without.
	Consistency *expectations.ConsistencyStore
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// OmitTerminating leaves status.terminatingReplicas out, and clears what is
	// there. Servers that drop the field need no such setting; see Report.
	OmitTerminating bool

	// dropped is set while the server drops terminatingReplicas: the last answer
	// to a write that had it was without.
	dropped atomic.Bool
}

// Report calculates the status from what a pass of Reconcile observed, writes
// it if it differs, and returns the pass's result with RequeueAfter completed:
// when the next pod becomes available, if that is earlier. Give it
// what Reconcile returned, whatever that was: a result without observation is
// returned as it is. The errors of both are joined, the status's first.
//
// A write that meets a Conflict is tried once more on a fresh read, with the
// same status and the observedGeneration of rs, which the pass acted on.
//
// Differs from Kubernetes: the write ends with ctx; only a Conflict is tried
// again, and only on an object of the same UID; an error of the status does not
// hide that of the pass. If the server's answer to a write lacks the
// terminatingReplicas that it was sent, as those before 1.35 do, the field alone
// is no reason to write any more, until an answer has it.
func (r *ReplicaSetReporter) Report(ctx context.Context, rs *appsv1.ReplicaSet, result Result, err error) (Result, error) {
	return report[*appsv1.ReplicaSet]{
		client:      r.Client,
		resource:    schema.GroupResource{Group: appsv1.GroupName, Resource: "replicasets"},
		consistency: r.Consistency,
		now:         r.Now,
		update: func(rs *appsv1.ReplicaSet, opts status.Options) (*appsv1.ReplicaSet, bool) {
			opts.OmitTerminating = r.OmitTerminating
			newStatus := status.Calculate(rs, result.Active, opts)
			if !r.needsUpdate(rs, newStatus) {
				return rs, false
			}
			return withReplicaSetStatus(rs, newStatus), true
		},
		wrote: func(sent, stored *appsv1.ReplicaSet) {
			if sent.Status.TerminatingReplicas != nil {
				r.dropped.Store(stored.Status.TerminatingReplicas == nil)
			}
		},
		onto: func(fresh, updated *appsv1.ReplicaSet) *appsv1.ReplicaSet {
			return withReplicaSetStatus(fresh, updated.Status)
		},
		availability: func(rs *appsv1.ReplicaSet) (minReadySeconds, ready, available int32) {
			return rs.Spec.MinReadySeconds, rs.Status.ReadyReplicas, rs.Status.AvailableReplicas
		},
	}.run(ctx, rs, result, err)
}

// needsUpdate is status.NeedsUpdate without the field that the server would drop
// again.
func (r *ReplicaSetReporter) needsUpdate(rs *appsv1.ReplicaSet, newStatus appsv1.ReplicaSetStatus) bool {
	if rs.Status.TerminatingReplicas == nil && r.dropped.Load() {
		newStatus.TerminatingReplicas = nil
	}
	return status.NeedsUpdate(rs, newStatus)
}

// A ReplicationControllerReporter writes the status of ReplicationControllers
// after a pass; see ReplicaSetReporter. It holds no state.
type ReplicationControllerReporter struct {
	Client      StatusClient[*corev1.ReplicationController]
	Consistency *expectations.ConsistencyStore
	Now         func() time.Time
}

// Report does for a ReplicationController what ReplicaSetReporter.Report does
// for a ReplicaSet. Its status has no terminatingReplicas.
func (r ReplicationControllerReporter) Report(ctx context.Context, rc *corev1.ReplicationController, result Result, err error) (Result, error) {
	return report[*corev1.ReplicationController]{
		client:      r.Client,
		resource:    schema.GroupResource{Resource: "replicationcontrollers"},
		consistency: r.Consistency,
		now:         r.Now,
		update: func(rc *corev1.ReplicationController, opts status.Options) (*corev1.ReplicationController, bool) {
			newStatus := status.CalculateReplicationController(rc, result.Active, opts)
			if !status.NeedsUpdateReplicationController(rc, newStatus) {
				return rc, false
			}
			return withReplicationControllerStatus(rc, newStatus), true
		},
		onto: func(fresh, updated *corev1.ReplicationController) *corev1.ReplicationController {
			return withReplicationControllerStatus(fresh, updated.Status)
		},
		availability: func(rc *corev1.ReplicationController) (minReadySeconds, ready, available int32) {
			return rc.Spec.MinReadySeconds, rc.Status.ReadyReplicas, rc.Status.AvailableReplicas
		},
	}.run(ctx, rc, result, err)
}

func withReplicaSetStatus(rs *appsv1.ReplicaSet, s appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
	clone := rs.DeepCopy()
	clone.Status = s
	return clone
}

func withReplicationControllerStatus(rc *corev1.ReplicationController, s corev1.ReplicationControllerStatus) *corev1.ReplicationController {
	clone := rc.DeepCopy()
	clone.Status = s
	return clone
}

// report is the status step for one kind of owner.
type report[T metav1.Object] struct {
	client      StatusClient[T]
	resource    schema.GroupResource
	consistency *expectations.ConsistencyStore
	now         func() time.Time
	// update returns a copy of the owner with its new status, or the owner
	// itself and false where nothing differs.
	update func(owner T, opts status.Options) (T, bool)
	// onto returns a copy of fresh with the status of updated.
	onto func(fresh, updated T) T
	// wrote is told of a write that succeeded; nil: nobody is.
	wrote func(sent, stored T)
	// availability reads what the next check hangs on.
	availability func(owner T) (minReadySeconds, ready, available int32)
}

func (r report[T]) run(ctx context.Context, owner T, result Result, passErr error) (Result, error) {
	if !result.Observed {
		return result, passErr
	}
	if r.client == nil || object.IsNil(owner) {
		return result, errors.Join(fmt.Errorf("replicas: reporter of %s has no Client, or no owner", r.resource.Resource), passErr)
	}
	if r.now == nil {
		r.now = time.Now
	}
	now := r.now()
	written, err := r.write(ctx, owner, status.Options{
		Terminating: result.Terminating,
		Waiting:     result.Waiting,
		ManageErr:   result.ScaleErr,
		Now:         now,
	})
	if err != nil {
		return result.afterStatusError(err, passErr), errors.Join(err, passErr)
	}
	r.consistency.WroteAt(expectations.KeyOf(owner), r.resource, written.GetResourceVersion())
	if passErr == nil {
		result.RequeueAfter = earliest(result.RequeueAfter, r.nextCheck(written, result.Active, now))
	}
	return result, passErr
}

// write makes at most two writes and one read (U3).
func (r report[T]) write(ctx context.Context, owner T, opts status.Options) (T, error) {
	updated, differs := r.update(owner, opts)
	if !differs {
		return owner, nil
	}
	written, err := r.updateStatus(ctx, updated)
	if !apierrors.IsConflict(err) {
		return written, r.failure(owner, err)
	}
	fresh, err := answered(r.client.Get(ctx, owner.GetNamespace(), owner.GetName()))
	if err != nil {
		return fresh, r.failure(owner, err)
	}
	if fresh.GetUID() != owner.GetUID() {
		return fresh, r.failure(owner, fmt.Errorf("original is gone: got uid %s, wanted %s", fresh.GetUID(), owner.GetUID()))
	}
	written, err = r.updateStatus(ctx, r.onto(fresh, updated))
	return written, r.failure(owner, err)
}

func (r report[T]) updateStatus(ctx context.Context, owner T) (T, error) {
	written, err := answered(r.client.UpdateStatus(ctx, owner))
	if err == nil && r.wrote != nil {
		r.wrote(owner, written)
	}
	return written, err
}

// answered makes an answer without an object an error.
func answered[T metav1.Object](owner T, err error) (T, error) {
	if err == nil && object.IsNil(owner) {
		err = errors.New("the client returned no object")
	}
	return owner, err
}

func (r report[T]) failure(owner T, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("replicas: writing status of %s %q: %w", r.resource.Resource, object.Name(owner), err)
}

// nextCheck is how long after this moment the next pod becomes available, 0 if
// none will (M1, M2). It looks from the same instant as the status that was
// written, so that no pod falls between the two.
func (r report[T]) nextCheck(written T, active []*corev1.Pod, now time.Time) time.Duration {
	minReadySeconds, ready, available := r.availability(written)
	if ready == available {
		return 0
	}
	after, ok := status.NextAvailabilityCheck(active, minReadySeconds, now)
	if !ok {
		return 0
	}
	return max(after-r.now().Sub(now), 1)
}

// afterStatusError is the result of a pass whose status was not written: only
// the server says when to come back.
func (r Result) afterStatusError(statusErr, passErr error) Result {
	if passErr == nil {
		r.RequeueAfter = 0
	}
	r.RequeueAfter = max(r.RequeueAfter, serverDelay([]error{statusErr}))
	return r
}
