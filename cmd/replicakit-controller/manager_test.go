// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answering returns the URL of a server that gives the same answer to every request.
func answering(t *testing.T, code int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	cluster, _ := cluster(t)
	stranger := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	stranger.Config.ErrorLog = stdlog.New(io.Discard, "", 0)
	junk := writeKubeconfig(t, []byte("junk"))
	const nobody = "server: 'https://127.0.0.1:1'"
	for _, row := range []struct {
		name string
		args []string
		want string
	}{
		{
			"a kubeconfig that is none",
			[]string{"--kubeconfig=" + writeKubeconfig(t, []byte("no yaml: ["))},
			"replicakit-controller: --kubeconfig=.*: error loading config file .*: yaml: line 1",
		},
		{
			"a server that is no address",
			[]string{"--kubeconfig=" + kubeconfigFor(t, "http://a b")},
			`replicakit-controller: --kubeconfig=.*: host must be a URL or a host:port pair: "http://a b"`,
		},
		{
			"a server that is no address, without a kubeconfig",
			[]string{"--master=http://a b"},
			`replicakit-controller: --master=http://a b: host must be a URL or a host:port pair: "http://a b"`,
		},
		{
			"a server of another protocol",
			[]string{"--kubeconfig=" + kubeconfigFor(t, "ftp://127.0.0.1")},
			`replicakit-controller: --kubeconfig=.*: server "ftp://127.0.0.1": the scheme must be https or http`,
		},
		{
			"an authority that is none",
			[]string{"--kubeconfig=" + kubeconfigWith(t, nobody+", certificate-authority: "+junk, "token: abc")},
			"replicakit-controller: --kubeconfig=.*: certificate-authority: error creating pool from " + junk,
		},
		{
			"a certificate of the client that is none",
			[]string{"--kubeconfig=" + kubeconfigWith(t, nobody, "client-certificate: "+junk+", client-key: "+junk)},
			"replicakit-controller: --kubeconfig=.*: client-certificate " + junk + ", client-key " + junk + ": tls: failed to find any PEM data",
		},
		{
			"a program for credentials that is missing",
			[]string{"--kubeconfig=" + kubeconfigWith(t, nobody, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /does/not/exist, interactiveMode: Never}")},
			`replicakit-controller: --kubeconfig=.*: exec: "/does/not/exist": stat /does/not/exist: no such file or directory`,
		},
		{
			"a server with a certificate of somebody else's",
			[]string{"--kubeconfig=" + kubeconfigFor(t, stranger.URL)},
			"replicakit-controller: asking https://127.0.0.1:[0-9]+ for replicasets: .*x509: certificate signed by unknown authority",
		},
		{
			"a server without TLS",
			[]string{"--kubeconfig=" + kubeconfigFor(t, strings.Replace(answering(t, http.StatusOK, ""), "http:", "https:", 1))},
			"replicakit-controller: asking https://127.0.0.1:[0-9]+ for replicasets: .*server gave HTTP response to HTTPS client",
		},
		{
			"a lease in a namespace that does not exist",
			[]string{"--kubeconfig=" + writeKubeconfig(t, cluster.Kubeconfig), "--leader-elect-resource-namespace=missing"},
			`controller: --leader-elect-resource-namespace=missing: namespaces "missing" not found`,
		},
		{
			"a server that does not know who asks",
			[]string{"--kubeconfig=" + kubeconfigFor(t, answering(t, http.StatusUnauthorized, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`))},
			"replicakit-controller: asking http://127.0.0.1:[0-9]+ for replicasets: .*[uU]nauthorized|the server has asked for the client to provide credentials",
		},
		{
			"a server that forbids to ask",
			[]string{"--kubeconfig=" + kubeconfigFor(t, answering(t, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"forbidden: User \"u\" cannot get path \"/apis/apps/v1\"","reason":"Forbidden","code":403}`))},
			`controller: asking http://127.0.0.1:[0-9]+ for replicasets: .*User "u" cannot get path`,
		},
		{
			"a server that serves no resource of ours",
			[]string{"--kubeconfig=" + kubeconfigFor(t, answering(t, http.StatusOK, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods"}]}`))},
			`controller: http://127.0.0.1:[0-9]+ serves no resource of any controller of --controllers=\*`,
		},
		{
			"a port in use",
			[]string{"--kubeconfig=" + kubeconfigFor(t, "http://127.0.0.1:1"), "--metrics-bind-address=" + taken.Addr().String()},
			"replicakit-controller: --metrics-bind-address=127.0.0.1:[0-9]+: listen tcp 127.0.0.1:[0-9]+: bind: address already in use",
		},
		{
			"a certificate that is missing",
			[]string{"--kubeconfig=" + kubeconfigFor(t, answering(t, http.StatusOK, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"replicasets"}]}`)), "--metrics-bind-address=0.0.0.0:0", "--tls-cert-file=/does/not/exist", "--tls-private-key-file=/does/not/exist"},
			"replicakit-controller: serving metrics: --tls-cert-file=/does/not/exist, --tls-private-key-file=/does/not/exist: open /does/not/exist: no such file or directory",
		},
		{
			"a certificate that is none",
			[]string{"--kubeconfig=" + kubeconfigFor(t, "http://127.0.0.1:1"), "--tls-cert-file=" + junk, "--tls-private-key-file=" + junk},
			"replicakit-controller: serving metrics: --tls-cert-file=" + junk + ", --tls-private-key-file=" + junk + ": tls: failed to find any PEM data",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, row.args...)
			assert.Equal(t, exitError, p.exitCode())
			assert.Regexp(t, row.want, p.log.String())
			assert.NotContains(t, p.log.String(), "Waiting for the server")
		})
	}
}

// If the API server does not answer at startup, the program waits for the server. While the program waits, it
// serves metrics and health checks, which a process that keeps restarting could not do.
func TestAServerThatIsAway(t *testing.T) {
	t.Parallel()
	cluster, _ := cluster(t)
	wire := newWire(t, cluster)
	var there atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !there.Load() {
			panic(http.ErrAbortHandler)
		}
		wire.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.CloseClientConnections)
	p := start(t, "--kubeconfig="+kubeconfigFor(t, server.URL), "--leader-elect-resource-namespace=default", "--leader-elect-resource-name=away", openMetrics)
	p.says("Waiting for the server")
	code, text := p.get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Regexp(t, "^"+server.URL+" does not list the resources that it serves: .*EOF\n$", text)
	for _, path := range []string{"/livez", "/healthz", "/metrics"} {
		code, _ = p.get(path)
		assert.Equal(t, http.StatusOK, code, path)
	}
	there.Store(true)
	p.says("Successfully acquired lease")
	p.stop()
}

func TestStopWhileWaitingForTheServer(t *testing.T) {
	t.Parallel()
	p := start(t, "--kubeconfig="+kubeconfigFor(t, "http://127.0.0.1:1"))
	p.says("Waiting for the server")
	p.stop()
	assert.NotContains(t, p.log.String(), "does not serve")
}

func TestANamespaceThatDoesNotExistYet(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "later"
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace="+namespace, "--leader-elect=false")
	ready := func(want int) (text string) {
		t.Helper()
		require.Eventually(t, func() bool {
			var code int
			code, text = p.get("/readyz")
			return code == want
		}, patience, 50*time.Millisecond)
		return text
	}
	p.says(`Waiting for the namespace: it does not exist" namespace="later"`)
	assert.Contains(t, ready(http.StatusServiceUnavailable), "namespace \"later\" does not exist\n")
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	assert.Equal(t, "ok", ready(http.StatusOK))
	p.says(`The namespace exists" namespace="later"`)
	_, err = client.AppsV1().ReplicaSets(namespace).Create(t.Context(), newReplicaSet("web", 3), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 3
	}, patience, 50*time.Millisecond)
	p.stop()
}

// If the program is stopped in the middle of its work, it logs no error.
func TestTheEndIsNoError(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "end"
	_, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	p := start(t, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig), "--namespace="+namespace, "--leader-elect-resource-namespace="+namespace)
	_, err = client.AppsV1().ReplicaSets(namespace).Create(t.Context(), newReplicaSet("web", 400), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) > 40
	}, patience, 50*time.Millisecond)
	p.stop()
	assert.NotRegexp(t, "(?m)^E", p.log.String(), "an error in the log")
	assert.NotContains(t, p.log.String(), "<\n", "an entry of several lines")
}

func TestAResourceThatIsNotServed(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1" {
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"replicationcontrollers"}]}`))
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	p := start(t, "--kubeconfig="+kubeconfigFor(t, server.URL), "--leader-elect=false")
	p.says(`Skipping a controller: the server does not serve its resource" controller="replicaset-controller" resource="apps/v1, Resource=replicasets"`)
	p.says(`Starting controller" name="replicationcontroller"`)
	assert.NotContains(t, p.log.String(), `Starting controller" name="replicaset"`)
	p.stop()
}

