// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/status"
)

// Each example of a Kind is played with faults: rollouts, scaling down and up within the lag of a cache, lost
// answers, processes that die in the middle of a pass, and the caches of an old API server.

var stories = flag.Uint64("stories", 60, "how many stories of each example are played")

type podStory = replicastest.Story[*appsv1.ReplicaSet, *corev1.Pod]

func wants(n int32) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) { rs.Spec.Replicas = &n }
}

func rollsOut(image string) func(*appsv1.ReplicaSet) {
	return func(rs *appsv1.ReplicaSet) {
		rs.Spec.Template.Annotations = map[string]string{"image": image}
	}
}

// rolling adds a rollout to a Kind, one pod at a time.
func rolling(kind controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]) controller.Kind[*appsv1.ReplicaSet, *corev1.Pod] {
	spec := kind.Spec
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		s, err := spec(rs)
		one := intstr.FromInt32(1)
		s.MaxUnavailable = &one
		s.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["image"] != imageOf(rs) }
		return s, err
	}
	return kind
}

// claimsOf makes the calls of a step for claims in a story, so that faults happen to them, too.
type claimsOf struct {
	*volumes
	story  *podStory
	broken error // what a call of the step has shown
}

func claimCall(verb, member string) replicastest.Call {
	return replicastest.Call{Verb: verb, Kind: "Claim", NamespacedName: types.NamespacedName{Namespace: "default", Name: member}}
}

func (c *claimsOf) List(ctx context.Context, rs *appsv1.ReplicaSet) (claims map[string]string, err error) {
	err = c.story.Call(ctx, claimCall("list", ""), func() (err error) {
		claims, err = c.volumes.List(ctx, rs)
		return err
	})
	return claims, err
}

func (c *claimsOf) Use(ctx context.Context, rs *appsv1.ReplicaSet, member string) error {
	return c.story.Call(ctx, claimCall("create", member), func() error { return c.volumes.Use(ctx, rs, member) })
}

func (c *claimsOf) Delete(ctx context.Context, rs *appsv1.ReplicaSet, member, version string) error {
	live, err := c.story.Cluster.GetOwner(ctx, rs.Namespace, rs.Name)
	if err == nil && slices.Contains(membersOf(live), member) {
		c.broken = fmt.Errorf("the claim of %s is deleted, and the owner wants it", member)
	}
	return c.story.Call(ctx, claimCall("delete", member), func() error { return c.volumes.Delete(ctx, rs, member, version) })
}

func (c *claimsOf) Owner(ctx context.Context, rs *appsv1.ReplicaSet) (owner *appsv1.ReplicaSet, err error) {
	err = c.story.Call(ctx, replicastest.Call{Verb: "get", Kind: "ReplicaSet"}, func() (err error) {
		owner, err = c.story.Cluster.GetOwner(ctx, rs.Namespace, rs.Name)
		return err
	})
	return owner, err
}

func membersOf(rs *appsv1.ReplicaSet) (members []string) {
	for i := range int(*rs.Spec.Replicas) {
		members = append(members, replicas.Ordinals(rs.Name)(i))
	}
	return members
}

func TestClaimsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *podStory) {
		claims := &claimsOf{volumes: &volumes{claims: map[string]string{}}, story: s}
		s.Kind, s.Owner = rolling(withClaims(claims)), replicastest.NewReplicaSet("default", "db", 3)
		s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(3), wants(5), rollsOut("two"), rollsOut("three")}
		s.Always = map[string]func() error{
			"each member that exists has its claim": func() error {
				for _, pod := range s.Cluster.Children("default") {
					if claims.claims[pod.Name] == "" {
						return fmt.Errorf("%s has none", pod.Name)
					}
				}
				return nil
			},
			"no claim of a wanted member is deleted": func() error { return claims.broken },
			"never more than five":                   s.AtMost(5),
		}
		s.AtEnd = map[string]func() error{
			"as many members as wanted": s.AsWanted,
			"each claim has a member": func() error {
				owner, err := s.Cluster.GetOwner(context.Background(), "default", "db")
				if is, want := slices.Sorted(maps.Keys(claims.claims)), membersOf(owner); err == nil && !slices.Equal(is, want) {
					err = fmt.Errorf("claims are %v, want %v", is, want)
				}
				return err
			},
		}
	}))
}

