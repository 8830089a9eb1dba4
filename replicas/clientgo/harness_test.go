// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

const namespace = "default"

// TestMain removes the error handler that sleeps if errors are frequent. The removed handler compares the current
// time with the time of the previous error in the process. The previous error may have occurred in another
// synctest bubble, and each bubble has its own clock.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// A bench holds a server, informers of that server, and the log and metrics of a controller. Set up the server
// before you call start.
type bench struct {
	*server
	pods, replicaSets, replicationControllers cache.SharedIndexInformer
	opts                                      clientgo.Options
	kind                                      controller.Kind[*appsv1.ReplicaSet, *corev1.Pod]
	registry                                  *prometheus.Registry
	workers                                   int
	ctx                                       context.Context
	cancel                                    context.CancelFunc
	log                                       ktesting.Buffer
	returned                                  atomic.Int32 // how many calls of Run have returned
	ended                                     atomic.Pointer[error]
	isRestored                                bool // whether the test restores the server from a backup
}

// newBench must be called in a bubble, where time is virtual.
func newBench(objects ...object) *bench {
	b := &bench{server: newServer(objects...), registry: prometheus.NewRegistry()}
	b.pods, b.replicaSets = b.informer(pods), b.informer(replicaSets)
	b.replicationControllers = b.informer(replicationControllers)
	b.opts.MetricsRegisterer, b.opts.EventClient = b.registry, b.CoreV1()
	b.kind = controller.ReplicaSets()
	b.verbosity(4)
	return b
}

// verbosity starts a new log with the given level.
func (b *bench) verbosity(level int) {
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(level)))
	b.log = logger.GetSink().(ktesting.Underlier).GetBuffer()
	b.ctx, b.cancel = context.WithCancel(klog.NewContext(context.Background(), logger))
}

func (b *bench) newReplicaSetController() (*clientgo.Controller, error) {
	return clientgo.New(b.ctx, b.kind, typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().Pods), b.replicaSets, b.pods, b.opts)
}

func (b *bench) newReplicationManager() (*clientgo.Controller, error) {
	return clientgo.New(b.ctx, controller.ReplicationControllers(), typed.NewClient(b.CoreV1().ReplicationControllers, b.CoreV1().Pods),
		b.replicationControllers, b.pods, b.opts)
}

// start starts a ReplicaSet controller, and then calls settle. The controller runs until the test ends.
func (b *bench) start(t inBubble) *clientgo.Controller {
	t.Helper()
	controller, err := b.newReplicaSetController()
	require.NoError(t, err)
	b.run(t, controller)
	settle()
	return controller
}

// startReplicationManager starts a controller of ReplicationControllers.
func (b *bench) startReplicationManager(t inBubble) *clientgo.Controller {
	t.Helper()
	controller, err := b.newReplicationManager()
	require.NoError(t, err)
	b.run(t, controller)
	settle()
	return controller
}

// run runs the informers and the controllers. At the end of the test, run stops all of them.
func (b *bench) run(t inBubble, controllers ...*clientgo.Controller) {
	t.Helper()
	for _, informer := range []cache.SharedIndexInformer{b.pods, b.replicaSets, b.replicationControllers} {
		go informer.RunWithContext(b.ctx)
	}
	for _, c := range controllers {
		go func() {
			err := c.Run(b.ctx, b.workers)
			if !b.isRestored {
				assert.NotErrorIs(t, err, controller.ErrRestored)
			}
			b.ended.Store(&err)
			b.returned.Add(1)
		}()
	}
	t.Cleanup(func() {
		b.cancel()
		synctest.Wait()
		b.guard.check(t)
	})
}

// settle waits for a second of virtual time, and then until all goroutines of the bubble are idle.
func settle() { after(time.Second) }

// after waits for the virtual time d, and then until all goroutines of the bubble are idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inBubble is a test in virtual time. The virtual clock starts at midnight on 2000-01-01.
type inBubble struct{ *testing.T }

func bubble(t *testing.T, name string, test func(inBubble)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			test(inBubble{t})
		})
	})
}

func replicaSet(name string, replicas int32, changes ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name), Generation: 1},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: template(name),
		},
	}
	for _, change := range changes {
		change(rs)
	}
	return rs
}

func replicationController(name string, replicas int32) *corev1.ReplicationController {
	podTemplate := template(name)
	return &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-rc-" + name), Generation: 1},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: &replicas,
			Selector: map[string]string{"app": name},
			Template: &podTemplate,
		},
	}
}

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example/web:1"}}},
	}
}

// pod returns a pod with the label of an app. The pod has been ready on the node for an hour.
func pod(name, app, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         namespace,
			Name:              name,
			UID:               types.UID("uid-" + name),
			Labels:            map[string]string{"app": app},
			CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Hour)),
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{readySince(time.Now().Add(-time.Hour))},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func readySince(at time.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)}
}

func ownedBy(owner metav1.Object) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		kind := appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
		if _, ok := owner.(*corev1.ReplicationController); ok {
			kind = corev1.SchemeGroupVersion.WithKind("ReplicationController")
		}
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}
	}
}

// scale changes spec.replicas of an owner.
func (b *bench) scale(owner object, replicas int32) {
	b.change(owner, func(obj object) {
		obj.SetGeneration(obj.GetGeneration() + 1)
		switch obj := obj.(type) {
		case *appsv1.ReplicaSet:
			obj.Spec.Replicas = &replicas
		case *corev1.ReplicationController:
			obj.Spec.Replicas = &replicas
		}
	})
}
