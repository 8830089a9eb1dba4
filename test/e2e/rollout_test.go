// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/status"
)

// A rollingStory describes a fleet and the changes of its image.
type rollingStory struct {
	name               string
	replicas           int
	unavailable, surge intstr.IntOrString
	// Each step sets the image and the number of replicas. A step is made when at least step.after pods with the
	// previous image are ready.
	steps []rollingStep
	lost  int // how many old pods become unready when the rollout begins, as if a node was lost
}

type rollingStep struct {
	image    string
	replicas int
	after    int
}

// bounds returns the number of pods that must always be available, and the largest number of pods at once. If the
// number of lost pods is larger than the allowed number of unavailable pods, only the pods that are not lost must
// be available.
func (s rollingStory) bounds() (least, most int) {
	unavailable, _ := intstr.GetScaledValueFromIntOrPercent(&s.unavailable, s.replicas, false)
	surge, _ := intstr.GetScaledValueFromIntOrPercent(&s.surge, s.replicas, true)
	return s.replicas - max(unavailable, s.lost), s.replicas + surge
}

// A fleet is one side of the comparison. Kubernetes' side is a Deployment with Kubernetes' own controllers. Our
// side is a pool with MaxUnavailable and MaxSurge, which owns its pods directly.
type fleet interface {
	create(t *testing.T, s rollingStory)
	set(t *testing.T, image string, replicas int)
}

// Kubernetes' Deployment controller and a Kind with MaxUnavailable and MaxSurge make the same rollouts on a real
// server. If our controller has fewer available pods than Kubernetes' controller, our controller still has as many as
// the story requires. If our controller has more pods at once than Kubernetes' controller, our controller still has no
// more than the story allows. When our controller has created the first pod with the last image, it creates no pod
// with another image. If the fleet lacks n pods with the last image, our controller creates at most n pods with this
// image.
func TestRolloutsBesideADeployment(t *testing.T) {
	t.Parallel()
	own, err := startCluster(20 * time.Second)
	require.NoError(t, err)
	t.Cleanup(own.stop)
	newWorldWith(t, settings{cluster: own, idle: true}).startDeploymentController()
	n, percent := intstr.FromInt32, intstr.FromString
	for _, s := range []rollingStory{
		{name: "three unavailable", replicas: 12, unavailable: n(3), steps: []rollingStep{{"two", 12, 0}}},
		{name: "three more", replicas: 12, surge: n(3), steps: []rollingStep{{"two", 12, 0}}},
		{name: "a quarter of both", replicas: 12, unavailable: percent("25%"), surge: percent("25%"), steps: []rollingStep{{"two", 12, 0}}},
		{name: "another image in the middle", replicas: 12, unavailable: n(2), surge: n(2), steps: []rollingStep{{"two", 12, 0}, {"three", 12, 5}}},
		{name: "back in the middle", replicas: 12, unavailable: n(2), surge: n(2), steps: []rollingStep{{"two", 12, 0}, {"one", 12, 5}}},
		{name: "a node is lost", replicas: 12, unavailable: n(3), surge: n(1), lost: 4, steps: []rollingStep{{"two", 12, 0}}},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			sides := map[string]*rollingResult{}
			var both sync.WaitGroup
			for name, side := range map[string]func(*world) fleet{"theirs": newDeployment, "ours": newPool} {
				w := newWorldWith(t, settings{cluster: own, idle: true})
				r := &rollingResult{}
				sides[name] = r
				both.Go(func() { r.play(w, side(w), s) })
			}
			both.Wait()
			ours, theirs := sides["ours"], sides["theirs"]
			t.Logf("ours %v, theirs %v", ours, theirs)
			least, most := s.bounds() // by chance, one side may come closer to the bounds than the other side
			assert.GreaterOrEqual(t, ours.fewest, min(theirs.fewest, least), "available at each moment")
			assert.LessOrEqual(t, ours.most, max(theirs.most, most), "at once")
			image := s.steps[len(s.steps)-1].image
			first := slices.Index(ours.made, image)
			assert.Subset(t, []string{image}, ours.made[first:], "images, from the first pod of the last one")
			lacked := s.replicas
			if image == "one" { // at most one pod with the image "one" is missing for each new pod with the image "two" and for each pod that may be unavailable
				lacked = first + s.unavailable.IntValue()
			}
			assert.LessOrEqual(t, len(ours.made[first:]), lacked, "pods made of the last image")
		})
	}
}

// A rollingResult records a rollout. It follows the server's events about the pods, in the order of the events.
type rollingResult struct {
	mu           sync.Mutex
	pods         map[types.UID]*corev1.Pod
	began        bool // whether the rollout has begun
	fewest, most int
	made         []string // the images of the created pods, in the order of creation
	took         time.Duration
}

func (r *rollingResult) String() string {
	return fmt.Sprintf("%d to %d at once, %d made, %v", r.fewest, r.most, len(r.made), r.took.Round(100*time.Millisecond))
}