// newReplicaSet returns a ReplicaSet that wants n pods. No kubelet runs these pods.
func newReplicaSet(name string, n int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
			},
		},
	}
}

// If the server forbids access to the lease, its answer does not show whether the namespace of the lease exists.
// The program then gets the namespace, and ends if the namespace does not exist.
func TestALeaseInAMissingNamespaceWithoutRightsThere(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const user = "nowhere-user"
	_, err := client.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"namespaces"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig, err := cluster.AddUser(user)
	require.NoError(t, err)
	p := start(t, "--kubeconfig="+writeKubeconfig(t, kubeconfig), "--leader-elect-resource-namespace=nowhere")
	assert.Equal(t, exitError, p.exitCode())
	assert.Contains(t, p.log.String(), "replicakit-controller: --leader-elect-resource-namespace=nowhere: the namespace does not exist: ")
	assert.Contains(t, p.log.String(), "is forbidden")
}

func TestMissingRights(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	ctx := t.Context()
	const namespace, user = "rights", "rights-user"
	_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: namespace},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"*"}},
			{Verbs: []string{"*"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"*"}},
			{Verbs: []string{"get"}, APIGroups: []string{"apps"}, Resources: []string{"*"}},
		},
	}
	_, err = client.RbacV1().Roles(namespace).Create(ctx, role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: user},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	kubeconfig, err := cluster.AddUser(user)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // the server applies new roles after a short delay
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"}},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed
	}, patience, 50*time.Millisecond)
	rc := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "rc"},
		Spec:       corev1.ReplicationControllerSpec{Replicas: new(int32(2)), Selector: map[string]string{"app": "rc"}, Template: &newReplicaSet("rc", 0).Spec.Template},
	}
	_, err = client.CoreV1().ReplicationControllers(namespace).Create(ctx, rc, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.AppsV1().ReplicaSets(namespace).Create(ctx, newReplicaSet("rs", 3), metav1.CreateOptions{})
	require.NoError(t, err)

	p := start(t, "--kubeconfig="+writeKubeconfig(t, kubeconfig), "--namespace="+namespace, "--leader-elect-resource-namespace="+namespace)
	p.says(`A right is missing" for="replicaset-controller" right="list replicasets.apps" in="namespace \\"rights\\""`)
	p.says(`A right is missing" for="replicaset-controller" right="patch replicasets/status.apps"`)
	pods := func(app string, want int) {
		t.Helper()
		require.Eventually(t, func() bool {
			list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
			return err == nil && len(list.Items) == want
		}, patience, 50*time.Millisecond)
	}
	pods("rc", 2)
	code, text := p.get("/readyz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, text, `it is not known whether another controller serves replicasets: replicasets.apps is forbidden: User "rights-user" cannot create`)
	assert.Contains(t, text, "not listed yet: replicasets\n")

	role.Rules[2].Verbs = []string{"*"}
	_, err = client.RbacV1().Roles(namespace).Update(ctx, role, metav1.UpdateOptions{})
	require.NoError(t, err)
	pods("rs", 3)
	require.Eventually(t, func() bool {
		code, text = p.get("/readyz")
		return code == http.StatusOK
	}, patience, 50*time.Millisecond)
	assert.NotContains(t, p.log.String(), `right="create pods"`)
	p.stop()

	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, "replicakit-controller", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, *lease.Spec.HolderIdentity, "the lease is released")
}

