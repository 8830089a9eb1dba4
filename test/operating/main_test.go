// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

const patience = 5 * time.Minute

const (
	program = "../../cmd/replicakit-controller" // its directory
	page    = "../../docs/operating.md"
	name    = "replicakit-controller" // of all that the manifests make
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range started {
		stop()
	}
	os.Exit(code)
}

// started is what ends the programs that run, the last first. Tests that run at once start some.
var (
	starting sync.Mutex
	started  []func()
)

func stopLater(stop func()) {
	starting.Lock()
	defer starting.Unlock()
	started = append([]func(){stop}, started...)
}

// A fleet is an API server with the manifests and a ReplicaSet, and two managers that
// look after it as the service account of the manifests.
type fleet struct {
	dir        string // for files, removed at the end
	kubeconfig string // of an administrator
	account    string // the kubeconfig of the service account
	prometheus string // the token of the account that the manifests let scrape
	controller string // the program, out of its image
	kubectl    string
	client     kubernetes.Interface
	plane      *controlplane.ControlPlane
	stopServer func() error       // once
	managers   []*process         // the leader first
	leader     []labels.Labels    // the series that it serves
	standby    []labels.Labels    // those of the other one
	values     map[string]float64 // of each series
	families   families           // of all series
}

// theFleet starts the fleet, once.
var theFleet = sync.OnceValues(startFleet)

func fleetOf(t *testing.T) *fleet {
	t.Helper()
	f, err := theFleet()
	require.NoError(t, err)
	return f
}

func startFleet() (*fleet, error) {
	f, err := startInstalled()
	if err != nil {
		return nil, err
	}
	f.values, f.families = map[string]float64{}, families{}
	for _, step := range []func() error{f.makeReplicaSet, f.manage} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// startInstalled starts a server with the manifests, on which nobody works yet.
func startInstalled() (*fleet, error) {
	dir, err := os.MkdirTemp("", "operating")
	if err != nil {
		return nil, err
	}
	stopLater(func() { _ = os.RemoveAll(dir) })
	f := &fleet{dir: dir}
	account := func() error { return f.asAccount("kube-system") }
	for _, step := range []func() error{f.begin, f.install, account, f.asPrometheus} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// begin unpacks the image and starts a server, on which there is nothing yet.
func (f *fleet) begin() (err error) {
	if f.controller, err = unpacked(f.dir); err != nil {
		return err
	}
	binaries, err := controlplane.Binaries()
	if err != nil {
		return err
	}
	f.kubeconfig, f.account, f.kubectl = filepath.Join(f.dir, "kubeconfig"), filepath.Join(f.dir, "account"), filepath.Join(binaries, "kubectl")
	// As OpenShift does, the server asks for the right to update finalizers of owners.
	if f.plane, err = controlplane.Start(binaries, map[string]string{"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"}); err != nil {
		return err
	}
	f.stopServer = sync.OnceValue(f.plane.Stop)
	stopLater(func() { _ = f.stopServer() })
	if err := os.WriteFile(f.kubeconfig, f.plane.Kubeconfig, 0o600); err != nil {
		return err
	}
	f.client, err = kubernetes.NewForConfig(f.plane.Config)
	return err
}

// install does what docs/operating.md tells, where there is what the operator of
// Prometheus brings.
func (f *fleet) install() error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	blocks := commandsOf(string(text))["Install"]
	overlay := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	if len(blocks) != 4 || overlay == nil {
		return fmt.Errorf("%s: want a block that builds the image, an overlay, and blocks that hold the lease, apply the overlay, and let go of the lease, not %q", page, blocks)
	}
	manifests := filepath.Join(f.dir, "cmd", "replicakit-controller", "manifests")
	err = errors.Join(os.CopyFS(manifests, os.DirFS(program+"/manifests")), os.Mkdir(filepath.Join(f.dir, "overlay"), 0o700),
		os.WriteFile(filepath.Join(f.dir, "overlay", "kustomization.yaml"), overlay[1], 0o600))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := f.prometheusOperator(ctx); err != nil {
		return err
	}
	return f.bashes(ctx, blocks[1], blocks[2], blocks[3])
}

// prometheusOperator makes the custom resources that the operator of Prometheus brings.
func (f *fleet) prometheusOperator(ctx context.Context) error {
	root, err := controlplane.Repository()
	if err != nil {
		return err
	}
	return f.bashes(ctx, "until kubectl get namespace kube-system; do sleep 0.1; done",
		"kubectl apply -f "+root+"/test/operating/testdata/prometheus-operator.yaml",
		"until kubectl get servicemonitors,prometheusrules; do sleep 0.1; done")
}

// bashes runs scripts one after the other.
func (f *fleet) bashes(ctx context.Context, scripts ...string) error {
	for _, script := range scripts {
		if out, err := f.bash(ctx, script); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, out)
		}
	}
	return nil
}