// lateDeletes gives no answer to the deletion of a claim, which takes effect when the test says.
type lateDeletes struct {
	*volumes
	sent []func() error
}

func (l *lateDeletes) Delete(ctx context.Context, rs *appsv1.ReplicaSet, member, version string) error {
	l.sent = append(l.sent, func() error { return l.volumes.Delete(ctx, rs, member, version) })
	return timeout()
}

// The deletion of a claim gets no answer, and the member is wanted again before it takes effect. The member keeps the
// claim that it has taken over.
func TestALateDeleteFindsAClaimThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	calls := &lateDeletes{volumes: &volumes{claims: map[string]string{}}}
	cluster, err := replicastest.NewCluster(withClaims(calls), replicastest.Options{Seed: 1, Nodes: 1})
	require.NoError(t, err)
	calls.PodCluster = cluster
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	_, err = cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet("default", "db", 3))
	require.NoError(t, err)
	for _, n := range []int32{3, 2, 3} {
		_, err = cluster.EditOwner(t.Context(), "default", "db", wants(n))
		require.NoError(t, err)
		world.Run(2 * time.Minute)
	}
	require.NotEmpty(t, calls.sent)
	for _, takesEffect := range calls.sent {
		require.True(t, apierrors.IsConflict(takesEffect()))
	}
	require.Len(t, calls.claims, 3)
}

// agents drain pods some seconds after they were asked. They answer with what they have seen when they began, which
// may have been called off since. Some never answer.
type agents struct {
	story    *podStory
	last     map[types.UID]*corev1.Pod
	requests map[types.UID]int // how often each pod was asked
	began    map[types.UID]draining
	drained  map[types.UID]int // for which of these requests a pod is drained
}

type draining struct {
	request string
	number  int
	ends    time.Time
}

func (a *agents) next() (pod *corev1.Pod, drain draining) {
	for _, p := range a.story.Cluster.Children("default") {
		d, isBusy := a.began[p.UID]
		if request := p.Annotations[drainRequest]; !isBusy && (request == "" || p.Annotations[drainedFor] == request) {
			continue
		}
		if !isBusy {
			takes := 3 * time.Second
			if a.story.Cluster.Random(4) == 0 {
				takes = 10 * time.Hour
			}
			d = draining{p.Annotations[drainRequest], a.requests[p.UID], a.story.Cluster.Clock.Now().Add(takes)}
			a.began[p.UID] = d
		}
		if pod == nil || d.ends.Before(drain.ends) {
			pod, drain = p, d
		}
	}
	return pod, drain
}

func (a *agents) Due() (time.Time, bool) {
	pod, drain := a.next()
	return drain.ends, pod != nil
}

func (a *agents) Step() {
	pod, drain := a.next()
	if pod == nil || drain.ends.After(a.story.Cluster.Clock.Now()) {
		return
	}
	delete(a.began, pod.UID)
	a.drained[pod.UID] = drain.number
	_, _ = a.story.Cluster.EditChild(context.Background(), pod.Namespace, pod.Name, func(p *corev1.Pod) { setAnnotation(p, drainedFor, drain.request) })
}

// watch counts the requests of each pod, and returns an error if a pod is being deleted, or has gone, that was ready and
// had not drained for its last request in time. It is a rule for each moment.
func (a *agents) watch() error {
	now := map[types.UID]*corev1.Pod{}
	for _, p := range a.story.Cluster.Children("default") {
		request, was := p.Annotations[drainRequest], a.last[p.UID]
		if now[p.UID] = p; request != "" && (was == nil || was.Annotations[drainRequest] != request) {
			a.requests[p.UID]++
		}
	}
	last := a.last
	a.last = now
	for id, p := range last {
		if is := now[id]; p.DeletionTimestamp != nil || is != nil && is.DeletionTimestamp == nil {
			continue
		}
		end, isAsked := drainEnds(p)
		isLate := isAsked && !a.story.Cluster.Clock.Now().Before(end)
		if status.IsPodReady(p) && !isLate && (a.requests[id] == 0 || a.drained[id] != a.requests[id]) {
			return fmt.Errorf("%s goes after %d requests, and was drained for %d: asked %q, drained for %q",
				p.Name, a.requests[id], a.drained[id], p.Annotations[drainRequest], p.Annotations[drainedFor])
		}
	}
	return nil
}

