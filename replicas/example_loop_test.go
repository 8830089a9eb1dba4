// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// A Client makes the API calls. You implement this interface. Errors of the API server must keep their type. No
// method may read from a cache. Create must use controller.NoteResent.
type Client interface {
	Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	Delete(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error
	Patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error)
	Get(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	List(ctx context.Context, namespace string, sel labels.Selector) (ledger.List[*corev1.Pod], error)
	Owner(ctx context.Context, namespace, name string) (metav1.Object, error)
}

// A Loop keeps the desired number of pods for one ReplicaSet. If a ReplicaSet is deleted and created again, its UID
// changes, so create a new Loop.
type Loop struct {
	Client      Client
	Version     func() string                                 // returns the resourceVersion up to which Cached shows all changes; "" if unknown
	Cached      func(namespace string) ([]*corev1.Pod, error) // returns the pods in the cache
	Now         func() time.Time
	Suffix      func() string // returns five random characters
	MaxParallel int           // the maximum number of parallel calls; 0 means no limit

	known  ledger.Ledger[*corev1.Pod]
	begins sync.Once
}

// A pass is one call of Sync.
type pass struct {
	*Loop
	rs    *appsv1.ReplicaSet // from the cache
	spec  replicas.SpecOfPods
	start ledger.Moment
	cache ledger.Snapshot[*corev1.Pod]
}

// Sync makes one pass. If Sync returns a positive duration, call Sync again after this time, even if no event
// arrives. If Sync returns an error, also call Sync again, with a delay that grows with each error. Do not make
// two passes at the same time.
func (l *Loop) Sync(ctx context.Context, rs *appsv1.ReplicaSet) (after time.Duration, err error) {
	l.begins.Do(l.known.MarkStale) // the cache may be older than the state that another process saw
	defer l.known.Done()
	p := &pass{Loop: l, rs: rs}
	if p.spec, err = replicas.ReplicaSetSpec(rs); err != nil {
		return 0, err
	}
	if err := p.readCache(); err != nil {
		return 0, err
	}
	plan, err := p.plan(ctx)
	if err != nil {
		return 0, err
	}
	scale, err := p.claim(ctx, plan)
	if err = errors.Join(err, p.create(ctx, scale), p.delete(ctx, scale)); err != nil {
		return 0, err
	}
	after = l.known.RequeueAfter(l.Now())
	if landed := l.known.CallsExpireIn(l.Now()); landed > 0 && (after == 0 || landed < after) {
		after = landed
	}
	return after, nil
}

// readCache reads the cache. The order of the reads matters.
func (p *pass) readCache() (err error) {
	p.spec.Facts.Now = p.Now()
	p.start = p.known.Start()     // call Start BEFORE the cache is read
	p.cache.Version = p.Version() // read the version BEFORE the pods
	p.cache.Selector = p.spec.Selector
	p.cache.Rules = ledger.RulesOf(p.rs, p.spec.Kind.GroupKind(), p.spec.Selector, status.IsPodActive)
	p.cache.Children, err = p.Cached(p.rs.Namespace)
	return err
}

// plan makes a plan from the view. If the cache is behind or the result of a call is unknown, the pass lists the
// pods live before it changes anything, and plans again. If the plan is empty, the pass lists the pods live only
// if view.Unmet or the variable landed is true. If landed is true, the results of some calls are unknown, but
// none of these calls can still take effect.
func (p *pass) plan(ctx context.Context) (replicas.PodPlan, error) {
	view, plan, err := p.manage()
	if err != nil {
		return plan, err
	}
	unsettled := len(p.known.Names())+len(p.known.UnansweredCalls()) > 0
	landed := unsettled && p.known.CallsExpireIn(p.spec.Facts.Now) == 0
	isBehind := view.Stale || unsettled || p.known.RequeueAfter(p.spec.Facts.Now) > 0
	if !view.Unmet && !landed && (!isBehind || plan.IsZero()) {
		return plan, nil
	}
	if err := p.readLive(ctx); err != nil {
		return replicas.PodPlan{}, err // so the pass changes nothing
	}
	_, plan, err = p.manage()
	return plan, err
}

// manage applies the known facts to the cache, and makes a plan. The plan takes the calls in flight into account.
// If the plan creates pods, the plan first repeats the creations in flight with the same names. A repeated
// creation never makes a second pod, because a server has at most one pod with a name.
func (p *pass) manage() (ledger.View[*corev1.Pod], replicas.PodPlan, error) {
	view, err := p.known.View(p.start, p.cache, p.spec.Facts.Now)
	if err != nil {
		return view, replicas.PodPlan{}, err
	}
	facts := &p.spec.Facts
	calls := p.known.InFlight()
	facts.CreationsInFlight, facts.Taken, facts.DeletionsInFlight = calls.Creations, calls.Taken, calls.Deletions
	facts.Names = func(prefix string) string { return prefix + p.Suffix() }
	plan, err := replicas.Manage(view.Children, p.spec)
	return view, plan, err
}

// readLive lists the pods live. If a request was sent so long ago that it can no longer take effect, the list
// shows its final result. The ledger then forgets this request.
func (p *pass) readLive(ctx context.Context) error {
	start, began := p.known.Start(), p.Now()
	list, err := p.Client.List(ctx, p.rs.Namespace, p.spec.Selector)
	if err != nil {
		return err
	}
	if err := p.known.Listed(start, list, p.cache, p.Now()); err != nil {
		return err
	}
	p.known.ExpireCalls(began)
	return nil
}

// claim adopts and releases pods, and returns the Scale to carry out afterwards. If an adoption fails and the
// orphan may still become a pod of the ReplicaSet, the Scale creates one pod fewer.
func (p *pass) claim(ctx context.Context, plan replicas.PodPlan) (replicas.PodScale, error) {
	start := p.known.Start()
	claimed, err := selector.Claimer[*corev1.Pod]{
		Owner: p.rs, Kind: p.spec.Kind, Selector: p.spec.Selector,
		CanAdopt: selector.CanAdopt(p.owner, p.rs),
		Patch: func(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
			patched, err := p.Client.Patch(ctx, pod, patch)
			if err == nil {
				err = p.known.Observe(start, patched, p.Now())
			}
			return patched, err
		},
	}.Apply(ctx, plan.Claims)
	switch {
	case claimed.CanAdoptErr != nil:
		return replicas.PodScale{}, err
	case len(claimed.Adopted) == len(plan.Claims.Adopt):
		return plan.Scale, err
	}
	for _, failed := range claimed.AdoptionPending {
		p.spec.Facts.Undecided = append(p.spec.Facts.Undecided, failed.Object)
	}
	scale, scaleErr := replicas.ScaleTo(claimed.Ours(), p.spec)
	return scale, errors.Join(err, scaleErr)
}

func (p *pass) owner(ctx context.Context) (metav1.Object, error) {
	return p.Client.Owner(ctx, p.rs.Namespace, p.rs.Name)
}

// refused reports whether the server refused a call, which then has no effect, now or later. After any other error the
// result is unknown. It is unknown, too, if client-go has sent the request twice, because the first one may have taken
// effect.
func refused(err error) bool {
	return !errors.Is(err, controller.ErrResent) &&
		(apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err))
}

