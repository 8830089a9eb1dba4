// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
)

const namespace = "default"

// A simulation is the operator on a simulated cluster, with the agents in the pods. Each change of the cluster is
// checked by the method changed.
type simulation struct {
	*replicastest.Cluster[*Database, *corev1.Pod]
	operator *replicastest.Controller[*Database, *corev1.Pod]
	world    *replicastest.World
	agents   *agents
	claims   map[string]*corev1.PersistentVolumeClaim
	fails    func() bool // reports whether the next call of a method of Calls fails
	quorum   int
	broken   error
}

func simulate(t *testing.T, replicas, quorum int32) *simulation {
	t.Helper()
	s := &simulation{claims: map[string]*corev1.PersistentVolumeClaim{}, fails: func() bool { return false }, quorum: int(quorum)}
	var err error
	s.Cluster, err = replicastest.NewCluster(Kind(s), replicastest.Options{Seed: 1, Nodes: 3})
	require.NoError(t, err)
	s.agents = &agents{s, 30 * time.Second, map[string]time.Time{}}
	s.world = &replicastest.World{Clock: s.Clock, Parts: []replicastest.Part{s.Cluster, nil, s.agents}}
	s.start()
	s.Changed = s.changed
	_, err = s.CreateOwner(t.Context(), &Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"},
		Spec:       DatabaseSpec{Replicas: replicas, Quorum: quorum, Image: "one"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.broken) })
	return s
}

// start replaces the running operator, if any, with a new operator that remembers nothing.
func (s *simulation) start() {
	if s.operator != nil {
		s.operator.View.Stop()
	}
	s.operator = s.NewController()
	s.world.Parts[1] = s.operator
}

var errLost = errors.New("connection reset by peer")

func (s *simulation) Claim(_ context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	if s.fails() {
		return nil, errLost
	}
	if s.claims[claim.Name] == nil {
		s.claims[claim.Name] = claim
	}
	return s.claims[claim.Name], nil
}

func (s *simulation) Keep(ctx context.Context, db *Database, keep bool) error {
	if s.fails() {
		return errLost
	}
	_, err := s.EditOwner(ctx, db.Namespace, db.Name, func(d *Database) {
		d.Finalizers = slices.DeleteFunc(d.Finalizers, func(f string) bool { return f == finalizer })
		if keep {
			d.Finalizers = append(d.Finalizers, finalizer)
		}
	})
	return err
}

// changed checks each change, and stores the first violation in s.broken. A new pod must have a volume claim that
// is not being deleted. A ready member may be deleted only after it was drained. If the database is not being
// deleted, a quorum of ready members must also remain.
func (s *simulation) changed(before, after metav1.Object) {
	was, _ := before.(*corev1.Pod)
	is, _ := after.(*corev1.Pod)
	switch {
	case s.broken != nil || was == nil && is == nil:
	case was == nil && (s.claims["data-"+is.Name] == nil || s.claims["data-"+is.Name].DeletionTimestamp != nil):
		s.broken = fmt.Errorf("%s has no claim", is.Name)
	case was == nil || !isReady(was) || is != nil && is.DeletionTimestamp == nil:
	case was.Annotations[drained] == "":
		s.broken = fmt.Errorf("%s goes without a drain", was.Name)
	case s.ready() < s.quorum && !s.isGoing():
		s.broken = fmt.Errorf("%d are ready when %s goes, and %d make a quorum", s.ready(), was.Name, s.quorum)
	}
}

// isGoing reports whether the database is being deleted or no longer exists.
func (s *simulation) isGoing() bool {
	db, err := s.GetOwner(context.Background(), namespace, "db")
	return err != nil || db.DeletionTimestamp != nil
}

func (s *simulation) ready() (n int) {
	for _, p := range s.Children(namespace) {
		if isReady(p) {
			n++
		}
	}
	return n
}

// agents simulates the agents in the pods. If the operator asks a member to drain, the member is drained some time
// later.
type agents struct {
	*simulation
	takes time.Duration        // how long a member takes to drain
	asked map[string]time.Time // when the agent noticed the request to drain, by UID of the pod
}

func (a *agents) next() (pod *corev1.Pod, due time.Time) {
	for _, p := range a.Children(namespace) {
		if p.Annotations[drain] == "" || p.Annotations[drained] != "" {
			continue
		}
		if _, ok := a.asked[string(p.UID)]; !ok {
			a.asked[string(p.UID)] = a.Clock.Now()
		}
		if at := a.asked[string(p.UID)].Add(a.takes); pod == nil || at.Before(due) {
			pod, due = p, at
		}
	}
	return pod, due
}

func (a *agents) Due() (time.Time, bool) {
	pod, due := a.next()
	return due, pod != nil
}

