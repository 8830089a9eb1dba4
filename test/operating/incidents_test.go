// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// calm is a number of scrapes that takes longer than the longest wait of an alert, which is 15 minutes.
const calm = 40

// An incident is a failure that a test causes, with a manager of its own. The alerts are evaluated with the values
// that this manager has served. The test replaces the times of the scrapes with times that are scrapeEvery apart.
type incident struct {
	*fleet
	t         *testing.T
	namespace string
	manager   *process
	scrapes   [][]sample
}

// theServer starts one API server for all tests of incidents that need only one namespace. These tests do not use
// the API server of the fleet, because the fleet's leader would also manage the ReplicaSets that the tests
// create.
var theServer = sync.OnceValues(startServer)

// startServer starts an API server without the manifests. A service account on this server has the right to read
// metrics.
func startServer() (*fleet, error) {
	dir, err := os.MkdirTemp("", "operating")
	if err != nil {
		return nil, err
	}
	stopLater(func() { _ = os.RemoveAll(dir) })
	f := &fleet{dir: dir}
	if err := f.begin(); err != nil {
		return nil, err
	}
	if err := f.asPrometheus(); err != nil {
		return nil, err
	}
	out, err := f.bash(context.Background(), "kubectl create clusterrolebinding scraper --clusterrole=system:monitoring --serviceaccount=monitoring:prometheus-k8s")
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	return f, nil
}

func newIncident(t *testing.T, namespace string, args ...string) *incident {
	t.Helper()
	f, err := theServer()
	require.NoError(t, err)
	i := &incident{fleet: f, t: t, namespace: namespace}
	_, err = i.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	i.begins(append([]string{"--namespace=" + namespace, "--leader-elect=false", "--allow-other-controllers"}, args...)...)
	return i
}

// begins starts a manager. If the incident already has a manager, begins first stops that manager, as in a restart
// by the kubelet.
func (i *incident) begins(args ...string) {
	i.t.Helper()
	if i.manager != nil {
		i.manager.stop()
	}
	var err error
	i.manager, err = i.start(append([]string{"--kubeconfig=" + i.kubeconfig}, args...)...)
	require.NoError(i.t, err)
	i.t.Cleanup(i.manager.stop)
}

// scrapesUntil scrapes until a series has the given value. If the given value is positive, scrapesUntil also
// accepts a larger value.
func (i *incident) scrapesUntil(value float64, name string, labelsAndValues ...string) {
	i.t.Helper()
	eventually(i.t, func(c *assert.CollectT) {
		assert.True(c, i.serves(value, name, labelsAndValues...), "%s %v", name, labelsAndValues)
	})
}

// serves scrapes once, and reports whether a series has the given value. If the given value is positive, serves
// also accepts a larger value.
func (i *incident) serves(value float64, name string, labelsAndValues ...string) bool {
	i.t.Helper()
	return slices.ContainsFunc(i.scrapeOnce(), func(s sample) bool {
		return (s.value == value || value > 0 && s.value > value) && is(s.series, name, labelsAndValues...)
	})
}

// sum returns the sum over all series of a metric that have the given labels.
func sum(samples []sample, name string, labelsAndValues ...string) (sum float64) {
	for _, s := range samples {
		if is(s.series, name, labelsAndValues...) {
			sum += s.value
		}
	}
	return sum
}

// This method scrapes the manager repeatedly. The number of scrapes is the constant calm. Meanwhile, the test
// changes nothing.
func (i *incident) lasts() {
	for range calm {
		i.scrapeOnce()
	}
}

// scrapeOnce stores and returns the result of one scrape. The result contains the series that the manager serves. It
// also contains a series named up, with the value 1. If the scrape fails, the result only contains the series named
// up, with the value 0.
func (i *incident) scrapeOnce() []sample {
	i.t.Helper()
	up := sample{labels.FromStrings("__name__", "up", "job", "replicakit-controller", "namespace", "kube-system", "pod", i.namespace), 0}
	var samples []sample
	if text, err := i.metricsOf(i.manager.address); err == nil {
		found, err := familiesOf(text)
		require.NoError(i.t, err)
		samples, up.value = found.samples(i.namespace), 1
	}
	samples = append(samples, up)
	i.scrapes = append(i.scrapes, samples)
	return samples
}

// fires returns the names of the alerts that fire after the last scrape.
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

// If a quota is full, a new ReplicaSet gets no pods, and two alerts fire. Before, no alert fires.
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
	quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: hard} // no quota controller runs, so the test writes the status
	_, err = i.client.CoreV1().ResourceQuotas(i.namespace).UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) { // wait until the server enforces the quota
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

// Another client deletes the pods of a ReplicaSet as soon as they exist. The manager replaces them as fast as
// Kubernetes does, because --pod-failure-backoff is false. The alert ReplicakitRunawayCreation fires.
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
	assert.Empty(t, critical(t, i.fires()), "a tenant has done it")
}

