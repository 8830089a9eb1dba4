// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
	"github.com/replicakit/replicakit/selector"
)

var update = flag.Bool("update", false, "write the tables of the pages anew")

// withSpec applies a change to the results of Kind.Spec.
func withSpec(r *podRig, change func(*replicas.SpecOfPods)) {
	withSpecOf(r, func(_ *appsv1.ReplicaSet, spec *replicas.SpecOfPods) { change(spec) })
}

func withSpecOf(r *podRig, change func(*appsv1.ReplicaSet, *replicas.SpecOfPods)) {
	was := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := was(rs)
		change(rs, &spec)
		return spec, err
	}
}

// The test makes each gate come up in a pass, alone if possible. The gate appears in the pass, in the metric and,
// for some reasons, in an event. A later pass shows that the gate ends.
func TestEachGateAlone(t *testing.T) {
	t.Parallel()
	const taking = controller.StopsDeletions | controller.StopsUpdates
	const scale = controller.StopsCreations | taking
	const all = controller.StopsClaims | scale
	type gate struct {
		reason controller.GateReason
		stops  controller.Stops
		event  string
		with   []controller.GateReason // the other gates of the same pass
		// begin makes the pass in which the gate comes up.
		begin func(t *testing.T, r *podRig) podPass
		// end removes the cause of the gate, and makes a pass without gates.
		end func(t *testing.T, r *podRig) podPass
	}
	pass := func(t *testing.T, r *podRig, seconds int, pods ...*corev1.Pod) podPass {
		t.Helper()
		p, _ := r.pass(t, seconds, pods...)
		return p
	}
	four := func(r *podRig) []*corev1.Pod { return versioned(podsOf(r.owner, 4)) }
	// one returns a gate. To make the gate come up, the test calls the function change and makes a pass with four
	// pods. To end the gate, the test calls the function undo. The test then makes a second pass with four pods,
	// 70 seconds after the first pass.
	one := func(change, undo func(*podRig)) gate {
		return gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				change(r)
				return pass(t, r, 0, four(r)...)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				undo(r)
				return pass(t, r, 70, four(r)...)
			},
		}
	}
	// lost makes a pass that sends three creations, and two of them get no answer. The owner then wants the given
	// number of pods.
	lost := func(t *testing.T, r *podRig, wanted int32) {
		t.Helper()
		*r.owner.Spec.Replicas = 3
		r.create = func(i int) error { return []error{nil, timeout(), timeout(), nil, nil}[i] }
		r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
		require.Equal(t, 2, pass(t, r, 0).InFlight)
		r.settle()
		*r.owner.Spec.Replicas, r.owner.Generation = wanted, 2
	}
	// failing returns a gate that comes up because creations fail. The gate ends in a pass 600 seconds later, in which
	// all creations succeed.
	failing := func(why func() error) gate {
		return gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.create = func(int) error { return why() }
				return pass(t, r, 0)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.create = func(int) error { return nil }
				return pass(t, r, 600)
			},
		}
	}
	row := func(reason controller.GateReason, stops controller.Stops, event string, g gate) gate {
		g.reason, g.stops, g.event = reason, stops, event
		return g
	}
	mended := false   // whether Kind.Status is mended, which the gate StatusFaulty waits for
	template := false // whether another object exists that the gate InputsStale waits for
	gates := []gate{
		row(controller.OwnWriteNotSeen, all, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.owner.ResourceVersion = "5"
				r.stored = func(rs *appsv1.ReplicaSet) { rs.ResourceVersion = "9" }
				pass(t, r, 0, podsOf(r.owner, 1)...)
				return pass(t, r, 0)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.owner.ResourceVersion = "9"
				return pass(t, r, 1, podsOf(r.owner, 1)...)
			},
		}),
		row(controller.OwnerStale, all, "", one(func(r *podRig) {
			newer := clone(r.owner)
			newer.Generation, newer.ResourceVersion = 7, "7"
			*newer.Spec.Replicas = 4
			r.owner.Generation, r.owner.ResourceVersion = 6, "6"
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return clone(newer), nil }
			r.patchStatus = func(_ int, owner *appsv1.ReplicaSet) error {
				if owner.ResourceVersion != newer.ResourceVersion {
					return conflict("web")
				}
				return nil
			}
		}, func(r *podRig) {
			r.owner, _ = r.getOwner()
		})),
		row(controller.OwnerGone, all, "", one(func(r *podRig) {
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, notFound("web") }
		}, func(r *podRig) { r.owners = func() ([]*appsv1.ReplicaSet, error) { return nil, nil } })),
		row(controller.SpecRefused, all, "", one(func(r *podRig) { r.owner.Spec.Selector = nil }, func(r *podRig) {
			r.owner = replicaSet(4)
		})),
		row(controller.Paused, scale, "", one(func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.Paused = *r.owner.Spec.Replicas == 1 })
		}, func(r *podRig) { *r.owner.Spec.Replicas = 4 })),
		row(controller.OwnerDeleted, all, "", one(func(r *podRig) {
			r.owner.DeletionTimestamp = &metav1.Time{Time: podtest.Now}
		}, func(r *podRig) { r.owners = func() ([]*appsv1.ReplicaSet, error) { return nil, nil } })),
		row(controller.CallsNotSeen, scale, "", one(func(r *podRig) {
			r.awaits(r.owner, "web-x")
		}, func(r *podRig) { r.settle() })),
		row(controller.CacheBehind, all, "", one(func(r *podRig) {
			r.newProcess = true
			r.childrenVersion, r.serverAt = "5", func() (string, error) { return "9", nil }
		}, func(r *podRig) { r.childrenVersion = "9" })),
		row(controller.ListFailed, all, controller.FailedList, gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				expects(r)
				return pass(t, r, late, four(r)...)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.live = func() ([]*corev1.Pod, error) { return four(r)[:1], nil }
				return pass(t, r, late+60, four(r)...)
			},
		}),
		row(controller.RelatedFailed, 0, controller.FailedRelated, one(func(r *podRig) {
			r.related = func() ([]*corev1.Pod, error) { return nil, errors.New("no index") }
		}, func(r *podRig) {
			r.settle()
			r.related = func() ([]*corev1.Pod, error) { return nil, nil }
		})),
		row(controller.OwnerUnread, scale, controller.FailedOwner, one(func(r *podRig) {
			r.getOwner = func() (*appsv1.ReplicaSet, error) { return nil, timeout() }
		}, func(r *podRig) { r.getOwner = func() (*appsv1.ReplicaSet, error) { return clone(r.owner), nil } })),
		row(controller.InputsStale, taking, "", one(func(r *podRig) {
			r.kind.SpecLive = func(_ context.Context, rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				spec, err := replicas.ReplicaSetSpec(rs)
				spec.Paused = !template
				return spec, err
			}
		}, func(*podRig) { template = true })),
		row(controller.AdoptionUndecided, controller.StopsCreations, controller.FailedAdopt, gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.patch = func(*corev1.Pod) error { return timeout() }
				return pass(t, r, 0, podtest.Pod("orphan"))
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.patch = func(*corev1.Pod) error { return nil }
				return pass(t, r, 70, podtest.Pod("orphan"))
			},
		}),
		row(controller.AdoptionRefused, 0, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.patch = func(p *corev1.Pod) error { return invalid(p.Name) }
				return pass(t, r, 0, podtest.Pod("orphan"))
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.settle()
				return pass(t, r, 70, podsOf(r.owner, 1)...)
			},
		}),
		row(controller.CacheFailed, all, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.children = func() ([]*corev1.Pod, error) { return nil, errors.New("no index") }
				p, err := r.sync(t, t.Context())
				require.ErrorContains(t, err, "no index")
				return p
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				return pass(t, r, 1, podsOf(r.owner, 1)...)
			},
		}),
		row(controller.StatusUndone, 0, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				_ = pass(t, r, 0, podsOf(r.owner, 1)...) // the rig's cache never shows the status
				_ = pass(t, r, 10, podsOf(r.owner, 1)...)
				return pass(t, r, 10, podsOf(r.owner, 1)...)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				return pass(t, r, 70, podsOf(r.owner, 1)...)
			},
		}),
		row(controller.ReleaseFailed, 0, controller.FailedRelease, gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.patch = func(*corev1.Pod) error { return timeout() }
				return pass(t, r, 0, append(podsOf(r.owner, 1), podtest.Pod("lost", owned(r.owner), podtest.Labels(api)))...)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				return pass(t, r, 70, podsOf(r.owner, 1)...)
			},
		}),
		row(controller.MustStay, controller.StopsDeletions, "", one(func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(*corev1.Pod) bool { return true } })
		}, func(r *podRig) { *r.owner.Spec.Replicas = 4 })),
		row(controller.MissingFirst, taking, "", one(func(r *podRig) {
			*r.owner.Spec.Replicas = 5
			withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == "web-000" } })
		}, func(r *podRig) { r.settle(); *r.owner.Spec.Replicas = 4 })),
		row(controller.MaxDeletions, controller.StopsDeletions, "", one(func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.MaxDeletions = new(int) })
		}, func(r *podRig) { *r.owner.Spec.Replicas = 4 })),
		row(controller.BurstLimit, scale, "", one(func(r *podRig) {
			withSpec(r, func(s *replicas.SpecOfPods) { s.BurstReplicas = 1 })
		}, func(r *podRig) { r.settle(); *r.owner.Spec.Replicas = 4 })),
		row(controller.Conflict, controller.StopsDeletions, "", one(func(r *podRig) {
			r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return conflict(p.Name) }
			r.live = func() ([]*corev1.Pod, error) { return four(r)[:1], nil }
		}, func(r *podRig) { r.settle(); *r.owner.Spec.Replicas = 4 })),
		row(controller.DeletionRetryAfter, controller.StopsDeletions, controller.DeletionsHeld, one(func(r *podRig) {
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(30) }
		}, func(r *podRig) { r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil } })),
		row(controller.HeldByPrepare, controller.StopsDeletions, "", one(func(r *podRig) {
			r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
				s.Delete = nil
				s.RequeueAfter = time.Minute
				return nil
			}
		}, func(r *podRig) { *r.owner.Spec.Replicas = 4 })),
		row(controller.CreationFailed, controller.StopsCreations, "", failing(func() error { return apierrors.NewInternalError(errors.New("boom")) })),
		row(controller.DeletionFailed, controller.StopsDeletions, "", one(func(r *podRig) {
			r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return apierrors.NewInternalError(errors.New("boom")) }
			r.get = func(name string) (*corev1.Pod, error) { return find(four(r), name) }
			r.live = func() ([]*corev1.Pod, error) { return four(r), nil }
		}, func(r *podRig) {
			*r.owner.Spec.Replicas, r.remove = 4, func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
		})),
		row(controller.DeletionRefused, controller.StopsDeletions, controller.FailedDelete, one(func(r *podRig) {
			*r.owner.Spec.Replicas = 3
			r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a webhook") }
		}, func(r *podRig) { *r.owner.Spec.Replicas = 4 })),
		row(controller.NamespaceGoing, controller.StopsCreations, "", failing(namespaceTerminating)),
		row(controller.QuotaFull, controller.StopsCreations, "", failing(quotaFull)),
		row(controller.RetryAfter, controller.StopsCreations, "", failing(func() error { return busy(30) })),
		row(controller.ChangedByWebhook, controller.StopsCreations, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.mutate = func(p *corev1.Pod) { p.Labels, p.UID = map[string]string{"app": "other"}, "strange" }
				return pass(t, r, 0)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.mutate = func(*corev1.Pod) {}
				return pass(t, r, 70)
			},
		}),
	}
	slotted := func(r *podRig) { r.kind.Spec = slotted().Spec }
	gates = append(gates,
		row(controller.StrayLeft, 0, "", gate{
			with: []controller.GateReason{controller.ChangedByWebhook},
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.mutate = func(p *corev1.Pod) { p.Labels, p.UID = api, "strange" }
				r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a webhook") }
				return pass(t, r, 0)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.mutate = func(*corev1.Pod) {}
				r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
				return pass(t, r, 70)
			},
		}),
		row(controller.DeletionInFlight, controller.StopsDeletions, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				*r.owner.Spec.Replicas = 3
				r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return timeout() }
				var stays string
				withSpec(r, func(s *replicas.SpecOfPods) { s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == stays } })
				pods := four(r)
				first := pass(t, r, 0, pods...)
				r.settle()
				stays = first.Scale.Delete[0].Object.Name
				return pass(t, r, 1, pods...)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.settle()
				*r.owner.Spec.Replicas = 4
				return pass(t, r, 2, four(r)...)
			},
		}),
		row(controller.UpdateInFlight, controller.StopsUpdates, "", gate{
			with: []controller.GateReason{controller.MissingFirst},
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				*r.owner.Spec.Replicas = 4
				var stays string
				withSpec(r, func(s *replicas.SpecOfPods) {
					s.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == stays }
					changesTo(s, "2", "limit=1")
				})
				pods := four(r)
				r.get = func(name string) (*corev1.Pod, error) { return find(pods, name) }
				r.change = func(*corev1.Pod, selector.Patch) (*corev1.Pod, error) { return nil, timeout() }
				first := pass(t, r, 0, pods...)
				stays = first.Scale.Update[0].Object.Name
				return pass(t, r, 1, pods...)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				pods := four(r)
				for _, p := range pods {
					p.ResourceVersion, p.Annotations = "90", map[string]string{"template": "2"}
				}
				return pass(t, r, 2, pods...)
			},
		}),
		row(controller.UpdateFailed, controller.StopsUpdates, "", one(func(r *podRig) {
			*r.owner.Spec.Replicas = 4
			withSpec(r, func(s *replicas.SpecOfPods) { changesTo(s, "2") })
			r.change = func(p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
				if p.Name == "web-000" {
					return nil, conflict(p.Name)
				}
				changed := clone(p)
				changed.ResourceVersion, changed.Annotations = "90", map[string]string{"template": "2"}
				return changed, nil
			}
		}, func(r *podRig) {
			r.change = func(p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
				changed := clone(p)
				changed.ResourceVersion, changed.Annotations = "90", map[string]string{"template": "2"}
				return changed, nil
			}
		})),
		row(controller.LookFailed, 0, controller.FailedLook, gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				lost(t, r, 1)
				r.get = func(name string) (*corev1.Pod, error) {
					if name == "web-bbbbd" {
						return nil, forbidden(name, "no rights")
					}
					return nil, notFound(name)
				}
				return pass(t, r, 1, podtest.Pod("web-bbbbb", owned(r.owner)))
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) }
				return pass(t, r, 2, podtest.Pod("web-bbbbb", owned(r.owner)))
			},
		}),
		row(controller.CreationInFlight, controller.StopsCreations, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.create = func(i int) error { return []error{timeout(), nil}[i] }
				r.get = func(name string) (*corev1.Pod, error) { return podtest.Pod(name, podtest.Labels(api)), nil }
				_, err := r.pass(t, 0)
				require.Error(t, err)
				r.settle()
				r.get = func(name string) (*corev1.Pod, error) { return nil, notFound(name) } // the name is free by now
				return pass(t, r, 1)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				return pass(t, r, 1)
			},
		}),
		row(controller.LastRoundEnded, controller.StopsCreations, controller.CreationsHeld, gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				on := true
				r.opts.BackOffFailed = &on
				first := pass(t, r, 0)
				r.settle()
				ended := podtest.Pod(first.Created[0].Name, owned(r.owner), podtest.Phase(corev1.PodFailed), podtest.Created(podtest.Now))
				return pass(t, r, 1, ended)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				return pass(t, r, 60)
			},
		}),
		row(controller.NameTaken, controller.StopsCreations, "", gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				slotted(r)
				r.create = func(int) error { return alreadyExists("web-0") }
				r.get = func(name string) (*corev1.Pod, error) { return podtest.Pod(name, podtest.Labels(api)), nil }
				return pass(t, r, 0)
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.create = func(int) error { return nil }
				return pass(t, r, 60)
			},
		}),
		row(controller.StatusFaulty, 0, controller.FailedStatus, one(func(r *podRig) {
			status := r.kind.Status
			*r.owner.Spec.Replicas = 4
			r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
				if !mended {
					rs.Labels = web
				}
				return status(rs, o)
			}
		}, func(*podRig) { mended = true })),
		row(controller.StatusForbidden, 0, controller.FailedStatus, gate{
			begin: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.patchStatus = func(int, *appsv1.ReplicaSet) error { return forbidden("web", "no right") }
				p, err := r.pass(t, 0, podsOf(r.owner, 1)...)
				require.Error(t, err)
				assert.Equal(t, 10*time.Second, p.RequeueAfter, "however often it was refused")
				return p
			},
			end: func(t *testing.T, r *podRig) podPass {
				t.Helper()
				r.patchStatus = func(int, *appsv1.ReplicaSet) error { return nil }
				return pass(t, r, 60, podsOf(r.owner, 1)...)
			},
		}),
	)
	seen := map[string]bool{}
	for _, g := range gates {
		seen[g.reason.String()] = true
		t.Run(g.reason.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			p := g.begin(t, r)
			require.Len(t, p.Gates, 1+len(g.with), "%v", p.Gates)
			i := slices.IndexFunc(p.Gates, func(is controller.Gate) bool { return is.Reason == g.reason })
			require.NotEqual(t, -1, i, "%v", p.Gates)
			is := p.Gates[i]
			assert.Equal(t, g.reason, is.Reason)
			assert.Equal(t, g.stops, is.Stops, is.Stops.String())
			assert.False(t, is.Since.IsZero() || is.Since.After(r.now))
			assert.Equal(t, is.Stops&scale == scale || p.Waiting(), p.Waiting() || is.Reason == controller.BurstLimit || is.Reason == controller.SpecRefused)
			assert.Contains(t, is.String(), is.Reason.Sentence())
			if shortest := controller.ShortestHold(is.Reason); shortest > 0 && !is.Earlier {
				if is.Reason == controller.CreationInFlight {
					shortest *= 2 // the creation was looked for at once, and this is the second look
				}
				assert.Equal(t, shortest, is.Until.Sub(r.now), "the first hold is as long as the table says")
			}
			assert.InDelta(t, 1, r.metric(t, "gated_owners", g.reason.String()), 0)
			if g.event != "" {
				assert.Len(t, r.eventsOf("Warning "+g.event), 1, "%v", r.events)
			}
			p = g.end(t, r)
			assert.Empty(t, p.Gates)
			assert.Zero(t, r.metric(t, "gated_owners", g.reason.String()))
			for _, s := range r.recorder.Samples() {
				if s.Name == "gate_duration_seconds" {
					assert.NotZero(t, s.Count)
				}
			}
		})
	}
	seen["ListsBusy"] = true    // TestListsThatHang tests this reason
	seen["ReadyUnset"] = true   // TestMistakesOfAKind tests this reason, because the rig's children are pods
	seen["PassPanicked"] = true // a test of TestRefusals tests this reason
	for _, row := range controller.GateTable() {
		assert.True(t, seen[strings.Trim(row[0], "`")], "%s has no test", row[0])
	}
}

