// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/handlers"
)

func TestEventsKeepsSelectors(t *testing.T) {
	t.Parallel()
	orphan := podtest.Pod("orphan")
	t.Run("W53 a selector is parsed once for each version of its owner", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", web)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		for range 3 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, 1, r.specs)
		assert.Equal(t, []string{"default/web", "default/web", "default/web"}, r.woken)

		rs.ResourceVersion, rs.Spec.Selector = "2", &metav1.LabelSelector{MatchLabels: api}
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, 2, r.specs)
		assert.Len(t, r.woken, 3, "the new selector counts")
	})
	t.Run("W53 one that is refused is not parsed again either", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", nil)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		for range 3 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, 1, r.specs)
		assert.Empty(t, r.woken)
	})
	t.Run("an error that may pass is not kept", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", web)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		r.fails = errors.New("for now")
		require.NoError(t, r.start().ChildAdded(orphan))
		r.fails = nil
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, []string{"default/web"}, r.woken)
	})
	t.Run("an owner that is gone is forgotten", func(t *testing.T) {
		t.Parallel()
		rs := ownerNamed("web", web)
		rs.ResourceVersion = "1"
		r := eventRigOver(rs)
		require.NoError(t, r.start().ChildAdded(orphan))
		require.NoError(t, r.start().OwnerDeleted(rs))
		require.NoError(t, r.start().ChildAdded(orphan))
		assert.Equal(t, 2, r.specs)
	})
	t.Run("two owners of one UID and version, as fixtures have them, keep a selector each", func(t *testing.T) {
		t.Parallel()
		first, second := ownerNamed("first", api), ownerNamed("second", web)
		first.UID, second.UID = "uid", "uid"
		first.ResourceVersion, second.ResourceVersion = "1", "1"
		r := eventRigOver(first, second)
		for range 2 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, []string{"default/second", "default/second"}, r.woken)
		assert.Equal(t, 2, r.specs)
	})
	t.Run("owners without a version or a UID are asked each time", func(t *testing.T) {
		t.Parallel()
		nameless := ownerNamed("nameless", web)
		nameless.UID, nameless.ResourceVersion = "", "1"
		r := eventRigOver(ownerNamed("web", web), nameless)
		for range 3 {
			require.NoError(t, r.start().ChildAdded(orphan))
		}
		assert.Equal(t, 6, r.specs)
	})
}

// A templated is a rig whose pods are made from a template, which is another object than their owner. The template ""
// does not exist.
type templated struct {
	*podRig
	cached, live string // what the cache and the server have
	err          error  // of reads of the template
	asked        *appsv1.ReplicaSet
}

func newTemplated(want int32) *templated {
	r := &templated{podRig: newRig(want), cached: "one", live: "one"}
	of := func(rs *appsv1.ReplicaSet, template string) (replicas.SpecOfPods, error) {
		spec, err := replicas.ReplicaSetSpec(rs)
		spec.Paused = template == ""
		spec.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["template"] != template }
		return spec, err
	}
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) { return of(rs, r.cached) }
	r.kind.SpecLive = func(_ context.Context, rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		r.note(&r.calls, "read template")
		if r.asked = rs; r.err != nil {
			return replicas.SpecOfPods{}, r.err
		}
		return of(rs, r.live)
	}
	return r
}

// made returns ready pods that were made from the template "one".
func made(rs *appsv1.ReplicaSet, n int) []*corev1.Pod {
	pods := ready(rs, n)
	for _, p := range pods {
		p.Annotations = map[string]string{"template": "one"}
	}
	return pods
}

func TestTheTemplateIsReadBeforeChildrenAreDeleted(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cached, live string
		deletes      int
		says         string
	}{
		"both have changed":                 {cached: "two", live: "two", deletes: 2},
		"the cache lacks a change":          {cached: "two", live: "three", deletes: 2},
		"it was changed back":               {cached: "two", live: "one", says: "the plan of Spec: delete 2: default/web-000 (all go), default/web-001 (all go); the plan of SpecLive: nothing to do"},
		"it was deleted":                    {cached: "two", live: "", says: "the plan of SpecLive: blocked: paused"},
		"the cache has not seen it yet":     {cached: "", live: "two"},
		"the cache has not seen the change": {cached: "one", live: "two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTemplated(2)
			r.cached, r.live = tt.cached, tt.live
			p, err := r.pass(t, 1, made(r.owner, 2)...)
			require.NoError(t, err)
			assert.Len(t, r.callsOf("delete"), tt.deletes)
			gates := slices.DeleteFunc(p.Gates, func(g controller.Gate) bool { return g.Reason != controller.InputsStale })
			if tt.says == "" {
				assert.Empty(t, gates)
				assert.Len(t, r.callsOf("read template"), min(tt.deletes, 1), "only deletions need it")
				return
			}
			require.Len(t, gates, 1)
			assert.Contains(t, gates[0].String(), tt.says)
			assert.Equal(t, 50*time.Millisecond, p.RequeueAfter)
		})
	}
}