// create creates pods with slow start. If the result of a create call is unknown, create reads the pod by its name,
// because the pod may exist although the response was lost. If the read does not find the pod, the ledger keeps the
// name, and a later pass can send the same name again.
func (p *pass) create(ctx context.Context, scale replicas.PodScale) error {
	return slowstart.Run(ctx, scale.Create, slowstart.Options{MaxParallel: p.MaxParallel}, func(ctx context.Context, i int) error {
		pod, err := scale.New(i)
		if err != nil {
			return err
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
		p.known.CreateSent(name, p.Now())
		start := p.known.Start()
		made, err := p.Client.Create(ctx, pod)
		if refused(err) {
			p.known.CreateRejected(name)
			return err
		}
		if err != nil {
			start = p.known.Start()
			found, getErr := p.Client.Get(ctx, name.Namespace, name.Name)
			if getErr != nil {
				return err
			}
			made = found
		}
		holder, ours := p.cache.Rules.Holder(made)
		p.known.NameHeld(name, made.UID, holder, ours)
		if holder != ledger.Replica {
			return errors.Join(err, fmt.Errorf("pod %q is not one of replica set %q", name, p.rs.Name))
		}
		return p.known.Observe(start, made, p.Now())
	}).Err
}

// delete deletes pods if the owner on the server has the same UID and generation as the owner in the cache. The ledger
// remembers a deletion that succeeded, or whose result is unknown, until a view shows what happened to the pod.
func (p *pass) delete(ctx context.Context, scale replicas.PodScale) error {
	n := len(scale.Delete)
	if n == 0 {
		return nil
	}
	owner, err := p.owner(ctx)
	if err == nil && (owner.GetUID() != p.rs.UID || owner.GetGeneration() != p.rs.Generation) {
		err = fmt.Errorf("the cache has an old replica set %q", p.rs.Name)
	}
	if err != nil {
		return err
	}
	return slowstart.Run(ctx, n, slowstart.Options{InitialBatchSize: n, MaxParallel: p.MaxParallel}, func(ctx context.Context, i int) error {
		start, victim := p.known.Start(), scale.Delete[i]
		err := p.Client.Delete(ctx, victim.Object, victim.Options)
		switch {
		case apierrors.IsNotFound(err):
			p.known.ObserveDeleted(start, victim.Object.UID, p.Now())
			return nil
		case apierrors.IsConflict(err):
			p.known.MarkStale() // the pod has changed since the cache saw it
		case err == nil:
			p.known.Deleted(victim.Object.UID, p.Now())
		case !refused(err):
			p.known.CallUnanswered(victim.Object.UID, ledger.Delete, victim.Object.ResourceVersion, p.Now())
		}
		return err
	}).Err
}

// This example is a hand-written loop with Manage, a Ledger and a client of your own. The response to the second
// creation is lost, and the cache does not show the new pods at first.
func ExampleManage_loop() {
	three := int32(3)
	web := map[string]string{"app": "web"}
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4a1f"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &three,
			Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: web}},
		},
	}
	server := &server{pods: map[string]*corev1.Pod{}, lost: 2}
	var cache []*corev1.Pod
	loop := &Loop{
		Client:      server,
		Version:     func() string { return "" },
		Cached:      func(string) ([]*corev1.Pod, error) { return cache, nil },
		Now:         time.Now,
		Suffix:      func() string { return rand.String(5) },
		MaxParallel: 1,
	}
	run := func(when string) {
		after, err := loop.Sync(context.Background(), rs)
		fmt.Printf("%s: %d pods, requeue: %t, error: %v\n", when, len(server.pods), after > 0, err)
	}
	run("at first")
	run("before the cache has caught up")
	for _, pod := range server.pods {
		cache = append(cache, pod)
	}
	run("after")
	// Output:
	// at first: 3 pods, requeue: true, error: <nil>
	// before the cache has caught up: 3 pods, requeue: true, error: <nil>
	// after: 3 pods, requeue: false, error: <nil>
}

// A server plays the API server in the example. It stores the created pods.
type server struct {
	Client
	pods map[string]*corev1.Pod
	lost int // the number of the creation that gets no response, counted from 1
}

func (s *server) Create(_ context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	s.pods[pod.Name] = pod
	pod.UID = types.UID("uid-of-" + pod.Name)
	pod.ResourceVersion = strconv.Itoa(len(s.pods))
	if len(s.pods) == s.lost {
		return nil, errors.New("connection reset by peer")
	}
	return pod, nil
}

func (s *server) Get(_ context.Context, _, name string) (*corev1.Pod, error) {
	if pod, ok := s.pods[name]; ok {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}

func (s *server) List(context.Context, string, labels.Selector) (ledger.List[*corev1.Pod], error) {
	return ledger.List[*corev1.Pod]{Items: slices.Collect(maps.Values(s.pods)), Version: strconv.Itoa(len(s.pods))}, nil
}
