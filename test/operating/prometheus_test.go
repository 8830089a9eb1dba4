// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// The intervals of Prometheus and the waits of the alerts are divided by this number, so that alerts fire sooner.
// TestAlerts tests the alerts with their original waits.
const faster = 6

// The alert for a hanging watch depends on real time, so a real Prometheus scrapes running managers in this test.
// Prometheus uses the settings of the ServiceMonitor, and the token of the service account in reader.yaml. Its
// rules are those of the PrometheusRule, as the Prometheus operator would configure them.
func TestAPrometheusSeesIncidents(t *testing.T) {
	t.Parallel()
	f, err := startServer()
	require.NoError(t, err)
	p := startPrometheus(t, f)

	hanging, mended := newProxy(t, f, true), newProxy(t, f, false)
	for namespace, kubeconfig := range map[string]string{"behind": hanging.kubeconfig, "mended": mended.kubeconfig, "healthy": f.kubeconfig} {
		_, err := f.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = f.client.AppsV1().ReplicaSets(namespace).Create(t.Context(), replicaSet("web"), metav1.CreateOptions{})
		require.NoError(t, err)
		p.begins(namespace, "--kubeconfig="+kubeconfig, "--namespace="+namespace, "--leader-elect=false", "--allow-other-controllers")
		p.wants(namespace, 3)
	}
	p.seesNothingWrong()

	// The watches of two managers hang while no object changes. The manager of the namespace "mended" can still
	// list. So this manager ends its watch and lists again, before the watch is old enough for the alert.
	hanging.hang()
	mended.hang()
	p.awaits("ReplicakitWatchBehind", "pending")
	p.awaits("ReplicakitWatchBehind", "firing")
	// The manager of the namespace "mended" recovers at about this time, because both proxies began to hang at the
	// same time.
	eventually(t, func(c *assert.CollectT) {
		assert.Empty(c, p.values(t, `replicakit_watch_age_seconds{pod="mended"} > 180`))
	})
	p.wants("mended", 4)
	text, _ := f.ask(p.managers["behind"].address, "/readyz")
	assert.Regexp(t, "the watch is [0-9a-z]+ behind the server", string(text), "as the runbook says")
	hanging.goOn()
	p.awaits("ReplicakitWatchBehind", "")
	p.wants("behind", 4)
}

// A prometheus is a running Prometheus. It scrapes the managers in the map managers. The keys of this map are the
// names of the managers' pods.
type prometheus struct {
	*fleet
	t        *testing.T
	address  string
	managers map[string]*process
}

