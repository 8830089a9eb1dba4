// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/podrank"
)

var noon = time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)

// theirs sorts pods as kube-controller-manager does. Pods that are equal in all criteria can come in any order. If
// two ages differ but round down to the same power of two, the UIDs decide, and later criteria are not compared.
type theirs struct {
	pods []*corev1.Pod
	rank map[string]int
	now  time.Time
}

func (s theirs) Len() int      { return len(s.pods) }
func (s theirs) Swap(i, j int) { s.pods[i], s.pods[j] = s.pods[j], s.pods[i] }

func (s theirs) Less(i, j int) bool {
	p, q := s.pods[i], s.pods[j]
	if pod.IsReady(p) != pod.IsReady(q) {
		return !pod.IsReady(p)
	}
	pCost, _ := podrank.ParseDeletionCost(p.Annotations)
	qCost, _ := podrank.ParseDeletionCost(q.Annotations)
	if c := cmp.Or(cmp.Compare(pCost, qCost), cmp.Compare(s.rank[q.Spec.NodeName], s.rank[p.Spec.NodeName])); c != 0 {
		return c < 0
	}
	if !readySince(p).Equal(readySince(q)) {
		return s.younger(p, q, readySince(p), readySince(q))
	}
	if c := cmp.Compare(most(q.Status.ContainerStatuses), most(p.Status.ContainerStatuses)); c != 0 {
		return c < 0
	}
	if !p.CreationTimestamp.Equal(&q.CreationTimestamp) {
		return s.younger(p, q, p.CreationTimestamp.Time, q.CreationTimestamp.Time)
	}
	return false
}

func (s theirs) younger(p, q *corev1.Pod, since, other time.Time) bool {
	log := func(t time.Time) int { return len(strconv.FormatInt(max(0, int64(s.now.Sub(t))), 2)) }
	if a, b := log(since), log(other); a != b {
		return a < b
	}
	return p.UID < q.UID
}

// randomFleet returns a ReplicaSet with n pods that differ little. In half of the cases, the ReplicaSet belongs to
// a Deployment.
func randomFleet(r *rand.Rand, n int) *objects {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "rs"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
		},
	}
	if r.IntN(2) == 0 {
		rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: new(true)}}
	}
	objs := &objects{replicaSets: []*appsv1.ReplicaSet{rs}}
	span, kinds, nodes := time.Duration(1+r.IntN(30))*time.Second, 1+r.IntN(3), 1+r.IntN(2*n)
	for i := range n {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprintf("%016x", r.Uint64())), Labels: map[string]string{"app": "web"},
				Annotations:     map[string]string{corev1.PodDeletionCost: strconv.Itoa(r.IntN(kinds))},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs", Controller: new(true)}},
			},
			Spec:   corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", r.IntN(nodes))},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{RestartCount: int32(r.IntN(kinds))}}},
		}
		created := noon.Add(-time.Hour - time.Duration(r.Int64N(int64(span)))).Truncate(time.Second)
		if r.IntN(3) == 0 {
			created = noon.Add(-time.Duration(r.Int64N(int64(span)))).Truncate(time.Second)
		}
		p.CreationTimestamp = metav1.NewTime(created)
		if r.IntN(4) > 0 {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(created.Add(time.Duration(r.IntN(3)) * time.Second))}}
		}
		objs.pods = append(objs.pods, p)
	}
	return objs
}

// ranksOf counts the pods of each node. If the ReplicaSet belongs to no Deployment, the result is empty.
func ranksOf(objs *objects, pods []*corev1.Pod) map[string]int {
	rank := map[string]int{}
	if objs.replicaSets[0].OwnerReferences != nil {
		for _, p := range pods {
			rank[p.Spec.NodeName]++
		}
	}
	return rank
}

// The test sorts the pods of a ReplicaSet many times, in the same way as Kubernetes. Each time, the test chooses a
// random initial order and a random time in the window. Each pod that is certain to go is always deleted, and each
// pod that is certain to stay is never deleted. If some pods are tied, the number of deleted pods among the tied
// ones is always as predicted.
func TestWhatIsCertainGoesInEveryOrderOfTheCache(t *testing.T) {
	t.Parallel()
	certain, tied := 0, 0
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 7))
		objs := randomFleet(r, 2+r.IntN(40))
		wanted := int32(r.IntN(len(objs.pods)))
		o := &options{at: noon, within: time.Duration(r.IntN(90)) * time.Second}
		slices.SortFunc(objs.pods, byUID)
		answers, err := o.decide(objs, ofReplicaSet(objs.replicaSets[0]), []int32{wanted})
		require.NoError(t, err)
		d := answers[0].sets[0]
		for range 20 {
			list := slices.Clone(objs.pods)
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			now := noon.Add(time.Duration(r.Int64N(int64(o.within) + 1)))
			sort.Sort(theirs{list, ranksOf(objs, list), now})
			gone := map[types.UID]bool{}
			for _, p := range list[:len(list)-int(wanted)] {
				gone[p.UID] = true
			}
			drawn := 0
			for i, v := range d.order {
				if !d.isCertain(i) {
					drawn += count(gone[v.Object.UID])
					continue
				}
				require.Equal(t, i < d.victims(), gone[v.Object.UID], "seed %d: place %d of %d, %d go: %s", seed, i, len(d.order), d.victims(), v.Explain())
			}
			if d.tie != nil {
				require.Equal(t, d.tie.goes, drawn, "seed %d", seed)
			}
		}
		certain += d.victims()
		if d.tie != nil {
			tied += d.tie.goes
			certain -= d.tie.goes
		}
	}
	assert.Greater(t, certain, 2000, "not everything is a tie")
	assert.Greater(t, tied, 400)
}

