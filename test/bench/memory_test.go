// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// A memory is a benchmark of the bytes that both sides keep for a number of owners or pods. The owners and pods
// themselves do not count, because they are in the caches anyway.
type memory struct {
	name, counts string
	sizes        []int
	sides        func(size int) []keeper
}

// A keeper builds the data that one side keeps.
type keeper struct {
	name string
	make func() any
}

var memories = []memory{
	{"Owners", "owner", []int{1, 100, 10_000}, keepOwners},
	{"TrackedPods", "pod", []int{500, 50_000}, keepDeletions},
	{"Indexed", "pod", []int{10_000, 1_000_000}, keepIndexes},
	{"Passed", "owner", []int{1_000, 100_000}, keepPassed},
}

// keepOwners returns keepers that store one expected creation for each of n owners.
func keepOwners(n int) []keeper {
	owners := replicaSets(n)
	return []keeper{
		{kubernetes, func() any {
			exp := controller.NewUIDTrackingControllerExpectations(controller.NewControllerExpectations())
			for _, rs := range owners {
				_ = exp.ExpectCreations(klog.Background(), must(controller.KeyFunc(rs)), 1)
			}
			return exp
		}},
		{ours, func() any {
			exp := &expectations.Store[expectations.Key]{}
			for _, rs := range owners {
				exp.Set(expectations.KeyOf(rs), expectations.Changes{Creations: 1})
			}
			return exp
		}},
	}
}

// keepDeletions returns keepers that store n expected deletions, 500 for each owner.
func keepDeletions(n int) []keeper {
	const burst = 500
	owners, pods := replicaSets(n/burst), make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = podtest.Pod("web-5d9c7b6f4d-"+strconv.Itoa(i), podtest.UID(types.UID("4f8a1d9c-0b62-4c1e-8d0f-"+strconv.Itoa(1e11+i))))
	}
	return []keeper{
		{kubernetes, func() any {
			exp := controller.NewUIDTrackingControllerExpectations(controller.NewControllerExpectations())
			for i, rs := range owners {
				_ = exp.ExpectDeletions(klog.Background(), must(controller.KeyFunc(rs)), getPodKeys(pods[i*burst:(i+1)*burst]))
			}
			return exp
		}},
		{ours, func() any {
			exp := &expectations.Store[expectations.Key]{}
			for i, rs := range owners {
				uids := make([]types.UID, burst)
				for j := range uids {
					uids[j] = pods[i*burst+j].UID
				}
				exp.Set(expectations.KeyOf(rs), expectations.Changes{Deleting: uids})
			}
			return exp
		}},
	}
}

// keepIndexes returns a keeper that stores n pods in a cache with the index of their owners. The pods themselves count
// too, as far as they share no memory with each other.
func keepIndexes(n int) []keeper {
	return []keeper{{ours, func() any { return newCity(n) }}}
}

// keepPassed returns a keeper that makes a pass for each of n owners.
func keepPassed(n int) []keeper {
	c := newCity(n * podsOfEach)
	return []keeper{{ours, func() any {
		controller := c.controller()
		c.pass(controller)
		return controller
	}}}
}

// retained calls the function make, and returns the number of heap bytes that the result of this function uses.
func retained(make func() any) int64 {
	before := heap()
	kept := make()
	after := heap()
	runtime.KeepAlive(kept)
	return after - before
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // frees objects that finalizers and pools still held
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