// A template was changed and changed back while the cache hangs, or the functions of the Kind differ. The template is
// read after 50 ms, doubling to a minute, whatever wakes the owner meanwhile.
func TestATemplateThatTheCacheDoesNotShow(t *testing.T) {
	t.Parallel()
	r := newTemplated(2)
	r.cached, r.kind.Status = "two", nil
	pods := made(r.owner, 2)
	at, wait := time.Duration(0), 50*time.Millisecond
	for at < 10*time.Minute {
		p, err := r.passAt(t, at, pods...)
		require.NoError(t, err)
		require.Equal(t, []string{"read owner", "read template"}, r.callsOf(""))
		require.Equal(t, wait, p.RequeueAfter)
		p, err = r.passAt(t, at+wait/2, pods...)
		require.NoError(t, err)
		require.Empty(t, r.callsOf(""), "the event of a child")
		require.True(t, p.HeldBack())
		require.Len(t, p.Gates, 1)
		require.Contains(t, p.Gates[0].String(), "since 2026-05-04T12:00:00Z")
		require.Contains(t, p.Gates[0].String(), "the plan of Spec: delete 2: default/web-000 (all go), default/web-001 (all go); the plan of SpecLive: nothing to do")
		at, wait = at+wait, min(2*wait, time.Minute)
	}
	r.owner.Generation = 2
	_, err := r.passAt(t, at-wait/2, pods...)
	require.NoError(t, err)
	assert.Equal(t, []string{"read owner", "read template"}, r.callsOf(""), "a change of the owner ends the wait")
	r.cached = "one"
	p, err := r.passAt(t, at, pods...)
	require.NoError(t, err)
	assert.Empty(t, p.Gates)
	r.cached = "two"
	p, err = r.passAt(t, at, pods...)
	require.NoError(t, err)
	assert.Equal(t, 50*time.Millisecond, p.RequeueAfter, "the next time begins anew")
	r.live = "two"
	p, err = r.passAt(t, at+50*time.Millisecond, pods...)
	require.NoError(t, err)
	assert.Len(t, p.Deleted, 2)
	assert.Empty(t, p.Gates)
}

func TestATemplateThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newTemplated(2)
	of := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := of(rs)
		spec.Slots = replicas.Ordinals(rs.Name)
		return spec, err
	}
	r.live = "two"
	pods := made(r.owner, 3)
	pods[0].Name = "web-0" // the others are in no slot, so one is to be created, and one to be deleted
	for at, wait := time.Duration(0), time.Second; at < time.Hour; at, wait = at+wait, min(2*wait, 5*time.Minute) {
		r.err = errors.New("no right to get templates")
		p, err := r.passAt(t, at, pods...)
		require.ErrorContains(t, err, `controller: ReplicaSet "default/web": Kind.SpecLive failed: no right to get templates`)
		require.Equal(t, wait, p.RequeueAfter)
		require.Equal(t, []string{"read owner", "read template"}, r.callsOf(""), "nothing is changed")
		require.Equal(t, at == 0, len(r.eventsOf("Warning FailedReadOwner")) == 1)
		require.Error(t, p.ScaleErr)
		p, err = r.passAt(t, at+wait/2, pods...)
		require.NoError(t, err)
		require.Empty(t, r.callsOf(""))
		require.Contains(t, reasonsOf(p.Gates), controller.OwnerUnread)
	}
	r.err = nil
	p, err := r.passAt(t, 2*time.Hour, pods...)
	require.NoError(t, err)
	assert.Len(t, p.Created, 1, "creations follow Spec")
	assert.Contains(t, reasonsOf(p.Gates), controller.InputsStale)
	assert.Empty(t, p.Deleted)
}

func reasonsOf(gates []controller.Gate) (reasons []controller.GateReason) {
	for _, g := range gates {
		reasons = append(reasons, g.Reason)
	}
	return reasons
}

func TestSpecLiveMayNotBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTemplated(1)
		r.kind.SpecLive = func(ctx context.Context, _ *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
			<-ctx.Done()
			return replicas.SpecOfPods{}, ctx.Err()
		}
		began := time.Now()
		p, err := r.pass(t, 0, made(r.owner, 2)...)
		require.ErrorContains(t, err, "Kind.SpecLive failed: it took more than 30s")
		assert.Equal(t, controller.PrepareTimeout, time.Since(began))
		assert.Equal(t, []controller.GateReason{controller.OwnerUnread}, reasonsOf(p.Gates))
		assert.Empty(t, r.callsOf("delete"))
	})
}

// What SpecLive returns is completed and checked like the result of Spec.
func TestASpecLiveThatReturnsNoSpec(t *testing.T) {
	t.Parallel()
	r := newTemplated(1)
	r.kind.SpecLive = func(context.Context, *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		return replicas.SpecOfPods{}, nil
	}
	p, err := r.pass(t, 0, made(r.owner, 2)...)
	require.NoError(t, err, "trying again at once is useless")
	require.ErrorContains(t, p.Err, `ReplicaSet "default/web": Kind.SpecLive failed: replicas: ReplicaSet "default/web": selector is nil`)
	assert.Equal(t, time.Second, p.RequeueAfter)
	assert.Empty(t, r.callsOf("delete"))
}

