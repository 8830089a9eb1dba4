// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/sim/failure"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// The tests in this file replay problems that were reported for operators. In these tests, pools own workers.

type workers = replicas.Spec[*worker]

// workersOf returns the Kind of pools. The given function changes the result of Kind.Spec.
func workersOf(change func(spec *workers)) controller.Kind[*pool, *worker] {
	kind := pools()
	spec := kind.Spec
	kind.Spec = func(p *pool) (workers, error) {
		s, err := spec(p)
		change(&s)
		return s, err
	}
	return kind
}

// openWorkshop returns a workshop with the given Kind and a pool that wants n workers and has existed for an hour. With
// ready, the workers become ready.
func openWorkshop(t *testing.T, kind controller.Kind[*pool, *worker], n int32, ready bool) *workshop {
	t.Helper()
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1})
	require.NoError(t, err)
	if ready {
		cluster.Ready = func(w *worker) { w.Status.Ready = true }
	}
	s := &workshop{Cluster: cluster, controller: cluster.NewController()}
	s.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, s.controller}}
	p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	p.Spec.Replicas = n
	_, err = cluster.CreateOwner(t.Context(), p)
	require.NoError(t, err)
	s.world.Run(time.Hour)
	return s
}

func (s *workshop) want(t *testing.T, n int32) {
	t.Helper()
	_, err := s.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Spec.Replicas = n })
	require.NoError(t, err)
}

func (s *workshop) edit(t *testing.T, name string, change func(w *worker)) {
	t.Helper()
	_, err := s.EditChild(t.Context(), namespace, name, change)
	require.NoError(t, err)
}

func (s *workshop) names() (names []string) {
	for _, w := range s.Children(namespace) {
		if w.DeletionTimestamp == nil {
			names = append(names, w.Name)
		}
	}
	return names
}

// The pool is scaled down before the cache shows that a runner has a job. This runner stays (actions-runner-controller
// 4000).
func TestARunnerThatGetsAJobStays(t *testing.T) {
	t.Parallel()
	isBusy := func(w *worker) bool { return w.Annotations["busy"] != "" }
	for name, tt := range map[string]struct {
		ruled, ready bool
	}{"if nothing is ready by rule": {}, "if it is not ready yet": {ruled: true}, "if it is ready": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openWorkshop(t, workersOf(func(spec *workers) {
				spec.Rules.MustStay = isBusy
				if !tt.ruled {
					spec.Rules.Ready = nil
				}
			}), 3, tt.ready)
			require.Len(t, s.names(), 3)
			s.controller.View.ChildWatch.Lag = 3 * time.Second
			job := s.names()[1]
			s.edit(t, job, func(w *worker) { w.Annotations = map[string]string{"busy": "1"} })
			s.want(t, 0)
			s.world.Run(time.Hour)
			assert.Equal(t, []string{job}, s.names())
		})
	}
}

// The pool is scaled down before the cache shows that another controller has taken over a child. This child stays
// (agent-sandbox 418).
func TestAChildThatWasTakenOverStays(t *testing.T) {
	t.Parallel()
	for _, ready := range []bool{false, true} {
		s := openWorkshop(t, pools(), 3, ready)
		s.controller.View.ChildWatch.Lag = 3 * time.Second
		taken, yes := s.names()[1], true
		s.edit(t, taken, func(w *worker) {
			w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Claim", Name: "c", UID: "claim", Controller: &yes}}
		})
		s.want(t, 0)
		s.world.Run(time.Hour)
		assert.Equal(t, []string{taken}, s.names(), "ready: %v", ready)
	}
}