// Pods that differ only by UID are a tie, because Kubernetes does not compare UIDs if the ages are equal.
func TestATie(t *testing.T) {
	t.Parallel()
	nodes := func(i int) string { return fmt.Sprintf("node-%d", i) }
	input := strings.Replace(crowd(24, func(i int) string { return fmt.Sprintf("web-%02d", i) }, nodes), "nodeName: \"node-3\"", "nodeName: \"\"", 1)
	got := try(input, "--replicas=12")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Contains(t, got.stdout, "\nweb-03   <none>    True    60m   yes        unassigned\n")
	assert.Contains(t, got.stdout, "\nweb-00   node-0    True    60m   11 of 23   UID, as nothing else differs\n")
	assert.Contains(t, got.stdout, "\n11 of these 23 pods go, but it is not known which: "+alike.String()+".\nweb-00, web-01, web-")

	got = try(input, "--replicas=12", "-o=name")
	assert.Equal(t, result{1, "", "error: ReplicaSet shop/web: 11 of the 12 pods to delete are chosen from 23 pods, but it is not known which (--allow-ties prints one choice): " + alike.String() + "\n"}, got)
	assert.Len(t, strings.Fields(try(input, "--replicas=12", "-o=name", "--allow-ties").stdout), 12)
	assert.Equal(t, "pod/web-03\n", try(input, "--replicas=23", "-o=name").stdout, "what is certain needs no leave")

	var object scaleDown
	require.NoError(t, json.Unmarshal([]byte(try(input, "--replicas=12", "-o=json").stdout), &object))
	assert.False(t, object.Certain)
	require.Len(t, object.Sets, 1)
	assert.Equal(t, 11, object.Sets[0].Tie.Goes)
	assert.Len(t, object.Sets[0].Tie.Of, 23)
	assert.Equal(t, alike, object.Sets[0].Tie.cause)

	assert.Contains(t, try(input, "--replicas=12", "--explain").stdout, "\n13    11 of 23   ")
	assert.Contains(t, try(input, "--replicas=12").stdout, "\nPods per node are not compared, as ReplicaSet shop/web has no controller such as a Deployment.\n")
}

// While two ages round down to the same power of two, the UIDs decide. If the order of two pods may change within
// the window, window.sure returns false.
func TestTimeMakesATie(t *testing.T) {
	t.Parallel()
	ready := func(age time.Duration) time.Time { return noon.Add(-age) }
	second := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	for name, tt := range map[string]struct {
		p, q   time.Duration // ages; the order puts p first
		pUID   string        // the UID of q is "m"
		within time.Duration
		want   bool
	}{
		"at an instant, ages of two powers":          {second(8), second(9), "z", 0, true},
		"a second later they are of one power":       {second(8), second(9), "z", time.Second, false},
		"unless the UIDs say the same":               {second(8), second(9), "a", time.Second, true},
		"far apart":                                  {second(8), second(900), "z", time.Minute, true},
		"of one power, by UID":                       {second(12), second(10), "a", 0, true},
		"of one power, by UID, soon of two":          {second(16.5), second(16), "a", time.Minute, false},
		"of one power, against the UIDs":             {second(12), second(10), "z", 0, false},
		"the other instant is unknown, which counts": {0, second(10), "z", time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, q := &candidate{uid: types.UID(tt.pUID), ready: ready(tt.p)}, &candidate{uid: "m", ready: ready(tt.q)}
			if tt.p == 0 {
				p.ready = time.Time{}
			}
			assert.Equal(t, tt.want, window{noon, noon.Add(tt.within)}.sure(p, q))
		})
	}
}

// After a pass of 500 deletions, the next pass counts the pods on each node again. If it is not certain which pods
// the first pass deletes, these counts are not certain either. In this test, it is not certain which pods the first
// pass deletes, so all 1,200 pods are tied.
func TestPassesThatAreNotCertainLeaveTheNodesOpen(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	objs := randomFleet(r, 1200)
	objs.replicaSets[0].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "d", Controller: new(true)}}
	for i, p := range objs.pods {
		p.Annotations, p.Spec.NodeName, p.Status.ContainerStatuses = nil, fmt.Sprintf("node-%d", i%40), nil
		p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: p.CreationTimestamp}}
	}
	answers, err := (&options{at: noon}).decide(objs, ofReplicaSet(objs.replicaSets[0]), []int32{100})
	require.NoError(t, err)
	d := answers[0].sets[0]
	require.Len(t, d.passes, 3)
	require.NotNil(t, d.tie)
	assert.Equal(t, shifted, d.tie.cause)
	assert.Equal(t, tie{0, 1200, 1100, shifted}, *d.tie)
}