// The pages docs/pass.md and docs/metrics.md list the same reasons as the table in the code.
func TestTheGatesOfThePages(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	var names []string
	table.WriteString("| reason | what it means | stops | holds for | ends early when | event |\n|---|---|---|---|---|---|\n")
	for _, row := range controller.GateTable() {
		table.WriteString("| " + strings.Join(row, " | ") + " |\n")
		names = append(names, row[0])
	}
	requireOnPage(t, "../../docs/pass.md", table.String())
	requireOnPage(t, "../../docs/metrics.md", "The reasons are "+strings.Join(names, ", ")+".\n")
}

// requireOnPage compares the text between two marks on a page with want. With the flag -update, it writes want to
// the page instead.
func requireOnPage(t *testing.T, page, want string) {
	t.Helper()
	const begin, end = "<!-- gates -->\n", "<!-- /gates -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, is := strings.Cut(string(text), begin)
	was, after, ends := strings.Cut(rest, end)
	require.True(t, is && ends, "%s has no %q", page, begin)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o600))
		return
	}
	assert.Equal(t, want, was, "go test ./replicas/controller -run TestTheGatesOfThePages -update writes it")
}

// The page docs/operating.md says for each reason what to do.
func TestEachReasonHasARemedy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	for _, row := range controller.GateTable() {
		is := regexp.MustCompile("(?m)^\\| [^|]*" + row[0] + "[^|]*\\| [A-Z]")
		assert.True(t, is.Match(text), "docs/operating.md has no row for %s", row[0])
	}
}

