// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestParse(t *testing.T) {
	t.Parallel()
	opts, err := parse(nil, "bin")
	require.NoError(t, err)
	assert.Equal(t, options{
		runs: 3, scenarios: scenarioNames(), sides: sideNames(), size: full, binaries: "bin", controller: filepath.Join("bin", "replicakit-controller"),
	}, opts)
	opts, err = parse([]string{"-quick", "-scenarios", "adopt,hold", "-sides", "ours", "-o", "x.md"}, "bin")
	require.NoError(t, err)
	assert.Equal(t, []string{"adopt", "hold"}, opts.scenarios)
	assert.Equal(t, []string{"ours"}, opts.sides)
	assert.Equal(t, size{pods: 100, sets: 200, perSet: 5, held: 10, rate: 100, length: 6 * time.Second, idle: time.Minute, crowd: 200, perCrowd: 7}, opts.size)
	opts, err = parse([]string{"-idle", "1h"}, "bin")
	require.NoError(t, err)
	assert.Equal(t, time.Hour, opts.size.idle)
	for args, message := range map[string]string{
		"-runs=0":          "-runs=0 must be positive",
		"-idle=-1s":        "-idle=-1s is negative",
		"-scenarios=x":     `-scenarios=x: "x" is not one of ` + strings.Join(scenarioNames(), ","),
		"-sides=ours,them": `-sides=ours,them: "them" is not one of kubernetes,ours`,
		"now":              `arguments that are not flags: ["now"]`,
	} {
		_, err := parse([]string{args}, "bin")
		require.EqualError(t, err, message)
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	before := readFile(t, "before.txt")
	assert.Equal(t, map[string]float64{"POST pods": 51, statusWrites: 2}, before.calls)
	done := readFile(t, "after.txt").since(before)
	assert.Equal(t, map[string]float64{"POST pods": 105, statusWrites: 4, "POST events": 10, "DELETE pods": 100}, done.calls)
	assert.InDelta(t, 5, done.refused, 0, "those of before do not count")
	assert.InDelta(t, 105+4+10+100, done.writes(), 0)
	assert.InDelta(t, 2, tally{calls: map[string]float64{"GET pods": 3, "LIST pods": 4, "POST pods": 2}}.writes(), 0)
	assert.InDelta(t, 1.25, done.cpu, 1e-9)

	_, err := readTally(strings.NewReader("no metrics"))
	require.Error(t, err)
}

func readFile(t *testing.T, name string) tally {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	read, err := readTally(file)
	require.NoError(t, err)
	return read
}

func TestSyncs(t *testing.T) {
	t.Parallel()
	syncs, err := readCount(strings.NewReader(`# TYPE workqueue_work_duration_seconds histogram
workqueue_work_duration_seconds_bucket{name="replicaset",le="+Inf"} 12
workqueue_work_duration_seconds_sum{name="replicaset"} 0.5
workqueue_work_duration_seconds_count{name="replicaset"} 12
workqueue_work_duration_seconds_bucket{name="replicationmanager",le="+Inf"} 7
workqueue_work_duration_seconds_sum{name="replicationmanager"} 0.5
workqueue_work_duration_seconds_count{name="replicationmanager"} 7
`), syncsMetric)
	require.NoError(t, err)
	assert.InDelta(t, 12, syncs, 0)
}

func TestProcess(t *testing.T) {
	t.Parallel()
	used, err := cpuSeconds("4711 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 250 75 0 0 20 0 1 0\n")
	require.NoError(t, err)
	assert.InDelta(t, 3.25, used, 1e-9)
	peak, resident, err := memoryOf("Name:\tx\nVmPeak:\t  99 kB\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n")
	require.NoError(t, err)
	assert.InDelta(t, 2<<20, peak, 0)
	assert.InDelta(t, 1<<20, resident, 0)

	for _, stat := range []string{"", "1 (x) S 1", "1 (x) S 1 2 3 4 5 6 7 8 9 10 x 75"} {
		_, err := cpuSeconds(stat)
		require.Error(t, err)
	}
	for _, status := range []string{"", "VmHWM:\tmuch kB\n", "VmHWM:\t2 kB\n"} {
		_, _, err := memoryOf(status)
		require.Error(t, err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	all := &results{runs: 3, size: full}
	for i, seconds := range []float64{0.9, 0.7, 0.8} {
		all.add("adopt", kubernetes, sample{{"all pods are adopted", wall, 4 + seconds}, {"PATCH pods", number, 1000}, {"calls refused", number, 0}})
		all.add("adopt", ours, sample{{"all pods are adopted", wall, seconds}, {"PATCH pods", number, 1000 + float64(i)}, {"calls refused", number, 0}})
	}
	all.add("scale", ours, sample{{"peak memory", memory, 1.5 * (1 << 20)}, {"CPU", cpu, 0.123}})
	assert.Equal(t, `| scenario | measure | Kubernetes | ours | ours / Kubernetes |
|---|---|--:|--:|--:|
| one ReplicaSet, 0 → 1,000 → 0 pods | peak memory | – | 2 MiB | – |
|  | CPU | – | 0.12 s | – |
| one ReplicaSet adopts 1,000 pods | all pods are adopted | 4.80 s (4.70 s – 4.90 s) | 0.80 s (0.70 s – 0.90 s) | 0.17 |
|  | PATCH pods | 1,000 | 1,001 (1,000 – 1,002) | 1.00 |
`, all.table())
	page, err := all.into([]byte("# Words\n" + mark + "old\n"))
	require.NoError(t, err)
	assert.Regexp(t, "^# Words\n"+mark+"\nRuns of each side: 3;.*\n\n\\| scenario ", string(page))
	_, err = all.into([]byte("# Words\n"))
	require.ErrorContains(t, err, "the page has no line ")
}

func TestMedian(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 3}
	assert.InDelta(t, 3, median(values), 0)
	assert.Equal(t, []float64{5, 1, 3}, values)
	assert.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	assert.Equal(t, "1,234,567", grouped(1234567))
	assert.Equal(t, "123", grouped(123))
}

func TestSample(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "up 1.50 s, POST pods 1,000", sample{{"up", wall, 1.5}, {"refused", number, 0}, {"POST pods", number, 1000}}.String())
}