func TestResync(t *testing.T) {
	t.Parallel()
	t.Run("Z3 informers resync at a random time from 12 to 24 hours", func(t *testing.T) {
		t.Parallel()
		seen := map[time.Duration]bool{}
		for range 100 {
			period := resync()
			assert.GreaterOrEqual(t, period, 12*time.Hour)
			assert.Less(t, period, 24*time.Hour)
			seen[period] = true
		}
		assert.Greater(t, len(seen), 90)
	})
}

func TestClient(t *testing.T) {
	t.Parallel()
	t.Run("Z3 each controller has a client of its own with the whole rate", func(t *testing.T) {
		t.Parallel()
		var calls atomic.Int32
		var agents sync.Map
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			agents.Store(r.UserAgent(), true)
		}))
		t.Cleanup(server.Close)
		config, err := loadConfig(options{master: server.URL})
		require.NoError(t, err)
		w := &worker{manager: newManager(options{qps: 0.01, burst: 3}, config)}
		for _, name := range []string{"a", "b"} {
			client, err := w.client(name)
			require.NoError(t, err)
			for range 3 {
				require.NoError(t, client.CoreV1().RESTClient().Get().Do(t.Context()).Error())
			}
			again, err := w.client(name)
			require.NoError(t, err)
			late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			require.Error(t, again.AppsV1().RESTClient().Get().Do(late).Error(), "the rate is that of all its clients")
		}
		assert.EqualValues(t, 6, calls.Load())
		for _, name := range []string{"replicakit-controller/a", "replicakit-controller/b"} {
			_, seen := agents.Load(name)
			assert.True(t, seen, name)
		}
	})
}

