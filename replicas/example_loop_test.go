// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// A Client makes the calls: yours. Errors of the API server keep their type.
type Client interface {
	Create(ctx context.Context, pod *corev1.Pod) error
	Delete(ctx context.Context, pod *corev1.Pod, opts metav1.DeleteOptions) error
	Patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error)
	Get(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	List(ctx context.Context, namespace string, sel labels.Selector) ([]*corev1.Pod, error) // live: from no cache
	Owner(ctx context.Context, namespace, name string) (metav1.Object, error)               // live
}

// A Loop keeps ReplicaSets at their numbers of pods. It must not be called for one
// owner twice at once: key the work queue by namespace and name.
type Loop struct {
	Client      Client
	Cached      func(namespace string) []*corev1.Pod // as the watch has told so far
	Now         func() time.Time
	Suffix      func() string // five random characters
	MaxParallel int           // of calls at once; 0: no limit

	Pending expectations.Store[expectations.Key] // started and not seen
	Landing expectations.Store[expectations.Key] // names whose creation failed and may yet take effect
}

// PodAdded, PodUpdated and PodDeleted are called by the handlers of events, before
// these wake the owner.
func (l *Loop) PodAdded(pod *corev1.Pod) {
	for _, store := range []*expectations.Store[expectations.Key]{&l.Pending, &l.Landing} {
		for _, key := range store.OwnersOfCreation(pod.Name) {
			if key.Namespace == pod.Namespace {
				store.CreationObserved(key, pod.Name)
			}
		}
	}
	if pod.DeletionTimestamp != nil {
		l.PodDeleted(pod)
	}
}

func (l *Loop) PodUpdated(old, pod *corev1.Pod) {
	switch {
	case old.UID != pod.UID: // the watch was broken in between
		l.PodDeleted(old)
		l.PodAdded(pod)
	case pod.DeletionTimestamp != nil:
		l.PodDeleted(pod)
	}
}

func (l *Loop) PodDeleted(pod *corev1.Pod) {
	for _, key := range l.Pending.OwnersOfDeletion(pod.UID) {
		l.Pending.DeletionObserved(key, pod.UID)
	}
}

// Gone is called for an owner that is not found any more.
func (l *Loop) Gone(owner types.NamespacedName) {
	l.Pending.ForgetName(owner)
	l.Landing.ForgetName(owner)
}

// Sync makes a pass, and says when to come back though no event asks for it. After
// an error come back too, each time later.
func (l *Loop) Sync(ctx context.Context, rs *appsv1.ReplicaSet) (after time.Duration, err error) {
	key := expectations.KeyOf(rs)
	spec, err := replicas.ReplicaSetSpec(rs)
	if err != nil {
		return 0, err
	}
	spec.Now, spec.Names = l.Now(), l.names(key)
	spec.Pending, spec.PendingFor = l.Pending.State(key) // BEFORE the list
	plan, err := replicas.Manage(l.Cached(rs.Namespace), spec)
	if err == nil && spec.Pending == expectations.Expired { // though the number may look right
		plan, err = l.planLive(ctx, key, &spec, plan)
	}
	if err != nil {
		return 0, err
	}
	scale, err := l.claim(ctx, key, spec, plan)
	err = errors.Join(err, l.create(ctx, key, scale), l.delete(ctx, key, scale))
	if plan.Blocked.Reason == replicas.ExpectationsPending {
		after = plan.Blocked.Until.Sub(spec.Now)
	}
	return after, err
}

// planLive plans from a live list, as the cached one is old. What the cache has
// still to see stays expected: else the next pass would take the cache's word.
func (l *Loop) planLive(ctx context.Context, key expectations.Key, spec *replicas.Spec, cached replicas.Plan) (replicas.Plan, error) {
	pods, err := l.Client.List(ctx, key.Namespace, spec.Selector)
	if err != nil {
		return replicas.Plan{}, err // and nothing is changed
	}
	spec.Pending = expectations.Satisfied
	plan, err := replicas.Manage(pods, *spec)
	if err != nil {
		return replicas.Plan{}, err
	}
	expectations.SyncLive(&l.Pending, key, counted(cached), counted(plan))
	plan.Claims.Release = cached.Claims.Release // the list has only what matches
	return plan, nil
}

func counted(plan replicas.Plan) []*corev1.Pod {
	return slices.Concat(plan.Claims.Owned, plan.Claims.Adopt)
}

// claim adopts and releases, and returns what is then to be created or deleted. A
// place is held for each orphan of which nobody knows whether it is ours now.
func (l *Loop) claim(ctx context.Context, key expectations.Key, spec replicas.Spec, plan replicas.Plan) (replicas.Scale, error) {
	claimed, err := selector.Claimer[*corev1.Pod]{
		Owner: spec.Owner, Kind: spec.Kind, Selector: spec.Selector, Patch: l.Client.Patch,
		CanAdopt: selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) {
			return l.Client.Owner(ctx, key.Namespace, key.Name)
		}, spec.Owner),
	}.Apply(ctx, plan.Claims)
	switch {
	case claimed.CanAdoptErr != nil:
		return replicas.Scale{}, err
	case len(claimed.Adopted) == len(plan.Claims.Adopt):
		return plan.Scale, err
	}
	spec.Names, spec.HeldPlaces = l.names(key), len(claimed.Undecided)
	scale, scaleErr := replicas.ScaleTo(claimed.Ours(), spec)
	return scale, errors.Join(err, scaleErr)
}