func isLeavingOrGoing(p *corev1.Pod) bool { return isGoing(p) || p.Annotations[drainRequest] != "" }

func TestDrainsInStories(t *testing.T) {
	t.Parallel()
	const others = "example.com/others"
	require.NoError(t, replicastest.Play(1, *stories, func(s *podStory) {
		now := func() time.Time { return s.Cluster.Clock.Now() }
		s.Kind = rolling(withDrain(now, func(ctx context.Context, rs *appsv1.ReplicaSet) error {
			return s.Call(ctx, replicastest.Call{Verb: "patch", Kind: "ReplicaSet"}, func() error {
				_, err := s.Cluster.EditOwner(ctx, rs.Namespace, rs.Name, withoutFinalizer)
				return err
			})
		}))
		s.Owner = replicastest.NewReplicaSet("default", "web", 3)
		s.Owner.Finalizers = []string{others, podsFinalizer}
		s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(3), wants(4), rollsOut("two")}
		s.Deletes = true
		agents := &agents{s, map[types.UID]*corev1.Pod{}, map[types.UID]int{}, map[types.UID]draining{}, map[types.UID]int{}}
		s.Parts = []replicastest.Part{agents}
		finalizers := func() ([]string, bool) {
			rs, err := s.Cluster.GetOwner(context.Background(), "default", "web")
			if err != nil {
				return nil, true
			}
			return rs.Finalizers, rs.DeletionTimestamp != nil
		}
		most := 0
		s.Always = map[string]func() error{
			"no pod goes undrained": agents.watch,
			"from one to four stay": func() error { // two are wanted, and one of them may be unavailable
				_, isDeleted := finalizers()
				n := len(s.Cluster.Children("default")) - countIf(s.Cluster.Children("default"), isLeavingOrGoing)
				if most = max(most, n); n > 4 || n < 1 && most > 0 && !isDeleted {
					return fmt.Errorf("%d do", n)
				}
				return nil
			},
			"the finalizers of others stay": func() error {
				if is, _ := finalizers(); !slices.Contains(is, others) {
					return fmt.Errorf("they are %q", is)
				}
				return nil
			},
			"the finalizer stays while a pod exists": func() error {
				if is, _ := finalizers(); !slices.Contains(is, podsFinalizer) && len(s.Cluster.Children("default")) > 0 {
					return fmt.Errorf("they are %q", is)
				}
				return nil
			},
		}
		s.AtEnd = map[string]func() error{
			"as many pods as wanted": s.AsWanted,
			"no pod is asked to drain": func() error {
				if n := countIf(s.Cluster.Children("default"), isLeavingOrGoing); n > 0 {
					return fmt.Errorf("%d are", n)
				}
				return nil
			},
			"a deleted owner has been released": func() error {
				if is, going := finalizers(); going && slices.Contains(is, podsFinalizer) {
					return fmt.Errorf("it has %q", is)
				}
				return nil
			},
		}
	}))
}

// No node has room for the pods, so none can drain. One that is not wanted goes at once, without a request.
func TestAPodThatCannotDrainGoesAtOnce(t *testing.T) {
	t.Parallel()
	var cluster *replicastest.PodCluster
	cluster, err := replicastest.NewCluster(withDrain(func() time.Time { return cluster.Clock.Now() }, nil), replicastest.Options{Seed: 1})
	require.NoError(t, err)
	world := &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, cluster.NewController()}}
	_, err = cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet("default", "web", 3))
	require.NoError(t, err)
	world.Run(time.Minute)
	require.Len(t, cluster.Children("default"), 3)
	_, err = cluster.EditOwner(t.Context(), "default", "web", wants(2))
	require.NoError(t, err)
	world.Run(time.Minute)
	require.Len(t, cluster.Children("default"), 2)
	require.Zero(t, countIf(cluster.Children("default"), isLeavingOrGoing))
}

func TestRolloutsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *podStory) {
		s.Kind, s.Owner = surging(), replicastest.NewReplicaSet("default", "web", 3)
		s.Changes = []func(*appsv1.ReplicaSet){wants(2), wants(3), wants(4), rollsOut("two"), rollsOut("three")}
		s.Always = map[string]func() error{"never more than five": s.AtMost(5), "never fewer than two": s.AtLeast(2)}
		s.AtEnd = map[string]func() error{
			"as many pods as wanted": s.AsWanted,
			"each pod has the image of its owner": func() error {
				owner, err := s.Cluster.GetOwner(context.Background(), "default", "web")
				for _, pod := range s.Cluster.Children("default") {
					if err == nil && pod.Annotations["image"] != imageOf(owner) {
						err = fmt.Errorf("%s has %q", pod.Name, pod.Annotations["image"])
					}
				}
				return err
			},
		}
	}))
}

func TestReplicationControllersInStories(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*corev1.ReplicationController) {
		return func(rc *corev1.ReplicationController) { rc.Spec.Replicas = &n }
	}
	require.NoError(t, replicastest.Play(1, *stories, func(s *replicastest.Story[*corev1.ReplicationController, *corev1.Pod]) {
		s.Kind, s.Owner = twoAtATime(), wantsThree()
		s.Changes = []func(*corev1.ReplicationController){wants(0), wants(3), wants(8)}
		s.Always = map[string]func() error{"never more than eight": s.AtMost(8)}
		s.AtEnd = map[string]func() error{"as many pods as wanted": s.AsWanted}
	}))
}

// An otherObject is one that a Kind reads besides the owner. The server has it, and a cache shows it late. The value ""
// means that it does not exist.
type otherObject struct {
	now          func() time.Time
	wake         func()
	cached, live string
	lag          time.Duration
	late         []shownLater
	returns      time.Time // when somebody makes it again
	reads        string    // what SpecLive has read in this pass
	isRead       bool
	changesLater string // what it becomes during the next deletion
}

type shownLater struct {
	at    time.Time
	value string
}

// becomes changes the object on the server. Events of a watch do not overtake each other.
func (o *otherObject) becomes(value string) {
	at := o.now().Add(o.lag)
	if n := len(o.late); n > 0 && o.late[n-1].at.After(at) {
		at = o.late[n-1].at
	}
	o.live, o.late = value, append(o.late, shownLater{at, value})
	if o.returns = (time.Time{}); value == "" {
		o.returns = o.now().Add(20 * time.Second)
	}
}

func (o *otherObject) Due() (time.Time, bool) {
	due := o.returns
	if len(o.late) > 0 && (due.IsZero() || !o.late[0].at.After(due)) {
		due = o.late[0].at
	}
	return due, !due.IsZero()
}

func (o *otherObject) Step() {
	now := o.now()
	if !o.returns.IsZero() && !o.returns.After(now) {
		o.becomes("one")
	}
	for len(o.late) > 0 && !o.late[0].at.After(now) {
		o.cached, o.late = o.late[0].value, o.late[1:]
		o.wake()
	}
}

// changed changes the object in the middle of a deletion, if that was ordered. It is called after each change of a child.
func (o *otherObject) changed(deleting int) {
	if value := o.changesLater; value != "" && deleting > 0 {
		o.changesLater = ""
		o.becomes(value)
	}
}

// templateChanges are what users do to a template, in the place of changes of an owner.
func templateChanges[O any](o *otherObject) []func(O) {
	does := func(change func()) func(O) { return func(O) { change() } }
	return []func(O){
		does(func() { o.becomes("one") }),
		does(func() { o.becomes("two") }),
		does(func() { back := o.live; o.becomes("three"); o.becomes(back) }),
		does(func() { o.becomes("") }),
		does(func() { o.changesLater = "two" }),
		does(func() { o.changesLater = "one" }),
		does(func() { o.lag = 20 * time.Second }),
		does(func() { o.lag = 0 }),
	}
}

// judge returns an error if a pass deletes what the template does not want deleted, as SpecLive has read it in this pass.
// The argument made is the template of a child that is deleted because it must go.
func (o *otherObject) judge(deletes int, made []string) error {
	read, value := o.isRead, o.reads
	o.isRead = false
	switch {
	case deletes == 0:
	case !read:
		return errors.New("a pass deletes and has not read the template")
	case value == "":
		return errors.New("a pass deletes for a template that does not exist")
	case slices.Contains(made, value):
		return fmt.Errorf("a pass deletes children of the template %s, which is what it has read", value)
	}
	return nil
}

func TestTemplatesInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *podStory) {
		template := &otherObject{now: func() time.Time { return s.Cluster.Clock.Now() }, wake: s.Wake, cached: "one", live: "one"}
		s.Kind = fromTemplates(func(_ context.Context, namespace, name string) (*corev1.PodTemplate, error) {
			return templateOf(namespace, name, template.cached)
		}, func(ctx context.Context, namespace, name string) (is *corev1.PodTemplate, err error) {
			err = s.Call(ctx, replicastest.Call{Verb: "get", Kind: "PodTemplate"}, func() error {
				template.reads, template.isRead = template.live, true
				is, err = templateOf(namespace, name, template.live)
				return err
			})
			return is, err
		})
		var broken error
		s.Kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.ReplicaSet, *corev1.Pod]) {
			var images []string
			for _, d := range pass.Scale.Delete {
				if d.Replaced {
					images = append(images, d.Object.Spec.Containers[0].Image)
				}
			}
			broken = cmp.Or(broken, template.judge(len(pass.Scale.Delete), images))
		}
		s.Owner = replicastest.NewReplicaSet("default", "web", 3)
		s.Changes = append(templateChanges[*appsv1.ReplicaSet](template), wants(2), wants(3), wants(4))
		s.Parts = []replicastest.Part{template}
		s.Always = map[string]func() error{
			"nothing is deleted that the template wants": func() error { return broken },
			// Four are wanted. A creation that was sent twice may take effect again when its child has been deleted.
			"never more than five": s.AtMost(5),
			"the template changes during a deletion": func() error {
				template.changed(countIf(s.Cluster.Children("default"), isGoing[*corev1.Pod]))
				return nil
			},
		}
		s.AtEnd = map[string]func() error{
			"as many pods as wanted": s.AsWanted,
			"each pod is of the template": func() error {
				for _, pod := range s.Cluster.Children("default") {
					if image := pod.Spec.Containers[0].Image; image != template.live {
						return fmt.Errorf("%s has %s, want %s", pod.Name, image, template.live)
					}
				}
				return nil
			},
		}
	}))
}

func isGoing[C metav1.Object](c C) bool { return c.GetDeletionTimestamp() != nil }

func countIf[C any](children []C, is func(C) bool) (n int) {
	for _, c := range children {
		if is(c) {
			n++
		}
	}
	return n
}

// A warmPool keeps sandboxes ready that claims take, as agent-sandbox's SandboxWarmPool does. A sandbox is made from a
// template, which is another object.
type warmPool struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Wanted int32
	Status struct{ Replicas, Ready int32 }
}

func (p *warmPool) DeepCopy() *warmPool {
	c := *p
	p.DeepCopyInto(&c.ObjectMeta)
	return &c
}
func (p *warmPool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

type sandbox struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Template string
	Status   struct{ Ready bool }
}

func (s *sandbox) DeepCopy() *sandbox {
	c := *s
	s.DeepCopyInto(&c.ObjectMeta)
	return &c
}
func (s *sandbox) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// warmPools returns the Kind of warm pools. A sandbox that is being deleted holds its place until it has gone.
func warmPools(cached, live func(context.Context) (template string, err error)) controller.Kind[*warmPool, *sandbox] {
	group := schema.GroupVersion{Group: "example.com", Version: "v1"}
	spec := func(ctx context.Context, p *warmPool, read func(context.Context) (string, error)) (replicas.Spec[*sandbox], error) {
		own := labels.Set{"pool": p.Name}
		template, err := read(ctx)
		return replicas.Spec[*sandbox]{
			Replicas: p.Wanted, Selector: own.AsSelector(), Paused: template == "",
			New: func(string) (*sandbox, error) {
				return &sandbox{ObjectMeta: metav1.ObjectMeta{Labels: own}, Template: template}, nil
			},
			Rules: replicas.Rules[*sandbox]{
				Active:      func(*sandbox) bool { return true },
				Ready:       func(s *sandbox) bool { return s.Status.Ready },
				MustGo:      func(s *sandbox) bool { return s.Template != template },
				ReadyWithin: 5 * time.Minute,
			},
		}, err
	}
	return controller.Kind[*warmPool, *sandbox]{
		Owner: group.WithKind("SandboxWarmPool"), Child: group.WithKind("Sandbox"),
		Spec: func(p *warmPool) (replicas.Spec[*sandbox], error) { return spec(context.Background(), p, cached) },
		SpecLive: func(ctx context.Context, p *warmPool) (replicas.Spec[*sandbox], error) {
			return spec(ctx, p, live)
		},
		Status: func(p *warmPool, o controller.Outcome[*sandbox]) error {
			p.Status.Replicas, p.Status.Ready = o.Counts.Replicas, o.Counts.Ready
			return nil
		},
		StatusOf: func(p *warmPool) any { return &p.Status },
	}
}