func TestWrites(t *testing.T) {
	t.Parallel()
	call := func(ctx context.Context, w *writes, method, url string) (string, error) {
		client := &http.Client{Transport: w.wrap(http.DefaultTransport)}
		req, err := http.NewRequestWithContext(ctx, method, url, nil)
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		return resp.Status, resp.Body.Close()
	}
	slow := func(t *testing.T) (url string, arrived, answer chan struct{}) {
		t.Helper()
		arrived, answer = make(chan struct{}), make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			close(arrived)
			<-answer
		}))
		t.Cleanup(server.Close)
		return server.URL, arrived, answer
	}

	t.Run("a write goes on to its end, and drain waits for it", func(t *testing.T) {
		t.Parallel()
		w := &writes{}
		url, arrived, answer := slow(t)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan string, 1)
		go func() {
			status, err := call(ctx, w, http.MethodPost, url)
			got <- fmt.Sprint(status, err)
		}()
		<-arrived
		cancel()
		drained := make(chan struct{})
		go func() {
			w.drain()
			close(drained)
		}()
		select {
		case <-drained:
			assert.Fail(t, "drained with a write under way")
		case <-time.After(50 * time.Millisecond):
		}
		_, err := call(t.Context(), w, http.MethodPost, url)
		require.ErrorIs(t, err, errDrained, "no other begins")
		close(answer)
		assert.Equal(t, "200 OK<nil>", <-got)
		<-drained
		_, err = call(t.Context(), w, http.MethodPost, url)
		require.ErrorIs(t, err, errDrained)
	})

	t.Run("a read ends with its context", func(t *testing.T) {
		t.Parallel()
		w := &writes{}
		url, arrived, answer := slow(t)
		defer close(answer)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-arrived
			cancel()
		}()
		status, err := call(ctx, w, http.MethodGet, url)
		assert.Empty(t, status)
		require.ErrorIs(t, err, context.Canceled)
		w.drain()
	})

	t.Run("a write that failed is over", func(t *testing.T) {
		t.Parallel()
		w := &writes{}
		_, err := call(t.Context(), w, http.MethodPost, "http://127.0.0.1:1")
		require.Error(t, err)
		w.drain()
	})
}

// The method drain waits for each write of a worker. If the server asks the client to retry a deletion, client-go
// does not resend the deletion.
func TestWritesOfAWorker(t *testing.T) {
	t.Parallel()
	w := &worker{}
	served := &recorder{then: func() {
		if assert.False(t, w.writes.underWay.TryLock(), "drain waits for it") {
			return
		}
		w.writes.underWay.Unlock()
	}}
	served.code.Store(http.StatusTooManyRequests)
	server := httptest.NewServer(served)
	t.Cleanup(server.Close)
	config, err := loadConfig(options{master: server.URL})
	require.NoError(t, err)
	w.manager = newManager(defaults(), config)
	client, err := w.client("c")
	require.NoError(t, err)
	require.Error(t, client.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	assert.EqualValues(t, 1, served.whole.Load())
}
