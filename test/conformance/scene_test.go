// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/replicaset"

	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// A scene contains the objects that the caches hold when a pass begins, and the answers of the API server during
// the pass.
type scene struct {
	RS       *appsv1.ReplicaSet
	Siblings []*appsv1.ReplicaSet // ReplicaSets with the same owner, for example a Deployment
	Pods     []*corev1.Pod
	Burst    int
	Waiting  bool // whether expectations are unmet

	Patches, Deletes map[string]string // the answers to patches and deletions, by pod
	Creates          string            // the answer to creations, except the first FailFrom creations, which succeed
	FailFrom         int
	Fresh            string // the result of a live read of the owner
	Status           string // the answer to status writes, or "stale" if only the first write meets a Conflict
}

func (g *gen) scene() scene {
	c := scene{
		RS: g.report().RS, Burst: pick(g, 1, 2, 3, 500), Waiting: g.in(5),
		Patches: map[string]string{}, Deletes: map[string]string{},
		FailFrom: g.IntN(3), Fresh: "the owner",
	}
	rs := c.RS
	rs.Spec.MinReadySeconds = pick[int32](g, 0, 10, 3600)
	rs.Spec.Template.Labels = matching(rs.Spec.Selector)
	if g.in(8) {
		rs.DeletionTimestamp = new(metav1.NewTime(start))
	}
	if !g.in(3) {
		rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)}}
		for i := range g.IntN(3) {
			sibling := &appsv1.ReplicaSet{ObjectMeta: *rs.ObjectMeta.DeepCopy(), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), Selector: g.labelSelector()}}
			sibling.Name, sibling.UID = fmt.Sprintf("web-%d", i), types.UID(fmt.Sprintf("sibling-%d", i))
			sibling.Namespace = pick(g, "a", "a", "b")
			c.Siblings = append(c.Siblings, sibling)
		}
	}
	alike := g.in(3)
	for i := range g.IntN(10) {
		p := g.scenePod(c, i)
		if alike { // so that the later criteria decide
			p.Spec.NodeName, p.Status.Phase, p.Annotations = pick(g, "n1", "n2"), corev1.PodRunning, nil
			since := start.Add(-10*time.Hour + time.Duration(g.IntN(4))*time.Second)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(since)}}
		}
		c.Pods = append(c.Pods, p)
	}
	if g.in(3) {
		c.Creates = pick(g, "Forbidden", "quota", "Timeout", "Throttled", "internal", goingNamespace, goingNamespace)
	}
	if g.in(3) {
		for _, p := range c.Pods {
			// A Conflict is for the next pass, so it has tests of its own (W25).
			c.Deletes[p.Name] = pick(g, slices.DeleteFunc(slices.Clone(kindsOfAnswer), func(kind string) bool { return kind == "Conflict" })...)
		}
	}
	if g.in(5) {
		for _, p := range c.Pods {
			c.Patches[p.Name] = pick(g, kindsOfAnswer...)
		}
	}
	if g.in(8) {
		c.Fresh = pick(g, "an owner being deleted", "another owner", "NotFound", "Forbidden")
	}
	if g.in(6) {
		c.Status = pick(g, "stale", "stale", "Conflict", "Forbidden", "Timeout", "Throttled", "NotFound", "internal")
	}
	c.RS = merged(c.RS, []byte("{}")) // JSON cuts times to whole seconds, as in objects of an API server
	return c
}

// scenePod returns a pod that usually belongs to the ReplicaSet. The fields that affect rankings and statuses have
// random values.
func (g *gen) scenePod(c scene, i int) *corev1.Pod {
	p, child := g.rankedPod(start), g.child(i)
	p.ObjectMeta = child.ObjectMeta
	p.Labels = matching(c.RS.Spec.Selector) // even if the pod is in another namespace
	p.CreationTimestamp = metav1.NewTime(start.Add(-time.Duration(1) << (30 + g.IntN(25))))
	if g.in(4) {
		p.Labels = child.Labels
	}
	for i := range p.OwnerReferences { // references with the same UID have the same kind and name
		if ref := &p.OwnerReferences[i]; ref.UID == c.RS.UID {
			ref.Kind, ref.Name = replicaSetKind.Kind, c.RS.Name
		}
	}
	switch g.IntN(8) {
	case 0:
	case 1:
		p.OwnerReferences = nil
	case 2:
		if len(c.Siblings) > 0 {
			p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pick(g, c.Siblings...), replicaSetKind)}
		}
	default:
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c.RS, replicaSetKind)}
	}
	return p
}

