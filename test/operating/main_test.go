package operating_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/replicakit/replicakit/internal/controlplane"
)

const patience = 2 * time.Minute

// program is the directory of examples/controller.
const program = "../../examples/controller"

func TestMain(m *testing.M) {
	code := m.Run()
	for _, stop := range started {
		stop()
	}
	os.Exit(code)
}

// started is what ends the programs that run, the last first.
var started []func()

func stopLater(stop func()) { started = append([]func(){stop}, started...) }

// A fleet is an API server with a ReplicaSet, and two managers that look after it.
type fleet struct {
	kubeconfig      string
	controller      string // the program
	kubectl         string
	leader, standby []labels.Labels    // the series that they serve
	values          map[string]float64 // of each series
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
	binaries, err := controlplane.Binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "operating")
	if err != nil {
		return nil, err
	}
	stopLater(func() { _ = os.RemoveAll(dir) })
	f := &fleet{
		kubeconfig: filepath.Join(dir, "kubeconfig"), controller: filepath.Join(dir, "controller"),
		kubectl: filepath.Join(binaries, "kubectl"), values: map[string]float64{},
	}
	build := exec.Command("go", "build", "-o", f.controller, ".")
	build.Dir, build.Env = program, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	cluster, err := controlplane.Start(binaries, nil)
	if err != nil {
		return nil, err
	}
	stopLater(func() { _ = cluster.Stop() })
	if err := os.WriteFile(f.kubeconfig, cluster.Kubeconfig, 0o600); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(cluster.Config)
	if err != nil {
		return nil, err
	}
	if err := makeReplicaSet(client); err != nil {
		return nil, err
	}
	return f, f.manage()
}

func makeReplicaSet(client kubernetes.Interface) error {
	three, web := int32(3), map[string]string{"app": "web"}
	_, err := client.AppsV1().ReplicaSets("default").Create(context.Background(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: web},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: web},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// manage starts both managers, waits until the pods are there, and reads the metrics.
func (f *fleet) manage() error {
	leader, err := f.start()
	if err != nil {
		return err
	}
	if f.leader, err = f.scrape(leader, "a", `replicakit_replicas{controller="replicaset",state="current"} 3`); err != nil {
		return err
	}
	standby, err := f.start()
	if err != nil {
		return err
	}
	f.standby, err = f.scrape(standby, "b", `leader_election_master_status{name="replicakit-controller"} 0`)
	return err
}

// start returns the address of a manager's metrics.
func (f *fleet) start() (string, error) {
	cmd := exec.Command(f.controller, "--kubeconfig="+f.kubeconfig, "--metrics-bind-address=127.0.0.1:0")
	log := &output{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stopLater(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	controlplane.BeforeTimeout(func() { _ = cmd.Process.Kill() })
	serving := regexp.MustCompile(`Serving metrics and probes" address="([^"]+)"`)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if found := serving.FindStringSubmatch(log.String()); found != nil {
			return found[1], nil
		}
	}
	return "", fmt.Errorf("the manager does not serve: %s", log)
}

// scrape reads the metrics when they have a line, and labels them as Prometheus
// labels those of the pod.
func (f *fleet) scrape(address, pod, line string) ([]labels.Labels, error) {
	var text []byte
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return nil, err
		}
		text, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return nil, err
		}
		if bytes.Contains(text, []byte(line)) {
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("no %s in: %s", line, text)
		}
	}
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var series []labels.Labels
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetHistogram() != nil || m.GetSummary() != nil {
				name = strings.TrimSuffix(name, "_count") + "_count"
			}
			b := labels.NewBuilder(labels.FromStrings("__name__", name, "job", "replicakit-controller", "namespace", "kube-system", "pod", pod))
			for _, l := range m.GetLabel() {
				b.Set(l.GetName(), l.GetValue())
			}
			series = append(series, b.Labels())
			f.values[b.Labels().String()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()) + float64(m.GetSummary().GetSampleCount())
		}
	}
	return series, nil
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
