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

// A leader that is stopped does not see that another took over. When it goes on,
// every call that it had not sent yet is still to come, and the lease was valid
// when it last looked. The ceiling of the world is what all of it is about: never
// more pods than wanted, and onTheWay.

// onTheWay is how many writes a leader that is stopped may have between the last
// question and the socket. Nothing can hold those back, and at 100 a second there is
// rarely one. Without the questions 9 to 102 were counted.
const onTheWay = 1

func (m *manager) signal(sig syscall.Signal) {
	m.t.Helper()
	assert.NoError(m.t, m.cmd.Process.Signal(sig))
}

// hasLost waits for the end of a leader that another one has followed.
func (m *manager) hasLost() {
	m.t.Helper()
	assert.Equal(m.t, 1, m.ends())
	assert.Contains(m.t, m.log.String(), "controller: the lease was lost")
}

func paused(t *testing.T, s *managerServer, w *world) {
	t.Helper()
	const wanted = 400
	first := s.start(t)
	first.leads()
	second := s.start(t)
	second.says("Attempting to acquire leader lease")
	rs := w.create(replicaSet("web", wanted))
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

// pausedInRenewal has the answer to a renewal come while the leader is stopped:
// it is read when another leads already.
func pausedInRenewal(t *testing.T, s *managerServer, w *world) {
	t.Helper()
	const wanted = 400
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
	w.ever(rs, there+controller.DefaultMaxParallel) // what was on its way, and some of its own
	first.signal(syscall.SIGCONT)
	first.hasLost()
	w.has(rs, wanted)
	second.stop()
}

// A door stands between a manager and the server, and sees renewals go through.
type door struct {
	kubeconfig string

	mu      sync.Mutex
	renewed func()
}

// atRenewal has f called when the next renewal has been accepted, before the
// answer goes on its way.
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
	transport, err := rest.TransportFor(rest.CopyConfig(s.config)) // as an administrator
	require.NoError(t, err)
	d := &door{}
	silent := log.New(io.Discard, "", 0)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
		},
		Transport:      transport,
		FlushInterval:  -1, // watches
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
	d.kubeconfig = writeKubeconfig(t, server.URL, authority, "none")
	return d
}
