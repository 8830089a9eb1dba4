// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/selector"
)

// pools returns a Kind that the library does not provide. The owners are Deployments, and the children are
// ConfigMaps. A ConfigMap with a value for the key "broken" must go.
func pools() controller.Kind[*appsv1.Deployment, *corev1.ConfigMap] {
	return controller.Kind[*appsv1.Deployment, *corev1.ConfigMap]{
		Owner: appsv1.SchemeGroupVersion.WithKind("Deployment"),
		Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		Spec: func(d *appsv1.Deployment) (replicas.Spec[*corev1.ConfigMap], error) {
			matching, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
			return replicas.Spec[*corev1.ConfigMap]{
				Replicas: *d.Spec.Replicas, Selector: matching,
				New: func(string) (*corev1.ConfigMap, error) {
					return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: d.Spec.Selector.MatchLabels}}, nil
				},
				Rules: replicas.Rules[*corev1.ConfigMap]{MustGo: func(c *corev1.ConfigMap) bool { return c.Data["broken"] != "" }},
			}, err
		},
		Status: func(d *appsv1.Deployment, o controller.Outcome[*corev1.ConfigMap]) error {
			d.Status.Replicas = o.Counts.Replicas
			return nil
		},
		StatusOf: func(d *appsv1.Deployment) any { return &d.Status },
	}
}

type podCalls = controller.Client[*appsv1.ReplicaSet, *corev1.Pod]

// A counting client counts creations.
type counting struct {
	podCalls
	made *atomic.Int32
}

func (c counting) Create(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	c.made.Add(1)
	return c.podCalls.Create(ctx, pod)
}

// eventList collects events.
type eventList struct {
	mu     sync.Mutex
	events []string
}

func (l *eventList) Event(owner metav1.Object, eventType, reason, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, strings.Join([]string{owner.GetName(), eventType, reason, message}, " "))
}

func (l *eventList) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

func TestAnyKind(t *testing.T) {
	t.Parallel()
	bubble(t, "a kind of one's own, out of typed clients and informers", func(t inBubble) {
		app := map[string]string{"app": "pool"}
		pool := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool", Generation: 1},
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: app}},
		}
		client := fake.NewClientset(pool, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "orphan", Labels: app}})
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(client, 0)
		owners, children := factory.Apps().V1().Deployments().Informer(), factory.Core().V1().ConfigMaps().Informer()
		var cached guard
		cached.watchAll(t, owners, children)
		kind, told, passes := pools(), &eventList{}, 0
		kind.Observe = func(_ context.Context, pass controller.Pass[*appsv1.Deployment, *corev1.ConfigMap]) {
			passes++
			assert.NoError(t, pass.Err)
		}
		c, err := clientgo.New(ctx, kind, typed.NewClient(client.AppsV1().Deployments, client.CoreV1().ConfigMaps), owners, children,
			clientgo.Options{Events: told})
		require.NoError(t, err)
		factory.Start(ctx.Done())
		go func() { _ = c.Run(ctx, 1) }()
		t.Cleanup(func() {
			cancel()
			factory.Shutdown()
			synctest.Wait()
			cached.check(t)
		})
		all := func() []corev1.ConfigMap {
			list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			for _, c := range list.Items {
				assert.True(t, metav1.IsControlledBy(&c, pool), c.Name)
				assert.Equal(t, "Deployment", c.OwnerReferences[0].Kind)
			}
			return list.Items
		}
		status := func() int32 {
			d, err := client.AppsV1().Deployments(namespace).Get(ctx, "pool", metav1.GetOptions{})
			require.NoError(t, err)
			return d.Status.Replicas
		}

		settle()
		require.Len(t, all(), 3)
		assert.EqualValues(t, 3, status())
		assert.Positive(t, passes)
		assert.Contains(t, told.all()[0], "pool Normal SuccessfulCreate Created configmap: pool-")
		assert.Len(t, told.all(), 2, "the orphan was adopted")

		broken := all()[0]
		broken.Data = map[string]string{"broken": "yes"}
		_, err = client.CoreV1().ConfigMaps(namespace).Update(ctx, &broken, metav1.UpdateOptions{})
		require.NoError(t, err)
		settle()
		require.Len(t, all(), 3, "replaced")
		for _, c := range all() {
			assert.NotEqual(t, broken.Name, c.Name)
		}

		pool.Spec.Replicas = new(int32(1))
		_, err = client.AppsV1().Deployments(namespace).Update(ctx, pool, metav1.UpdateOptions{})
		require.NoError(t, err)
		settle()
		assert.Len(t, all(), 1)
		assert.EqualValues(t, 1, status())
	})

	bubble(t, "its own client makes the calls", func(t inBubble) {
		b := newBench(replicaSet("web", 2))
		made := atomic.Int32{}
		b.kind.Client = func(client podCalls) podCalls { return counting{client, &made} }
		b.start(t)
		assert.Len(t, b.allPods(), 2)
		assert.EqualValues(t, 2, made.Load())
	})

	bubble(t, "A3 its events are recorded on the owner, which no scheme knows", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.opts.Component = "pools"
		b.kind.Owner.Group = "apps.example.com"
		b.start(t)
		events := b.recorded("SuccessfulCreate")
		require.Len(t, events, 1)
		assert.Equal(t, "pools", events[0].Source.Component)
		about := events[0].InvolvedObject
		assert.Equal(t, []string{"apps.example.com/v1", "ReplicaSet", namespace, "web", "uid-web"},
			[]string{about.APIVersion, about.Kind, about.Namespace, about.Name, string(about.UID)})
	})
}