// A server answers calls with the answers of its scene, and records the calls.
type server struct {
	scene   scene
	mu      sync.Mutex
	created int
	// The recorded calls. A patch is recorded as text, and a deletion as the name of the pod. A creation is
	// recorded as the pod, and a status write as the ReplicaSet.
	patches, deletes []string
	gone             []string                // the names of pods that were deleted, or for which a call met NotFound
	preconditions    []*metav1.Preconditions // the preconditions of the deletions
	creates          []*corev1.Pod           // the created pods, without the names that our controller gave them
	names, aliases   []string                // the names that our controller gave, and pairs of a name and its alias
	statuses         []*appsv1.ReplicaSet
	events           []string
	calls            map[string]int // how many reads, by verb and resource
	checks           int            // how many reads of the owner before the first status write, except the reads that are counted in s.looks
	deleting         bool           // whether reads of the owner are currently counted in s.looks
	looks            int            // how many reads of the owner just before creations and deletions, see onlyLooks
	missing          int            // how many pods were gone at the last list of pods
}

// A switchboard is a client that sends all calls to its current server. Many servers share one switchboard,
// because making a client takes longer than a pass.
type switchboard struct {
	*fake.Clientset
	server *server
}

func (b *switchboard) connect(c scene) *server {
	b.ClearActions() // the fake clientset keeps all actions until they are cleared
	b.server = &server{scene: c, calls: map[string]int{}}
	return b.server
}

func newSwitchboard() *switchboard {
	client := fake.NewClientset()
	b := &switchboard{Clientset: client}
	client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object, err := b.server.react(action)
		return true, object, err
	})
	return b
}

func (s *server) react(action clienttesting.Action) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		return s.create(a.Namespace, a.Object.(*corev1.Pod).DeepCopy())
	case clienttesting.PatchActionImpl:
		if a.Subresource == "status" {
			return s.patchStatus(a.Patch)
		}
		s.patches = append(s.patches, fmt.Sprintf("%s: %s %s", a.Name, a.PatchType, a.Patch))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name}}
		for _, p := range s.scene.Pods {
			if p.Name == a.Name {
				pod = p.DeepCopy()
			}
		}
		err := answer(s.scene.Patches[a.Name], a.Name)
		switch {
		case apierrors.IsNotFound(err):
			s.gone = append(s.gone, a.Name)
		case !isRelease(string(a.Patch)):
			ref := metav1.NewControllerRef(s.scene.RS, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
			pod.OwnerReferences = append(pod.OwnerReferences, *ref)
		}
		return pod, err
	case clienttesting.DeleteActionImpl:
		return nil, s.delete(a.Name, a.DeleteOptions.Preconditions)
	case clienttesting.ListActionImpl:
		s.calls["list "+a.Resource.Resource]++
		if a.Resource.Resource != "pods" {
			return &appsv1.ReplicaSetList{}, nil
		}
		s.missing = len(s.gone)
		return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: s.matching(a.Namespace, a.ListRestrictions.Labels)}, nil
	case clienttesting.UpdateActionImpl:
		rs := a.Object.(*appsv1.ReplicaSet)
		s.statuses = append(s.statuses, rs.DeepCopy())
		return rs, s.answerStatus(rs)
	case clienttesting.GetActionImpl:
		s.calls["get "+a.Resource.Resource]++
		if a.Resource.Resource == "pods" {
			return s.pod(a.Name)
		}
		if s.deleting {
			s.looks++
			return s.scene.RS.DeepCopy(), nil
		}
		if len(s.statuses) == 0 {
			s.checks++
		}
		return s.live()
	}
	return nil, fmt.Errorf("unexpected call: %v", action)
}

// patchStatus applies a patch of the status and records the resulting owner.
func (s *server) patchStatus(patch []byte) (*appsv1.ReplicaSet, error) {
	was := s.scene.RS
	if fresh, err := s.live(); err == nil && len(s.statuses) > 0 {
		was = fresh
	}
	rs := patchedStatus(was, patch)
	s.deleting = false
	s.statuses = append(s.statuses, rs.DeepCopy())
	return rs, s.answerStatus(rs)
}

// answerStatus returns the answer to a status write that is already recorded.
func (s *server) answerStatus(rs *appsv1.ReplicaSet) error {
	if s.scene.Status != "stale" {
		return answer(s.scene.Status, rs.Name)
	}
	if len(s.statuses) == 1 {
		return answer("Conflict", rs.Name)
	}
	return nil
}

// live returns the result of a live read of the owner.
func (s *server) live() (*appsv1.ReplicaSet, error) {
	fresh, err := claim{Family: family{Owner: &s.scene.RS.ObjectMeta}, Fresh: s.scene.Fresh}.live(&calls{})
	if err == nil {
		fresh.Spec, fresh.Status = *s.scene.RS.Spec.DeepCopy(), *s.scene.RS.Status.DeepCopy()
	}
	return fresh, err
}

