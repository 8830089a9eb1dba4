// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
	"github.com/replicakit/replicakit/replicas/controller"
)

// The manager is the program of cmd/replicakit-controller. It runs as the service account of its manifests, and
// has exactly the rights that the manifests grant. Two tests give the manager other rights. The test in the method
// managerServer.restored runs the manager as an administrator. The test in managerServer.rightsTakenAway takes
// some of the rights away for a while. If a client sets blockOwnerDeletion in an owner reference, the API server
// of these tests requires a right for this too.

const (
	managerAccount = "replicakit-controller" // also the name of the role and of the lease
	managerUser    = "system:serviceaccount:kube-system:" + managerAccount
)

func TestManager(t *testing.T) {
	t.Parallel()
	s := newManagerServer(t)
	//nolint:paralleltest // there is one lease, and one server to stop
	for _, story := range []struct {
		name string
		tell func(*testing.T)
	}{
		{"Z1 it needs the rights of its manifests, and every one", s.rights},
		{"rights that are taken away are waited for", s.rightsTakenAway},
		{"metrics and probes are what Prometheus and the kubelet want", s.metrics},
		{"Z5 SIGTERM in mid-burst cuts no write, and lets go of the lease", s.terminated},
		{"one of two is killed in the middle of a scale-up, the other goes on", s.killed},
		{"a leader that is paused at any moment writes nothing after another took over", s.paused},
		{"nor does one that is paused in the middle of a renewal", s.pausedInRenewal},
		{"the API server is gone for half a minute", s.serverGone},
		{"the API server is gone for longer than the lease can wait", s.leaseLost},
		{"a server that is restored from a backup is told, until a restart mends it", s.restored},
	} {
		t.Run(story.name, story.tell)
	}
}

// A managerServer is a cluster with an audit log. It also knows the path of the program.
type managerServer struct {
	*cluster
	dir        string
	program    string
	kubeconfig string // of the manager's service account
}

func newManagerServer(t *testing.T) *managerServer {
	t.Helper()
	own, err := startCluster(time.Millisecond)
	require.NoError(t, err)
	t.Cleanup(own.stop)
	s := &managerServer{cluster: own, dir: t.TempDir()}
	policy := filepath.Join(s.dir, "audit-policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n"), 0o600))
	own.env.ControlPlane.GetAPIServer().Configure().
		Append("audit-policy-file", policy).
		Append("audit-log-path", s.auditLog()).
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	require.NoError(t, own.restartAPIServer(t.Context()))
	s.applyRights(t)
	s.grants(t, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "pods"}, true)
	s.grants(t, authorizationv1.ResourceAttributes{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system", Name: managerAccount}, true)
	s.grants(t, authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}, true)
	s.kubeconfig = writeKubeconfig(t, s.config.Host, s.config.CAData, s.token(t, "kube-system", managerAccount))
	s.program, err = controlplane.Ours("replicakit-controller")
	require.NoError(t, err)
	return s
}

func (s *managerServer) auditLog() string { return filepath.Join(s.dir, "audit.log") }

// manifest reads one of the program's manifests.
func manifest(t *testing.T, name string) (objects []runtime.Object) {
	t.Helper()
	root, err := controlplane.Repository()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "cmd", "replicakit-controller", "manifests", name))
	require.NoError(t, err)
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		require.NoError(t, err)
		objects = append(objects, object)
	}
}

// applyRights applies those manifests that grant the manager its rights.
func (s *managerServer) applyRights(t *testing.T) {
	t.Helper()
	binaries, err := controlplane.Binaries()
	require.NoError(t, err)
	root, err := controlplane.Repository()
	require.NoError(t, err)
	kubectl := exec.CommandContext(t.Context(), filepath.Join(binaries, "kubectl"), "--kubeconfig="+s.cluster.kubeconfig, "--cache-dir="+t.TempDir(),
		"apply", "-k", filepath.Join(root, "cmd", "replicakit-controller", "manifests"), "--selector=app.kubernetes.io/component=rights")
	out, err := kubectl.CombinedOutput()
	require.NoError(t, err, string(out))
}

