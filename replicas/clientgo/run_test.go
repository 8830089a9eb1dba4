// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/replicakit/replicakit/replicas/clientgo"
	"github.com/replicakit/replicakit/replicas/controller"
)

// A gate makes the writes of pods wait until the gate's channel is closed.
type gate struct {
	mu      sync.Mutex
	waiting []string // the pod's label "app", for each write that has reached the gate; "" for patches and deletions
	opened  chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

func (g *gate) onPod(_ string, pod *corev1.Pod) error {
	g.mu.Lock()
	g.waiting = append(g.waiting, pod.Labels["app"])
	g.mu.Unlock()
	<-g.opened
	return nil
}

func (g *gate) owners() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.waiting)
}

func TestRun(t *testing.T) {
	t.Parallel()

	bubble(t, "Z5 no worker starts while a cache is empty, nor when that never ends", func(t inBubble) {
		b := newBench(replicaSet("web", 3))
		controller, err := b.newReplicaSetController()
		require.NoError(t, err)
		go b.replicaSets.RunWithContext(b.ctx)
		go func() {
			_ = controller.Run(b.ctx, 0)
			b.returned.Add(1)
		}()
		after(time.Hour)
		assert.Empty(t, b.allPods())
		assert.Zero(t, b.returned.Load())
		assert.Equal(t, 1, strings.Count(b.log.String(), "Still waiting for the first list. "))
		assert.Contains(t, b.log.String(), `its CustomResourceDefinition is installed), and that the program is allowed to list and watch it kind="Pod"`)
		b.cancel()
		settle()
		assert.Equal(t, int32(1), b.returned.Load())
		assert.Zero(t, b.count("create pods"))
		assert.Zero(t, b.count("status replicasets"))
	})

	bubble(t, "Z5 Run returns after the last pass", func(t inBubble) {
		b := newBench(replicaSet("web", 3))
		g := newGate()
		b.onPod = g.onPod
		b.start(t)
		b.cancel()
		after(time.Minute)
		assert.Zero(t, b.returned.Load(), "a call is under way")
		close(g.opened)
		settle()
		assert.Equal(t, int32(1), b.returned.Load())
		assert.Len(t, b.allPods(), 1, "no batch is begun after the end")
	})

	bubble(t, "Z5 what waits in the queue at the end is left alone", func(t inBubble) {
		b := newBench(replicaSet("a", 1), replicaSet("b", 1), replicaSet("c", 1))
		g := newGate()
		b.onPod, b.workers = g.onPod, 1
		b.start(t)
		b.cancel()
		synctest.Wait()
		close(g.opened)
		settle()
		assert.Equal(t, int32(1), b.returned.Load())
		assert.Len(t, b.allPods(), 1)
		finished := 0
		for _, entry := range b.log.Data() {
			if entry.Message == "Finished syncing" {
				finished++
			}
		}
		assert.Equal(t, 1, finished)
	})

	bubble(t, "Z5 the event broadcaster stops after the last pass, not before", func(t inBubble) {
		b := newBench(replicaSet("web", 3))
		g := newGate()
		b.onPod = g.onPod
		b.start(t)
		b.cancel()
		settle()
		close(g.opened)
		settle()
		assert.Len(t, b.allPods(), 1)
		for _, message := range b.errors() {
			assert.NotContains(t, message, "Unable to record event")
		}
	})

	for _, test := range []struct {
		name             string
		workers, working int
	}{
		{name: "Z2 0 workers are five", workers: 0, working: 5},
		{name: "Z2 as many workers as asked for", workers: 2, working: 2},
		{name: "Z2 a negative number of workers is refused", workers: -1, working: 0},
	} {
		bubble(t, test.name, func(t inBubble) {
			b := newBench()
			for i := range 7 {
				b.add(replicaSet(fmt.Sprintf("web-%d", i), 1))
			}
			g := newGate()
			b.onPod, b.workers = g.onPod, test.workers
			b.start(t)
			assert.Len(t, g.owners(), test.working)
			assert.Equal(t, test.workers < 0, b.returned.Load() == 1)
			if test.workers < 0 {
				require.EqualError(t, *b.ended.Load(), "clientgo: ReplicaSet controller: the number of workers -1 is negative")
			}
			close(g.opened)
			settle()
		})
	}

	bubble(t, "V18 one owner never has two workers", func(t inBubble) {
		b := newBench(replicaSet("web", 2))
		g := newGate()
		b.onPod = g.onPod
		b.start(t)
		for i := range 5 {
			b.change(replicaSet("web", 2), func(rs object) { rs.SetLabels(map[string]string{"n": strconv.Itoa(i)}) })
			settle()
		}
		assert.Equal(t, []string{"web"}, g.owners())
		close(g.opened)
		settle()
		assert.Len(t, b.allPods(), 2)
	})

	bubble(t, "W8 the initial list is handled before the first pass: its pods are not taken for new ones", func(t inBubble) {
		web := replicaSet("web", 60)
		b := newBench(web)
		for i := range 50 {
			b.add(pod(fmt.Sprintf("web-%02d", i), "web", "node-1", ownedBy(web)))
		}
		b.pods = slowInformer{b.pods}
		b.onPod = func(string, *corev1.Pod) error { b.hold(pods); return nil }
		controller := b.start(t)
		after(time.Minute)
		assert.Len(t, b.allPods(), 60)
		assert.Equal(t, 1, controller.Expecting(), "none of the ten was seen")
		b.release(pods)
		settle()
		assert.Len(t, b.allPods(), 60)
		assert.Zero(t, controller.Expecting())
	})
}

