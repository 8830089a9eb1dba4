// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
)

func TestIndexes(t *testing.T) {
	t.Parallel()

	indexes := func(informer cache.SharedIndexInformer) []string {
		return slices.Sorted(maps.Keys(informer.GetIndexer().GetIndexers()))
	}

	bubble(t, "Z7 the pod index has upstream's name and keys, and is added once", func(t inBubble) {
		web := replicaSet("web", 0)
		b := newBench(web)
		for range 2 {
			controller, err := b.newReplicaSetController()
			require.NoError(t, err)
			b.run(t, controller)
		}
		assert.Equal(t, []string{"namespace", "podController"}, indexes(b.pods))
		assert.Equal(t, []string{"controllerUID", "namespace"}, indexes(b.replicaSets))

		index := b.pods.GetIndexer().GetIndexers()["podController"]
		keys, err := index(pod("a", "web", "n", ownedBy(web)))
		require.NoError(t, err)
		assert.Equal(t, []string{"default/ReplicaSet/web/uid-web"}, keys)
		keys, err = index(pod("b", "web", "n"))
		require.NoError(t, err)
		assert.Equal(t, []string{"default"}, keys)
		keys, err = index("no pod")
		require.NoError(t, err)
		assert.Empty(t, keys)
	})

	bubble(t, "Z7 an equal index that is there already is shared", func(t inBubble) {
		b := newBench()
		require.NoError(t, b.pods.AddIndexers(cache.Indexers{"podController": func(obj any) ([]string, error) {
			p := obj.(*corev1.Pod)
			ref := metav1.GetControllerOf(p)
			if ref == nil {
				return []string{p.Namespace}, nil
			}
			return []string{p.Namespace + "/" + ref.Kind + "/" + ref.Name + "/" + string(ref.UID)}, nil
		}}))
		controller, err := b.newReplicaSetController()
		require.NoError(t, err)
		b.run(t, controller)
		assert.Equal(t, []string{"namespace", "podController"}, indexes(b.pods))
	})

	bubble(t, "Z7 A7 another index of that name is left alone", func(t inBubble) {
		web, old := replicationController("web", 1), replicationController("old", 1)
		web.OwnerReferences, old.OwnerReferences = controlledBy("uid-config"), controlledBy("uid-config")
		b := newBench(web, old, pod("old-1", "old", "node-1", ownedBy(old)),
			pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-2", ownedBy(web), younger))
		empty := func(any) ([]string, error) { return nil, nil } // in Kubernetes, the index controllerUID has no keys for ReplicationControllers
		require.NoError(t, b.pods.AddIndexers(cache.Indexers{"podController": empty}))
		require.NoError(t, b.replicationControllers.AddIndexers(cache.Indexers{"controllerUID": empty}))
		b.startReplicationManager(t)
		assert.Equal(t, []string{"namespace", "podController", "replicakit.podController"}, indexes(b.pods))
		assert.Equal(t, []string{"controllerUID", "namespace", "replicakit.controllerUID"}, indexes(b.replicationControllers))
		assert.Equal(t, []string{"old-1", "web-2"}, b.podNames(), "siblings are found")
		second, err := b.newReplicationManager()
		require.NoError(t, err)
		_ = second.Run(b.ctx, -1)
		assert.Equal(t, []string{"namespace", "podController", "replicakit.podController"}, indexes(b.pods))
	})

	for name, orphanKeys := range map[string]func(*corev1.Pod) []string{
		"knows no orphans": func(*corev1.Pod) []string { return nil },
		"has a pod for the first that names it": func(p *corev1.Pod) []string {
			if len(p.OwnerReferences) > 0 {
				return []string{p.Namespace + "/" + p.OwnerReferences[0].Name}
			}
			return []string{p.Namespace}
		},
	} {
		bubble(t, "Z7 an index of that name that "+name+" is left alone", func(t inBubble) {
			web := replicaSet("web", 1)
			plain := pod("web-1", "web", "n")
			plain.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: "uid-of-config"}}
			b := newBench(web, plain)
			require.NoError(t, b.pods.AddIndexers(cache.Indexers{"podController": func(obj any) ([]string, error) {
				p := obj.(*corev1.Pod)
				if ref := metav1.GetControllerOf(p); ref != nil {
					return []string{p.Namespace + "/" + ref.Kind + "/" + ref.Name + "/" + string(ref.UID)}, nil
				}
				return orphanKeys(p), nil
			}}))
			b.start(t)
			assert.Equal(t, []string{"namespace", "podController", "replicakit.podController"}, indexes(b.pods))
			assert.Equal(t, []string{"web-1"}, b.podNames(), "the orphan is adopted")
		})
	}

	bubble(t, "Y6 Z7 pods are read by owner and orphans of the namespace, nothing else", func(t inBubble) {
		web := replicaSet("web", 1)
		web.OwnerReferences = controlledBy("uid-deployment")
		b := newBench(web,
			pod("web-1", "web", "node-1", ownedBy(web)), pod("web-2", "web", "node-1", ownedBy(web)), pod("orphan", "web", "node-1"))
		informer := &keysInformer{SharedIndexInformer: b.pods, keys: make(chan string, 1000)}
		b.pods = informer
		b.start(t)
		assert.Len(t, b.allPods(), 1)
		close(informer.keys)
		read := map[string]bool{}
		for key := range informer.keys {
			read[key] = true
		}
		assert.Equal(t, map[string]bool{
			"podController default/ReplicaSet/web/uid-web": true,
			"podController default":                        true,
		}, read)
	})
}