func (a *agents) Step() {
	if pod, due := a.next(); pod != nil && !due.After(a.Clock.Now()) {
		_, _ = a.EditChild(context.Background(), namespace, pod.Name, func(p *corev1.Pod) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, drained, "true")
		})
	}
}

func (s *simulation) edit(t *testing.T, change func(*DatabaseSpec)) {
	t.Helper()
	_, err := s.EditOwner(t.Context(), namespace, "db", func(db *Database) { change(&db.Spec) })
	require.NoError(t, err)
}

// members returns the names and images of the pods.
func (s *simulation) members() (members []string) {
	for _, p := range s.Children(namespace) {
		members = append(members, p.Name+" "+p.Spec.Containers[0].Image)
	}
	return members
}

func TestUpAndDown(t *testing.T) {
	t.Parallel()
	s := simulate(t, 5, 3)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-1 one", "db-2 one", "db-3 one", "db-4 one"}, s.members())
	s.edit(t, func(d *DatabaseSpec) { d.Replicas = 3 })
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-1 one", "db-2 one"}, s.members())
	s.edit(t, func(d *DatabaseSpec) { d.Replicas = 4 })
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-1 one", "db-2 one", "db-3 one"}, s.members())
	assert.Len(t, s.claims, 5, "a claim stays")
	db, err := s.GetOwner(t.Context(), namespace, "db")
	require.NoError(t, err)
	assert.Equal(t, int32(4), db.Status.ReadyReplicas)
}

func TestRollout(t *testing.T) {
	t.Parallel()
	s := simulate(t, 4, 3)
	s.world.Run(time.Hour)
	s.edit(t, func(d *DatabaseSpec) { d.Image = "two" })
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 two", "db-1 two", "db-2 two", "db-3 two"}, s.members())
}

func TestPaused(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3, 2)
	s.edit(t, func(d *DatabaseSpec) { d.Paused = true })
	s.world.Run(time.Hour)
	assert.Empty(t, s.members())
	assert.Equal(t, "Paused: Spec.Paused is set", s.heldBack(t))
	s.edit(t, func(d *DatabaseSpec) { d.Paused = false })
	s.world.Run(time.Hour)
	assert.Len(t, s.members(), 3)
	assert.Equal(t, "Nothing: ", s.heldBack(t))
}

func (s *simulation) heldBack(t *testing.T) string {
	t.Helper()
	db, err := s.GetOwner(t.Context(), namespace, "db")
	require.NoError(t, err)
	condition := meta.FindStatusCondition(db.Status.Conditions, "HeldBack")
	require.NotNil(t, condition)
	return condition.Reason + ": " + condition.Message
}

func TestQuorumThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3, 4)
	s.world.Run(time.Hour)
	assert.Empty(t, s.members())
	_, err := spec(&Database{Spec: DatabaseSpec{Replicas: 3, Quorum: 4}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}})
	require.EqualError(t, err, "database default/db: spec.quorum is 4, and spec.replicas is 3")
}

// If the pod of a member fails, the operator creates a new pod with the same name.
func TestFailedMember(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3, 2)
	s.world.Run(time.Hour)
	failed, err := s.EditChild(t.Context(), namespace, "db-1", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed} })
	require.NoError(t, err)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-1 one", "db-2 one"}, s.members())
	again, err := s.GetChild(t.Context(), namespace, "db-1")
	require.NoError(t, err)
	assert.NotEqual(t, failed.UID, again.UID)
}

// A member has drained, and in the same moment the pod of another one fails. The quorum needs the first until the other is
// ready again.
func TestADrainedMemberStaysWhileTheQuorumNeedsIt(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3, 2)
	s.agents.takes = 10 * time.Hour
	s.world.Run(time.Hour)
	s.edit(t, func(d *DatabaseSpec) { d.Replicas = 2 })
	s.world.Run(time.Hour)
	_, err := s.EditChild(t.Context(), namespace, "db-1", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed} })
	require.NoError(t, err)
	_, err = s.EditChild(t.Context(), namespace, "db-2", func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, drained, "true") })
	require.NoError(t, err)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-1 one"}, s.members())
}

// If a user deletes the claim of a member and the pod fails, the operator waits until the claim is gone. When the
// watch of claims reports this, the operator creates a new claim and a new pod.
func TestClaimIsDeleted(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3, 2)
	s.world.Run(time.Hour)
	deleted := s.claims["data-db-1"]
	deleted.DeletionTimestamp = &metav1.Time{Time: s.Clock.Now()}
	_, err := s.EditChild(t.Context(), namespace, "db-1", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed} })
	require.NoError(t, err)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-2 one"}, s.members())
	delete(s.claims, "data-db-1")
	assert.Equal(t, types.NamespacedName{Namespace: namespace, Name: "db"}, DatabaseOf(deleted))
	s.operator.Worker.Wake(DatabaseOf(deleted), 0)
	s.world.Run(time.Minute)
	assert.Equal(t, []string{"db-0 one", "db-1 one", "db-2 one"}, s.members())
	assert.Empty(t, DatabaseOf(&corev1.PersistentVolumeClaim{}))
}