// names returns first those that may yet take effect: with the same name again, a
// pod is there once however often its creation arrives.
func (l *Loop) names(key expectations.Key) func(prefix string) string {
	landing, _ := l.Landing.Get(key)
	return func(prefix string) string {
		if len(landing.Creating) == 0 {
			return prefix + l.Suffix()
		}
		name := landing.Creating[0]
		landing.Creating = landing.Creating[1:]
		return name
	}
}

// create creates pods in slow start. Only those that are there stay expected.
func (l *Loop) create(ctx context.Context, key expectations.Key, scale replicas.Scale) error {
	if scale.Create == 0 {
		return nil
	}
	l.Pending.Add(key, expectations.Changes{Creating: scale.Names}) // BEFORE the first call
	run := slowstart.Run(ctx, scale.Create, slowstart.Options{MaxParallel: l.MaxParallel}, func(ctx context.Context, i int) error {
		pod, err := scale.New(i)
		if err != nil {
			return err
		}
		return l.createOne(ctx, key, pod)
	})
	l.Pending.Lower(key, expectations.Changes{Creating: slowstart.Rest(run, scale.Names)})
	return run.Err
}

// createOne creates a pod. After an error it looks whether the pod is there all the
// same: answers get lost.
func (l *Loop) createOne(ctx context.Context, key expectations.Key, pod *corev1.Pod) error {
	err := l.Client.Create(ctx, pod)
	if err != nil {
		found, getErr := l.Client.Get(ctx, pod.Namespace, pod.Name)
		if getErr != nil {
			l.Landing.Add(key, expectations.Changes{Creating: []string{pod.Name}})
			return err
		}
		if ref := metav1.GetControllerOf(found); ref != nil && ref.UID == key.UID && status.IsPodActive(found) {
			err = nil
		}
	}
	l.Landing.CreationObserved(key, pod.Name) // it is there, or the name is taken: nothing can land
	return err
}

// delete deletes pods. They stay expected but for those that are certainly there.
func (l *Loop) delete(ctx context.Context, key expectations.Key, scale replicas.Scale) error {
	n := len(scale.Delete)
	if n == 0 {
		return nil
	}
	uids, there := make([]types.UID, n), make([]bool, n)
	for i, d := range scale.Delete {
		uids[i] = d.Object.UID
	}
	l.Pending.Add(key, expectations.Changes{Deleting: uids}) // BEFORE the first call
	run := slowstart.Run(ctx, n, slowstart.Options{InitialBatchSize: n, MaxParallel: l.MaxParallel}, func(ctx context.Context, i int) (err error) {
		there[i], err = l.deleteOne(ctx, scale.Delete[i])
		return err
	})
	var stay []types.UID
	for i, uid := range uids {
		if there[i] || i >= n-run.Skipped {
			stay = append(stay, uid)
		}
	}
	l.Pending.Lower(key, expectations.Changes{Deleting: stay})
	return run.Err
}

// deleteOne deletes a pod, and reports whether it is certainly there after an
// error. If a deletion may yet take effect, another pod must not go in its stead:
// that the record expires, or an event, will tell.
func (l *Loop) deleteOne(ctx context.Context, d replicas.Deletion[*corev1.Pod]) (there bool, err error) {
	if err = l.Client.Delete(ctx, d.Object, d.Options); err == nil {
		return false, nil
	}
	found, getErr := l.Client.Get(ctx, d.Object.Namespace, d.Object.Name)
	switch {
	case apierrors.IsNotFound(getErr):
		return false, nil
	case getErr != nil:
		return false, err
	case found.UID != d.Object.UID || found.DeletionTimestamp != nil:
		return false, nil
	}
	refused := apierrors.IsConflict(err) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
	return refused, err
}

// A loop written by hand, with Manage, a record of what was started, and a client of
// your own. Here the answer of the second creation is lost, and the cache is behind.
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
		Cached:      func(string) []*corev1.Pod { return cache },
		Now:         time.Now,
		Suffix:      func() string { return rand.String(5) },
		MaxParallel: 1,
	}
	sync := func(when string) {
		after, err := loop.Sync(context.Background(), rs)
		fmt.Printf("%s: %d pods, come back: %t, error: %v\n", when, len(server.pods), after > 0, err)
	}
	sync("at first")
	sync("before the cache has caught up")
	for _, pod := range server.pods {
		cache = append(cache, pod)
		loop.PodAdded(pod)
	}
	sync("after")
	// Output:
	// at first: 3 pods, come back: false, error: <nil>
	// before the cache has caught up: 3 pods, come back: true, error: <nil>
	// after: 3 pods, come back: false, error: <nil>
}

// A server is the API server's part in the example: it stores what is created.
type server struct {
	Client
	pods map[string]*corev1.Pod
	lost int // the creation whose answer is lost
}

func (s *server) Create(_ context.Context, pod *corev1.Pod) error {
	s.pods[pod.Name] = pod
	pod.UID = types.UID("uid-of-" + pod.Name)
	if len(s.pods) == s.lost {
		return errors.New("connection reset by peer")
	}
	return nil
}

func (s *server) Get(_ context.Context, _, name string) (*corev1.Pod, error) {
	if pod, ok := s.pods[name]; ok {
		return pod, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
}
