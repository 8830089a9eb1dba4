package replicas_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// statusClient records status writes and answers as scripted.
type statusClient struct {
	written []*appsv1.ReplicaSet
	gets    int
	fail    func(write int) error // of the n-th write, from 1
	live    *appsv1.ReplicaSet    // what Get returns; nil is NotFound
	answer  func(rs *appsv1.ReplicaSet)
}

func (c *statusClient) Get(_ context.Context, _, name string) (*appsv1.ReplicaSet, error) {
	c.gets++
	if c.live == nil {
		return nil, notFound(name)
	}
	return c.live.DeepCopy(), nil
}

func (c *statusClient) UpdateStatus(_ context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	c.written = append(c.written, rs.DeepCopy())
	if c.fail != nil {
		if err := c.fail(len(c.written)); err != nil {
			return nil, err
		}
	}
	stored := rs.DeepCopy()
	if c.answer != nil {
		c.answer(stored)
	}
	return stored, nil
}

func (c *statusClient) report(rs *appsv1.ReplicaSet, result replicas.Result, err error) (replicas.Result, error) {
	now := func() time.Time { return podtest.Now }
	return (&replicas.ReplicaSetReporter{Client: c, Now: now}).Report(context.Background(), rs, result, err)
}

// Servers before 1.35 drop terminatingReplicas unless a feature gate is set.
func TestReportToAServerThatDropsTerminatingReplicas(t *testing.T) {
	t.Parallel()
	c := &statusClient{answer: func(rs *appsv1.ReplicaSet) { rs.Status.TerminatingReplicas = nil }}
	reporter := replicas.ReplicaSetReporter{Client: c}
	pass := func(rs *appsv1.ReplicaSet, terminating int) *appsv1.ReplicaSet {
		result := observed(podsOf(rs, 2)...)
		for i := range terminating {
			result.Terminating = append(result.Terminating, podtest.Pod(strconv.Itoa(i), owned(rs), podtest.Deleting))
		}
		writes := len(c.written)
		_, err := reporter.Report(context.Background(), rs, result, nil)
		require.NoError(t, err)
		if len(c.written) == writes {
			return rs
		}
		stored := c.written[writes].DeepCopy()
		if c.answer != nil {
			c.answer(stored)
		}
		return stored
	}
	rs, other := replicaSet(2), replicaSet(2)
	other.Name, other.UID = "other", "uid-other"
	for range 10 {
		rs = pass(rs, 0)
	}
	require.Len(t, c.written, 1, "U1 T9 idle passes write nothing")
	rs, other = pass(rs, 1), pass(other, 1)
	require.Len(t, c.written, 2, "the count alone is nothing to this server; the other needed its first status")
	require.NotNil(t, c.written[1].Status.TerminatingReplicas, "but it is sent along")
	other = pass(other, 0)
	require.Len(t, c.written, 2)

	c.answer = nil // the server is upgraded
	rs.Generation++
	rs = pass(rs, 1)
	require.Len(t, c.written, 3)
	require.EqualValues(t, 1, *rs.Status.TerminatingReplicas)
	other = pass(other, 1)
	require.Len(t, c.written, 4, "what it keeps is written again")
	require.EqualValues(t, 1, *other.Status.TerminatingReplicas)
	rs = pass(pass(rs, 0), 0)
	require.Len(t, c.written, 5)
	require.Zero(t, *rs.Status.TerminatingReplicas)
}

func observed(pods ...*corev1.Pod) replicas.Result {
	return replicas.Result{Observed: true, Active: pods}
}