// A tenant creates pods for three owners under the name of kube-controller-manager. Pods prove nothing, so the alert
// ReplicakitForeignPods is a warning.
func TestIncidentATenantForgesPods(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-forged")
	for _, app := range []string{"a", "b", "c"} {
		i.create(app)
	}
	i.scrapesUntil(9, current, "controller", ofSets, "state", "current")
	i.lasts()
	assert.Empty(t, i.fires(), "nothing is wrong")
	eventually(t, func(c *assert.CollectT) {
		for _, app := range []string{"a", "b", "c"} {
			owner, err := i.client.AppsV1().ReplicaSets(i.namespace).Get(t.Context(), app, metav1.GetOptions{})
			require.NoError(c, err)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "forged-", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
			}, Spec: owner.Spec.Template.Spec}
			_, err = i.client.CoreV1().Pods(i.namespace).Create(t.Context(), pod, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
			require.NoError(c, err)
		}
		assert.True(c, i.serves(3, "replicakit_foreign_writes_total", "controller", ofSets, "what", "child"))
	})
	assert.Equal(t, []string{"ReplicakitForeignPods"}, i.fires())
	assert.Empty(t, critical(t, i.fires()))
}

// critical returns those of the alerts that are critical.
func critical(t *testing.T, names []string) (found []string) {
	t.Helper()
	for _, rule := range alerts(t) {
		if rule.Labels["severity"] == "critical" && slices.Contains(names, rule.Alert) {
			found = append(found, rule.Alert)
		}
	}
	return found
}

// The test writes a status as kube-controller-manager would if it ran with its old flags again. The manager
// continues, because of its flag --allow-other-controllers. The alert ReplicakitOtherController fires.
func TestIncidentAnotherControllerComesBack(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-other")
	i.create("web")
	i.scrapesUntil(3, current, "controller", ofSets, "state", "current")
	i.lasts()
	assert.Empty(t, i.fires(), "nothing is wrong")
	sets := i.client.AppsV1().ReplicaSets(i.namespace)
	eventually(t, func(c *assert.CollectT) {
		web, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(c, err)
		web.Status.ReadyReplicas = 1 - web.Status.ReadyReplicas
		_, err = sets.UpdateStatus(t.Context(), web, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
		require.NoError(c, err)
		assert.True(c, i.serves(1, "replicakit_foreign_writes_total", "controller", ofSets, "what", "status"))
	})
	assert.Equal(t, []string{"ReplicakitOtherController"}, i.fires())
}

// If the lease is held for a hand-over and is never released, ReplicakitNoLeader fires.
func TestIncidentNobodyHasTheLease(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-lease")
	i.scrapesUntil(0, "replicakit_waiting")
	i.lasts()
	assert.Empty(t, i.fires(), "nothing is wrong")
	holder, seconds := "migration", int32(86400)
	_, err := i.client.CoordinationV1().Leases(i.namespace).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	i.begins("--namespace="+i.namespace, "--leader-elect-resource-namespace="+i.namespace)
	i.scrapesUntil(0, leads, "name", name)
	i.lasts()
	assert.Equal(t, []string{"ReplicakitNoLeader"}, i.fires())
}

// If the namespace in the flag --namespace does not exist, the manager waits, and ReplicakitWaiting fires.
func TestIncidentANamespaceIsMissing(t *testing.T) {
	t.Parallel()
	f, err := theServer()
	require.NoError(t, err)
	i := &incident{fleet: f, t: t, namespace: "incident-nowhere"}
	i.begins("--namespace="+i.namespace, "--leader-elect=false", "--allow-other-controllers")
	i.scrapesUntil(1, "replicakit_waiting")
	i.lasts()
	assert.Equal(t, []string{"ReplicakitWaiting"}, i.fires())
}

// If a manager is restarted three times within an hour, ReplicakitRestarts fires. After one or two restarts, no
// alert fires.
func TestIncidentItRestarts(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-restarts")
	i.lasts()
	for range 2 {
		i.begins("--namespace="+i.namespace, "--leader-elect=false", "--allow-other-controllers")
		i.lasts()
		assert.Empty(t, i.fires(), "a rollout is no reason")
	}
	i.begins("--namespace="+i.namespace, "--leader-elect=false", "--allow-other-controllers")
	i.scrapesUntil(0, "replicakit_waiting")
	assert.Equal(t, []string{"ReplicakitRestarts"}, i.fires())
}

// If the manager refuses a spec, the owner gets no pods, and two alerts fire.
func TestIncidentASpecIsRefused(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-refused")
	bare := replicaSet("bare")
	bare.Spec.Template.Labels = nil
	bare.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	_, err := i.client.AppsV1().ReplicaSets(i.namespace).Create(t.Context(), bare, metav1.CreateOptions{})
	require.NoError(t, err)
	i.scrapesUntil(1, "replicakit_owners", "controller", ofSets, "state", "refused")
	i.lasts()
	assert.Equal(t, []string{"ReplicakitOwnersFrozen", "ReplicakitReplicasMissing"}, i.fires())
}

// If a namespace has more owners than the limit on calls allows, its pods are late, and two alerts fire.
func TestIncidentTooFewCalls(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-calls", "--kube-api-qps=0.01", "--kube-api-burst=60")
	for n := range 60 {
		i.create(fmt.Sprintf("web-%d", n))
	}
	i.scrapesUntil(5, "replicakit_slow_passes", "controller", ofSets)
	i.lasts()
	assert.Equal(t, []string{"ReplicakitReplicasMissing", "ReplicakitSlowPasses"}, i.fires())
}

// The server must ask a webhook before it creates a pod, but the webhook cannot be reached. ReplicakitServerErrors
// fires, and ReplicakitReplicaFailure fires later.
func TestIncidentAWebhookIsAway(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-webhook", "--kube-api-qps=200", "--kube-api-burst=200")
	url, fail, none := "https://127.0.0.1:1", admissionv1.Fail, admissionv1.SideEffectClassNone
	_, err := i.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: i.namespace},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "away.example.com", ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, FailurePolicy: &fail, SideEffects: &none,
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: i.namespace}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	for n, failed := 0, 0.0; n < calm; n++ {
		i.create(fmt.Sprintf("web-%d", n))
		eventually(t, func(c *assert.CollectT) {
			now := sum(i.scrapeOnce(), "rest_client_requests_total", "code", "500", "method", "POST")
			if now == failed {
				i.scrapes = i.scrapes[:len(i.scrapes)-1] // drop this scrape, because no call has failed since the last scrape that was kept
			}
			require.Greater(c, now, failed)
			failed = now
		})
	}
	assert.Contains(t, i.fires(), "ReplicakitServerErrors")
	i.scrapesUntil(1, "replicakit_replica_failures", "controller", ofSets)
	i.lasts()
	assert.Contains(t, i.fires(), "ReplicakitReplicaFailure")
}