func TestSpecLiveGetsTheOwnerThatWasRead(t *testing.T) {
	t.Parallel()
	r := newTemplated(1)
	r.getOwner = func() (*appsv1.ReplicaSet, error) {
		rs := clone(r.owner)
		rs.Annotations = web
		return rs, nil
	}
	p, err := r.pass(t, 0, made(r.owner, 2)...)
	require.NoError(t, err)
	assert.Len(t, p.Deleted, 1)
	assert.Equal(t, web, r.asked.Annotations)
}

// Prepare may drain what is to be deleted, so it is not called with a plan that the template does not want.
func TestPrepareIsNotCalledWithAnOldTemplate(t *testing.T) {
	t.Parallel()
	r := newTemplated(1)
	prepared := 0
	r.kind.Prepare = func(context.Context, *appsv1.ReplicaSet, *step) error { prepared++; return nil }
	r.cached = "two"
	pods := made(r.owner, 1)
	_, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	assert.Zero(t, prepared)
	r.live = "two"
	_, err = r.pass(t, 1, pods...)
	require.NoError(t, err)
	assert.Equal(t, 1, prepared)
}

// One orphan is adopted, and another is not. What is deleted after that is not what was planned before, so it is
// compared anew. One deletion at a time is the same in both plans until then.
func TestTheTemplateIsComparedAfterClaims(t *testing.T) {
	t.Parallel()
	r := newTemplated(0)
	of := func(rs *appsv1.ReplicaSet, wanted int32) (replicas.SpecOfPods, error) {
		spec, err := replicas.ReplicaSetSpec(rs)
		spec.Replicas, spec.BurstReplicas = wanted, 1
		return spec, err
	}
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) { return of(rs, 1) }
	r.kind.SpecLive = func(_ context.Context, rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) { return of(rs, 2) }
	r.patch = func(*corev1.Pod) error { return notFound("web-002") }
	pods := ready(r.owner, 3)
	pods[2].OwnerReferences = nil
	podtest.NotReady(pods[2]) // it goes first
	p, err := r.pass(t, 0, pods...)
	require.NoError(t, err)
	assert.Len(t, p.Active, 2)
	assert.Empty(t, r.callsOf("delete"), "two are wanted")
	assert.Equal(t, []controller.GateReason{controller.InputsStale}, reasonsOf(p.Gates))
}

// The template has changed and the owner has not. Events of children are judged by the Spec of the last pass.
func TestEventsAreJudgedByTheTemplateOfTheLastPass(t *testing.T) {
	t.Parallel()
	r := newTemplated(1)
	r.owner.ResourceVersion = "1"
	r.opts.StatusDelay = time.Second
	was := made(r.owner, 1)[0]
	cur := clone(was)
	cur.ResourceVersion, cur.Annotations = "8", map[string]string{"template": "two"}
	for _, want := range []struct {
		cached string
		wake   string
	}{{"one", "default/web"}, {"three", "default/web in 1s"}, {"two", "default/web"}} {
		r.cached = want.cached
		_, err := r.pass(t, 0)
		require.NoError(t, err)
		r.woken = nil
		require.NoError(t, r.start().ChildUpdated(was, cur))
		assert.Equal(t, []string{want.wake}, r.wakes(), want.cached)
	}
}

// An event calls Spec with the old template, and a pass calls it with the new one before the event has its answer.
func TestALateEventDoesNotBringBackAnOldTemplate(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string]bool{"nothing was kept": false, "an older version was kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			r.owner.ResourceVersion = "1"
			selecting := func(set map[string]string) replicas.SpecOfPods {
				return replicas.SpecOfPods{Selector: labels.SelectorFromSet(set)}
			}
			var h *handlers.Handlers
			pass := false
			h, err := handlers.New(handlers.Config[*appsv1.ReplicaSet, *corev1.Pod]{
				Owner: r.kind.Owner, Owners: r, Enqueue: r.wake,
				Spec: func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
					if pass {
						handlers.Renew(h, rs, selecting(web), nil)
					}
					return selecting(api), nil
				},
			})
			require.NoError(t, err)
			if kept {
				require.NoError(t, h.ChildAdded(podtest.Pod("orphan")))
				r.owner.ResourceVersion = "2"
			}
			for range 2 {
				pass = true
				require.NoError(t, h.ChildAdded(podtest.Pod("orphan")))
			}
			assert.Equal(t, []string{"default/web"}, r.woken, "by the second event")
			handlers.Renew(h, r.owner, replicas.SpecOfPods{}, errors.New("for now"))
			pass = false
			require.NoError(t, h.ChildAdded(podtest.Pod("orphan")))
			assert.Len(t, r.woken, 1, "after an error, Spec is called again")
		})
	}
	rs := replicaSet(1)
	handlers.Renew(nil, rs, replicas.SpecOfPods{}, nil)
	handlers.Renew[*appsv1.ReplicaSet](new(handlers.Handlers), nil, replicas.SpecOfPods{}, nil)
	handlers.Renew(newRig(1).start().Handlers, podtest.Pod("other types"), replicas.SpecOfPods{}, nil)
}
