// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// openMetrics is a flag that lets every client get the metrics.
const openMetrics = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"

// get sends a request without credentials.
func (p *program) get(path string) (code int, text string) {
	p.t.Helper()
	return get(p.t, &http.Client{Transport: bearer{}}, "https://"+p.address()+path)
}

func get(t *testing.T, client *http.Client, url string) (code int, text string) {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, string(body)
}

// metrics reads metrics as Prometheus does.
func metrics(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	return families
}

// labeled returns the metrics of the family that have the label.
func labeled(family *dto.MetricFamily, name, value string) (found []*dto.Metric) {
	for _, m := range family.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == name && l.GetValue() == value {
				found = append(found, m)
			}
		}
	}
	return found
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "metrics"
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace="+namespace, "--leader-elect-resource-namespace="+namespace, "--leader-elect-resource-name=lease", openMetrics+",/debug/*")
	_, err = client.AppsV1().ReplicaSets(namespace).Create(t.Context(), newReplicaSet("web", 3), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		rs, err := client.AppsV1().ReplicaSets(namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && rs.Status.Replicas == 3
	}, patience, 50*time.Millisecond)

	p.says(`"Starting" version="[^"]+" revision="[^"]+" go="go1[^"]+" kubernetes="v0\.`)
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		require.EventuallyWithT(t, func(c *assert.CollectT) { // ReplicationControllers may not be listed yet
			code, text := p.get(path)
			assert.Equal(c, http.StatusOK, code, path)
			assert.Equal(c, "ok", text, path)
		}, patience, 50*time.Millisecond)
	}
	code, text := p.get("/metrics")
	require.Equal(t, http.StatusOK, code)
	families := metrics(t, text)
	for _, queue := range []string{"replicaset", "replicationmanager"} {
		for _, name := range []string{
			"workqueue_depth", "workqueue_adds_total", "workqueue_retries_total", "workqueue_queue_duration_seconds",
			"workqueue_work_duration_seconds", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds",
		} {
			assert.Len(t, labeled(families[name], "name", queue), 1, "%s of %s", name, queue)
		}
	}
	assert.Positive(t, labeled(families["workqueue_work_duration_seconds"], "name", "replicaset")[0].GetHistogram().GetSampleCount())
	assert.NotEmpty(t, labeled(families["rest_client_requests_total"], "method", "POST"))
	assert.NotEmpty(t, labeled(families["rest_client_request_duration_seconds"], "verb", "POST"))
	assert.InDelta(t, 1, labeled(families["leader_election_master_status"], "name", "lease")[0].GetGauge().GetValue(), 0)
	sum := func(name, controller string) float64 {
		var sum float64
		for _, m := range labeled(families[name], "controller", controller) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	assert.InDelta(t, 3, sum("replicakit_children_created_total", "replicaset"), 0)
	assert.Zero(t, sum("replicakit_children_deleted_total", "replicaset"))
	assert.Zero(t, sum("replicakit_child_errors_total", "replicaset"))
	assert.Positive(t, sum("replicakit_sync_duration_seconds", "replicaset"))
	for kind, n := range map[string]int{"Pod": 2, "ReplicaSet": 1, "ReplicationController": 1} {
		assert.Len(t, labeled(families["replicakit_watch_age_seconds"], "kind", kind), n, kind)
	}
	assert.Zero(t, families["replicakit_server_restored_timestamp_seconds"].GetMetric()[0].GetGauge().GetValue())
	replicas := func(state string) float64 {
		found := labeled(families["replicakit_replicas"], "state", state)
		require.Len(t, found, 2, "both kinds")
		return found[0].GetGauge().GetValue() + found[1].GetGauge().GetValue()
	}
	assert.InDelta(t, 3, replicas("desired"), 0)
	assert.InDelta(t, 3, replicas("current"), 0)
	assert.Zero(t, replicas("ready"))
	assert.Zero(t, replicas("available"))
	assert.Len(t, families["replicakit_replica_failures"].GetMetric(), 2, "both kinds")
	assert.Zero(t, sum("replicakit_replica_failures", "replicaset"))
	assert.Zero(t, sum("replicakit_failed_passes_total", "replicationmanager"))
	assert.Zero(t, families["replicakit_refused_writes_total"].GetMetric()[0].GetCounter().GetValue())
	assert.Len(t, families["replicakit_build_info"].GetMetric()[0].GetLabel(), 4)
	for name := range families {
		assert.NotRegexp(t, "^(apiserver|authentication|cardinality|disabled|hidden|registered|go_godebug|rest_client_transport)_", name, "foreign")
	}
	assert.Less(t, strings.Count(text, "\n"), 600)
	code, _ = p.get("/debug/pprof/")
	assert.Equal(t, http.StatusNotFound, code, "not without --profiling")
	for _, name := range []string{"replicaset_controller_sorting_deletion_age_ratio", "process_cpu_seconds_total", "process_resident_memory_bytes", "go_goroutines"} {
		assert.Contains(t, families, name)
	}
	p.stop()
}

func TestMetricsAreGuarded(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "metrics-tls"
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	allow := func(name, path string) {
		_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{path}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}},
			RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	allow("scraper", "/metrics")
	allow("profiler", "/debug/pprof/*")
	allow("reader", "/debug/*")
	token := func(name string) string {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
		require.NoError(t, err)
		request, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		return request.Status.Token
	}

	_, err = client.AppsV1().ReplicaSets(namespace).Create(t.Context(), newReplicaSet("web", 1), metav1.CreateOptions{})
	require.NoError(t, err)
	scraper, profiler, reader := token("scraper"), token("profiler"), token("reader")
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace="+namespace, "--leader-elect=false", "--profiling", "--v=2")
	url := "https://" + p.address()
	p.says(`Starting controller" name="replicaset"`)
	require.Eventually(t, func() bool {
		code, _ := get(t, &http.Client{Transport: bearer{}}, url+"/readyz")
		return code == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	passes := url + "/debug/passes/" + namespace + "/web"
	require.Eventually(t, func() bool {
		_, text := get(t, &http.Client{Transport: bearer{reader}}, passes)
		return strings.Contains(text, namespace+"/web: 1 wanted, 0 active, 0 terminating\n") && strings.Contains(text, "\n  Create "+namespace+"/web-")
	}, time.Minute, 50*time.Millisecond)
	for _, row := range []struct {
		name, path, token string
		code              int
	}{
		{"probes are for everybody", "/healthz", "", http.StatusOK},
		{"as is whether it lives", "/livez", "", http.StatusOK},
		{"profiles are not", "/debug/pprof/", "", http.StatusUnauthorized},
		{"nor for who may get metrics", "/debug/pprof/heap", scraper, http.StatusForbidden},
		{"to who may get them", "/debug/pprof/heap", profiler, http.StatusOK},
		{"passes are not", "/debug/passes/", "", http.StatusUnauthorized},
		{"nor for who may get metrics", "/debug/passes/" + namespace + "/web", scraper, http.StatusForbidden},
		{"nor for who may get profiles", "/debug/passes/" + namespace + "/web", profiler, http.StatusForbidden},
		{"to who may get them", "/debug/passes/" + namespace + "/web", reader, http.StatusOK},
		{"none of an owner that is not there", "/debug/passes/" + namespace + "/other", reader, http.StatusNotFound},
		{"nor of half a name", "/debug/passes/web", reader, http.StatusNotFound},
		{"metrics are not", "/metrics", "", http.StatusUnauthorized},
		{"nor with any token", "/metrics", "abc", http.StatusUnauthorized},
		{"nor a second time", "/metrics", "abc", http.StatusUnauthorized},
		{"not for those without the right", "/metrics", token("nobody"), http.StatusForbidden},
		{"but for those with it", "/metrics", scraper, http.StatusOK},
	} {
		code, text := get(t, &http.Client{Transport: bearer{row.token}}, url+row.path)
		assert.Equal(t, row.code, code, row.name)
		if row.path == "/metrics" && code == http.StatusOK {
			assert.Contains(t, metrics(t, text), "workqueue_depth", row.name)
		}
	}
	assert.Equal(t, 1, strings.Count(p.log.String(), "A client of the metrics has a wrong token"), "the answer is kept")
	code, _ := get(t, http.DefaultClient, "http://"+p.address()+"/healthz")
	assert.Equal(t, http.StatusBadRequest, code, "plain HTTP on a port with TLS")
	p.stop()
}

// bearer is a transport that sends a token, and trusts any certificate.
type bearer struct{ token string }

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	return transport.RoundTrip(req)
}

func TestJSONLog(t *testing.T) {
	t.Parallel()
	p := start(t, "--kubeconfig=/does/not/exist", "--logging-format=json")
	assert.Equal(t, exitError, p.exitCode())
	var line map[string]any
	first, _, _ := strings.Cut(p.log.String(), "\n")
	require.NoError(t, json.Unmarshal([]byte(first), &line), first)
	assert.Equal(t, "Starting", line["msg"])
	assert.Contains(t, line, "ts")
	assert.NotEmpty(t, line["version"])
}
