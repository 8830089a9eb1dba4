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

// askInterval is the interval between two requests for the current resourceVersion of the server.
// askPatience is the timeout of each request.
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

// restores detects that the API server has gone back to an older resourceVersion, for example
// because its etcd was restored from a backup. A watch may not show that the resourceVersion is
// older, because the watch breaks while the server is down. A controller may not notice the older
// resourceVersion, because its informers often list again before the controller compares versions.
// So each manager regularly reads the resourceVersion of the server. Managers that wait for the
// lease also read the resourceVersion, because the leader often loses the lease and ends while etcd
// is down.
type restores struct {
	live    func(context.Context) (string, error) // returns the current resourceVersion of the server
	tell    func(ctx context.Context, note string) error
	noticed prometheus.Gauge
	last    string // the resourceVersion in the last answer, or ""
	untold  string // the note of an event that must still be created, or ""
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

// notice reads the resourceVersion of the server every askInterval until ctx is done.
func (r *restores) notice(ctx context.Context) { wait.UntilWithContext(ctx, r.ask, askInterval) }

func (r *restores) ask(ctx context.Context) {
	version, err := r.live(ctx)
	if err != nil {
		return // the leader's controllers log errors of the API server
	}
	before := r.last
	r.last = version
	logger := klog.FromContext(ctx)
	logger.V(4).Info("The server reported its current resourceVersion", "version", version)
	if resourceversion.Older(version, before) {
		r.noticed.SetToCurrentTime()
		r.untold = fmt.Sprintf("the API server went back from resourceVersion %s to %s: it was restored from a backup", before, version)
		logger.Error(nil, "The API server was restored from a backup", "from", before, "to", version)
	}
	if r.untold != "" && r.tell(ctx, r.untold) == nil { // retried later, because a server that has just started may refuse the event
		r.untold = ""
	}
}

// restoredServer reports that a controller has detected a restore, and ends the worker at once. The
// lease is released, so a standby takes over within seconds, with new caches. This manager's own
// caches may be newer than the restored server, so it must be restarted; see endedShown.
func (w *worker) restoredServer(ctx context.Context, proof error) {
	w.restored.SetToCurrentTime()
	klog.FromContext(ctx).Error(proof, "The API server was restored from a backup. This manager makes no further changes, and exits")
	w.others.telling.Go(func() { w.tell(ctx, w.opts.theLease(), serverRestored, proof.Error()) }) // the controller also creates an event for an owner
	w.end(proof)
}

// versionOf returns a function that gets the server's current resourceVersion. To get it, the
// function lists at most one object.
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