// bash runs a script as an administrator, where there are the manifests and an overlay.
func (f *fleet) bash(ctx context.Context, script string) (out string, err error) {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = f.dir
	cmd.Env = append(append(os.Environ(), helmHomes(f.dir)...), "KUBECONFIG="+f.kubeconfig, "KUBECACHEDIR="+f.dir, "PATH="+filepath.Dir(f.kubectl)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// asAccount writes a kubeconfig with a token of the manifests' service account.
func (f *fleet) asAccount(namespace string) error {
	request, err := f.client.CoreV1().ServiceAccounts(namespace).CreateToken(context.Background(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(f.kubeconfig)
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	}
	return clientcmd.WriteToFile(*config, f.account)
}

// asPrometheus makes the service account that monitoring/reader.yaml names, and a token of it.
func (f *fleet) asPrometheus() error {
	const namespace, account = "monitoring", "prometheus-k8s"
	ctx := context.Background()
	accounts := f.client.CoreV1().ServiceAccounts(namespace)
	_, err := f.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	request, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	f.prometheus = request.Status.Token
	return nil
}

func (f *fleet) makeReplicaSet() error {
	_, err := f.client.AppsV1().ReplicaSets("default").Create(context.Background(), replicaSet("web"), metav1.CreateOptions{})
	return err
}

// replicaSet returns one that wants three pods.
func replicaSet(app string) *appsv1.ReplicaSet {
	three, labels := int32(3), map[string]string{"app": app}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

// manage starts both managers, waits until the pods are there, and reads the metrics.
func (f *fleet) manage() error {
	leader, err := f.start("--kubeconfig=" + f.account)
	if err != nil {
		return err
	}
	if _, err = f.scrape(leader.address, "a", `replicakit_replicas{controller="replicaset",state="current"} 3`); err != nil {
		return err
	}
	// The next renewal meets a lease that has changed, and takes the slow path, which is counted.
	_, err = f.client.CoordinationV1().Leases("kube-system").Patch(context.Background(), name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"changed":"yes"}}}`), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	if f.leader, err = f.scrape(leader.address, "a", `leader_election_slowpath_total{name="replicakit-controller"} 1`); err != nil {
		return err
	}
	standby, err := f.start("--kubeconfig=" + f.account)
	if err != nil {
		return err
	}
	f.managers = []*process{leader, standby}
	f.standby, err = f.scrape(standby.address, "b", `leader_election_master_status{name="replicakit-controller"} 0`)
	return err
}

// A process is a manager's.
type process struct {
	address string // of its metrics
	log     *output
	stop    func() // in order, once
}

func (f *fleet) start(args ...string) (*process, error) {
	cmd := exec.Command(f.controller, append(args, "--metrics-bind-address=127.0.0.1:0")...)
	p := &process{log: &output{}}
	cmd.Stderr = p.log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	stopLater(p.stop)
	controlplane.BeforeTimeout(func() { _ = cmd.Process.Kill() })
	serving := regexp.MustCompile(`Serving metrics and probes" address="([^"]+)"`)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if found := serving.FindStringSubmatch(p.log.String()); found != nil {
			p.address = found[1]
			return p, nil
		}
	}
	return nil, fmt.Errorf("the manager does not serve: %s", p.log)
}

// scraped is what Prometheus adds to the metrics of a pod, and a series that there is once
// a call has failed.
func (f *fleet) scraped(pod string) []labels.Labels {
	up := labels.FromStrings("__name__", "up", "job", "replicakit-controller", "namespace", "kube-system", "pod", pod)
	failed := labels.FromStrings("__name__", "rest_client_requests_total", "code", "503", "host", "h", "job", "replicakit-controller",
		"method", "GET", "namespace", "kube-system", "pod", pod)
	f.values[up.String()], f.values[failed.String()] = 1, 0
	return []labels.Labels{up, failed}
}

// scrape reads the metrics when they have a line.
func (f *fleet) scrape(address, pod, line string) ([]labels.Labels, error) {
	var text []byte
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if text, err = f.metricsOf(address); err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte(line)) {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("no %s in: %s", line, text)
		}
	}
	found, err := familiesOf(text)
	if err != nil {
		return nil, err
	}
	maps.Copy(f.families, found)
	series := f.scraped(pod)
	for _, s := range found.samples(pod) {
		series, f.values[s.series.String()] = append(series, s.series), s.value
	}
	return series, nil
}

// metricsOf reads the metrics as the ServiceMonitor says.
func (f *fleet) metricsOf(address string) ([]byte, error) { return f.ask(address, "/metrics") }

func (f *fleet) ask(address, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+f.prometheus)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return text, err
}

// A sample is the value of a series.
type sample struct {
	series labels.Labels
	value  float64
}

// families are metrics by name.
type families map[string]*dto.MetricFamily

func familiesOf(text []byte) (families, error) {
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// samples labels them as Prometheus labels those of the pod.
func (f families) samples(pod string) (samples []sample) {
	for name, family := range f {
		for _, m := range family.GetMetric() {
			b := labels.NewBuilder(labels.FromStrings("job", "replicakit-controller", "namespace", "kube-system", "pod", pod))
			for _, l := range m.GetLabel() {
				b.Set(l.GetName(), l.GetValue())
			}
			add := func(name string, value float64) {
				samples = append(samples, sample{b.Set("__name__", name).Labels(), value})
			}
			if m.GetHistogram() == nil && m.GetSummary() == nil {
				add(name, m.GetCounter().GetValue()+m.GetGauge().GetValue())
				continue
			}
			add(name+"_count", float64(m.GetHistogram().GetSampleCount()+m.GetSummary().GetSampleCount()))
			add(name+"_sum", m.GetHistogram().GetSampleSum()+m.GetSummary().GetSampleSum())
			for _, bucket := range m.GetHistogram().GetBucket() {
				b.Set("le", fmt.Sprint(bucket.GetUpperBound()))
				add(name+"_bucket", float64(bucket.GetCumulativeCount()))
			}
		}
	}
	return samples
}

// output is what a process says.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
