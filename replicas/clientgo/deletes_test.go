// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// metric returns the value of a counter or a gauge. The metric must have only one time series.
func (b *bench) metric(t inBubble, name string) int {
	t.Helper()
	families, err := b.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
		}
	}
	require.Fail(t, "no such metric", name)
	return 0
}

// owners returns the number of owners in a state, according to the metrics.
func (b *bench) owners(t inBubble, state string) int {
	t.Helper()
	families, err := b.registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if slices.Contains([]string{"replicakit_owners", "replicakit_gated_owners"}, family.GetName()) && m.GetLabel()[1].GetValue() == state {
				assert.Equal(t, "replicaset", m.GetLabel()[0].GetValue())
				return int(m.GetGauge().GetValue())
			}
		}
	}
	require.Fail(t, "no such state", state)
	return 0
}

// touch changes every pod.
func (b *bench) touch() {
	for _, p := range b.allPods() {
		b.change(p, func(obj object) { obj.SetAnnotations(map[string]string{"at": time.Now().String()}) })
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()

	many := func(web object) []object {
		objects := []object{web}
		for i := range 50 {
			objects = append(objects, pod(fmt.Sprintf("web-%02d", i), "web", "node-1", ownedBy(web)))
		}
		return objects
	}

	bubble(t, "W25 pods that changed unseen are deleted at once, and a log line and metrics tell", func(t inBubble) {
		web := replicaSet("web", 50)
		b := newBench(many(web)...)
		b.start(t)
		b.hold(pods)
		b.touch()
		b.scale(web, 10)
		settle()
		assert.Len(t, b.allPods(), 10)
		assert.LessOrEqual(t, b.count("delete pods"), 80)
		assert.Equal(t, 2, b.count("list pods"), "the first pass asks for the version of the server")
		assert.Positive(t, b.metric(t, "replicakit_delete_conflicts_total"))
		assert.Equal(t, 1, b.metric(t, "replicakit_live_lists_total"))
		assert.NotNil(t, b.logged("Listed pods live, because some changed before their deletion"))
		b.release(pods)
		settle()
		assert.Equal(t, int32(10), b.web().Status.Replicas)
	})

	bubble(t, "W25 a webhook that answers Conflict costs a bounded number of calls, and is told", func(t inBubble) {
		web := replicaSet("web", 50)
		b := newBench(many(web)...)
		b.start(t)
		b.setOnPod(func(verb string, p *corev1.Pod) error {
			if verb != "delete" {
				return nil
			}
			return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("not now"))
		})
		b.scale(web, 10)
		for range 60 {
			after(time.Second)
			b.touch()
		}
		assert.Len(t, b.allPods(), 50)
		// The hold on the deletion of a pod starts at 50 ms and doubles, so at most eleven passes delete it in the
		// first minute. The pods that were tried first have other passes than the rest, and each of these passes
		// lists the pods. The pass before the scale-down lists the pods once, to read the server's version. Once a
		// minute, the check of the watch also lists the pods to read the server's version.
		assert.LessOrEqual(t, b.metric(t, "replicakit_delete_conflicts_total"), 12*40)
		assert.LessOrEqual(t, b.count("list pods"), 1+2*11+1)
		assert.Positive(t, b.metric(t, "replicakit_backed_off_passes_total"))
		assert.NotNil(t, b.logged("Held back"))
		held := b.recorded("DeletionsHeld")
		require.NotEmpty(t, held)
		require.LessOrEqual(t, len(held), 2, "the pods that were tried first may be held a pass longer")
		assert.Contains(t, held[0].Message, "not now")
		assert.Equal(t, "FailedDelete", b.web().Status.Conditions[0].Reason)
		b.setOnPod(nil)
		after(time.Minute)
		assert.Len(t, b.allPods(), 10)
		assert.Empty(t, b.web().Status.Conditions)
	})
}