func TestReport(t *testing.T) {
	t.Parallel()
	t.Run("U2 U6 Y11 the status of what the pass observed is written, with the generation it acted on", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		rs := replicaSet(2)
		rs.Generation = 4
		_, err := c.report(rs, observed(podsOf(rs, 2)...), nil)
		require.NoError(t, err)
		require.Len(t, c.written, 1)
		assert.EqualValues(t, 2, c.written[0].Status.Replicas)
		assert.EqualValues(t, 4, c.written[0].Status.ObservedGeneration)
		assert.Zero(t, rs.Status.Replicas, "Y14 the cached owner stays as it was")
	})
	t.Run("U1 a status that is there already is not written again", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		rs := replicaSet(2)
		_, err := c.report(rs, observed(podsOf(rs, 2)...), nil)
		require.NoError(t, err)
		_, err = c.report(c.written[0], observed(podsOf(rs, 2)...), nil)
		require.NoError(t, err)
		assert.Len(t, c.written, 1)
	})
	t.Run("a pass that observed nothing writes nothing and keeps its answer", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		boom := errors.New("boom")
		result, err := c.report(replicaSet(1), replicas.Result{RequeueAfter: 3}, boom)
		require.ErrorIs(t, err, boom)
		assert.EqualValues(t, 3, result.RequeueAfter)
		assert.Empty(t, c.written)
	})
	t.Run("Y12 A4 the write is recorded as an own one, and so is a write that was not needed", func(t *testing.T) {
		t.Parallel()
		store := &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return "1" }}
		r := replicas.ReplicaSetReporter{Client: &statusClient{}, Consistency: store, Now: func() time.Time { return podtest.Now }}
		rs := replicaSet(0)
		rs.ResourceVersion = "9"
		for range 2 {
			_, err := r.Report(context.Background(), rs, observed(), nil)
			require.NoError(t, err)
			stale, ready := store.Ready(expectations.KeyOf(rs))
			assert.False(t, ready)
			assert.Equal(t, schema.GroupResource{Group: "apps", Resource: "replicasets"}, stale.Resource)
			store.Clear(expectations.Key{NamespacedName: expectations.KeyOf(rs).NamespacedName})
			rs.Status.ObservedGeneration, rs.Status.TerminatingReplicas = rs.Generation, new(int32)
		}
	})
	t.Run("T8 pods on their way out are counted", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		rs := replicaSet(1)
		result := observed()
		result.Terminating = []*corev1.Pod{podtest.Pod("a", owned(rs), podtest.Deleting)}
		_, err := c.report(rs, result, nil)
		require.NoError(t, err)
		assert.EqualValues(t, 1, *c.written[0].Status.TerminatingReplicas)
	})
	t.Run("Y12 of a write the answer's version is recorded", func(t *testing.T) {
		t.Parallel()
		store := &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return "1" }}
		client := &statusClient{answer: func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "10" }}
		rs := replicaSet(1)
		rs.ResourceVersion = "9"
		_, err := (&replicas.ReplicaSetReporter{Client: client, Consistency: store}).Report(context.Background(), rs, observed(), nil)
		require.NoError(t, err)
		stale, _ := store.Ready(expectations.KeyOf(rs))
		assert.Equal(t, "10", stale.Wrote)
	})
	t.Run("a reporter without a client, an owner that is nil and a client without an answer are errors", func(t *testing.T) {
		t.Parallel()
		boom := errors.New("boom")
		_, err := (&replicas.ReplicaSetReporter{}).Report(context.Background(), replicaSet(1), observed(), boom)
		require.ErrorContains(t, err, "replicas: reporter of replicasets has no Client, or no owner")
		require.ErrorIs(t, err, boom)
		_, err = (&statusClient{}).report(nil, observed(), nil)
		require.Error(t, err)
		_, err = (&replicas.ReplicaSetReporter{Client: mute{}}).Report(context.Background(), replicaSet(1), observed(), nil)
		require.ErrorContains(t, err, "the client returned no object")
	})
	t.Run("T9 terminatingReplicas is left out where asked", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		r := replicas.ReplicaSetReporter{Client: c, OmitTerminating: true}
		_, err := r.Report(context.Background(), replicaSet(1), observed(), nil)
		require.NoError(t, err)
		assert.Nil(t, c.written[0].Status.TerminatingReplicas)
	})
	t.Run("Y13 T11 the pass's error comes back, and stands in the condition", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		boom := errors.New("boom")
		result := observed()
		result.ScaleErr, result.RequeueAfter = boom, time.Second
		result, err := c.report(replicaSet(1), result, boom)
		require.ErrorIs(t, err, boom)
		assert.Equal(t, time.Second, result.RequeueAfter)
		require.Len(t, c.written[0].Status.Conditions, 1)
		assert.Equal(t, "FailedCreate", c.written[0].Status.Conditions[0].Reason)
	})
	t.Run("T15 W45 a pass that merely waited leaves the condition", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{}
		rs := replicaSet(1)
		rs.Status.Conditions = []appsv1.ReplicaSetCondition{{Type: appsv1.ReplicaSetReplicaFailure, Status: "True", Reason: "FailedCreate"}}
		result := observed()
		result.Waiting = true
		_, err := c.report(rs, result, nil)
		require.NoError(t, err)
		assert.Len(t, c.written[0].Status.Conditions, 1)
	})
}