// A slowInformer delays each add event by 100 ms.
type slowInformer struct{ cache.SharedIndexInformer }

func (i slowInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			time.Sleep(100 * time.Millisecond)
			handler.OnAdd(obj, initial)
		},
		UpdateFunc: handler.OnUpdate,
		DeleteFunc: handler.OnDelete,
	})
}

func TestEvents(t *testing.T) {
	t.Parallel()

	bubble(t, "Z6 events of ReplicaSets have their source", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.start(t)
		events := b.recorded("SuccessfulCreate")
		require.Len(t, events, 1)
		assert.Equal(t, "replicaset-controller", events[0].Source.Component)
		assert.Equal(t, "ReplicaSet", events[0].InvolvedObject.Kind)
		assert.Equal(t, "apps/v1", events[0].InvolvedObject.APIVersion)
		assert.Equal(t, "Created pod: "+b.allPods()[0].Name, events[0].Message)
	})

	bubble(t, "Z6 A3 events of ReplicationControllers have theirs, and are about that object", func(t inBubble) {
		b := newBench(replicationController("web", 1))
		b.startReplicationManager(t)
		events := b.recorded("SuccessfulCreate")
		require.Len(t, events, 1)
		assert.Equal(t, "replication-controller", events[0].Source.Component)
		assert.Equal(t, "ReplicationController", events[0].InvolvedObject.Kind)
		assert.Equal(t, "v1", events[0].InvolvedObject.APIVersion)
		assert.Equal(t, b.webRC().UID, events[0].InvolvedObject.UID)
	})
}

