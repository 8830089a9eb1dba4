// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A statusWrite is a status to write, with the answers of the API server.
type statusWrite struct {
	Report        report
	First, Second string    // the answers to the first and the second write
	Read          string    // the answer to the read between the two writes
	FreshUID      types.UID // the UID of the ReplicaSet that the read returns
}

func (g *gen) statusWrite() statusWrite {
	c := statusWrite{
		Report: g.report(),
		First:  pick(g, "", "", "Conflict", "Conflict", "NotFound", "Forbidden", "Timeout"),
		Second: pick(g, "", "", "Conflict", "Timeout"),
		Read:   pick(g, "", "", "", "NotFound", "Timeout"), FreshUID: pick[types.UID](g, "owner", "owner", "owner", "other"),
	}
	c.Report.RS = merged(c.Report.RS, []byte("{}")) // JSON cuts times to whole seconds, as in objects of an API server
	spec := &c.Report.RS.Spec
	spec.MinReadySeconds = max(spec.MinReadySeconds, 0) // our controller refuses a negative minReadySeconds
	if g.in(2) {                                        // a status that is up to date, or nearly
		rs := c.Report.RS
		active, terminating := c.Report.claimed()
		rs.Status = upstream.CalculateStatus(rs, active, terminating, c.Report.err(), features(false), start)
		rs.Status.ObservedGeneration = rs.Generation
		switch g.IntN(6) {
		case 0:
			rs.Status.TerminatingReplicas = nil
		case 1:
			rs.Generation++
		case 2:
			*pick(g, &rs.Status.Replicas, &rs.Status.ReadyReplicas, &rs.Status.AvailableReplicas, &rs.Status.FullyLabeledReplicas)++
		}
	}
	return c
}

// statusCalls is a client that either side can use. It records the calls.
type statusCalls struct {
	appsclient.ReplicaSetInterface
	c     statusWrite
	fresh *appsv1.ReplicaSet // the ReplicaSet that a read has returned, or nil
	puts  []*appsv1.ReplicaSet
	calls []string
}

func (s *statusCalls) UpdateStatus(_ context.Context, rs *appsv1.ReplicaSet, _ metav1.UpdateOptions) (*appsv1.ReplicaSet, error) {
	said := s.c.First
	if len(s.puts) > 0 {
		said = s.c.Second
	}
	s.puts, s.calls = append(s.puts, rs.DeepCopy()), append(s.calls, "write: "+said)
	if err := answer(said, "write"); err != nil {
		return nil, err
	}
	return rs, nil
}

func (s *statusCalls) Patch(ctx context.Context, _ string, _ types.PatchType, patch []byte, _ metav1.PatchOptions, _ ...string) (*appsv1.ReplicaSet, error) {
	return s.UpdateStatus(ctx, patchedStatus(cmp.Or(s.fresh, s.c.Report.RS), patch), metav1.UpdateOptions{})
}

// patchedStatus returns a ReplicaSet with the status after a JSON merge patch. If the patch contains another UID
// or another resourceVersion than the ReplicaSet, patchedStatus panics.
func patchedStatus(was *appsv1.ReplicaSet, patch []byte) *appsv1.ReplicaSet {
	is, rs := merged(was, patch), was.DeepCopy()
	if is.ResourceVersion != was.ResourceVersion || is.UID != was.UID {
		panic("a patch for another version: " + string(patch))
	}
	rs.Status = is.Status
	return rs
}

func (s *statusCalls) Get(_ context.Context, _ string, _ metav1.GetOptions) (*appsv1.ReplicaSet, error) {
	s.calls = append(s.calls, "read: "+s.c.Read)
	if err := answer(s.c.Read, "read"); err != nil {
		return nil, err
	}
	fresh := s.c.Report.RS.DeepCopy()
	fresh.UID, fresh.ResourceVersion, fresh.Generation, fresh.Labels = s.c.FreshUID, "fresh", fresh.Generation+1, map[string]string{"fresh": "yes"}
	s.fresh = fresh
	return fresh, nil
}

// statusOnly is a client for our controller. It can only read owners and patch their status.
type statusOnly struct {
	setClient
	replicaSets appsclient.ReplicaSetInterface
}

func (c statusOnly) GetOwner(ctx context.Context, _, name string) (*appsv1.ReplicaSet, error) {
	return c.replicaSets.Get(ctx, name, metav1.GetOptions{})
}

func (c statusOnly) PatchStatus(ctx context.Context, rs *appsv1.ReplicaSet, patch selector.Patch) (*appsv1.ReplicaSet, error) {
	return c.replicaSets.Patch(ctx, rs.Name, patch.Type, patch.Data, metav1.PatchOptions{}, "status")
}