// Kind.Status gets the gates sorted by reason and object, no matter in which order they came up.
func TestGatesAreInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(2)
	r.patch = func(p *corev1.Pod) error { return invalid(p.Name) }
	r.create = func(int) error { return quotaFull() }
	var seen []string
	status := r.kind.Status
	r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
		seen = nil
		for _, g := range o.Gates {
			seen = append(seen, g.Reason.String()+" "+g.Object)
		}
		return status(rs, o)
	}
	_, err := r.pass(t, 0, podtest.Pod("c"), podtest.Pod("a"), podtest.Pod("b"))
	require.Error(t, err)
	assert.Equal(t, []string{"AdoptionRefused a", "AdoptionRefused b", "AdoptionRefused c", "QuotaFull default"}, seen)
	first := r.last.Gates[3].Since
	for _, seconds := range []int{2, 3, 6} { // the passes at 2 and at 6 seconds try the creations again
		pass, _ := r.pass(t, seconds)
		require.Len(t, pass.Gates, 1)
		assert.Equal(t, first, pass.Gates[0].Since, "it is the same gate all the time")
	}
}

// Prepare drained a node for an hour, and the first gate of the pass said that BurstReplicas was too small.
func TestTheFirstGateIsTheCause(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	withSpec(r, func(s *replicas.SpecOfPods) { s.BurstReplicas = 1 })
	r.kind.Prepare = nothing
	pass, err := r.pass(t, 0, podsOf(r.owner, 4)...)
	require.NoError(t, err)
	var seen []controller.GateReason
	for _, g := range pass.Gates {
		seen = append(seen, g.Reason)
	}
	assert.Equal(t, []controller.GateReason{controller.HeldByPrepare, controller.BurstLimit}, seen)
}