func TestReportRetries(t *testing.T) {
	t.Parallel()
	rs := replicaSet(1)
	rs.Generation = 3
	conflictOnce := func(write int) error {
		if write == 1 {
			return conflict("web")
		}
		return nil
	}
	t.Run("U2 U3 a conflict is tried once more on a fresh read, with the same status", func(t *testing.T) {
		t.Parallel()
		live := rs.DeepCopy()
		live.Generation, live.ResourceVersion = 9, "fresh"
		c := &statusClient{fail: conflictOnce, live: live}
		_, err := c.report(rs, observed(podsOf(rs, 1)...), nil)
		require.NoError(t, err)
		require.Len(t, c.written, 2)
		assert.Equal(t, 1, c.gets)
		assert.Equal(t, "fresh", c.written[1].ResourceVersion)
		assert.Equal(t, c.written[0].Status, c.written[1].Status)
		assert.EqualValues(t, 3, c.written[1].Status.ObservedGeneration)
	})
	t.Run("U3 U4 a second conflict is the error", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{fail: func(int) error { return conflict("web") }, live: rs}
		_, err := c.report(rs, observed(), nil)
		assert.True(t, apierrors.IsConflict(err))
		assert.Len(t, c.written, 2)
	})
	t.Run("U4 a read that fails is the error", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{fail: conflictOnce}
		_, err := c.report(rs, observed(), nil)
		assert.True(t, apierrors.IsNotFound(err))
		assert.Len(t, c.written, 1)
	})
	t.Run("W47 only a conflict is tried again", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{fail: func(int) error { return forbidden("web", "no right") }, live: rs}
		_, err := c.report(rs, observed(), nil)
		assert.True(t, apierrors.IsForbidden(err))
		require.ErrorContains(t, err, `replicas: writing status of replicasets "default/web"`)
		assert.Len(t, c.written, 1)
		assert.Zero(t, c.gets)
	})
	t.Run("W47 another object of that name is not written to", func(t *testing.T) {
		t.Parallel()
		other := rs.DeepCopy()
		other.UID = "other"
		c := &statusClient{fail: conflictOnce, live: other}
		_, err := c.report(rs, observed(), nil)
		require.ErrorContains(t, err, "original is gone: got uid other, wanted uid-of-web")
		assert.Len(t, c.written, 1)
	})
	t.Run("U5 W48 both errors come back, the status's first", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{fail: func(int) error { return busy(4) }}
		boom := errors.New("boom")
		result, err := c.report(rs, observed(), boom)
		require.ErrorIs(t, err, boom)
		assert.True(t, apierrors.IsTooManyRequests(err))
		assert.Less(t, indexOf(err.Error(), "slow down"), indexOf(err.Error(), "boom"))
		assert.Equal(t, 4*time.Second, result.RequeueAfter, "the server says when")
	})
	t.Run("W27 no server puts a status off for more than five minutes", func(t *testing.T) {
		t.Parallel()
		c := &statusClient{fail: func(int) error { return busy(math.MaxInt32) }}
		result, err := c.report(rs, observed(), nil)
		require.Error(t, err)
		assert.Equal(t, 5*time.Minute, result.RequeueAfter)
	})
	t.Run("W46 the write ends with the caller's context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		client := contextClient{}
		_, err := (&replicas.ReplicaSetReporter{Client: client}).Report(ctx, rs, observed(), nil)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// mute answers nothing.
type mute struct{}

func (mute) Get(context.Context, string, string) (*appsv1.ReplicaSet, error) { return nil, nil }

func (mute) UpdateStatus(context.Context, *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return nil, nil
}

type contextClient struct{}

func (contextClient) Get(ctx context.Context, _, _ string) (*appsv1.ReplicaSet, error) {
	return nil, ctx.Err()
}

func (contextClient) UpdateStatus(ctx context.Context, rs *appsv1.ReplicaSet) (*appsv1.ReplicaSet, error) {
	return rs, ctx.Err()
}

func TestReportAvailability(t *testing.T) {
	t.Parallel()
	rs := replicaSet(3)
	rs.Spec.MinReadySeconds = 60
	readyFor := func(name string, seconds int) *corev1.Pod {
		return podtest.Pod(name, owned(rs), podtest.ReadySince(podtest.Now.Add(-time.Duration(seconds)*time.Second)))
	}
	t.Run("M1 M2 the next pod to become available asks for a pass", func(t *testing.T) {
		t.Parallel()
		result, err := (&statusClient{}).report(rs, observed(readyFor("a", 10), readyFor("b", 45), readyFor("c", 99)), nil)
		require.NoError(t, err)
		assert.Equal(t, 15*time.Second, result.RequeueAfter)
	})
	t.Run("M2 the time that the write took is taken off", func(t *testing.T) {
		t.Parallel()
		for took, want := range map[time.Duration]time.Duration{5 * time.Second: 10 * time.Second, time.Minute: 1} {
			now := podtest.Now.Add(-took)
			r := replicas.ReplicaSetReporter{Client: &statusClient{}, Now: func() time.Time {
				now = now.Add(took)
				return now
			}}
			result, err := r.Report(context.Background(), rs, observed(readyFor("b", 45)), nil)
			require.NoError(t, err)
			assert.Equal(t, want, result.RequeueAfter, "overdue is at once")
		}
	})
	t.Run("M1 an earlier wish of the pass stands", func(t *testing.T) {
		t.Parallel()
		result := observed(readyFor("b", 45))
		result.RequeueAfter = time.Second
		result, err := (&statusClient{}).report(rs, result, nil)
		require.NoError(t, err)
		assert.Equal(t, time.Second, result.RequeueAfter)
	})
	t.Run("M1 nothing is asked for when every ready pod is available", func(t *testing.T) {
		t.Parallel()
		result, err := (&statusClient{}).report(rs, observed(readyFor("c", 99), podtest.Pod("d", podtest.NotReady)), nil)
		require.NoError(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
	t.Run("U7 what the server answered is looked at, not what was sent", func(t *testing.T) {
		t.Parallel()
		answer := func(rs *appsv1.ReplicaSet) { rs.Status.AvailableReplicas = rs.Status.ReadyReplicas }
		result, err := (&statusClient{answer: answer}).report(rs, observed(readyFor("b", 45)), nil)
		require.NoError(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
	t.Run("M3 W58 a ready pod without a transition time asks for nothing", func(t *testing.T) {
		t.Parallel()
		result, err := (&statusClient{}).report(rs, observed(podtest.Pod("a", podtest.ReadySince(time.Time{}))), nil)
		require.NoError(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
	t.Run("M1 nothing is asked for without minReadySeconds, whatever the server says", func(t *testing.T) {
		t.Parallel()
		rs := replicaSet(1)
		answer := func(rs *appsv1.ReplicaSet) { rs.Status.AvailableReplicas = 0 }
		result, err := (&statusClient{answer: answer}).report(rs, observed(podtest.Pod("a")), nil)
		require.NoError(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
	t.Run("M7 after a status error a wish of the pass does not stand: the rate limiter decides", func(t *testing.T) {
		t.Parallel()
		refuse := &statusClient{fail: func(int) error { return errors.New("boom") }}
		result := observed()
		result.RequeueAfter = time.Hour
		result, err := refuse.report(rs, result, nil)
		require.Error(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
	t.Run("M7 after an error nothing is asked for", func(t *testing.T) {
		t.Parallel()
		result, err := (&statusClient{}).report(rs, observed(readyFor("b", 45)), errors.New("boom"))
		require.Error(t, err)
		assert.Zero(t, result.RequeueAfter)
		refuse := &statusClient{fail: func(int) error { return errors.New("boom") }}
		result, err = refuse.report(rs, observed(readyFor("b", 45)), nil)
		require.Error(t, err)
		assert.Zero(t, result.RequeueAfter)
	})
}

type rcStatusClient struct {
	written []*corev1.ReplicationController
}

func (c *rcStatusClient) Get(_ context.Context, _, name string) (*corev1.ReplicationController, error) {
	return c.written[len(c.written)-1].DeepCopy(), nil
}

func (c *rcStatusClient) UpdateStatus(_ context.Context, rc *corev1.ReplicationController) (*corev1.ReplicationController, error) {
	c.written = append(c.written, rc.DeepCopy())
	if len(c.written) == 1 {
		return nil, conflict(rc.Name)
	}
	return rc.DeepCopy(), nil
}

func TestReplicationControllerReport(t *testing.T) {
	t.Parallel()
	t.Run("A1 A3 U3 M1 a ReplicationController's status is written on the object itself", func(t *testing.T) {
		t.Parallel()
		two := int32(2)
		rc := &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", Generation: 2},
			Spec: corev1.ReplicationControllerSpec{
				Replicas: &two, Selector: web, MinReadySeconds: 7200,
				Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
			},
		}
		c := &rcStatusClient{}
		r := replicas.ReplicationControllerReporter{Client: c, Now: func() time.Time { return podtest.Now }}
		result, err := r.Report(context.Background(), rc, observed(podtest.Pod("a"), podtest.Pod("b", podtest.NotReady)), nil)
		require.NoError(t, err)
		require.Len(t, c.written, 2, "a conflict is tried once more")
		assert.EqualValues(t, 2, c.written[1].Status.Replicas)
		assert.EqualValues(t, 1, c.written[1].Status.ReadyReplicas)
		assert.EqualValues(t, 0, c.written[1].Status.AvailableReplicas)
		assert.EqualValues(t, 2, c.written[1].Status.ObservedGeneration)
		assert.Equal(t, time.Hour, result.RequeueAfter)

		_, err = r.Report(context.Background(), c.written[1], observed(podtest.Pod("a"), podtest.Pod("b", podtest.NotReady)), nil)
		require.NoError(t, err)
		assert.Len(t, c.written, 2, "U1 what is there already is not written again")
	})
	t.Run("A4 a ReplicationController's writes are recorded as own ones", func(t *testing.T) {
		t.Parallel()
		store := &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return "1" }}
		rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u", ResourceVersion: "9"}}
		r := replicas.ReplicationControllerReporter{Client: &rcStatusClient{}, Consistency: store}
		_, err := r.Report(context.Background(), rc, observed(), nil)
		require.NoError(t, err)
		stale, _ := store.Ready(expectations.KeyOf(rc))
		assert.Equal(t, schema.GroupResource{Resource: "replicationcontrollers"}, stale.Resource)
	})
}