func TestView(t *testing.T) {
	t.Parallel()
	v := &view{changed: make(chan struct{}, 1)}
	sets, pods := handler(v, countSet), handler(v, countPod)
	rs := replicaSet("web", 3)
	rs.UID = "uid"
	sets.OnAdd(rs, true)
	assert.Equal(t, counts{sets: 1}, v.counts())

	reported := rs.DeepCopy()
	reported.Generation = 2
	reported.Status = appsv1.ReplicaSetStatus{Replicas: 3, ReadyReplicas: 2, ObservedGeneration: 1}
	sets.OnUpdate(rs, reported)
	assert.Equal(t, counts{sets: 1, replicas: 3, ready: 2}, v.counts())
	settled := reported.DeepCopy()
	settled.Status.ObservedGeneration = 2
	sets.OnUpdate(reported, settled)
	assert.Equal(t, counts{sets: 1, replicas: 3, ready: 2, settled: 1}, v.counts())

	orphan, owned := podOf(rs, false), podOf(rs, true)
	assert.True(t, metav1.IsControlledBy(owned, rs))
	pods.OnAdd(orphan, false)
	pods.OnUpdate(orphan, owned)
	assert.Equal(t, counts{sets: 1, replicas: 3, ready: 2, settled: 1, pods: 1, owned: 1}, v.counts())
	assert.Equal(t, []int{1, 1}, []int{v.history().most, v.history().ever})
	v.begin()
	pods.OnAdd(podOf(rs, true), false)
	pods.OnDelete(podOf(rs, true))
	pods.OnAdd(podOf(rs, true), false)
	pods.OnDelete(podOf(rs, true))
	past := v.history()
	assert.Equal(t, []int{2, 1, 3}, []int{past.most, past.least, past.ever}, "one that was there, and two that followed each other")
	pods.OnDelete(cache.DeletedFinalStateUnknown{Obj: owned})
	sets.OnDelete(settled)
	assert.Equal(t, counts{}, v.counts())
}

func TestUntil(t *testing.T) {
	t.Parallel()
	v := &view{changed: make(chan struct{}, 1)}
	go v.update(func() { v.now.pods = 3 })
	require.NoError(t, v.awaitCounts(t.Context(), "three pods", func(c counts) bool { return c.pods == 3 }))
	gone := errors.New("the controller ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	require.ErrorIs(t, v.awaitCounts(ctx, "four pods", func(c counts) bool { return c.pods == 4 }), gone)
}

func TestEach(t *testing.T) {
	t.Parallel()
	var done [1000]atomic.Int32
	require.NoError(t, callAll(t.Context(), len(done), func(_ context.Context, i int) error {
		done[i].Add(1)
		return nil
	}))
	for i := range done {
		require.EqualValues(t, 1, done[i].Load())
	}
	failed := errors.New("call 7")
	require.ErrorIs(t, callAll(t.Context(), 10, func(_ context.Context, i int) error {
		if i == 7 {
			return failed
		}
		return nil
	}), failed)
}

func TestReadyAfter(t *testing.T) {
	t.Parallel()
	ready := map[int]bool{}
	for changes := range 35 {
		count := 0
		for _, is := range ready {
			if is {
				count++
			}
		}
		require.Equal(t, count, readyAfter(changes, 10), "after %d changes", changes)
		ready[changes%10] = becomesReady(changes, 10)
	}
}