// If allowed is true, grants waits until the manager has the right. Otherwise grants waits until the manager no
// longer has the right. The server notices a changed role a little late, because it watches the roles.
func (s *managerServer) grants(t *testing.T, right authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		review, err := s.client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: managerUser, ResourceAttributes: &right},
		}, metav1.CreateOptions{})
		require.NoError(c, err)
		assert.Equal(c, allowed, review.Status.Allowed)
	}, patience, glance, "%v", right)
}

func (s *managerServer) token(t *testing.T, namespace, account string) string {
	t.Helper()
	request, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return request.Status.Token
}

// writeKubeconfig writes a kubeconfig with a token, and returns its path.
func writeKubeconfig(t *testing.T, server string, authority []byte, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, path))
	return path
}

// world returns a new world in which the test itself starts no controllers.
func (s *managerServer) world(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, settings{cluster: s.cluster, idle: true})
}

// A manager is a process of the program.
type manager struct {
	t      *testing.T
	cmd    *exec.Cmd
	log    syncBuffer
	exited chan struct{}
}

// start starts a manager with a lease of 5 seconds. The lease is short because some stories wait until it ends. A
// busy server must still have enough time to answer a renewal before the lease ends.
func (s *managerServer) start(t *testing.T, args ...string) *manager {
	t.Helper()
	m := &manager{t: t, exited: make(chan struct{})}
	m.cmd = exec.Command(s.program, append([]string{
		"--kubeconfig=" + s.kubeconfig, "--metrics-bind-address=127.0.0.1:0", "-v=4", "--kube-api-qps=100",
		"--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms",
	}, args...)...)
	m.cmd.Env = append(os.Environ(), featuresOf(args)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.Args = slices.DeleteFunc(m.cmd.Args, func(arg string) bool { return strings.HasPrefix(arg, feature) })
	require.NoError(t, m.cmd.Start())
	go func() {
		_ = m.cmd.Wait()
		close(m.exited)
	}()
	kill := stopAtExit(func() {
		_ = m.cmd.Process.Kill()
		<-m.exited
	})
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			t.Log("the log of a manager ends:\n" + m.log.tail())
		}
	})
	return m
}

// openMetrics is a flag that lets every client read the metrics.
const openMetrics = "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics"

// feature is a prefix of arguments. The method start passes arguments with this prefix to the manager as
// environment variables.
const feature = "KUBE_FEATURE_"

func featuresOf(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, feature) })
}

// says waits until the log of the manager matches the pattern, and returns the match and its groups.
func (m *manager) says(pattern string) []string {
	m.t.Helper()
	re := regexp.MustCompile(pattern)
	require.Eventually(m.t, func() bool { return re.MatchString(m.log.String()) }, patience, glance, "a manager must say %s", pattern)
	return re.FindStringSubmatch(m.log.String())
}

func (m *manager) leads() { m.t.Helper(); m.says("Successfully acquired lease") }

// address returns the address at which the manager serves metrics and probes.
func (m *manager) address() string {
	m.t.Helper()
	return m.says(`Serving metrics and probes" address="([^"]+)"`)[1]
}

// ready waits until the manager has listed all its resources. If one owner has its pods, the manager may not have
// listed all resources yet. For example, a ReplicaSet may have its pods before the manager has listed the
// ReplicationControllers.
func (m *manager) ready() {
	m.t.Helper()
	require.EventuallyWithT(m.t, func(c *assert.CollectT) {
		code, text := get(m.t, "https://"+m.address()+"/readyz", "")
		assert.Equal(c, http.StatusOK, code)
		assert.Equal(c, "ok", text)
	}, patience, glance, "a manager must be ready")
}

// ends waits for the end of the process and returns its exit code.
func (m *manager) ends() int {
	m.t.Helper()
	select {
	case <-m.exited:
	case <-time.After(patience):
		require.Fail(m.t, "a manager does not end")
	}
	return m.cmd.ProcessState.ExitCode()
}