// sameAnswers is a client that the controller never calls, because New returns an error first.
type sameAnswers[O, C controller.Object] struct{ controller.Client[O, C] }

// noClient has the type of a client, but its methods do not work.
type noClient struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	type args struct {
		kind             controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
		client           controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
		owners, children bool
		opts             clientgo.Options
	}
	for want, spoil := range map[string]func(*args){
		"clientgo: client is nil":                                                  func(a *args) { a.client = nil },
		"clientgo: client is a nil *clientgo_test.noClient":                        func(a *args) { a.client = (*noClient)(nil) },
		"clientgo: the informer of owners is nil":                                  func(a *args) { a.owners = false },
		"clientgo: the informer of children is nil":                                func(a *args) { a.children = false },
		"clientgo: burst replicas -1 is negative":                                  func(a *args) { a.opts.BurstReplicas = -1 },
		"clientgo: ReplicaSet controller: controller: kind ReplicaSet has no Spec": func(a *args) { a.kind.Spec = nil },
		`clientgo: controller: kind: Owner "/, Kind=" is incomplete`:               func(a *args) { a.kind = controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]{} },
		"clientgo: ReplicaSet controller: controller: ExpectationsTimeout -1ns is negative": func(a *args) {
			a.opts.ExpectationsTimeout = -1
		},
	} {
		bubble(t, want, func(t inBubble) {
			b := newBench()
			a := args{kind: b.kind, client: typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().Pods), owners: true, children: true}
			spoil(&a)
			owners, children := b.replicaSets, b.pods
			if !a.owners {
				owners = nil
			}
			if !a.children {
				children = nil
			}
			_, err := clientgo.New(b.ctx, a.kind, a.client, owners, children, a.opts)
			require.EqualError(t, err, want)
			assert.Len(t, b.pods.GetIndexer().GetIndexers(), 1, "nothing was added")
		})
	}

	bubble(t, "types that are no pointers", func(t inBubble) {
		b := newBench()
		kind := controller.Kind[controller.Object, *corev1.Pod]{
			Owner: b.kind.Owner, Child: b.kind.Child,
			Spec: func(controller.Object) (replicas.SpecOfPods, error) { return replicas.SpecOfPods{}, nil },
		}
		_, err := clientgo.New(b.ctx, kind, sameAnswers[controller.Object, *corev1.Pod]{}, b.replicaSets, b.pods, b.opts)
		require.EqualError(t, err, "clientgo: ReplicaSet controller: typed: owners: controller.Object is no pointer type")
	})

	bubble(t, "informers that were swapped: an error for each owner, and nothing is done", func(t inBubble) {
		b := newBench(replicaSet("web", 1), pod("web-1", "web", "n"))
		c, err := clientgo.New(b.ctx, b.kind, typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().Pods), b.pods, b.replicaSets, b.opts)
		require.NoError(t, err)
		b.run(t, c)
		settle()
		assert.NotEmpty(t, b.errors())
		for _, message := range b.errors() {
			assert.Contains(t, message, "want *")
		}
		assert.Zero(t, b.count("create pods")+b.count("delete pods")+b.count("patch pods"))
	})
}

func TestReadyMadeControllersRefuse(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, sets, rcs := factory.Core().V1().Pods(), factory.Apps().V1().ReplicaSets(), factory.Core().V1().ReplicationControllers()
	ctx := t.Context()
	for want, c := range map[string]func() (*clientgo.Controller, error){
		"clientgo: the informer of owners is nil": func() (*clientgo.Controller, error) {
			return clientgo.NewReplicaSetController(ctx, nil, pods, client, 0)
		},
		"clientgo: the informer of children is nil": func() (*clientgo.Controller, error) { return clientgo.NewReplicationManager(ctx, nil, rcs, client, 0) },
		"clientgo: client is nil":                   func() (*clientgo.Controller, error) { return clientgo.NewReplicaSetController(ctx, sets, pods, nil, 0) },
		"clientgo: client is a nil *fake.Clientset": func() (*clientgo.Controller, error) {
			return clientgo.NewReplicationManager(ctx, pods, rcs, (*fake.Clientset)(nil), 0)
		},
	} {
		_, err := c()
		require.EqualError(t, err, want)
	}
	for _, c := range []*clientgo.Controller{nil, {}} {
		_ = c.Run(ctx, 1) // Run returns an error and does not panic
	}
}

