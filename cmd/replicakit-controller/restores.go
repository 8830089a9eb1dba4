// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/replicakit/replicakit/internal/resourceversion"
)

// serverRestored is the reason of the event about a server that was restored from a backup.
const serverRestored = "ServerRestored"

// askInterval is how often the manager asks the server for its version. askPatience is how long the
// answer may take.
const (
	askInterval = 20 * time.Second
	askPatience = 10 * time.Second
)

func newRestored() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "replicakit_server_restored_timestamp_seconds",
		Help: "When this manager last noticed that the API server was restored from a backup, in seconds since 1970. 0 means never.",
	})
}

// restores notices that the API server goes back to an older version, for example because its etcd
// was restored from a backup. The watches may not show this, because they break with the server and
// often list anew before anyone looks. So each manager asks the server. A manager that stands by
// asks too, because a leader often loses its lease and ends while etcd is away.
type restores struct {
	live    func(context.Context) (string, error) // the version that the server is at
	tell    func(ctx context.Context, note string) error
	noticed prometheus.Gauge
	last    string // the version in the last answer, or ""
	untold  string // the note for which no event was made yet
}

func (m *manager) newRestores() (*restores, error) {
	client, err := metadata.NewForConfig(m.configFor("restores"))
	return &restores{
		live: versionOf(client, corev1.SchemeGroupVersion.WithResource("pods"), m.opts.watched()[0]),
		tell: func(ctx context.Context, note string) error {
			return m.makeEvent(ctx, m.opts.theLease(), serverRestored, note)
		},
		noticed: m.restored,
	}, err
}

// notice asks until ctx ends.
func (r *restores) notice(ctx context.Context) { wait.UntilWithContext(ctx, r.ask, askInterval) }

func (r *restores) ask(ctx context.Context) {
	version, err := r.live(ctx)
	if err != nil {
		return // a manager at work logs it
	}
	before := r.last
	r.last = version
	logger := klog.FromContext(ctx)
	logger.V(4).Info("The server said which version it is at", "version", version)
	if resourceversion.Older(version, before) {
		r.noticed.SetToCurrentTime()
		r.untold = fmt.Sprintf("the API server went back from version %s to %s: it was restored from a backup", before, version)
		logger.Error(nil, "The API server was restored from a backup", "from", before, "to", version)
	}
	if r.untold != "" && r.tell(ctx, r.untold) == nil { // a server that has just started may refuse it
		r.untold = ""
	}
}

// restoredShown is how long a manager still serves its metrics after a controller has noticed a
// restore, so that two scrapes show it. The controllers change nothing meanwhile.
const restoredShown = time.Minute

// restoredServer reports that a controller has noticed a restore. It ends the manager, so that it
// starts again with new caches.
func (w *worker) restoredServer(ctx context.Context, proof error) {
	w.restored.SetToCurrentTime()
	klog.FromContext(ctx).Error(proof, "The API server was restored from a backup. This manager makes no more changes, and ends soon", "in", restoredShown)
	go func() {
		_ = w.makeEvent(ctx, w.opts.theLease(), serverRestored, proof.Error()) // the owner has an event too
		select {
		case <-ctx.Done():
		case <-time.After(restoredShown):
			w.end(proof)
		}
	}()
}

// versionOf returns a function that asks the server for its version, with a small list.
func versionOf(client metadata.Interface, resource schema.GroupVersionResource, namespace string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, askPatience)
		defer cancel()
		one, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return "", err
		}
		return one.ResourceVersion, nil
	}
}