// stop ends a manager with SIGTERM, and requires that its exit code is 0.
func (m *manager) stop() {
	m.t.Helper()
	require.NoError(m.t, m.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(m.t, m.ends())
}

func (s *managerServer) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease, err := s.client.CoordinationV1().Leases("kube-system").Get(t.Context(), managerAccount, metav1.GetOptions{})
	require.NoError(t, err)
	return lease
}

// ever waits until the owner has had at least n pods in total.
func (w *world) ever(owner metav1.Object, n int) {
	w.t.Helper()
	w.eventually(func(c *assert.CollectT) {
		assert.GreaterOrEqual(c, w.history.everOwned(owner), n)
	}, "%d pods of %s", n, owner.GetName())
}

// rights lets the manager make all kinds of requests that it ever makes, once with streamed lists and once with
// plain lists. It then compares the rights that the manager has used with the rights that the manifests grant.
func (s *managerServer) rights(t *testing.T) {
	t.Helper()
	w := s.world(t)
	rs, rc := w.create(replicaSet("rs", 15)), w.createController(replicationController("rc", 15))
	for watchList, served := range map[string][]string{"true": nil, "false": {"--namespace=" + w.namespace}} {
		m := s.start(t, append(served, feature+"WatchListClient="+watchList, "--scale-down-order=leaving")...)
		for _, owner := range []metav1.Object{rs, rc} {
			w.has(owner, 15)
			lift := w.refuseDeletes(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			w.scale(owner, 14)
			w.eventually(func(c *assert.CollectT) {
				assert.Contains(c, s.used(t).granted, "get pods")
			}, "a pod must be read whose deletion had no answer")
			lift()
			w.has(owner, 14)
			before := w.history.everOwned(owner)
			w.createPod(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "stray-", Labels: labels(owner.GetName())},
				Spec:       template(nil).Spec,
			})
			w.allow(owner, 1)
			w.ever(owner, before+1)
			w.has(owner, 14)
			w.scale(owner, 15)
			w.has(owner, 15)
		}
		s.scrape(t, m)
		w.eventually(func(c *assert.CollectT) {
			assert.Contains(c, s.used(t).granted, "patch events")
		}, "an event must repeat")
		m.stop()
		assert.NotContains(t, m.log.String(), "A right is missing")
	}
	used := s.used(t)
	assert.Empty(t, used.denied)
	// The audit log has no requests for finalizers, because only an admission plugin of the server checks this
	// right.
	granted := slices.DeleteFunc(grantedBy(t, "rbac.yaml", "metrics-rbac.yaml"), func(right string) bool {
		return strings.Contains(right, "/finalizers")
	})
	assert.Equal(t, granted, used.granted)
}

// grantedBy returns the rights that the manifests grant, sorted. For example, a right is "get pods".
func grantedBy(t *testing.T, names ...string) (rights []string) {
	t.Helper()
	for _, name := range names {
		for _, object := range manifest(t, name) {
			var rules []rbacv1.PolicyRule
			switch o := object.(type) {
			case *rbacv1.ClusterRole:
				rules = o.Rules
			case *rbacv1.Role:
				rules = o.Rules
			}
			for _, rule := range rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights = append(rights, verb+" "+resource)
					}
				}
			}
		}
	}
	slices.Sort(rights)
	return slices.Compact(rights)
}

// A usage contains the verbs and resources of the manager's requests. Requests that the server refused as
// forbidden are in denied.
type usage struct{ granted, denied []string }

func (s *managerServer) used(t *testing.T) (used usage) {
	t.Helper()
	log, err := os.Open(s.auditLog())
	require.NoError(t, err)
	defer func() { _ = log.Close() }()
	for lines := json.NewDecoder(log); ; {
		var event struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef *struct{ Resource, Subresource string }
			Response  struct{ Code int } `json:"responseStatus"`
		}
		if err := lines.Decode(&event); err != nil {
			break // the end of the log, or a line that is still being written
		}
		if event.User.Username != managerUser || event.ObjectRef == nil || strings.HasPrefix(event.ObjectRef.Resource, "selfsubject") {
			continue
		}
		right := strings.TrimSuffix(event.Verb+" "+event.ObjectRef.Resource+"/"+event.ObjectRef.Subresource, "/")
		if event.Response.Code == http.StatusForbidden {
			used.denied = append(used.denied, right)
			continue
		}
		used.granted = append(used.granted, right)
	}
	slices.Sort(used.granted)
	slices.Sort(used.denied)
	return usage{granted: slices.Compact(used.granted), denied: slices.Compact(used.denied)}
}