// membersWith returns a Kind in which each member has a claim, for example a PersistentVolumeClaim. The claims are the
// names of the members that have one. Prepare creates those of new members, and deletes those of members that are gone
// and not wanted.
func membersWith(claims sets.Set[string]) controller.Kind[*pool, *worker] {
	kind := workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") })
	kind.Prepare = func(_ context.Context, p *pool, step *controller.Step[*worker]) error {
		claims.Insert(step.Create...)
		needed := sets.New[string]()
		for _, w := range slices.Concat(step.Active, step.Terminating) {
			needed.Insert(w.Name)
		}
		for i := range int(p.Spec.Replicas) {
			needed.Insert(replicas.Ordinals("p")(i))
		}
		if step.InFlight == 0 {
			claims.Delete(claims.Difference(needed).UnsortedList()...)
		}
		return nil
	}
	return kind
}

// The cache shows an old version of the owner that wants fewer members. No member is deleted, and none loses its claim
// (cloudnative-pg 10905).
func TestAnOldOwnerCostsNoMemberItsClaim(t *testing.T) {
	t.Parallel()
	claims := sets.New[string]()
	s := openWorkshop(t, membersWith(claims), 5, true)
	s.controller.View.OwnerWatch.Lag = 2 * time.Second
	s.want(t, 3)
	s.world.Run(time.Second)
	s.want(t, 5)
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 5)
	assert.True(t, claims.HasAll(s.names()...))
}

// The server refuses a deletion that Prepare has allowed. The member keeps its claim (cloudnative-pg 10905).
func TestADeletionThatIsRefusedAfterTheAuthorsStep(t *testing.T) {
	t.Parallel()
	claims := sets.New[string]()
	s := openWorkshop(t, membersWith(claims), 5, true)
	s.Deny("delete", failure.Forbidden.Of)
	s.want(t, 4)
	s.world.Run(time.Minute)
	s.want(t, 5)
	s.Webhook = nil
	s.world.Run(time.Hour)
	require.Len(t, s.names(), 5)
	assert.True(t, claims.HasAll(s.names()...), "p-4 lives on")
	s.want(t, 4)
	s.world.Run(time.Hour)
	assert.Equal(t, 4, claims.Len(), "and now its claim has gone with it")
}

// p-0 cannot be created because its claim is being deleted, but the other members are (cloudnative-pg 10985). In one
// subtest, Prepare removes p-0 from the Step. In the other, New returns an error for p-0.
func TestAClaimThatIsBeingDeletedHoldsItsMemberAlone(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(kind *controller.Kind[*pool, *worker], isStuck *bool){
		"if the step leaves it out": func(kind *controller.Kind[*pool, *worker], isStuck *bool) {
			kind.Prepare = func(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
				step.Create = slices.DeleteFunc(step.Create, func(name string) bool { return *isStuck && name == "p-0" })
				step.RequeueAfter = 10 * time.Second
				return nil
			}
		},
		"if New fails for it": func(kind *controller.Kind[*pool, *worker], isStuck *bool) {
			inner := kind.Spec
			kind.Spec = func(p *pool) (workers, error) {
				spec, err := inner(p)
				make := spec.New
				spec.New = func(name string) (*worker, error) {
					if *isStuck && name == "p-0" {
						return nil, errors.New("its claim is being deleted")
					}
					return make(name)
				}
				return spec, err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, isStuck := workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") }), true
			change(&kind, &isStuck)
			s := openWorkshop(t, kind, 3, true)
			assert.Equal(t, []string{"p-1", "p-2"}, s.names())
			isStuck = false
			s.world.Run(20 * time.Minute)
			assert.Equal(t, []string{"p-0", "p-1", "p-2"}, s.names())
		})
	}
}

func isMarked(w *worker) bool { return w.Annotations["marked"] != "" }

func mark(at time.Time) func(w *worker) {
	return func(w *worker) { metav1.SetMetaDataAnnotation(&w.ObjectMeta, "marked", at.Format(time.RFC3339)) }
}

