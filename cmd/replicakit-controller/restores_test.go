// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	kinds "github.com/replicakit/replicakit/replicas/controller"
)

func TestARestoredServerIsNoticed(t *testing.T) {
	t.Parallel()
	const none = ""
	for name, story := range map[string]struct {
		answers []string // the answers of the server, one for each request
		told    []string
		last    int // the index of the answer that shows the last restore
	}{
		"a server that goes on":                        {answers: []string{"99", "99", "100", "250"}},
		"a server that was away, and goes on":          {answers: []string{none, "99", none, none, "99"}},
		"versions that cannot be compared":             {answers: []string{"99", "x", "7", "x"}},
		"a server that goes back, and on from there":   {answers: []string{"99", "100", "60", "70", "300"}, told: []string{"100 to 60"}, last: 2},
		"a server that goes back while it is away":     {answers: []string{"100", none, none, "99", "99"}, told: []string{"100 to 99"}, last: 3},
		"a server that goes back twice":                {answers: []string{"100", "60", "80", "70", "70"}, told: []string{"100 to 60", "80 to 70"}, last: 3},
		"servers that have not all been started again": {answers: []string{"100", "60", "100", "61", "62"}, told: []string{"100 to 60", "100 to 61"}, last: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var notes []string
				began, asked, refused := time.Now(), 0, false
				r := &restores{
					live: func(context.Context) (string, error) {
						asked++
						if version := story.answers[asked-1]; version != none {
							return version, nil
						}
						return "", errors.New("no connection")
					},
					tell: func(_ context.Context, note string) error {
						if refused = !refused; refused { // each event is refused once
							return errors.New("not yet ready to handle request")
						}
						notes = append(notes, note)
						return nil
					},
					noticed: newRestored(),
				}
				go r.notice(ctx)
				time.Sleep(time.Duration(len(story.answers)-1) * askInterval)
				synctest.Wait()
				require.Len(t, story.answers, asked)
				var told []string
				for _, versions := range story.told {
					told = append(told, "the API server went back from resourceVersion "+versions+": it was restored from a backup")
				}
				assert.Equal(t, told, notes)
				var metric dto.Metric
				require.NoError(t, r.noticed.Write(&metric))
				at := 0.0
				if told != nil {
					at = float64(began.Add(time.Duration(story.last) * askInterval).Unix())
				}
				assert.InDelta(t, at, metric.GetGauge().GetValue(), 0.001)
			})
		})
	}
}

// A leader whose controller has noticed a restore ends its work at once, so that the lease is released and a standby
// takes over within seconds.
func TestARestoreEndsTheWorkAtOnce(t *testing.T) {
	t.Parallel()
	m := newManager(defaults(), &rest.Config{Host: "http://127.0.0.1:1"})
	w := &worker{manager: m, others: newOthers(m)}
	ctx, end := context.WithCancelCause(t.Context())
	w.end = end
	w.restoredServer(ctx, fmt.Errorf("version 5: %w", kinds.ErrRestored))
	require.ErrorIs(t, context.Cause(ctx), kinds.ErrRestored)
	var metric dto.Metric
	require.NoError(t, m.restored.Write(&metric))
	assert.Positive(t, metric.GetGauge().GetValue())
	w.others.telling.Wait()
}

// If a leader notices a restore, a standby takes over at once, and not when the process of the leader ends a minute
// later. The lease lasts much longer than this test, so the standby can only have it from the leader. The leader reads
// the owner through a proxy, which shows an old version, as a restored server would.
func TestAfterARestoreTheStandbyDoesNotWait(t *testing.T) {
	t.Parallel()
	cluster, client := cluster(t)
	const namespace = "restored"
	makeNamespace(t, client, namespace)
	sets := client.AppsV1().ReplicaSets(namespace)
	_, err := sets.Create(t.Context(), newReplicaSet("web", 2), metav1.CreateOptions{})
	require.NoError(t, err)
	var restored atomic.Bool
	plain := rest.CopyConfig(cluster.Config)
	plain.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if readsWeb(req) {
				req.Header.Set("Accept", "application/json")
			}
			return next.RoundTrip(req)
		})
	})
	proxy := newProxy(t, plain, func(answer *http.Response) error {
		if !restored.Load() || !readsWeb(answer.Request) {
			return nil
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		body = regexp.MustCompile(`"resourceVersion":"[0-9]+"`).ReplaceAll(body, []byte(`"resourceVersion":"1"`))
		answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		answer.Header.Del("Content-Length")
		return err
	})
	flags := []string{"--namespace=" + namespace, "--leader-elect-resource-namespace=" + namespace, "--leader-elect-lease-duration=20m", "--leader-elect-renew-deadline=15m", openMetrics}
	leader := start(t, append(flags, "--kubeconfig="+kubeconfigFor(t, proxy.URL))...)
	leader.says("Successfully acquired lease")
	standby := start(t, append(flags, "--kubeconfig="+writeKubeconfig(t, cluster.Kubeconfig))...)
	standby.says("Attempting to acquire leader lease")
	has := func(pods int32) {
		t.Helper()
		require.Eventually(t, func() bool {
			web, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
			return err == nil && web.Status.Replicas == pods
		}, patience, 50*time.Millisecond, "%d pods", pods)
	}
	has(2)

	restored.Store(true)
	_, err = sets.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	leader.says("The API server was restored from a backup")
	standby.says("Successfully acquired lease")
	has(1)
	events, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + serverRestored + ",involvedObject.kind=Lease"})
	require.NoError(t, err)
	assert.Len(t, events.Items, 1)
	code, text := leader.get("/metrics")
	require.Equal(t, http.StatusOK, code, "its metrics still show the restore")
	served := metrics(t, text)
	assert.Positive(t, served["replicakit_server_restored_timestamp_seconds"].GetMetric()[0].GetGauge().GetValue())
	assert.Zero(t, labeled(served["leader_election_master_status"], "name", "replicakit-controller")[0].GetGauge().GetValue())

	require.NoError(t, leader.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, exitError, leader.exitCode())
	assert.Contains(t, leader.log.String(), "replicakit-controller: the API server was restored from a backup: ")
	standby.stop()
}

// readsWeb reports whether a request reads the ReplicaSet "web".
func readsWeb(req *http.Request) bool {
	return req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/replicasets/web")
}