// If the server delays deletions with Retry-After, the full delay applies, even if no child has to be deleted for
// a while.
func TestADelayOfTheServerLastsThoughNothingIsLeftToDelete(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	pods := versioned(podsOf(r.owner, 2))
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return busy(30) }
	_, err := r.pass(t, 0, pods...)
	require.Error(t, err)
	r.remove = func(*corev1.Pod, metav1.DeleteOptions) error { return nil }
	for _, step := range []struct {
		second, wanted, deletes int
	}{{1, 2, 0}, {2, 1, 0}, {29, 1, 0}, {30, 1, 1}} {
		*r.owner.Spec.Replicas = int32(step.wanted)
		_, err := r.pass(t, step.second, pods...)
		require.NoError(t, err)
		assert.Len(t, r.callsOf("delete"), step.deletes, "second %d", step.second)
	}
}

func TestAPassInAFewLines(t *testing.T) {
	t.Parallel()
	t.Run("what was wanted and believed, each call, why this child, and what held the pass back", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.remove = func(p *corev1.Pod, _ metav1.DeleteOptions) error { return forbidden(p.Name, "a policy") }
		pass, err := r.pass(t, 0, podsOf(r.owner, 2)...)
		require.Error(t, err)
		assert.Equal(t, "2026-05-04T12:00:00Z default/web: 1 wanted, 2 active (web-000 web-001), 0 terminating\n"+
			"  GetOwner default/web\n"+
			`  Delete default/web-000 {"preconditions":{"uid":"uid-web-000"}}: `+forbidden("web-000", "a policy").Error()+"\n"+
			"  "+pass.Calls[2].String()+"\n"+
			"  web-000 was chosen: UID uid-web-000 < uid-web-001\n"+
			"  DeletionRefused of web-000 stops deletions since 2026-05-04T12:00:00Z: the server refuses to delete a child, or does not answer ("+forbidden("web-000", "a policy").Error()+")\n"+
			"  error: "+err.Error(), pass.String())
		require.Len(t, pass.Calls, 3)
		assert.Regexp(t, `^PatchStatus default/web \{"metadata":\{"uid":"uid-of-web"\},"status":\{.*"conditions":\[.*"readyReplicas":2.*\}\}$`, pass.Calls[2].String())
		assert.True(t, apierrors.IsForbidden(pass.Calls[1].Err))
		assert.Equal(t, r.now, pass.Calls[1].Ended)
	})
	t.Run("patches and lists, in the order in which they were answered", func(t *testing.T) {
		t.Parallel()
		r := newRig(2)
		r.newProcess = true // so the first pass lists the children live
		orphan := podtest.Pod("orphan")
		r.live = func() ([]*corev1.Pod, error) { return []*corev1.Pod{orphan}, nil }
		pass, err := r.pass(t, 0, orphan)
		require.NoError(t, err)
		assert.Equal(t, "List default/app=web", pass.Calls[0].String())
		var verbs []string
		for _, c := range pass.Calls {
			verbs = append(verbs, c.Verb)
		}
		assert.Equal(t, []string{"List", "GetOwner", "Patch", "Create", "PatchStatus"}, verbs)
		assert.Contains(t, pass.Calls[2].String(), `Patch default/orphan {"metadata":`)
	})
	t.Run("of many children and calls the first twenty", func(t *testing.T) {
		t.Parallel()
		r := newRig(50)
		pass, err := r.pass(t, 0)
		require.NoError(t, err)
		require.Len(t, pass.Created, 50)
		assert.Len(t, pass.Calls, 51)
		assert.Equal(t, 20, strings.Count(pass.String(), "Create default/web-"), pass.String())
		assert.Contains(t, pass.String(), "default/web: 50 wanted, 0 active, 0 terminating\n")
		assert.Contains(t, pass.String(), "\n  and 31 more calls")
		pass, err = newRig(50).pass(t, 0, podsOf(r.owner, 50)...)
		require.NoError(t, err)
		assert.Contains(t, pass.String(), " 50 active (web-000 ")
		assert.Contains(t, pass.String(), " web-019 ...), 0 terminating")
	})
}