// Before a machine is deleted, Prepare cordons it and waits until it is drained. The pool is scaled up again before the
// deletion, so the machine stays, and Prepare uncordons it (machine-controller-manager 1087).
func TestADrainIsCalledOff(t *testing.T) {
	t.Parallel()
	var s *workshop
	cordon := func(w *worker, on bool) {
		s.edit(t, w.Name, func(w *worker) {
			if w.Annotations = nil; on {
				w.Annotations = map[string]string{"cordoned": "1"}
			}
		})
	}
	isCordoned := func(w *worker) bool { return w.Annotations["cordoned"] != "" }
	kind := pools()
	kind.Prepare = func(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
		going := sets.New[string]()
		for _, d := range step.Delete {
			if going.Insert(d.Object.Name); !isCordoned(d.Object) {
				cordon(d.Object, true)
			}
		}
		for _, w := range step.Active {
			if isCordoned(w) && !going.Has(w.Name) && step.Later == 0 {
				cordon(w, false)
			}
		}
		step.Delete = nil // no machine is drained yet
		return nil
	}
	s = openWorkshop(t, kind, 3, true)
	cordoned := func() (n int) {
		for _, w := range s.Children(namespace) {
			if isCordoned(w) {
				n++
			}
		}
		return n
	}
	s.want(t, 2)
	s.world.Run(time.Minute)
	assert.Equal(t, 1, cordoned())
	s.want(t, 3)
	s.world.Run(time.Minute)
	assert.Len(t, s.names(), 3)
	assert.Zero(t, cordoned(), "it is wanted again")
}

// An autoscaler marks a machine, and lowers the desired number a second later (machine-controller-manager 1078).
// Prepare postpones the deletion of a marked machine that would be replaced until ten seconds after the mark, but not
// of one that is too many.
func TestAMarkedChildIsNotReplacedInVain(t *testing.T) {
	t.Parallel()
	kind := workersOf(func(spec *workers) { spec.Rules.MustGo = isMarked })
	kind.Prepare = func(_ context.Context, _ *pool, step *controller.Step[*worker]) error {
		step.Delete = slices.DeleteFunc(step.Delete, func(d replicas.Deletion[*worker]) bool {
			at, _ := time.Parse(time.RFC3339, d.Object.Annotations["marked"])
			left := 10*time.Second - step.Now.Sub(at)
			if !d.Replaced || left <= 0 {
				return false
			}
			step.RequeueAfter = left
			return true
		})
		return nil
	}
	s := openWorkshop(t, kind, 3, true)
	calls := s.controller.Client.Record()
	victim := s.names()[0]
	s.edit(t, victim, mark(s.Clock.Now()))
	s.world.Run(time.Second)
	s.want(t, 2)
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 2)
	assert.NotContains(t, s.names(), victim)
	assert.Zero(t, calls.Count("create"), "none is made to be thrown away")
	victim = s.names()[0]
	s.edit(t, victim, mark(s.Clock.Now()))
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 2)
	assert.NotContains(t, s.names(), victim, "replaced, as nobody has lowered the number")
}

// A worker that is still unready after ReadyWithin is replaced without an event (machine-controller-manager 790).
func TestWhatDoesNotBecomeReadyIsReplaced(t *testing.T) {
	t.Parallel()
	for _, remembers := range []bool{false, true} {
		s := openWorkshop(t, workersOf(func(spec *workers) { spec.Rules.ReadyWithin = 20 * time.Minute }), 0, false)
		s.controller.RememberWrites = remembers
		stuck := ""
		s.Ready = func(w *worker) {
			if stuck == "" {
				stuck = w.Name
			}
			w.Status.Ready = w.Name != stuck
		}
		s.want(t, 3)
		s.world.Run(19 * time.Minute)
		assert.Contains(t, s.names(), stuck)
		s.world.Run(2 * time.Minute)
		assert.Len(t, s.names(), 3)
		assert.NotContains(t, s.names(), stuck)
		calls := s.controller.Client.Record()
		s.world.Run(24 * time.Hour)
		assert.Empty(t, calls.Calls, "all is well")
	}
}