// If Prometheus uses an invalid token, the manager refuses it, and two alerts fire.
func TestIncidentPrometheusIsNotLetIn(t *testing.T) {
	t.Parallel()
	i := newIncident(t, "incident-token")
	i.scrapesUntil(0, "replicakit_waiting")
	i.lasts()
	assert.Empty(t, i.fires(), "nothing is wrong")
	stranger := *i.fleet
	stranger.prometheus = "wrong"
	i.fleet = &stranger
	i.scrapesUntil(0, "up")
	i.lasts()
	_, err := i.metricsOf(i.manager.address)
	require.ErrorContains(t, err, "401 Unauthorized")
	assert.Equal(t, []string{"ReplicakitAbsent", "ReplicakitNotScraped"}, i.fires())
}

// These incidents affect a whole cluster. They use a server of their own, one after the other.
func TestIncidentsOnAServerOfTheirOwn(t *testing.T) {
	t.Parallel()
	f, err := startServer()
	require.NoError(t, err)
	//nolint:paralleltest // they are of one server
	for _, story := range []struct {
		name string
		tell func(*incident)
	}{
		{"there are more owners than calls", func(i *incident) {
			for n := range 60 {
				namespace := fmt.Sprintf("incident-queue-%d", n%12)
				_, err := i.client.CoreV1().Namespaces().Create(i.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
				require.True(i.t, err == nil || n >= 12, err)
				_, err = i.client.AppsV1().ReplicaSets(namespace).Create(i.t.Context(), replicaSet(fmt.Sprintf("web-%d", n)), metav1.CreateOptions{})
				require.NoError(i.t, err)
			}
			i.begins("--leader-elect=false", "--allow-other-controllers", "--kube-api-qps=0.01", "--kube-api-burst=60")
			i.scrapesUntil(20, "replicakit_slow_passes", "controller", ofSets)
			i.scrapesUntil(21, "workqueue_depth", "name", ofSets)
			i.lasts()
			assert.Equal(i.t, []string{"ReplicakitReplicasMissing", "ReplicakitQueueGrows", "ReplicakitSlowPasses"}, i.fires())
		}},
		{"the server is away, and the manager that could not renew its lease is started again", func(i *incident) {
			require.NoError(i.t, f.stopServer())
			i.begins()
			i.scrapesUntil(0, "up")
			i.lasts()
			_, err = i.metricsOf(i.manager.address)
			require.ErrorContains(i.t, err, "500 Internal Server Error")
			assert.Equal(i.t, []string{"ReplicakitAbsent", "ReplicakitNotScraped"}, i.fires())
			for path, says := range map[string]string{"/livez": "^ok$", "/readyz": "does not list the resources that it serves"} {
				text, _ := i.ask(i.manager.address, path)
				assert.Regexp(i.t, says, string(text))
			}
		}},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(&incident{fleet: f, t: t, namespace: "incident"}) })
	}
}
