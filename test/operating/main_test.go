// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operating_test tests the files for users of cmd/replicakit-controller. An API server and the
// Prometheus operator must accept the manifests. Each alert must fire when it should, and must not fire for
// a healthy manager. Everything that docs/operating.md names must exist.
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
	program = "../../cmd/replicakit-controller" // the directory of the program
	page    = "../../docs/operating.md"
	name    = "replicakit-controller" // the name of all objects in the manifests, or the beginning of the name
)

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range started {
		stop()
	}
	os.Exit(code)
}

// started holds functions that stop programs and remove files after the tests. The function that was added last
// runs first. Parallel tests add functions, so a mutex protects the slice.
var (
	starting sync.Mutex
	started  []func()
)

func stopLater(stop func()) {
	starting.Lock()
	defer starting.Unlock()
	started = append([]func(){stop}, started...)
}

// A fleet is an API server with the manifests, a ReplicaSet, a leader and a standby. The two managers use the
// service account of the manifests. Some tests use a fleet that lacks the managers, the ReplicaSet or the
// manifests.
type fleet struct {
	dir        string // files of the fleet; removed at the end
	kubeconfig string // the path of the kubeconfig of an administrator
	account    string // the path of the kubeconfig of the manifests' service account
	prometheus string // the token of the service account that may read the metrics
	controller string // the path of the program, from the image
	kubectl    string
	client     kubernetes.Interface
	plane      *controlplane.ControlPlane
	stopServer func() error       // stops the server at the first call
	managers   []*process         // the leader, then the standby
	leader     []labels.Labels    // the series of the leader
	standby    []labels.Labels    // the series of the standby
	values     map[string]float64 // the value of each series; the keys are the series' texts
	families   families           // the metrics of the leader and the standby
}

// theFleet starts the fleet at the first call. All calls return this fleet.
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

// startInstalled starts a server and installs the manifests. It starts no manager.
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

// begin unpacks the image and starts an API server without the manifests.
func (f *fleet) begin() (err error) {
	if f.controller, err = unpacked(f.dir); err != nil {
		return err
	}
	binaries, err := controlplane.Binaries()
	if err != nil {
		return err
	}
	f.kubeconfig, f.account, f.kubectl = filepath.Join(f.dir, "kubeconfig"), filepath.Join(f.dir, "account"), filepath.Join(binaries, "kubectl")
	// OpenShift also uses this admission plugin. With the plugin, a client needs the right to update finalizers of
	// owners before it may create a pod that blocks the deletion of its owner.
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

// install runs the commands in the section Install of docs/operating.md, except for the commands that build the
// image. The overlay needs the custom resources of the Prometheus operator, so install creates them first.
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

// prometheusOperator creates the custom resource definitions of the Prometheus operator.
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

// bash runs a script in the directory f.dir, with the kubeconfig of an administrator. After install, this
// directory contains the manifests and an overlay.
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

// asPrometheus creates the service account that monitoring/reader.yaml names, and a token of this account.
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

// replicaSet returns a ReplicaSet that wants three pods.
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

// manage starts the leader and the standby, waits until the pods exist, and reads the metrics.
func (f *fleet) manage() error {
	leader, err := f.start("--kubeconfig=" + f.account)
	if err != nil {
		return err
	}
	if _, err = f.scrape(leader.address, "a", `replicakit_replicas{controller="replicaset",state="current"} 3`); err != nil {
		return err
	}
	// Because the lease has changed, the next renewal takes the slow path. The leader then serves the metric
	// leader_election_slowpath_total.
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

// A process is a running manager.
type process struct {
	address string // the address of its metrics
	log     *output
	stop    func() // sends SIGTERM and waits for the end; later calls do nothing
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

// scraped returns two series that are missing from the metrics of a new manager. The first series has the name
// "up". Prometheus adds this series for each pod that it scrapes. The second series counts failed calls. A
// manager serves this second series only after a call has failed.
func (f *fleet) scraped(pod string) []labels.Labels {
	up := labels.FromStrings("__name__", "up", "job", "replicakit-controller", "namespace", "kube-system", "pod", pod)
	failed := labels.FromStrings("__name__", "rest_client_requests_total", "code", "503", "host", "h", "job", "replicakit-controller",
		"method", "GET", "namespace", "kube-system", "pod", pod)
	f.values[up.String()], f.values[failed.String()] = 1, 0
	return []labels.Labels{up, failed}
}

// scrape waits until the metrics contain the given line, and returns the series of the pod.
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

// families maps the names of metrics to the metrics.
type families map[string]*dto.MetricFamily

func familiesOf(text []byte) (families, error) {
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(text))
}

// samples returns all series with their values. Each series has the labels that Prometheus adds for the given pod.
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

// An output collects the standard error of a process.
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