// Children that are an hour old are unready for less than ReadyWithin, and stay (agent-sandbox 1513). ReadyWithin
// counts from the moment when a child became unready, and not from its creation, even if the cache shows each change a
// minute late.
func TestChildrenThatAreNotReadyForAMomentStay(t *testing.T) {
	t.Parallel()
	for name, lag := range map[string]time.Duration{"if the cache follows": 0, "if it is late": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openWorkshop(t, workersOf(func(spec *workers) { spec.Rules.ReadyWithin = 5 * time.Minute }), 3, true)
			s.controller.View.ChildWatch.Lag = lag
			before := s.names()
			for _, ready := range []bool{false, true, false, true} {
				for _, w := range before {
					s.edit(t, w, func(w *worker) { w.Status.Ready = ready })
				}
				s.world.Run(4 * time.Minute)
			}
			s.world.Run(time.Hour)
			assert.Equal(t, before, s.names())
			s.edit(t, before[0], func(w *worker) { w.Status.Ready = false })
			s.world.Run(4 * time.Minute)
			s.controller = s.NewController() // does not know when the child became unready
			s.world.Parts[1] = s.controller
			s.world.Run(3 * time.Minute)
			assert.Equal(t, before, s.names(), "a new process begins anew")
			s.world.Run(10 * time.Minute)
			assert.NotContains(t, s.names(), before[0])
		})
	}
}

// The owner is deleted. Its members are drained and deleted one after the other (scylla-operator 284).
func TestMembersDrainBeforeTheirOwnerGoes(t *testing.T) {
	t.Parallel()
	var s *workshop
	const finalizer = "example.com/drain"
	kind := workersOf(func(spec *workers) {
		spec.Finalizer, spec.Slots, spec.BurstReplicas = finalizer, replicas.Ordinals("p"), 1
	})
	drained := sets.New[string]()
	kind.Prepare = func(ctx context.Context, p *pool, step *controller.Step[*worker]) error {
		for _, d := range step.Delete {
			drained.Insert(d.Object.Name)
		}
		if p.DeletionTimestamp != nil && step.NoneLeft() {
			_, err := s.EditOwner(ctx, namespace, "p", func(p *pool) {
				p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == finalizer })
			})
			return err
		}
		return nil
	}
	s = openWorkshop(t, kind, 3, true)
	_, err := s.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Finalizers = []string{finalizer} })
	require.NoError(t, err)
	var order []string
	s.Changed = func(before, after metav1.Object) {
		if w, is := before.(*worker); is && after == nil {
			order = append(order, w.Name)
			assert.True(t, drained.Has(w.Name), "%s goes without a drain", w.Name)
		}
	}
	require.NoError(t, s.DeleteOwner(t.Context(), namespace, "p", metav1.DeletePropagationBackground))
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-2", "p-1", "p-0"}, order)
	_, err = s.GetOwner(t.Context(), namespace, "p")
	assert.True(t, apierrors.IsNotFound(err))
}

// An owner is deleted with kubectl delete --cascade=orphan. Its children stay, even if it has the finalizer of its
// Spec.
func TestOrphanedChildrenStay(t *testing.T) {
	t.Parallel()
	const finalizer = "example.com/drain"
	s := openWorkshop(t, workersOf(func(spec *workers) { spec.Finalizer = finalizer }), 3, true)
	_, err := s.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Finalizers = []string{finalizer} })
	require.NoError(t, err)
	require.NoError(t, s.DeleteOwner(t.Context(), namespace, "p", metav1.DeletePropagationOrphan))
	_, err = s.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Finalizers = append(p.Finalizers, metav1.FinalizerOrphanDependents) })
	require.NoError(t, err)
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 3)
}