// If a pod that does not belong to the database has the name of a member, this member waits until the name is
// free. The other members do not wait.
func TestNameIsTaken(t *testing.T) {
	t.Parallel()
	s := simulate(t, 0, 0)
	s.claims["data-db-1"] = &corev1.PersistentVolumeClaim{}
	_, err := s.CreateChild(t.Context(), namespace, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "db-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "other"}}},
	})
	require.NoError(t, err)
	s.edit(t, func(d *DatabaseSpec) { d.Replicas = 3 })
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"db-0 one", "db-1 other", "db-2 one"}, s.members())
	zero := int64(0)
	_, err = s.EditChild(t.Context(), namespace, "db-1", func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, drained, "true") })
	require.NoError(t, err)
	_, err = s.DeleteChild(t.Context(), namespace, "db-1", metav1.DeleteOptions{GracePeriodSeconds: &zero})
	require.NoError(t, err)
	s.world.Run(2 * time.Minute)
	db, err := s.GetOwner(t.Context(), namespace, "db")
	require.NoError(t, err)
	assert.Equal(t, int32(3), db.Status.ReadyReplicas)
}

// If a database is deleted, its members are drained and removed one by one, the highest ordinal first. The
// database is removed after the last member.
func TestADatabaseThatIsDeletedDrainsItsMembers(t *testing.T) {
	t.Parallel()
	s := simulate(t, 3, 2)
	s.world.Run(30 * time.Minute)
	require.Len(t, s.members(), 3)
	require.NoError(t, s.DeleteOwner(t.Context(), namespace, "db", metav1.DeletePropagationBackground))
	s.world.Run(time.Minute)
	assert.Equal(t, []string{"db-0 one", "db-1 one"}, s.members())
	s.world.Run(30 * time.Minute)
	assert.Empty(t, s.members())
	_, err := s.GetOwner(t.Context(), namespace, "db")
	assert.True(t, apierrors.IsNotFound(err), "its finalizer is off: %v", err)
}

// Random faults occur at random times. For each change of the cluster, simulation.changed checks several rules,
// and no change may break a rule. After the last fault, the operator must reach the wanted state.
func TestChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			s := simulate(t, int32(3+r.IntN(3)), 2)
			s.operator.RememberWrites = r.IntN(2) == 0
			s.agents.takes = time.Duration(1+r.IntN(300)) * time.Second
			s.world.Run(30 * time.Minute)
			s.fails = func() bool { return r.IntN(3) == 0 }
			for range 40 {
				s.goesWrong(t, r)
				s.world.Run(time.Duration(r.IntN(600)) * time.Second)
			}
			s.calm()
			s.edit(t, func(d *DatabaseSpec) { d.Replicas, d.Image = 4, "last" })
			s.world.Run(12 * time.Hour)
			assert.Equal(t, []string{"db-0 last", "db-1 last", "db-2 last", "db-3 last"}, s.members())
		})
	}
}

func (s *simulation) goesWrong(t *testing.T, r *rand.Rand) {
	t.Helper()
	client, view := s.operator.Client, s.operator.View
	lost, times := replicastest.Lost()[r.IntN(len(replicastest.Lost()))], 1+r.IntN(3)
	switch r.IntN(12) {
	case 0, 1:
		s.edit(t, func(d *DatabaseSpec) { d.Replicas = int32(2 + r.IntN(5)) })
	case 2:
		s.edit(t, func(d *DatabaseSpec) { d.Image = strconv.Itoa(r.IntN(3)) })
	case 3:
		client.Fail(replicastest.Rule{Verb: "create", Times: times, Err: lost, Landed: r.IntN(2) == 0})
	case 4:
		client.Fail(replicastest.Rule{Verb: "delete", Times: times, Err: lost, Landed: r.IntN(2) == 0})
	case 5:
		client.Fail(replicastest.Rule{Verb: "create", Times: 1, Late: time.Duration(1+r.IntN(240)) * time.Second})
	case 6:
		view.ChildWatch.Hang()
	case 7:
		view.ChildWatch.Relist()
	case 8:
		view.OwnerWatch.Hang()
	case 9:
		view.OwnerWatch.Resume()
	case 10:
		view.ChildWatch.Break()
	default:
		s.start()
	}
}

func (s *simulation) calm() {
	s.fails = func() bool { return false }
	s.operator.Client.Fail()
	s.operator.View.ChildWatch.Relist()
	s.operator.View.OwnerWatch.Relist()
}