// sandboxClaims take sandboxes out of a pool, some seconds after they are made.
type sandboxClaims struct {
	story *replicastest.Story[*warmPool, *sandbox]
	at    time.Time
	taken map[types.UID]bool
}

func (c *sandboxClaims) Due() (time.Time, bool) { return c.at, !c.at.IsZero() }

func (c *sandboxClaims) Step() {
	if c.at.After(c.story.Cluster.Clock.Now()) {
		return
	}
	c.at = time.Time{}
	for _, s := range c.story.Cluster.Children("default") {
		if s.DeletionTimestamp != nil || c.taken[s.UID] {
			continue
		}
		c.taken[s.UID] = true
		_, _ = c.story.Cluster.EditChild(context.Background(), s.Namespace, s.Name, func(s *sandbox) {
			yes := true
			s.Labels = nil
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Claim", Name: "c", UID: "claim", Controller: &yes}}
		})
		return
	}
}

func TestWarmPoolsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *replicastest.Story[*warmPool, *sandbox]) {
		now := func() time.Time { return s.Cluster.Clock.Now() }
		template := &otherObject{now: now, wake: s.Wake, cached: "one", live: "one"}
		claims := &sandboxClaims{story: s, taken: map[types.UID]bool{}}
		s.Kind = warmPools(func(context.Context) (string, error) { return template.cached, nil }, func(ctx context.Context) (is string, err error) {
			err = s.Call(ctx, replicastest.Call{Verb: "get", Kind: "Template"}, func() error {
				is, template.reads, template.isRead = template.live, template.live, true
				return nil
			})
			return is, err
		})
		var broken error
		s.Kind.Observe = func(_ context.Context, pass controller.Pass[*warmPool, *sandbox]) {
			var made []string
			for _, d := range pass.Scale.Delete {
				if d.Replaced {
					made = append(made, d.Object.Template)
				}
			}
			broken = cmp.Or(broken, template.judge(len(pass.Scale.Delete), made))
		}
		s.Ready = func(s *sandbox) { s.Status.Ready = true }
		s.Owner = &warmPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "warm"}, Wanted: 3}
		wants := func(n int32) func(*warmPool) { return func(p *warmPool) { p.Wanted = n } }
		s.Changes = append(templateChanges[*warmPool](template), wants(1), wants(3), wants(4), func(*warmPool) { claims.at = now().Add(2 * time.Second) })
		s.Parts = []replicastest.Part{template, claims}
		s.Always = map[string]func() error{
			"nothing is deleted that the template wants": func() error { return broken },
			"a sandbox that was taken stays": func() error {
				stay := countIf(s.Cluster.Children("default"), func(s *sandbox) bool { return claims.taken[s.UID] && !isGoing(s) })
				if stay < len(claims.taken) {
					return fmt.Errorf("%d of %d stay", stay, len(claims.taken))
				}
				return nil
			},
			"the template changes during a deletion": func() error {
				template.changed(countIf(s.Cluster.Children("default"), isGoing[*sandbox]))
				return nil
			},
		}
		s.AtEnd = map[string]func() error{
			"as many as wanted, all of the template": func() error {
				pool, err := s.Cluster.GetOwner(context.Background(), "default", "warm")
				if err != nil {
					return err
				}
				var kept []string
				for _, s := range s.Cluster.Children("default") {
					if !claims.taken[s.UID] {
						kept = append(kept, s.Template)
					}
				}
				if want := slices.Repeat([]string{template.live}, int(pool.Wanted)); !slices.Equal(kept, want) || pool.Status.Ready != pool.Wanted {
					return fmt.Errorf("they are %v, and %d are ready, want %v", kept, pool.Status.Ready, want)
				}
				return nil
			},
		}
	}))
}