func TestBothKinds(t *testing.T) {
	t.Parallel()

	bubble(t, "A1 two controllers on one pod informer have queues and expectations of their own", func(t inBubble) {
		rs, rc := replicaSet("web", 2), replicationController("web", 3)
		b := newBench(rs, rc)
		ofReplicaSets, err := b.newReplicaSetController()
		require.NoError(t, err)
		ofReplicationControllers, err := b.newReplicationManager()
		require.NoError(t, err)
		b.run(t, ofReplicaSets, ofReplicationControllers)
		settle()
		owners := map[string]int{}
		for _, pod := range b.allPods() {
			ref := metav1.GetControllerOf(pod)
			owners[ref.APIVersion+" "+ref.Kind+" "+ref.Name]++
		}
		assert.Equal(t, map[string]int{"apps/v1 ReplicaSet web": 2, "v1 ReplicationController web": 3}, owners)
		assert.Equal(t, int32(2), b.web().Status.Replicas)
		assert.Equal(t, int32(3), b.webRC().Status.Replicas)
		assert.NotNil(t, b.web().Status.TerminatingReplicas)
	})

	bubble(t, "A1 a ReplicationController scales up, down and to zero, and adopts by its map selector (A9)", func(t inBubble) {
		b := newBench(replicationController("web", 3), pod("orphan", "web", "node-1"), pod("other", "db", "node-1"))
		b.startReplicationManager(t)
		assert.Len(t, b.allPods(), 4)
		assert.Equal(t, 1, b.count("patch pods"))
		b.scale(replicationController("web", 0), 0)
		settle()
		assert.Equal(t, []string{"other"}, b.podNames())
		assert.Zero(t, b.webRC().Status.Replicas)
		assert.Equal(t, int64(2), b.webRC().Status.ObservedGeneration)
	})

	bubble(t, "T9 terminatingReplicas is left out where the server drops it", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.kind.Status = func(rs *appsv1.ReplicaSet, outcome controller.Outcome[*corev1.Pod]) error {
			err := controller.ReplicaSets().Status(rs, outcome)
			rs.Status.TerminatingReplicas = nil
			return err
		}
		b.start(t)
		assert.Equal(t, int32(1), b.web().Status.Replicas)
		assert.Nil(t, b.web().Status.TerminatingReplicas)
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()

	bubble(t, "B1 burst 0 is 500 pods a pass", func(t inBubble) {
		b := newBench(replicaSet("web", 600))
		b.verbosity(0)
		b.onPod = func(string, *corev1.Pod) error { b.hold(pods); return nil }
		b.start(t)
		assert.Len(t, b.allPods(), 500)
		b.setOnPod(nil)
		b.release(pods)
		settle()
		assert.Len(t, b.allPods(), 600)
	})

	bubble(t, "B1 another burst", func(t inBubble) {
		b := newBench(replicaSet("web", 5))
		b.opts.BurstReplicas = 2
		b.hold(pods)
		b.start(t)
		assert.Len(t, b.allPods(), 2)
	})

	bubble(t, "B4 a negative burst is refused", func(t inBubble) {
		b := newBench()
		b.opts.BurstReplicas = -1
		_, err := b.newReplicaSetController()
		require.EqualError(t, err, "clientgo: burst replicas -1 is negative")
	})

	bubble(t, "W23 MaxParallel caps the calls for one owner", func(t inBubble) {
		web := replicaSet("web", 0)
		b := newBench(web)
		for i := range 9 {
			b.add(pod(fmt.Sprintf("web-%d", i), "web", "node-1", ownedBy(web)))
		}
		g := newGate()
		b.onPod, b.opts.MaxParallel = g.onPod, 3
		b.start(t)
		assert.Len(t, g.owners(), 3)
		close(g.opened)
		settle()
		assert.Empty(t, b.allPods())
	})

	bubble(t, "W23 negative MaxParallel is refused", func(t inBubble) {
		b := newBench()
		b.opts.MaxParallel = -1
		_, err := b.newReplicationManager()
		require.EqualError(t, err, "clientgo: ReplicationController controller: controller: MaxParallel -1 is negative")
	})

	bubble(t, "W35 delays and availability go by the controller's clock", func(t inBubble) {
		clock := clocktesting.NewFakeClock(time.Now().Add(365 * 24 * time.Hour))
		web := replicaSet("web", 1)
		web.Spec.MinReadySeconds = 10
		b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web), func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{readySince(clock.Now())}
		}))
		b.opts.Clock = clock
		b.start(t)
		after(time.Hour)
		assert.Zero(t, b.web().Status.AvailableReplicas)
		clock.Step(10 * time.Second)
		settle()
		assert.Equal(t, int32(1), b.web().Status.AvailableReplicas)
	})

	bubble(t, "E3 so does the expiry of expectations", func(t inBubble) {
		clock := clocktesting.NewFakeClock(time.Now())
		web := replicaSet("web", 1)
		b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-1", ownedBy(web)))
		b.opts.Clock = clock
		b.hold(pods)
		b.start(t)
		assert.Equal(t, 1, b.count("delete pods"))
		clock.Step(5 * time.Minute)
		settle()
		assert.Equal(t, 1, b.count("delete pods"))
		assert.Equal(t, 1, b.count("list pods"), "the first pass asks for the version of the server")
		clock.Step(31 * time.Second) // the timeout is longer by at most a tenth
		settle()
		assert.Equal(t, 2, b.count("list pods"), "the cache still shows the pod: it is old")
		assert.Equal(t, 1, b.count("delete pods"))
	})

	bubble(t, "W52 and so does giving up on a cache that never shows what was written", func(t inBubble) {
		clock := clocktesting.NewFakeClock(time.Now())
		b := newBench(replicaSet("web", 1))
		b.opts.Clock = clock
		b.hold(replicaSets)
		b.start(t)
		settle()
		reads := b.count("get replicasets")
		for range 11 * 60 {
			clock.Step(time.Second)
			synctest.Wait()
		}
		assert.Greater(t, b.count("get replicasets"), reads, "to write the status, which is there already")
	})

	bubble(t, "W55 handlers that cannot be added are an error", func(t inBubble) {
		for _, resource := range []string{pods, replicaSets} {
			b := newBench()
			informer := map[string]*cache.SharedIndexInformer{pods: &b.pods, replicaSets: &b.replicaSets}[resource]
			*informer = brokenInformer{*informer}
			_, err := b.newReplicaSetController()
			require.ErrorIs(t, err, errBroken, resource)
		}
	})

	bubble(t, "W55 indexes that cannot be added are an error", func(t inBubble) {
		b := newBench()
		go b.replicaSets.RunWithContext(b.ctx)
		settle()
		b.cancel()
		settle()
		_, err := b.newReplicaSetController()
		require.ErrorContains(t, err, "clientgo: ReplicaSet controller: ")
		require.ErrorContains(t, err, "stopped")
	})
}