// play plays the story with the fleet, and records the result. Each pod becomes ready a short while after its
// creation, as with a kubelet.
func (r *rollingResult) play(w *world, f fleet, s rollingStory) {
	r.pods = map[types.UID]*corev1.Pod{}
	informer := w.seen.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			pod, _ := obj.(*corev1.Pod)
			r.sees(pod, false)
			time.AfterFunc(300*time.Millisecond+time.Duration(r.count()%5)*50*time.Millisecond, func() { w.makeReady(pod) })
		},
		UpdateFunc: func(_, cur any) { r.sees(cur.(*corev1.Pod), false) },
		DeleteFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				r.sees(pod, true)
			}
		},
	})
	require.NoError(w.t, err)
	f.create(w.t, s)
	w.eventually(func(c *assert.CollectT) { assert.Equal(c, s.replicas, r.ready("one")) }, "the fleet is there")
	r.mu.Lock()
	r.began, r.fewest, r.most, r.made = true, len(r.pods), len(r.pods), nil
	r.mu.Unlock()
	began := time.Now()
	for _, pod := range r.some(s.lost) {
		w.setStatus(pod, func(status *corev1.PodStatus) { status.Conditions[0].Status = corev1.ConditionFalse })
	}
	before := "one"
	for _, step := range s.steps {
		w.eventually(func(c *assert.CollectT) { assert.GreaterOrEqual(c, r.ready(before), step.after) }, "%d of %s are ready", step.after, before)
		f.set(w.t, step.image, step.replicas)
		before = step.image
	}
	last := s.steps[len(s.steps)-1]
	w.eventually(func(c *assert.CollectT) {
		assert.Equal(c, last.replicas, r.ready(last.image))
		assert.Equal(c, last.replicas, r.count())
	}, "the rollout ends")
	r.took = time.Since(began)
}

func (r *rollingResult) sees(pod *corev1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pods[pod.UID] == nil && !gone && pod.DeletionTimestamp == nil {
		r.made = append(r.made, pod.Spec.Containers[0].Image)
	}
	r.pods[pod.UID] = pod
	if gone || pod.DeletionTimestamp != nil {
		delete(r.pods, pod.UID)
	}
	ready := 0
	for _, p := range r.pods {
		if status.IsPodReady(p) {
			ready++
		}
	}
	if r.began {
		r.fewest, r.most = min(r.fewest, ready), max(r.most, len(r.pods))
	}
}

func (r *rollingResult) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods)
}

// ready counts the pods of an image that are ready.
func (r *rollingResult) ready(image string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		if p.Spec.Containers[0].Image == image && status.IsPodReady(p) {
			n++
		}
	}
	return n
}

// some returns the names of the first n pods, sorted by name.
func (r *rollingResult) some(n int) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names[:n]
}

// makeReady makes the pod ready, as a kubelet does. It ignores errors, because the pod may be gone.
func (w *world) makeReady(pod *corev1.Pod) {
	patch := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"` + time.Now().UTC().Format(time.RFC3339) + `"}]}}`
	_, _ = w.client.CoreV1().Pods(w.namespace).Patch(context.Background(), pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
}

// imageOf returns a template with the image.
func imageOf(image string) corev1.PodTemplateSpec {
	of := template(labels("web"))
	of.Spec.Containers[0].Image = image
	return of
}

// A deployment is a fleet that Kubernetes' own Deployment and ReplicaSet controllers manage.
type deployment struct{ *world }

func newDeployment(w *world) fleet {
	w.settings.theirs = true
	w.start()
	return deployment{w}
}

func (d deployment) create(t *testing.T, s rollingStory) {
	t.Helper()
	replicas := int32(s.replicas)
	_, err := d.client.AppsV1().Deployments(d.namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels("web")}, Template: imageOf("one"),
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &s.unavailable, MaxSurge: &s.surge},
			},
		},
	}, metav1.CreateOptions{})
	assert.NoError(t, err)
}

func (d deployment) set(t *testing.T, image string, replicas int) {
	t.Helper()
	d.patchDeployment(fmt.Sprintf(`{"spec":{"replicas":%d,"template":{"spec":{"containers":[{"name":%q,"image":%q}]}}}}`, replicas, imageOf("").Spec.Containers[0].Name, image))
}

// A pool is a fleet that consists of a ReplicationController. If the image in its template changes, our controller
// replaces the pods that have another image.
type pool struct{ *world }

func newPool(w *world) fleet { return pool{w} }

func (p pool) create(t *testing.T, s rollingStory) {
	t.Helper()
	kind := controller.ReplicationControllers()
	inner := kind.Spec
	kind.Spec = func(rc *corev1.ReplicationController) (replicas.SpecOfPods, error) {
		spec, err := inner(rc)
		spec.MaxUnavailable, spec.MaxSurge = &s.unavailable, &s.surge
		spec.Rules.MustGo = func(pod *corev1.Pod) bool {
			return pod.Spec.Containers[0].Image != rc.Spec.Template.Spec.Containers[0].Image
		}
		return spec, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	client, err := kubernetes.NewForConfig(rest.CopyConfig(p.cluster.config))
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(p.namespace))
	c, err := clientgo.New(ctx, kind, typed.NewClient(client.CoreV1().ReplicationControllers, client.CoreV1().Pods),
		factory.Core().V1().ReplicationControllers().Informer(), factory.Core().V1().Pods().Informer(), clientgo.Options{})
	require.NoError(t, err)
	factory.StartWithContext(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Run(ctx, 0)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		factory.Shutdown()
	})
	number, of := int32(s.replicas), imageOf("one")
	_, err = p.client.CoreV1().ReplicationControllers(p.namespace).Create(t.Context(), &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       corev1.ReplicationControllerSpec{Replicas: &number, Selector: labels("web"), Template: &of},
	}, metav1.CreateOptions{})
	assert.NoError(t, err)
}

func (p pool) set(t *testing.T, image string, replicas int) {
	t.Helper()
	patch := `{"spec":{"replicas":` + strconv.Itoa(replicas) + `,"template":{"spec":{"containers":[{"name":"` + imageOf("").Spec.Containers[0].Name + `","image":"` + image + `"}]}}}}`
	_, err := p.client.CoreV1().ReplicationControllers(p.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	assert.NoError(t, err)
}