// scrape reads the metrics with the tokens of two service accounts. The manager must refuse the account that has
// no right to read the metrics.
func (s *managerServer) scrape(t *testing.T, m *manager) {
	t.Helper()
	for account, want := range map[string]int{"prometheus": http.StatusOK, "somebody": http.StatusForbidden} {
		object := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
		if _, err := s.client.CoreV1().ServiceAccounts("default").Create(t.Context(), object, metav1.CreateOptions{}); err == nil && want == http.StatusOK {
			_, err = s.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: account},
				Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: "default"}},
				RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: managerAccount + "-metrics-reader"},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
		} else if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
		}
		code, text := get(t, "https://"+m.address()+"/metrics", s.token(t, "default", account))
		require.Equal(t, want, code, account)
		if want == http.StatusOK {
			assert.Contains(t, families(t, text), "workqueue_depth")
		}
	}
}

func get(t *testing.T, url, token string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(body)
}

// families parses metrics as Prometheus does.
func families(t *testing.T, text string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	return families
}

func (s *managerServer) rightsTakenAway(t *testing.T) {
	t.Helper()
	w := s.world(t)
	rs, rc := w.create(replicaSet("rs", 3)), w.createController(replicationController("rc", 3))
	m := s.start(t)
	w.has(rs, 3)
	w.has(rc, 3)
	role := func(edit func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
		t.Helper()
		roles := s.client.RbacV1().ClusterRoles()
		role, err := roles.Get(t.Context(), managerAccount, metav1.GetOptions{})
		require.NoError(t, err)
		role.Rules = edit(role.Rules)
		_, err = roles.Update(t.Context(), role, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	var whole []rbacv1.PolicyRule
	without := func(resources ...string) func([]rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
			whole = slices.Clone(rules)
			return slices.DeleteFunc(slices.Clone(rules), func(rule rbacv1.PolicyRule) bool {
				return slices.Contains(resources, rule.Resources[0])
			})
		}
	}

	role(without("replicasets/finalizers"))
	s.grants(t, authorizationv1.ResourceAttributes{Verb: "update", Group: "apps", Resource: "replicasets", Subresource: "finalizers"}, false)
	w.scale(rs, 5)
	w.scale(rc, 5)
	w.has(rc, 5)
	w.eventually(func(c *assert.CollectT) {
		failed := w.events(rs, controller.FailedCreate)
		if assert.NotEmpty(c, failed) {
			assert.Contains(c, failed[0].Message, "cannot set blockOwnerDeletion")
		}
	}, "the event must say what is missing")
	role(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return whole })
	w.has(rs, 5)

	// The server checks the rights of a watch only when the watch begins, so the test restarts the manager.
	m.stop()
	role(without("pods", "replicasets"))
	s.grants(t, authorizationv1.ResourceAttributes{Verb: "watch", Resource: "pods"}, false)
	m = s.start(t)
	m.says(`A right is missing" for="replicaset-controller" right="watch pods" in="all namespaces"`)
	m.says(`A right is missing" for="replicaset-controller" right="list replicasets.apps"`)
	w.eventually(func(c *assert.CollectT) {
		code, text := get(t, "https://"+m.address()+"/readyz", "")
		assert.Equal(c, http.StatusServiceUnavailable, code)
		assert.Contains(c, text, "a right is missing: list pods in all namespaces, for replicaset-controller\n")
		assert.Contains(c, text, "not listed yet: pods, replicasets\n")
	}, "not ready without rights")
	w.scale(rs, 2)
	w.scale(rc, 2)
	role(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return whole })
	w.has(rs, 2)
	w.has(rc, 2)
	m.ready()
	m.stop()
}