// The deletion cost is a criterion of the default Order. If an Order lacks this criterion, the cost has no
// effect.
func TestOrder(t *testing.T) {
	t.Parallel()
	web := replicaSet("web", 1)
	costly := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "-5"} }
	without, err := podrank.NewOrder(podrank.NotReady(), podrank.CreationTime())
	require.NoError(t, err)
	for want, order := range map[string]podrank.Order[*corev1.Pod]{"young": {}, "old": without} {
		bubble(t, "R4 the survivor is "+want, func(t inBubble) {
			b := newBench(web, pod("old", "web", "n", ownedBy(web), costly), pod("young", "web", "n", ownedBy(web), younger))
			b.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
				spec, err := replicas.ReplicaSetSpec(rs)
				spec.Rules.Order = order
				return spec, err
			}
			b.start(t)
			assert.Equal(t, []string{want}, b.podNames())
		})
	}
}

// If a pod is adopted or orphaned between two reads of a pass, the pass finds the pod exactly once.
func TestPodsThatMoveWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	web := replicaSet("web", 2)
	orphaned := func(p *corev1.Pod) { p.OwnerReferences = nil }
	for name, moves := range map[string]struct{ from, to func(*corev1.Pod) }{
		"C2 C8 adopted meanwhile":  {orphaned, ownedBy(web)},
		"C2 C8 orphaned meanwhile": {ownedBy(web), orphaned},
	} {
		for read := range 4 { // the number of reads before the pod moves
			bubble(t, fmt.Sprintf("%s, after %d reads", name, read), func(t inBubble) {
				moving := pod("web-1", "web", "n", moves.from)
				b := newBench(web, moving, pod("web-2", "web", "n", ownedBy(web)), pod("other", "other", "n"))
				informer := &keysInformer{SharedIndexInformer: b.pods, keys: make(chan string, 1000)}
				done := 0
				informer.before = func() {
					if done == read {
						b.change(moving, func(obj object) { moves.to(obj.(*corev1.Pod)) })
						time.Sleep(time.Millisecond) // until the cache shows the change
					}
					done++
				}
				b.pods = informer
				b.start(t)
				assert.Equal(t, []string{"other", "web-1", "web-2"}, b.podNames())
				assert.Zero(t, b.count("create pods"))
				assert.Zero(t, b.count("delete pods"))
				assert.Empty(t, b.errors())
			})
		}
	}
}

// A keysInformer sends a string to its channel for each read. For a read by index, the string contains the name of
// the index and the key. For a read of all objects, the string is "list".
type keysInformer struct {
	cache.SharedIndexInformer
	keys   chan string
	before func() // called before each read by index; may be nil
}

func (i *keysInformer) GetIndexer() cache.Indexer {
	return keysIndexer{i.SharedIndexInformer.GetIndexer(), i}
}

type keysIndexer struct {
	cache.Indexer
	informer *keysInformer
}

func (i keysIndexer) ByIndex(name, key string) ([]any, error) {
	i.informer.keys <- name + " " + key
	if i.informer.before != nil {
		i.informer.before()
	}
	return i.Indexer.ByIndex(name, key)
}

func (i keysIndexer) List() []any {
	i.informer.keys <- "list"
	return i.Indexer.List()
}