// A provider has no capacity, so each child fails or is deleted by someone else (kaito 2295, outscale 543). The
// delay of creations doubles up to five minutes, so eight children are created about 18 times in an hour.
func TestChildrenThatFailForEver(t *testing.T) {
	t.Parallel()
	failed := func(w *worker) bool { return w.Spec.Image == "failed" }
	for name, tt := range map[string]struct {
		rules   func(r *replicas.Rules[*worker])
		deletes bool
		after   time.Duration
		atLeast int
	}{
		"Failed names them":             {rules: func(r *replicas.Rules[*worker]) { r.Failed = failed }, after: 3 * time.Second},
		"MustGo names them":             {rules: func(r *replicas.Rules[*worker]) { r.MustGo = failed }, after: 3 * time.Second},
		"others delete them at once":    {rules: func(*replicas.Rules[*worker]) {}, deletes: true, after: 5 * time.Second},
		"others delete them after 20 s": {rules: func(*replicas.Rules[*worker]) {}, deletes: true, after: 20 * time.Second},
		"Discard names them, as jobs end by design": {
			rules: func(r *replicas.Rules[*worker]) { r.Discard = failed }, after: 3 * time.Second, atLeast: 3000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openWorkshop(t, workersOf(func(spec *workers) { tt.rules(&spec.Rules) }), 0, false)
			calls := s.controller.Client.Record()
			s.want(t, 8)
			for range 3600 {
				s.world.Run(time.Second)
				for _, w := range s.Children(namespace) {
					switch {
					case s.Clock.Now().Sub(w.CreationTimestamp.Time) < tt.after || w.DeletionTimestamp != nil:
					case tt.deletes:
						_, err := s.DeleteChild(t.Context(), namespace, w.Name, metav1.DeleteOptions{})
						require.NoError(t, err)
					default:
						s.edit(t, w.Name, func(w *worker) { w.Spec.Image = "failed" })
					}
				}
			}
			if made := calls.Count("create"); tt.atLeast > 0 {
				assert.Greater(t, made, tt.atLeast)
			} else {
				assert.LessOrEqual(t, made, 8*25)
			}
		})
	}
}

// A webhook replaces the tag in the image of each new worker by a digest, so each worker must go as soon as it exists
// (sigstore policy-controller 1105).
func TestAWebhookThatChangesWhatTheTemplateSays(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) {
		spec.Rules.MustGo = func(w *worker) bool { return w.Spec.Image == "digest" }
	}), 0, true)
	s.Mutate = func(w *worker) { w.Spec.Image = "digest" }
	calls := s.controller.Client.Record()
	s.want(t, 1)
	s.world.Run(6 * time.Hour)
	assert.LessOrEqual(t, calls.Count("create"), 76)
	assert.Greater(t, calls.Count("create"), 70, "it goes on, and takes what the webhook lets it have")
}

// The number of a Kind is in another object, so no generation ends the hold. While somebody deletes one worker again
// and again, the number is raised by a hundred, and the hundred do not wait for the one.
func TestAScaleUpDoesNotWaitForTheOneThatDied(t *testing.T) {
	t.Parallel()
	wanted := int32(1)
	s := openWorkshop(t, workersOf(func(spec *workers) { spec.Replicas = wanted }), 0, true)
	calls := s.controller.Client.Record()
	s.poke(t)
	for range 35 {
		s.world.Run(time.Second)
		for _, name := range s.names() {
			_, err := s.DeleteChild(t.Context(), namespace, name, metav1.DeleteOptions{})
			require.NoError(t, err)
		}
	}
	require.Equal(t, 3, calls.Count("create"), "after 0, 10 and 30 s")
	wanted = 101
	s.poke(t)
	s.world.Run(2 * time.Second)
	assert.Len(t, s.names(), 101, "the one that died is one of a hundred and one now, so its part of the delay is over")
}