// write makes one pass of our controller. The pass only writes the status of the report.
func (c report) write(ctx context.Context, replicaSets appsclient.ReplicaSetInterface) error {
	active, terminating := c.claimed()
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := replicas.ReplicaSetSpec(rs)
		spec.New = func(string) (*corev1.Pod, error) { return nil, errors.New("unexpected") } // so that the template does not matter
		spec.Paused = true                                                                    // so that nothing is created or deleted
		return spec, err
	}
	calculate := kind.Status
	kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
		if o.Gates, o.ScaleErr = nil, c.err(); c.Waiting {
			o.Gates = []controller.Gate{{Reason: controller.Paused}}
		}
		err := calculate(rs, o)
		if c.Omit {
			rs.Status.TerminatingReplicas = nil
		}
		return err
	}
	kind.Observe = func(_ context.Context, pass setPass) {
		if !pass.Observed {
			panic(fmt.Sprintf("there is no status to write: %v", pass.Err))
		}
	}
	cache := claimedCache{sceneCache{scene: scene{RS: c.RS}}, slices.Concat(active, terminating)}
	made, err := controller.New(kind, setClient(statusOnly{replicaSets: replicaSets}), &cache, func(types.NamespacedName, time.Duration) {}, controller.Options{})
	must(err)
	_, err = made.Sync(ctx, types.NamespacedName{Namespace: c.RS.Namespace, Name: c.RS.Name})
	return err
}

// A claimedCache returns only pods that the owner has already claimed.
type claimedCache struct {
	sceneCache
	pods []*corev1.Pod
}

func (c *claimedCache) Children(context.Context, *appsv1.ReplicaSet) ([]*corev1.Pod, error) {
	return c.pods, nil
}

const (
	noRetry  = "W47: a write that failed with anything but a Conflict is not tried again"
	goneRead = "W47: nothing is written to another ReplicaSet of that name"
	goneLook = "a status write that is answered with NotFound asks for a read of the owner"
	noWrite  = "the status is up to date, and nothing is written"
	oneWrite = "the first write succeeds"
)

func TestStatusWrite(t *testing.T) {
	t.Parallel()
	t.Run("U1 U2 U3 U4 Y11 the same status is written, read and written again", func(t *testing.T) {
		t.Parallel()
		inBubble(t, comparison[statusWrite]{
			cases: 50_000, of: "statuses",
			input:   (*gen).statusWrite,
			differ:  differOnStatusWrites,
			names:   []string{noRetry, goneRead, goneLook, refreshed, kept},
			reaches: []string{noWrite, oneWrite},
		})
	})
}

func differOnStatusWrites(c statusWrite, named *tally) string {
	active, terminating := c.Report.claimed()
	newStatus := upstream.CalculateStatus(c.Report.RS, active, terminating, c.Report.err(), features(c.Report.Omit), time.Now())
	newStatus.Conditions = c.Report.expected(newStatus.Conditions, len(active), named)
	theirs := &statusCalls{c: c}
	_, theirErr := upstream.UpdateStatus(logr.Discard(), theirs, c.Report.RS.DeepCopy(), newStatus, features(c.Report.Omit))

	ours := &statusCalls{c: c}
	ourErr := c.Report.write(context.Background(), ours)

	if needed := status.NeedsUpdate(c.Report.RS, newStatus); needed != (len(theirs.calls) > 0) {
		return fmt.Sprintf("Kubernetes: %v, ours needs an update: %v", theirs.calls, needed)
	}
	switch first := answer(c.First, "write"); {
	case len(theirs.calls) == 0:
		named.reach(noWrite)
	case first == nil:
		named.reach(oneWrite)
	case apierrors.IsNotFound(first):
		named.add(goneLook)
		theirs.calls, theirs.puts, theirErr = theirs.calls[:2], theirs.puts[:1], first
	case !apierrors.IsConflict(first):
		named.add(noRetry)
		theirs.calls, theirs.puts, theirErr = theirs.calls[:1], theirs.puts[:1], first
	case c.Read == "" && c.FreshUID != c.Report.RS.UID:
		named.add(goneRead)
		theirs.calls, theirs.puts, theirErr = theirs.calls[:2], theirs.puts[:1], ourErr
	}
	if strings.Join(theirs.calls, ", ") != strings.Join(ours.calls, ", ") || !equality.Semantic.DeepEqual(theirs.puts, ours.puts) {
		return fmt.Sprintf("Kubernetes: %v %s\nours: %v %s", theirs.calls, dump(theirs.puts), ours.calls, dump(ours.puts))
	}
	if (theirErr == nil) != (ourErr == nil) || theirErr != nil && !strings.Contains(ourErr.Error(), theirErr.Error()) {
		return fmt.Sprintf("Kubernetes: %v; ours: %v", theirErr, ourErr)
	}
	return ""
}