func (s *managerServer) metrics(t *testing.T) {
	t.Helper()
	w := s.world(t)
	rs := w.create(replicaSet("web", 3))
	leader := s.start(t, openMetrics)
	w.has(rs, 3)
	standby := s.start(t, openMetrics)
	standby.says("Attempting to acquire leader lease")
	for m, leads := range map[*manager]float64{leader: 1, standby: 0} {
		m.ready()
		code, text := get(t, "https://"+m.address()+"/healthz", "")
		assert.Equal(t, http.StatusOK, code)
		assert.Equal(t, "ok", text)
		code, text = get(t, "https://"+m.address()+"/metrics", "")
		require.Equal(t, http.StatusOK, code)
		status := families(t, text)["leader_election_master_status"]
		require.Len(t, status.GetMetric(), 1)
		assert.InDelta(t, leads, status.GetMetric()[0].GetGauge().GetValue(), 0)
	}
	_, text := get(t, "https://"+leader.address()+"/metrics", "")
	for _, queue := range []string{"replicaset", "replicationmanager"} {
		for _, name := range []string{
			"workqueue_depth", "workqueue_adds_total", "workqueue_retries_total", "workqueue_queue_duration_seconds",
			"workqueue_work_duration_seconds", "workqueue_unfinished_work_seconds", "workqueue_longest_running_processor_seconds",
		} {
			assert.True(t, slices.ContainsFunc(families(t, text)[name].GetMetric(), func(m *dto.Metric) bool {
				return m.GetLabel()[0].GetValue() == queue
			}), "%s of %s", name, queue)
		}
	}
	standby.stop()
	leader.stop()
}

// terminated sends SIGTERM to a manager in the middle of a scale-up. The manager must have logged every pod that
// exists on the server.
func (s *managerServer) terminated(t *testing.T) {
	t.Helper()
	const wanted = 1000 // creating all these pods takes seconds, so SIGTERM comes before the last creation
	w := s.world(t)
	fast := []string{"--kube-api-qps=1000", "--kube-api-burst=1000"}
	m := s.start(t, fast...)
	m.leads()
	rs := w.create(replicaSet("web", wanted))
	w.ever(rs, wanted/16)
	m.stop()
	assert.Contains(t, m.log.String(), "Released the lease")
	assert.Empty(t, *s.lease(t).Spec.HolderIdentity)
	there, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Less(t, len(there.Items), wanted, "it was in the middle")
	assert.Equal(t, len(there.Items), strings.Count(m.log.String(), `"Controller created pod"`), "no answer was lost")

	next := s.start(t, fast...)
	w.has(rs, wanted)
	assert.Equal(t, wanted, w.history.everOwned(rs))
	next.stop()
}

func (s *managerServer) killed(t *testing.T) {
	t.Helper()
	const wanted = 400
	w := s.world(t)
	first := s.start(t)
	first.leads()
	second := s.start(t)
	second.says("Attempting to acquire leader lease")
	transitions := s.lease(t).Spec.LeaseTransitions
	rs := w.create(replicaSet("web", wanted))
	w.allow(rs, controller.DefaultMaxParallel)
	w.ever(rs, wanted/8)
	require.NoError(t, first.cmd.Process.Kill())
	first.ends()
	assert.Less(t, w.history.everOwned(rs), wanted, "it was in the middle")
	assert.NotContains(t, second.log.String(), "Starting controller", "one works, not two")
	second.leads()
	w.has(rs, wanted)
	assert.LessOrEqual(t, w.history.everOwned(rs), wanted+controller.DefaultMaxParallel)
	assert.Equal(t, *transitions+1, *s.lease(t).Spec.LeaseTransitions)
	second.stop()
}

// pause stops the API server until resume is called.
func (s *managerServer) pause(t *testing.T) (resume func()) {
	t.Helper()
	server := s.env.ControlPlane.GetAPIServer()
	_ = server.Stop() // an error means that the server had to be killed
	require.Eventually(t, func() bool {
		connection, err := net.Dial("tcp", net.JoinHostPort(server.Address, server.Port))
		if err == nil {
			_ = connection.Close()
		}
		return err != nil
	}, patience, glance)
	return func() {
		t.Helper()
		require.NoError(t, server.Start())
	}
}