// A pass that ends early does not know whether the gates of its later steps still stand, so it neither ends nor
// repeats them.
func TestGatesOfStepsThatAPassDidNotReach(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.create = func(int) error { return quotaFull() }
	_, err := r.pass(t, 0)
	require.Error(t, err)
	require.Len(t, r.changes, 1)
	assert.Equal(t, controller.QuotaFull, r.changes[0].Reason)

	r.children = func() ([]*corev1.Pod, error) { return nil, errors.New("the cache is away") }
	r.now = podtest.Now.Add(10 * time.Second)
	_, err = r.sync(t, t.Context())
	require.ErrorContains(t, err, "the cache is away")
	assert.Empty(t, r.changes)

	r.create = func(int) error { return nil }
	_, err = r.pass(t, 70)
	require.NoError(t, err)
	require.Len(t, r.changes, 1)
	assert.True(t, r.changes[0].Ended)
	assert.Equal(t, podtest.Now, r.changes[0].Since)
}

// If Prepare adds an entry to the step, nothing is created or deleted. The pass has a gate with the error.
func TestAnAnswerOfTheAuthorThatIsWrongIsAGate(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
		s.Create = append(s.Create, "x")
		return nil
	}
	pass, err := r.pass(t, 0)
	require.NoError(t, err, "trying again is useless")
	require.Len(t, pass.Gates, 1)
	assert.Equal(t, controller.HeldByPrepare, pass.Gates[0].Reason)
	assert.Equal(t, pass.Err, pass.Gates[0].Err)
}

