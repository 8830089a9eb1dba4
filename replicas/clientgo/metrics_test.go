// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/workqueue"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
)

// skips returns how many syncs were postponed because the cache of a resource was stale.
func (b *bench) skips(group, resource string) int {
	families, err := b.registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if family.GetName() != "replicaset_controller_stale_sync_skips_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == group && m.GetLabel()[1].GetValue() == resource {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// ageRatios returns the histogram of age ratios. The map buckets contains the cumulative count for each upper
// bound. The result count is the number of ratios, and sum is their sum.
func (b *bench) ageRatios(t inBubble) (buckets map[float64]uint64, count uint64, sum float64) {
	t.Helper()
	families, err := b.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "replicaset_controller_sorting_deletion_age_ratio" {
			histogram := family.GetMetric()[0].GetHistogram()
			buckets = map[float64]uint64{}
			for _, bucket := range histogram.GetBucket() {
				buckets[bucket.GetUpperBound()] = bucket.GetCumulativeCount()
			}
			return buckets, histogram.GetSampleCount(), histogram.GetSampleSum()
		}
	}
	require.Fail(t, "no such metric")
	return nil, 0, 0
}

func TestAgeRatio(t *testing.T) {
	t.Parallel()

	age := func(d time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(time.Now().Add(-d)) }
	}
	first := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "-1"} }
	notReady := func(p *corev1.Pod) { p.Status.Conditions = nil }

	for _, test := range []struct {
		name     string
		replicas int32
		pods     func(owner metav1.Object) []object
		want     []float64
	}{
		{
			name: "N1 N2 W1 the ratio is a real one", replicas: 2,
			pods: func(o metav1.Object) []object {
				return []object{
					pod("a", "web", "n1", ownedBy(o), age(100*time.Minute)),
					pod("b", "web", "n1", ownedBy(o), age(150*time.Minute), first),
					pod("c", "web", "n1", ownedBy(o), age(200*time.Minute)),
				}
			},
			want: []float64{1.5},
		},
		{
			name: "N2 the youngest of the ready pods counts, and only ready victims do", replicas: 1,
			pods: func(o metav1.Object) []object {
				return []object{
					pod("a", "web", "n1", ownedBy(o), age(time.Minute), notReady),
					pod("b", "web", "n1", ownedBy(o), age(300*time.Minute), first),
					pod("c", "web", "n1", ownedBy(o), age(100*time.Minute)),
				}
			},
			want: []float64{3},
		},
		{
			name: "N2 nothing is observed where all pods go", replicas: 0,
			pods: func(o metav1.Object) []object {
				return []object{
					pod("a", "web", "n1", ownedBy(o), age(time.Minute)),
					pod("b", "web", "n1", ownedBy(o), age(time.Hour)),
				}
			},
		},
		{
			name: "W1 a youngest pod of no age divides nothing", replicas: 1,
			pods: func(o metav1.Object) []object {
				return []object{
					pod("a", "web", "n1", ownedBy(o), age(-200*time.Millisecond)), // created at about the time of the pass
					pod("b", "web", "n1", ownedBy(o), age(-time.Hour)),
				}
			},
		},
		{
			name: "N2 nothing is observed where no pod is ready", replicas: 1,
			pods: func(o metav1.Object) []object {
				return []object{
					pod("a", "web", "n1", ownedBy(o), notReady),
					pod("b", "web", "n1", ownedBy(o), notReady),
				}
			},
		},
	} {
		bubble(t, test.name, func(t inBubble) {
			web := replicaSet("web", test.replicas)
			b := newBench(append(test.pods(web), web)...)
			b.start(t)
			assert.Len(t, b.allPods(), int(test.replicas))
			_, count, sum := b.ageRatios(t)
			assert.Len(t, test.want, int(count))
			for _, ratio := range test.want {
				sum -= ratio
			}
			assert.InDelta(t, 0, sum, 0.01)
		})
	}

	bubble(t, "N1 N4 ReplicationControllers observe into the same histogram, of upstream's buckets", func(t inBubble) {
		web, old := replicaSet("web", 1), replicationController("old", 1)
		b := newBench(web, old,
			pod("a", "web", "n1", ownedBy(web)), pod("b", "web", "n1", ownedBy(web)),
			pod("c", "old", "n1", ownedBy(old)), pod("d", "old", "n1", ownedBy(old)))
		ofReplicaSets, err := b.newReplicaSetController()
		require.NoError(t, err)
		ofReplicationControllers, err := b.newReplicationManager()
		require.NoError(t, err, "W56: registered twice")
		b.run(t, ofReplicaSets, ofReplicationControllers)
		settle()
		buckets, count, _ := b.ageRatios(t)
		assert.Equal(t, uint64(2), count)
		assert.Equal(t, map[float64]uint64{0.25: 0, 0.5: 0, 1: 2, 2: 2, 4: 2, 8: 2}, buckets)
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()

	bubble(t, "W56 what somebody else registered under the name is an error", func(t inBubble) {
		b := newBench()
		b.registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "replicaset_controller_sorting_deletion_age_ratio"}))
		_, err := b.newReplicaSetController()
		require.ErrorContains(t, err, "clientgo: ReplicaSet controller: ")
	})

	bubble(t, "the second of two Kinds of one owner needs a name", func(t inBubble) {
		b := newBench()
		first, err := b.newReplicaSetController()
		require.NoError(t, err)
		kind := controller.Kind[*appsv1.ReplicaSet, *corev1.ConfigMap]{
			Owner: b.kind.Owner, Child: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			Spec: func(*appsv1.ReplicaSet) (replicas.Spec[*corev1.ConfigMap], error) {
				return replicas.Spec[*corev1.ConfigMap]{}, nil
			},
		}
		informer := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1().ConfigMaps().Informer()
		_, err = clientgo.New(b.ctx, kind, typed.NewClient(b.AppsV1().ReplicaSets, b.CoreV1().ConfigMaps), b.replicaSets, informer, b.opts)
		require.ErrorContains(t, err, `clientgo: ReplicaSet controller: another controller has the name "replicaset": set Options.Name: `)
		b.run(t, first)
	})

	bubble(t, "N3 without a registerer the controller works all the same", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.opts.MetricsRegisterer = nil
		b.start(t)
		assert.Len(t, b.allPods(), 1)
	})

	bubble(t, "N5 the work queues' metrics have upstream's names", func(t inBubble) {
		b := newBench(replicaSet("web", 1), replicationController("web", 1))
		queues := &queueMetrics{added: map[string]int{}}
		b.opts.QueueMetrics = queues
		ofReplicaSets, err := b.newReplicaSetController()
		require.NoError(t, err)
		ofReplicationControllers, err := b.newReplicationManager()
		require.NoError(t, err)
		b.run(t, ofReplicaSets, ofReplicationControllers)
		settle()
		queues.mu.Lock()
		defer queues.mu.Unlock()
		assert.Len(t, queues.added, 2)
		assert.Positive(t, queues.added["replicaset"])
		assert.Positive(t, queues.added["replicationmanager"])
	})
}

// queueMetrics counts what is added to each queue.
type queueMetrics struct {
	mu    sync.Mutex
	added map[string]int
}

type counter func()

func (c counter) Inc() { c() }

type ignored struct{}

func (ignored) Inc()            {}
func (ignored) Dec()            {}
func (ignored) Set(float64)     {}
func (ignored) Observe(float64) {}

func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return counter(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.added[name]++
	})
}

func (*queueMetrics) NewRetriesMetric(string) workqueue.CounterMetric        { return ignored{} }
func (*queueMetrics) NewDepthMetric(string) workqueue.GaugeMetric            { return ignored{} }
func (*queueMetrics) NewLatencyMetric(string) workqueue.HistogramMetric      { return ignored{} }
func (*queueMetrics) NewWorkDurationMetric(string) workqueue.HistogramMetric { return ignored{} }
func (*queueMetrics) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ignored{}
}

func (*queueMetrics) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return ignored{}
}