func (s *managerServer) serverGone(t *testing.T) {
	t.Helper()
	const wanted = 400
	w := s.world(t)
	m := s.start(t, "--leader-elect=false")
	rs := w.create(replicaSet("web", wanted))
	w.ever(rs, wanted/8)
	resume := s.pause(t)
	m.says("(?s)(connection refused.*){5}")
	assert.Never(t, func() bool {
		code, _ := get(t, "https://"+m.address()+"/healthz", "")
		return code != http.StatusOK
	}, 30*time.Second, time.Second, "it waits and is well")
	resume()
	w.has(rs, wanted)
	assert.Equal(t, wanted, w.history.everOwned(rs))
	m.stop()
}

func (s *managerServer) leaseLost(t *testing.T) {
	t.Helper()
	const wanted = 400
	w := s.world(t)
	m := s.start(t)
	m.leads()
	rs := w.create(replicaSet("web", wanted))
	w.allow(rs, controller.DefaultMaxParallel)
	w.ever(rs, wanted/8)
	resume := s.pause(t)
	assert.Equal(t, 1, m.ends())
	assert.Contains(t, m.log.String(), "controller: the lease was lost: it could not be renewed for ")
	resume()
	next := s.start(t) // a kubelet would do the same
	w.has(rs, wanted)
	next.stop()
}

// restored restores the server from a backup while a manager runs. The manager runs as an administrator. If the
// manager ran as its service account, the starting server might refuse its watches, because the server does not
// know the roles yet. After a refused watch, the manager's informer lists again, and this list repairs the cache.
func (s *managerServer) restored(t *testing.T) {
	t.Helper()
	w := s.world(t)
	rs := w.create(replicaSet("web", 3))
	administrator := "--kubeconfig=" + s.cluster.kubeconfig
	m := s.start(t, "--leader-elect=false", administrator)
	w.has(rs, 3)
	backup := filepath.Join(s.dir, "backup")
	require.NoError(t, s.takeBackup(t.Context(), backup))
	s.passVersions(t, w.namespace, 500) // more writes than the server makes by itself when it starts
	w.scale(rs, 9)
	for i, pod := range w.has(rs, 9)[:2] { // if the manager sees that the second pod is ready, its watch is up again
		w.run(pod, "node-a", time.Now())
		w.eventually(func(c *assert.CollectT) {
			assert.EqualValues(c, i+1, w.report(rs).ReadyReplicas)
		}, "the manager must see the ready pods")
	}
	m.ready()
	const asked = "The server reported its current resourceVersion"
	before := strings.Count(m.log.String(), asked) // the manager logs this every 20 seconds
	w.eventually(func(c *assert.CollectT) {
		assert.Greater(c, strings.Count(m.log.String(), asked), before)
	}, "the manager must know the version")
	require.NoError(t, s.restoreBackup(t.Context(), backup))
	m.says(`The API server was restored from a backup" from="[0-9]+" to="[0-9]+"`) // even if the informers have already listed again
	require.NoError(t, m.cmd.Process.Signal(syscall.SIGTERM))
	m.ends() // with an error if a controller has noticed too

	next := s.start(t, "--leader-elect=false", administrator)
	live := func(want int) {
		t.Helper()
		w.eventually(func(c *assert.CollectT) {
			pods, err := w.client.CoreV1().Pods(w.namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(c, err)
			assert.Len(c, pods.Items, want)
		}, "it goes on after a restart")
	}
	live(3)
	w.scale(rs, 5)
	live(5)
	next.stop()
}

// passVersions makes more than n writes, so that the server's resourceVersion grows by more than n.
func (s *managerServer) passVersions(t *testing.T, namespace string, n int) {
	t.Helper()
	clock, err := s.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "clock"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for i := range n {
		clock.Data = map[string]string{"time": strconv.Itoa(i)}
		clock, err = s.client.CoreV1().ConfigMaps(namespace).Update(t.Context(), clock, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
}
