// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calm are as many scrapes as the longest alert waits for, and some.
const calm = 40

// An incident is played by a manager of its own. Each value that the alerts are asked
// about is one that it served, only the time between two scrapes is not what it was.
type incident struct {
	*fleet
	t         *testing.T
	namespace string
	manager   *process
	scrapes   [][]sample
}

func newIncident(t *testing.T, namespace string, args ...string) *incident {
	t.Helper()
	i := &incident{fleet: fleetOf(t), t: t, namespace: namespace}
	_, err := i.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	i.manager, err = i.start(append([]string{"--kubeconfig=" + i.kubeconfig, "--namespace=" + namespace, "--leader-elect=false", "--allow-other-controllers"}, args...)...)
	require.NoError(t, err)
	t.Cleanup(i.manager.stop)
	return i
}

// scrapesUntil scrapes until a series has a value.
func (i *incident) scrapesUntil(value float64, name string, labelsAndValues ...string) {
	i.t.Helper()
	eventually(i.t, func(c *assert.CollectT) {
		assert.True(c, i.serves(value, name, labelsAndValues...), "%s %v", name, labelsAndValues)
	})
}

// serves scrapes, and reports whether a series has a value.
func (i *incident) serves(value float64, name string, labelsAndValues ...string) bool {
	i.t.Helper()
	return slices.ContainsFunc(i.scrapeOnce(), func(s sample) bool { return s.value == value && is(s.series, name, labelsAndValues...) })
}

// lasts scrapes what stays as it is.
func (i *incident) lasts() {
	for range calm {
		i.scrapeOnce()
	}
}

func (i *incident) scrapeOnce() []sample {
	i.t.Helper()
	text, err := i.metricsOf(i.manager.address)
	require.NoError(i.t, err)
	found, err := familiesOf(text)
	require.NoError(i.t, err)
	samples := found.samples(i.namespace)
	i.scrapes = append(i.scrapes, samples)
	return samples
}

// fires returns which alerts fire after the last scrape.
func (i *incident) fires() []string {
	i.t.Helper()
	points, all := map[string][]chunks.Sample{}, map[string]labels.Labels{}
	for n, samples := range i.scrapes {
		at := historyEnds.Add(-time.Duration(len(i.scrapes)-1-n) * scrapeEvery)
		for _, s := range samples {
			key := s.series.String()
			all[key], points[key] = s.series, append(points[key], point{at.UnixMilli(), s.value})
		}
	}
	var h history
	for key, series := range all {
		h.series = append(h.series, storage.NewListSeries(series, points[key]))
	}
	return fire(i.t, h, alerts(i.t))
}

func (i *incident) create(app string) {
	i.t.Helper()
	_, err := i.client.AppsV1().ReplicaSets(i.namespace).Create(i.t.Context(), replicaSet(app), metav1.CreateOptions{})
	require.NoError(i.t, err)
}

const current = "replicakit_replicas"

// A quota that is full: first all is well, then a set gets no pods.
func TestIncidentAQuotaIsFull(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-quota")
	i.create("web")
	i.scrapesUntil(3, current, "controller", ofSets, "state", "current")
	i.lasts()
	assert.Empty(t, i.fires(), "nothing is wrong")

	hard := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "three"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	quota, err := i.client.CoreV1().ResourceQuotas(i.namespace).Create(t.Context(), quota, metav1.CreateOptions{})
	require.NoError(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard} // as the quota controller does
	_, err = i.client.CoreV1().ResourceQuotas(i.namespace).UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) { // the server must know
		_, err := i.client.CoreV1().Pods(i.namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: replicaSet("probe").Spec.Template.Spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.ErrorContains(c, err, "exceeded quota")
	})
	i.create("more")
	i.scrapesUntil(1, "replicakit_replica_failures", "controller", ofSets)
	i.lasts()
	assert.Equal(t, []string{"ReplicakitReplicaFailure", "ReplicakitReplicasMissing"}, i.fires())
}

// Somebody deletes the pods of a set as soon as they exist, and the manager is told to
// replace them as fast as Kubernetes does.
func TestIncidentARunawayCreation(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-runaway", "--pod-failure-backoff=false")
	i.create("web")
	i.scrapesUntil(3, current, "controller", ofSets, "state", "current")
	i.lasts()
	assert.Empty(t, i.fires(), "nothing is wrong")
	eventually(t, func(c *assert.CollectT) {
		none := int64(0)
		err := i.client.CoreV1().Pods(i.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &none}, metav1.ListOptions{})
		require.NoError(c, err)
		assert.True(c, i.serves(1, "replicakit_runaway_owners", "controller", ofSets))
	})
	assert.Contains(t, i.fires(), "ReplicakitRunawayCreation")
}