func startPrometheus(t *testing.T, f *fleet) *prometheus {
	t.Helper()
	p := &prometheus{fleet: f, t: t, managers: map[string]*process{}}
	text, err := os.ReadFile(program + "/manifests/monitoring/servicemonitor.yaml")
	require.NoError(t, err)
	var monitor monitoringv1.ServiceMonitor
	require.NoError(t, yaml.UnmarshalStrict(text, &monitor))
	endpoint := monitor.Spec.Endpoints[0]
	text, err = os.ReadFile(program + "/manifests/monitoring/prometheusrule.yaml")
	require.NoError(t, err)
	var rule monitoringv1.PrometheusRule
	require.NoError(t, yaml.UnmarshalStrict(text, &rule))
	for _, group := range rule.Spec.Groups {
		for i := range group.Rules {
			if wait := group.Rules[i].For; wait != nil {
				*wait = sooner(t, *wait)
			}
		}
	}
	p.write("rules.yaml", rule.Spec)
	p.write("targets.yaml", []any{})
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, filepath.Base(endpoint.BearerTokenFile)), []byte(f.prometheus), 0o600)) //nolint:staticcheck // see there
	p.write("prometheus.yaml", map[string]any{
		"global":     map[string]any{"evaluation_interval": sooner(t, "30s")}, // the Prometheus operator's default is 30s
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []any{map[string]any{
			"job_name":          monitor.Name,
			"scheme":            endpoint.Scheme,
			"scrape_interval":   sooner(t, endpoint.Interval),
			"bearer_token_file": filepath.Base(endpoint.BearerTokenFile), //nolint:staticcheck // see there
			"tls_config":        map[string]any{"insecure_skip_verify": endpoint.TLSConfig.InsecureSkipVerify},
			"file_sd_configs":   []any{map[string]any{"files": []string{"targets.yaml"}}},
		}},
	})
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	output := filepath.Join(f.dir, "prometheus.log")
	running, err := controlplane.StartProgram("prometheus", output, filepath.Join(binaries, "prometheus"),
		"--config.file="+filepath.Join(f.dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(f.dir, "tsdb"), "--web.listen-address=127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, running.Stop()) })
	listens := regexp.MustCompile(`msg="Listening on" .*address=(127\.0\.0\.1:[0-9]+)`)
	eventually(t, func(c *assert.CollectT) {
		text, err := os.ReadFile(output)
		require.NoError(c, err)
		found := listens.FindSubmatch(text)
		require.NotNil(c, found, "%s", text)
		p.address = string(found[1])
	})
	return p
}

func sooner(t *testing.T, wait monitoringv1.Duration) monitoringv1.Duration {
	t.Helper()
	d, err := model.ParseDuration(string(wait))
	require.NoError(t, err)
	return monitoringv1.Duration((d / faster).String())
}

func (p *prometheus) write(name string, what any) {
	p.t.Helper()
	text, err := yaml.Marshal(what)
	require.NoError(p.t, err)
	file := filepath.Join(p.dir, name)
	require.NoError(p.t, os.WriteFile(file+".new", text, 0o600))
	require.NoError(p.t, os.Rename(file+".new", file)) // Prometheus watches targets.yaml, and must not read half of it
}

// begins starts a manager, and adds it to the targets of Prometheus under the name of a pod.
func (p *prometheus) begins(pod string, args ...string) *process {
	p.t.Helper()
	manager, err := p.start(args...)
	require.NoError(p.t, err)
	p.t.Cleanup(manager.stop)
	p.managers[pod] = manager
	var targets []any
	for pod, manager := range p.managers {
		targets = append(targets, map[string]any{
			"targets": []string{manager.address},
			"labels":  map[string]string{"namespace": "kube-system", "pod": pod},
		})
	}
	p.write("targets.yaml", targets)
	return manager
}

// wants scales the ReplicaSet of a namespace, and waits until the status shows the wanted number of pods.
func (p *prometheus) wants(namespace string, pods int32) {
	p.t.Helper()
	out, err := p.bash(p.t.Context(), fmt.Sprintf("kubectl --namespace=%s scale replicaset web --replicas=%d", namespace, pods))
	require.NoError(p.t, err, out)
	eventually(p.t, func(c *assert.CollectT) {
		web, err := p.client.AppsV1().ReplicaSets(namespace).Get(p.t.Context(), "web", metav1.GetOptions{})
		require.NoError(c, err)
		assert.Equal(c, pods, web.Status.Replicas)
	})
}

// asks sends a request to the API of Prometheus, and stores the answer in data.
func (p *prometheus) asks(t require.TestingT, path string, data any) {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, "http://"+p.address+"/api/v1/"+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s", text)
	require.NoError(t, json.Unmarshal(text, &struct{ Data any }{data}))
}

// alerts returns the state of each alert that is pending or firing. The keys are the names of the alerts.
func (p *prometheus) alerts(t require.TestingT) map[string]string {
	var data struct {
		Alerts []struct {
			State  string
			Labels map[string]string
		}
	}
	p.asks(t, "alerts", &data)
	states := map[string]string{}
	for _, alert := range data.Alerts {
		states[alert.Labels["alertname"]] = alert.State
	}
	return states
}

// values returns the labels of each series that the query finds.
func (p *prometheus) values(t require.TestingT, query string) []map[string]string {
	var data struct {
		Result []struct{ Metric map[string]string }
	}
	p.asks(t, "query?query="+url.QueryEscape(query), &data)
	found := make([]map[string]string, len(data.Result))
	for i, result := range data.Result {
		found[i] = result.Metric
	}
	return found
}

// seesNothingWrong waits until Prometheus has scraped all managers and evaluated all alerts, and no alert is
// pending or firing.
func (p *prometheus) seesNothingWrong() {
	p.t.Helper()
	eventually(p.t, func(c *assert.CollectT) {
		assert.Len(c, p.values(c, `up{job="`+name+`"} == 1`), len(p.managers), "all are scraped")
		var data struct {
			Groups []struct {
				Rules []struct{ Name, Health string }
			}
		}
		p.asks(c, "rules", &data)
		require.Len(c, data.Groups, 1)
		require.Len(c, data.Groups[0].Rules, len(alerts(p.t)))
		for _, rule := range data.Groups[0].Rules {
			assert.Equal(c, "ok", rule.Health, rule.Name)
		}
		assert.Empty(c, p.alerts(c), "nothing is wrong")
	})
}

// awaits waits until an alert has the given state. If the given state is "", awaits waits until the alert is
// neither pending nor firing.
func (p *prometheus) awaits(alert, state string) {
	p.t.Helper()
	require.EventuallyWithT(p.t, func(c *assert.CollectT) { assert.Equal(c, state, p.alerts(c)[alert], alert) }, 2*patience, time.Second)
}

// A proxy forwards the calls of a manager to the API server. After a call of hang, existing watches neither send
// events nor end.
type proxy struct {
	kubeconfig string
	forGood    bool // whether lists and later watches also hang

	mu   sync.Mutex
	gate gate // the gate that each new answer gets; the answer keeps this gate even if the field changes
}

// A gate can hold back the data of an answer. To hold the data back, close the channel gate.hung. To let the data
// pass again, also close the channel gate.open.
type gate struct{ hung, open chan struct{} }

func newGate() gate { return gate{make(chan struct{}), make(chan struct{})} }

func newProxy(t *testing.T, f *fleet, forGood bool) *proxy {
	t.Helper()
	p := &proxy{forGood: forGood, gate: newGate(), kubeconfig: filepath.Join(f.dir, "proxy-"+strconv.FormatBool(forGood))}
	target, err := url.Parse(f.plane.Config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(f.plane.Config)
	require.NoError(t, err)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ModifyResponse: func(answer *http.Response) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			query, of := answer.Request.URL.Query(), filepath.Base(answer.Request.URL.Path)
			isList := of == "pods" || of == "replicasets" || of == "replicationcontrollers"
			if query.Has("watch") || p.forGood && isList && query.Get("limit") != "1" { // with limit=1, the manager asks for the resourceVersion
				answer.Body = gatedBody{answer.Body, answer.Request.Context(), p.gate}
			}
			return nil
		},
	})
	t.Cleanup(server.CloseClientConnections)
	text := "{clusters: [{name: c, cluster: {server: '" + server.URL + "'}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}"
	require.NoError(t, os.WriteFile(p.kubeconfig, []byte(text), 0o600))
	return p
}

func (p *proxy) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gate.hung)
	if !p.forGood {
		p.gate = newGate()
	}
}

func (p *proxy) goOn() { close(p.gate.open) }

type gatedBody struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // of the request that the body answers
	gate gate
}

func (b gatedBody) Read(data []byte) (int, error) {
	n, err := b.ReadCloser.Read(data)
	select {
	case <-b.gate.hung:
	default:
		return n, err
	}
	select {
	case <-b.gate.open:
		return n, err
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
}