// A scaledJob makes Jobs for the messages of a queue, as KEDA's ScaledJob does.
type scaledJob struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	Max     int32
	History int
	Status  struct{ Running int32 }
}

func (s *scaledJob) DeepCopy() *scaledJob {
	c := *s
	s.DeepCopyInto(&c.ObjectMeta)
	return &c
}
func (s *scaledJob) DeepCopyObject() runtime.Object { return s.DeepCopy() }

func hasEnded(j *batchv1.Job) bool { return j.Status.CompletionTime != nil }

// scaledJobs returns the Kind of ScaledJobs. Jobs that run are never deleted, and of those that have ended the newest
// are kept. The result of queued is unknown while the queue cannot be reached, and then nothing is created or deleted:
// if it were 0, Jobs would be deleted, and made again for the same messages.
func scaledJobs(queued func() (n int32, known bool)) controller.Kind[*scaledJob, *batchv1.Job] {
	group := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return controller.Kind[*scaledJob, *batchv1.Job]{
		Owner: group.WithKind("ScaledJob"), Child: batchv1.SchemeGroupVersion.WithKind("Job"),
		Spec: func(s *scaledJob) (replicas.Spec[*batchv1.Job], error) {
			own := labels.Set{"scaledjob": s.Name}
			n, known := queued()
			return replicas.Spec[*batchv1.Job]{
				Replicas: min(n, s.Max), Paused: !known, Selector: own.AsSelector(),
				New: func(string) (*batchv1.Job, error) {
					return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Labels: own}}, nil
				},
				Rules: replicas.Rules[*batchv1.Job]{
					Active:   func(j *batchv1.Job) bool { return j.DeletionTimestamp == nil && !hasEnded(j) },
					MustStay: func(j *batchv1.Job) bool { return !hasEnded(j) },
					Discard:  hasEnded,
				},
			}, nil
		},
		Prepare: func(_ context.Context, s *scaledJob, step *controller.Step[*batchv1.Job]) error {
			slices.SortFunc(step.Discard, func(a, b replicas.Deletion[*batchv1.Job]) int {
				return cmp.Or(a.Object.CreationTimestamp.Compare(b.Object.CreationTimestamp.Time), cmp.Compare(a.Object.Name, b.Object.Name))
			})
			step.Discard = step.Discard[:max(len(step.Discard)-s.History, 0)]
			return nil
		},
		Status: func(s *scaledJob, o controller.Outcome[*batchv1.Job]) error {
			s.Status.Running = o.Counts.Replicas
			return nil
		},
		StatusOf: func(s *scaledJob) any { return &s.Status },
	}
}

// A jobQueue is a queue with a poller, whose ticks wake the owner, and with Jobs that each take a message and end.
type jobQueue struct {
	story    *replicastest.Story[*scaledJob, *batchv1.Job]
	messages int32
	polled   int32
	known    bool
	next     time.Time
	down     time.Time // until then the queue cannot be reached
	began    map[types.UID]time.Time
}

const pollEvery, jobTakes = 20 * time.Second, 30 * time.Second

func (q *jobQueue) Due() (time.Time, bool) { return q.next, true }

func (q *jobQueue) Step() {
	now := q.story.Cluster.Clock.Now()
	if q.next.After(now) {
		return
	}
	q.next = now.Add(pollEvery)
	for _, j := range q.story.Cluster.Children("default") {
		if began, ok := q.began[j.UID]; !ok {
			q.began[j.UID] = now
		} else if now.Sub(began) >= jobTakes && !hasEnded(j) {
			_, _ = q.story.Cluster.EditChild(context.Background(), j.Namespace, j.Name, func(j *batchv1.Job) { j.Status.CompletionTime = &metav1.Time{Time: now} })
			q.messages = max(q.messages-1, 0)
		}
	}
	if q.known = !now.Before(q.down); q.known {
		q.polled = q.messages
	}
	q.story.Wake()
}

