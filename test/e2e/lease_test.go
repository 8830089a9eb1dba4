// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/pem"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/replicas/controller"
)

// While the process of a leader is stopped, the leader does not notice that another leader takes over. When the
// process continues, it tries to make all calls that it had not sent before the stop. When the leader last checked
// its lease, the lease was valid. At the end of each test in this file, the world checks the largest number of
// pods that each owner had at once. This number may exceed the wanted number by at most onTheWay.

// onTheWay is the number of writes that a stopped leader may still send when it continues. The leader checks its
// lease before each write. If the stop comes after this check and before the write reaches the socket, the write
// cannot be held back. At 100 calls a second, few stops come between the check of the lease and the write. In test
// runs without the checks of the lease, stopped leaders sent 9 to 102 writes when they continued.
const onTheWay = 1

func (m *manager) signal(sig syscall.Signal) {
	m.t.Helper()
	assert.NoError(m.t, m.cmd.Process.Signal(sig))
}

// hasLost waits until a leader ends because another manager has taken over its lease.
func (m *manager) hasLost() {
	m.t.Helper()
	assert.Equal(m.t, 1, m.ends())
	assert.Contains(m.t, m.log.String(), "controller: the lease was lost")
}

func (s *managerServer) paused(t *testing.T) {
	t.Helper()
	const wanted = 400
	w := s.world(t)
	for _, name := range []string{"a", "b", "c"} {
		first := s.start(t)
		first.leads()
		second := s.start(t)
		second.says("Attempting to acquire leader lease")
		rs := w.create(replicaSet(name, wanted))
		w.allow(rs, onTheWay)
		w.ever(rs, wanted/8+rand.N(wanted/2))
		time.Sleep(rand.N(20 * time.Millisecond))
		first.signal(syscall.SIGSTOP)
		there := w.history.everOwned(rs)
		require.Less(t, there, wanted, "it was in the middle")
		second.leads()
		w.ever(rs, there+rand.N(wanted-there))
		first.signal(syscall.SIGCONT)
		first.hasLost()
		w.has(rs, wanted)
		second.stop()
	}
}

// pausedInRenewal stops the leader after the server has accepted a renewal, and before the leader gets the answer.
// When the leader continues and reads the answer, another manager already leads.
func (s *managerServer) pausedInRenewal(t *testing.T) {
	t.Helper()
	const wanted = 400
	w := s.world(t)
	door := s.newDoor(t)
	first := s.start(t, "--kubeconfig="+door.kubeconfig)
	first.leads()
	second := s.start(t)
	second.says("Attempting to acquire leader lease")
	rs := w.create(replicaSet("web", wanted))
	w.allow(rs, onTheWay)
	w.ever(rs, wanted/8)
	stopped := make(chan struct{})
	door.atRenewal(func() {
		first.signal(syscall.SIGSTOP)
		close(stopped)
	})
	<-stopped
	there := w.history.everOwned(rs)
	require.Less(t, there, wanted-controller.DefaultMaxParallel, "it was in the middle")
	second.leads()
	w.ever(rs, there+controller.DefaultMaxParallel) // this number includes the last pods of the first leader and some pods of the second leader
	first.signal(syscall.SIGCONT)
	first.hasLost()
	w.has(rs, wanted)
	second.stop()
}

// A door is a proxy between a manager and the server. It observes the renewals of the lease.
type door struct {
	kubeconfig string

	mu      sync.Mutex
	renewed func()
}

// atRenewal makes the door call f once, when the server has accepted the next renewal. The manager gets the answer
// to the renewal only after f has returned.
func (d *door) atRenewal(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewed = f
}

func (d *door) answer(answer *http.Response) error {
	renewal := answer.Request.Method == http.MethodPut && strings.HasSuffix(answer.Request.URL.Path, "/leases/"+managerAccount)
	d.mu.Lock()
	defer d.mu.Unlock()
	if renewal && answer.StatusCode == http.StatusOK && d.renewed != nil {
		d.renewed()
		d.renewed = nil
	}
	return nil
}

func (s *managerServer) newDoor(t *testing.T) *door {
	t.Helper()
	target, err := url.Parse(s.config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(&rest.Config{Host: s.config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: s.config.CAData}})
	require.NoError(t, err)
	d := &door{}
	silent := log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
		},
		Transport:      transport,
		FlushInterval:  -1, // send each event of a watch at once
		ModifyResponse: d.answer,
		ErrorLog:       silent,
	})
	server.EnableHTTP2, server.Config.ErrorLog = true, silent
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	d.kubeconfig = writeKubeconfig(t, server.URL, authority, s.token(t, "kube-system", managerAccount))
	return d
}