// Only gates.go sets the field RequeueAfter of a pass, and the field retryAfter, which replaces RequeueAfter after
// an error.
func TestOnlyGatesSayWhenTheNextPassComes(t *testing.T) {
	t.Parallel()
	sets := regexp.MustCompile(`(?m)^[^=\n]*\bp\.(RequeueAfter|retryAfter)\b[^=\n]* :?= `)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.Contains(t, files, "gates.go")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			assert.Equal(t, file == "gates.go", sets.Match(text), file)
		}
	}
}

func TestAReasonThatThereIsNot(t *testing.T) {
	t.Parallel()
	assert.Empty(t, controller.GateReason(200).String()+controller.GateReason(200).Sentence())
}

// TestHolds contains the cases that a transcript cannot express. The other cases are in the files holds.txt,
// quota.txt, namespace-going.txt and retry-after.txt in testdata.
func TestHolds(t *testing.T) {
	t.Parallel()
	t.Run("a list that its own pass gave up holds nobody", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.awaits(r.owner, "web-lost")
		r.now = r.now.Add(400 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		r.live = func() ([]*corev1.Pod, error) {
			cancel()
			return nil, ctx.Err()
		}
		_, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 1), nil }
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, telemetry.LiveLists(pass.Calls))
	})
	t.Run("V16 the end of another incarnation ends no hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		old := r.owner.DeepCopy()
		old.UID = "old"
		require.NoError(t, r.start().OwnerDeleted(old))
		pass, err := r.passAt(t, 100*time.Millisecond)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
	})
}