func TestScaledJobsInStories(t *testing.T) {
	t.Parallel()
	require.NoError(t, replicastest.Play(1, *stories, func(s *replicastest.Story[*scaledJob, *batchv1.Job]) {
		queue := &jobQueue{story: s, began: map[types.UID]time.Time{}}
		s.Kind = scaledJobs(func() (int32, bool) { return queue.polled, queue.known })
		s.Owner = &scaledJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "mail"}, Max: 4, History: 2}
		s.Changes = []func(*scaledJob){
			func(*scaledJob) { queue.messages += 3 },
			func(*scaledJob) { queue.messages += 9 },
			func(*scaledJob) { queue.messages = 0 }, // somebody has emptied it
			func(*scaledJob) { queue.down = s.Cluster.Clock.Now().Add(40 * time.Second) },
			func(j *scaledJob) { j.Max = 2 },
			func(j *scaledJob) { j.Max = 4 },
		}
		s.Parts = []replicastest.Part{queue}
		running := map[types.UID]bool{}
		s.Always = map[string]func() error{
			"no job that runs is deleted": func() error {
				is := map[types.UID]bool{}
				for _, j := range s.Cluster.Children("default") {
					if is[j.UID] = !hasEnded(j); j.DeletionTimestamp != nil && !hasEnded(j) {
						return fmt.Errorf("%s is deleted", j.Name)
					}
				}
				for id, was := range running {
					if _, there := is[id]; was && !there {
						return fmt.Errorf("the job %s is gone", id)
					}
				}
				running = is
				return nil
			},
			// A creation that was sent twice may take effect again when its Job has ended and was deleted.
			"never more than four run, and one": func() error {
				if n := countIf(s.Cluster.Children("default"), func(j *batchv1.Job) bool { return !hasEnded(j) }); n > 5 {
					return fmt.Errorf("%d run", n)
				}
				return nil
			},
		}
		s.AtEnd = map[string]func() error{"the queue is empty, and at most two jobs are kept": func() error {
			if jobs := s.Cluster.Children("default"); queue.messages > 0 || len(jobs) > 2 {
				return fmt.Errorf("%d messages and %d jobs", queue.messages, len(jobs))
			}
			return nil
		}}
	}))
}

// The children of an old loop have the same label for all owners. In the first release each gets the name of its owner as
// a label, and the second release selects by it, as docs/adopting.md says. None of them is deleted, released or doubled.
func TestChildrenOfAnOldLoopGetALabelOfTheirOwner(t *testing.T) {
	t.Parallel()
	release := 1
	kind := controller.ReplicaSets()
	kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec := replicas.SpecOfPods{Owner: rs, Kind: kind.Owner, Replicas: *rs.Spec.Replicas, Selector: labels.Set{"pool": rs.Name}.AsSelector()}
		both := map[string]string{"app": "lobby", "pool": rs.Name}
		spec.New = func(string) (*corev1.Pod, error) {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: both}}, nil
		}
		if release == 1 {
			spec.Selector, spec.NoAdoption = labels.Set{"app": "lobby"}.AsSelector(), true
			spec.Update = func(p *corev1.Pod) (c replicas.Change[*corev1.Pod]) {
				if p.Labels["pool"] != rs.Name {
					c.To, c.Free = p.DeepCopy(), true
					c.To.Labels["pool"] = rs.Name
				}
				return c
			}
		}
		return spec, nil
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: 1, Nodes: 3})
	require.NoError(t, err)
	var old []string
	for _, owner := range []string{"eu", "us"} {
		rs, err := cluster.CreateOwner(t.Context(), replicastest.NewReplicaSet("default", owner, 2))
		require.NoError(t, err)
		for _, suffix := range []string{"-a", "-b"} {
			pod := podtest.Pod(owner+suffix, podtest.Labels(map[string]string{"app": "lobby"}), owned(rs))
			pod.UID, pod.ResourceVersion = "", ""
			made, err := cluster.CreateChild(t.Context(), "default", pod)
			require.NoError(t, err)
			old = append(old, string(made.UID))
		}
	}
	for ; release <= 2; release++ {
		c := cluster.NewController()
		(&replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, c}}).Run(5 * time.Minute)
		c.View.Stop()
	}
	var now []string
	for _, p := range cluster.Children("default") {
		now = append(now, string(p.UID))
		ref := metav1.GetControllerOf(p)
		require.NotNil(t, ref, p.Name)
		assert.Equal(t, ref.Name, p.Labels["pool"])
	}
	assert.ElementsMatch(t, old, now)
}