// create answers a create call. Our controller sets the namespace and the name of the pod. Kubernetes leaves the
// namespace and the name empty. To make the recorded pods of both sides comparable, the server removes the name
// from the recorded pod. If the namespace of the pod is the namespace of the call, the server also removes the
// namespace.
func (s *server) create(namespace string, pod *corev1.Pod) (*corev1.Pod, error) {
	s.created++
	name := pod.GenerateName + strconv.Itoa(s.created)
	if pod.Name != "" {
		s.named(pod, name)
	}
	asked := pod.DeepCopy()
	asked.Name = ""
	if asked.Namespace == namespace {
		asked.Namespace = ""
	}
	s.creates = append(s.creates, asked)
	pod.Name, pod.UID = cmp.Or(pod.Name, name), types.UID("created-"+name)
	if s.created > s.scene.FailFrom {
		return pod, answer(s.scene.Creates, "")
	}
	return pod, nil
}

// delete answers a delete call. If the answer in the scene is "stale", the pod has changed since the caches saw
// it. A deletion with the resourceVersion of the caches then meets a Conflict. If the answer is "Conflict", every
// deletion of the pod meets a Conflict, as if a webhook refused the deletion.
func (s *server) delete(pod string, only *metav1.Preconditions) error {
	s.deleting = false
	s.deletes = append(s.deletes, pod)
	s.preconditions = append(s.preconditions, only)
	kind := s.scene.Deletes[pod]
	if kind == "stale" {
		kind = ""
		current, err := s.pod(pod)
		if err == nil && only != nil && only.ResourceVersion != nil && *only.ResourceVersion != current.ResourceVersion {
			kind = "Conflict"
		}
	}
	err := answer(kind, pod)
	if err == nil || apierrors.IsNotFound(err) {
		s.gone = append(s.gone, pod)
	}
	return err
}

// matching returns the pods that match the selector, in their current state. The result does not contain deleted
// pods. Pods that a patch adopted or released have their new owner references.
func (s *server) matching(namespace string, sel labels.Selector) (pods []corev1.Pod) {
	for _, cached := range s.scene.Pods {
		pod, err := s.pod(cached.Name)
		if err == nil && pod.Namespace == namespace && sel.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, *pod)
		}
	}
	return pods
}

func (s *server) pod(name string) (*corev1.Pod, error) {
	i := slices.IndexFunc(s.scene.Pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 || slices.Contains(s.gone, name) {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	pod := s.scene.Pods[i].DeepCopy()
	if s.scene.Deletes[name] == "stale" {
		pod.ResourceVersion += "1"
	}
	for _, patch := range s.patches {
		if !strings.HasPrefix(patch, name+": ") || answer(s.scene.Patches[name], name) != nil {
			continue
		}
		pod.OwnerReferences = nil
		if !strings.Contains(patch, `"$patch":"delete"`) {
			pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.scene.RS, replicaSetKind)}
		}
	}
	return pod, nil
}

// An outcome is what a pass left behind.
type outcome struct {
	*server
	err              error
	adds, dels       int           // how many creations and deletions are still expected
	again            time.Duration // the delay until the next pass, 0 if no pass is requested
	claimed, related []*corev1.Pod // theirPass sets the field related, but not the field claimed
	pass             setPass       // set only by ourPass
	returned         error         // the error that Sync returned, nil if the spec was refused, set only by ourPass
}

// theirPass makes one pass of Kubernetes' controller and returns its outcome. The functions in prepare can change
// the controller before the pass.
func (b *switchboard) theirPass(c scene, prepare ...func(*replicaset.ReplicaSetController)) outcome {
	ctx := quiet(context.Background())
	o := outcome{server: b.connect(c)}
	factory := informers.NewSharedInformerFactory(b, 0)
	sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
	recorder := record.NewFakeRecorder(1000)
	rsc := replicaset.NewBaseController(upstream.First(ctx), sets, pods, b, c.Burst, replicaSetKind, "", "",
		controller.RealPodControl{KubeClient: b, Recorder: recorder}, nil, features(false), upstream.NoConsistency())
	(*upstream.Queue(rsc)).ShutDown()
	queue := &delays{}
	*upstream.Queue(rsc) = queue
	for _, rs := range slices.Concat(c.Siblings, []*appsv1.ReplicaSet{c.RS}) {
		must(sets.Informer().GetIndexer().Add(rs))
	}
	for _, p := range c.Pods {
		must(pods.Informer().GetIndexer().Add(p))
	}
	exp := upstream.Expectations(rsc)
	if c.Waiting {
		must(exp.ExpectCreations(logr.Discard(), "a/web", 1))
	}
	for _, f := range prepare {
		f(rsc)
	}
	o.related, _ = upstream.RelatedPods(rsc, logr.Discard(), c.RS)
	o.err = upstream.Sync(rsc, ctx, "a/web")
	o.adds, o.dels, _ = theirCounts(exp, "a/web")
	o.again = queue.after
	close(recorder.Events)
	for event := range recorder.Events {
		o.events = append(o.events, event)
	}
	return o
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// delays is a queue that remembers the delay of the last call of AddAfter.
type delays struct {
	workqueue.TypedRateLimitingInterface[string]
	after time.Duration
}

func (d *delays) AddAfter(_ string, after time.Duration) { d.after = max(after, 1) } // 1 means at once, because 0 means no call