var errBroken = errors.New("broken")

// A brokenInformer returns an error if a handler is added.
type brokenInformer struct{ cache.SharedIndexInformer }

func (brokenInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, errBroken
}

func TestPanic(t *testing.T) {
	t.Parallel()

	bubble(t, "V18 a panic in a call is that owner's error, and the worker goes on", func(t inBubble) {
		b := newBench(replicaSet("web", 2), replicaSet("db", 2))
		var once sync.Once
		b.onPod = func(_ string, pod *corev1.Pod) error {
			if pod.Labels["app"] == "web" {
				once.Do(func() { panic("boom") })
			}
			return nil
		}
		b.workers = 1
		controller := b.start(t)
		assert.Len(t, b.allPods(), 4, "the expectations were lowered, and the owner tried again")
		assert.Zero(t, controller.Expecting())
		entry := b.logged("Observed a panic")
		require.NotNil(t, entry)
		assert.Equal(t, "default/web", value(entry, "key"))
		assert.Equal(t, "boom", value(entry, "panic"))
		assert.Contains(t, value(entry, "stacktrace"), "TestPanic", "where it happened")
		entry = b.logged("Sync failed")
		require.NotNil(t, entry)
		assert.Equal(t, "default/web", value(entry, "key"))
		assert.EqualError(t, entry.Err, `controller: ReplicaSet "default/web": a function of the Kind or the client panicked: boom`)
	})

	bubble(t, "V18 so is any other panic", func(t inBubble) {
		b := newBench(replicaSet("web", 1), pod("orphan", "web", "node-1"))
		b.pods = &panickingInformer{SharedIndexInformer: b.pods}
		b.start(t)
		entry := b.logged("Observed a panic")
		require.NotNil(t, entry)
		assert.Equal(t, "no index", value(entry, "panic"))
		assert.Equal(t, int32(1), b.web().Status.Replicas)
	})
}

// A panickingInformer has an indexer that panics at the first read by index.
type panickingInformer struct{ cache.SharedIndexInformer }