// The template of a Kind is in another object, which changes twice in ten minutes. The workers of the first change live
// for five minutes, which is less than those that have not ended soon. They are replaced at once all the same, because
// the delay began when they were created.
func TestATemplateThatChangesTwiceInTenMinutes(t *testing.T) {
	t.Parallel()
	template := "one"
	kind := workersOf(func(spec *workers) {
		create := spec.New
		spec.New = func(name string) (*worker, error) {
			w, err := create(name)
			w.Spec.Image = template
			return w, err
		}
		spec.Rules.MustGo = func(w *worker) bool { return w.Spec.Image != template }
	})
	s := openWorkshop(t, kind, 5, true)
	for _, template = range []string{"two", "three"} {
		s.world.Run(5 * time.Minute)
		s.poke(t)
		s.world.Run(2 * time.Second)
		images := map[string]int{}
		for _, w := range s.Children(namespace) {
			if w.DeletionTimestamp == nil {
				images[w.Spec.Image]++
			}
		}
		assert.Equal(t, map[string]int{template: 5}, images)
	}
}

// poke changes an annotation of the pool, as an operator does whose Kind reads another object that has changed.
func (s *workshop) poke(t *testing.T) {
	t.Helper()
	_, err := s.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Annotations = map[string]string{"poked": s.Clock.Now().String()} })
	require.NoError(t, err)
}

// Claims take over the children of a pool as soon as these exist. The children do not count as failed, so the pool
// creates the next ones at once (agent-sandbox 418).
func TestChildrenThatOthersTakeOverAreNoFailure(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, pools(), 1, true)
	yes := true
	for range 30 {
		s.world.Run(2 * time.Second)
		for _, w := range s.Children(namespace) {
			if w.OwnerReferences[0].Kind == "Pool" {
				s.edit(t, w.Name, func(w *worker) {
					w.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Claim", Name: "c", UID: "claim", Controller: &yes}}
				})
			}
		}
	}
	s.world.Run(2 * time.Second)
	assert.Len(t, s.names(), 31, "30 are taken, and one is there")
}

// While creations are refused, as by a full quota, the empty slot p-1 is not filled, and p-3 stays. When
// creations are allowed again, p-1 is created and p-3 is deleted.
func TestSlotsThatAreGivenUpWhileAnotherIsMissing(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") }), 5, true)
	s.Deny("create", failure.Forbidden.Of)
	_, err := s.DeleteChild(t.Context(), namespace, "p-1", metav1.DeleteOptions{})
	require.NoError(t, err)
	s.want(t, 3)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-0", "p-2", "p-3"}, s.names(), "p-3 stands in for p-1")
	s.Webhook = nil
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-0", "p-1", "p-2"}, s.names())
}

// A user scales down while the quota is full and a wanted slot is empty. The pool still ends with one worker in each
// wanted slot.
func TestScaleDownUnderAFullQuota(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") }), 5, true)
	s.SetQuota(namespace, 4)
	_, err := s.DeleteChild(t.Context(), namespace, "p-1", metav1.DeleteOptions{})
	require.NoError(t, err)
	s.world.Run(time.Hour)
	require.Equal(t, []string{"p-0", "p-2", "p-3", "p-4"}, s.names(), "the quota is full")
	s.want(t, 3)
	s.world.Run(time.Hour)
	assert.Equal(t, []string{"p-0", "p-1", "p-2"}, s.names())
}

func TestAChildThatMustGoWhileAnotherIsMissing(t *testing.T) {
	t.Parallel()
	s := openWorkshop(t, workersOf(func(spec *workers) {
		spec.Rules.MustGo = func(w *worker) bool { return w.Spec.Image == "old" }
	}), 3, true)
	s.Deny("create", failure.Forbidden.Of)
	names := s.names()
	_, err := s.DeleteChild(t.Context(), namespace, names[0], metav1.DeleteOptions{})
	require.NoError(t, err)
	s.edit(t, names[1], func(w *worker) { w.Spec.Image = "old" })
	s.world.Run(time.Hour)
	assert.Equal(t, names[1:], s.names(), "the missing one cannot be created")
	s.Webhook = nil
	s.world.Run(time.Hour)
	assert.Len(t, s.names(), 3)
	assert.NotContains(t, s.names(), names[1])
}