// countingClient records each patch, and passes all calls on to Client.
type countingClient struct {
	controller.Client[*appsv1.ReplicaSet, *corev1.Pod]
	patches []selector.Patch
}

func (c *countingClient) Patch(ctx context.Context, child *corev1.Pod, patch selector.Patch, opts metav1.PatchOptions) (*corev1.Pod, error) {
	c.patches = append(c.patches, patch)
	return c.Client.Patch(ctx, child, patch, opts)
}

func TestAnyClient(t *testing.T) {
	t.Parallel()
	bubble(t, "a client may be of one's own", func(t inBubble) {
		b := newBench(replicaSet("web", 1), pod("orphan", "web", "n"))
		client := &countingClient{Client: typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().Pods)}
		c, err := clientgo.New(b.ctx, b.kind, client, b.replicaSets, b.pods, b.opts)
		require.NoError(t, err)
		b.run(t, c)
		settle()
		assert.Len(t, client.patches, 1)
	})
}

// settles returns a Kind that is like pools, but a child is available only after it has been ready for ten
// seconds. The data of a ConfigMap contains the time at which the ConfigMap became ready. The status contains only
// the number of available children.
func settles() controller.Kind[*appsv1.Deployment, *corev1.ConfigMap] {
	kind := pools()
	spec := kind.Spec
	since := func(c *corev1.ConfigMap) (at time.Time) {
		_ = at.UnmarshalText([]byte(c.Data["since"]))
		return at
	}
	kind.Spec = func(d *appsv1.Deployment) (replicas.Spec[*corev1.ConfigMap], error) {
		s, err := spec(d)
		s.MinReadySeconds = 10
		s.Rules = replicas.Rules[*corev1.ConfigMap]{Ready: func(c *corev1.ConfigMap) bool { return !since(c).IsZero() }}
		return s, err
	}
	kind.Status = func(d *appsv1.Deployment, o controller.Outcome[*corev1.ConfigMap]) error {
		d.Status.AvailableReplicas = 0
		for _, c := range o.Active {
			if at := since(c); !at.IsZero() && o.Now.Sub(at) >= 10*time.Second {
				d.Status.AvailableReplicas++
			}
		}
		return nil
	}
	return kind
}

func TestAvailabilityOfAnyKind(t *testing.T) {
	t.Parallel()
	bubble(t, "M1 M5 each child that becomes ready is looked at when it is available", func(t inBubble) {
		app := map[string]string{"app": "pool"}
		pool := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool", Generation: 1},
			Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: app}},
		}
		client := fake.NewClientset(pool)
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(client, 0)
		owners, children := factory.Apps().V1().Deployments().Informer(), factory.Core().V1().ConfigMaps().Informer()
		c, err := clientgo.New(ctx, settles(), typed.NewClient(client.AppsV1().Deployments, client.CoreV1().ConfigMaps), owners, children, clientgo.Options{})
		require.NoError(t, err)
		factory.Start(ctx.Done())
		go func() { _ = c.Run(ctx, 1) }()
		t.Cleanup(func() {
			cancel()
			factory.Shutdown()
			synctest.Wait()
		})
		settle()
		list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, list.Items, 2)
		becomesReady := func(i int) {
			at, err := time.Now().MarshalText()
			require.NoError(t, err)
			list.Items[i].Data = map[string]string{"since": string(at)}
			_, err = client.CoreV1().ConfigMaps(namespace).Update(ctx, &list.Items[i], metav1.UpdateOptions{})
			require.NoError(t, err)
		}
		available := func() int32 {
			d, err := client.AppsV1().Deployments(namespace).Get(ctx, "pool", metav1.GetOptions{})
			require.NoError(t, err)
			return d.Status.AvailableReplicas
		}
		becomesReady(0)
		after(5 * time.Second)
		becomesReady(1)
		after(5*time.Second - time.Millisecond)
		assert.EqualValues(t, 0, available())
		after(time.Second)
		assert.EqualValues(t, 1, available(), "after 10 s")
		after(5 * time.Second)
		assert.EqualValues(t, 2, available(), "after 15 s")
	})
}