func (i *panickingInformer) GetIndexer() cache.Indexer {
	return &panickingIndexer{Indexer: i.SharedIndexInformer.GetIndexer()}
}

type panickingIndexer struct {
	cache.Indexer
	once sync.Once
}

func (i *panickingIndexer) ByIndex(name, key string) ([]any, error) {
	i.once.Do(func() { panic("no index") })
	return i.Indexer.ByIndex(name, key)
}

// logged returns the first log entry with that message.
func (b *bench) logged(message string) *ktesting.LogEntry {
	for _, entry := range b.log.Data() {
		if entry.Message == message {
			return &entry
		}
	}
	return nil
}

// errors returns all log entries that are errors.
func (b *bench) errors() []string {
	var messages []string
	for _, entry := range b.log.Data() {
		if entry.Type == ktesting.LogError {
			messages = append(messages, fmt.Sprintf("%s: %v", entry.Message, entry.Err))
		}
	}
	return messages
}

// value returns the text of a logged value.
func value(entry *ktesting.LogEntry, key string) string {
	for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
		if entry.ParameterKVList[i] == key {
			return fmt.Sprint(entry.ParameterKVList[i+1])
		}
	}
	return ""
}

// If the controller notices that the server was restored from a backup, and Options.OnRestored is nil, Run
// returns an error. If Options.OnRestored is set, the controller calls OnRestored instead, and Run goes on. In
// both cases, the controller makes no further changes.
func TestARestoredServer(t *testing.T) {
	t.Parallel()
	for _, goesOn := range []bool{false, true} {
		bubble(t, fmt.Sprintf("Run goes on: %v", goesOn), func(t inBubble) {
			web := replicaSet("web", 1)
			b := newBench(web, pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-1", ownedBy(web)))
			b.opts.ExpectationsTimeout, b.isRestored = 10*time.Second, true
			var noticed []error
			if goesOn {
				b.opts.OnRestored = func(err error) { noticed = append(noticed, err) }
			}
			b.setVersion(1000)
			b.hold(pods)
			b.start(t)
			require.Equal(t, 1, b.count("delete pods"))
			b.setVersion(500)
			b.scale(web, 5)
			after(time.Hour)
			assert.Zero(t, b.count("create pods"))
			assert.Equal(t, 1, b.count("delete pods"))
			assert.Len(t, b.recorded(controller.ServerRestored), 1)
			if goesOn {
				assert.Zero(t, b.returned.Load())
				require.Len(t, noticed, 1)
				require.ErrorIs(t, noticed[0], controller.ErrRestored)
				return
			}
			require.Equal(t, int32(1), b.returned.Load())
			require.ErrorIs(t, *b.ended.Load(), controller.ErrRestored)
			assert.NotNil(t, b.logged("The API server was restored from a backup. The controller makes no further changes. Restart the program"))
		})
	}
}

func TestNewTerm(t *testing.T) {
	t.Parallel()
	firstPod := func(t inBubble, begins bool) (after time.Duration, b *bench) {
		t.Helper()
		b = newBench(pod("other", "other", "n"))
		c, err := b.newReplicaSetController()
		require.NoError(t, err)
		if begins {
			c.NewTerm(b.ctx)
		}
		b.run(t, c)
		settle()
		b.hold(pods)
		b.add(pod("another", "other", "n"))
		b.add(replicaSet("web", 1))
		began := time.Now()
		for b.count("create pods") == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		return time.Since(began), b
	}
	bubble(t, "without it the first change waits for a cache that no event moves", func(t inBubble) {
		after, _ := firstPod(t, false)
		assert.GreaterOrEqual(t, after, 2*time.Second)
	})
	bubble(t, "before the informers start it asks the server for versions that they reach", func(t inBubble) {
		after, b := firstPod(t, true)
		assert.Less(t, after, 100*time.Millisecond)
		assert.Equal(t, 1, b.count("list pods"))
		assert.Equal(t, 1, b.count("list replicasets"))
	})
	new(clientgo.Controller).NewTerm(t.Context()) // a zero Controller does not panic
}
