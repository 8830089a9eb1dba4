// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// askInterval is how often the server is asked which version it is at, and
	// askPatience how long it may take to say so.
	askInterval = 20 * time.Second
	askPatience = 10 * time.Second
	// staleAfter is how long a watch may take to come to a version that the server
	// was at, before /readyz says so and it is listed anew. A server that is asked tells
	// its watches within a minute, by a bookmark if by nothing else.
	staleAfter = 3 * time.Minute
	// mostAsked bounds what is kept of a watch that hangs for long.
	mostAsked = 20
)

// A follower finds out whether a watch follows the server. One that hangs gives no
// error, and is as quiet as one of a resource that does not change. So the server
// is asked which version it is at, and the watch must come to that version.
//
// A server that is at an older version than the watch was restored from a backup:
// the cache has what is no more, and the watch is told nothing until the server
// comes to that version again, nor what it missed until then. Only a new list
// mends this.
type follower struct {
	resource string
	cached   func() string                         // the version that the watch has come to; "" before the first list
	live     func(context.Context) (string, error) // the version that the server is at
	relist   func()                                // break the watch, and list anew
	every    time.Duration                         // askInterval
	patience time.Duration                         // staleAfter

	mu     sync.Mutex
	proven time.Time // the watch has come to where the server was then; zero: nobody has asked
	asked  []answer  // that the watch has not come to yet, the oldest first
	ahead  string    // the version that the watch had come to when the server was at an older one
	err    error     // of the last question
	told   bool      // in the log, that something is wrong
	broken time.Time // when it was listed anew for the last time; zero: never
}

// An answer is the version that the server was at, at least, at an instant.
type answer struct {
	at      time.Time
	version string
}

func newFollower(resource schema.GroupVersionResource, namespace string, client metadata.Interface, informer cache.SharedIndexInformer, relist func()) *follower {
	return &follower{
		resource: resource.Resource,
		relist:   relist,
		every:    askInterval,
		patience: staleAfter,
		cached:   informer.LastSyncResourceVersion,
		live:     versionOf(client, resource, namespace),
	}
}

// versionOf returns what asks the server which version it is at, by a small list.
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

// follow asks until ctx ends, and mends what hangs.
func (f *follower) follow(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		f.ask(ctx)
		f.tell(ctx)
		f.mend(ctx)
	}, f.every)
}

// mend has a watch listed anew that hangs while the server answers, once for as long as it
// may be behind. A new list of what a restored server has is a matter for people.
func (f *follower) mend(ctx context.Context) {
	age, restored, wrong := f.behind()
	if wrong == nil || restored || f.err != nil || !f.broken.IsZero() && time.Since(f.broken) < f.patience {
		return
	}
	f.broken = time.Now()
	klog.FromContext(ctx).Error(nil, "A watch hangs: breaking its connection, and listing anew", "resource", f.resource, "behind", age.Round(time.Second))
	f.relist()
}

func (f *follower) ask(ctx context.Context) {
	cached := f.cached()
	if cached == "" {
		return
	}
	at := time.Now()
	version, err := f.live(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.proven.IsZero() {
		f.proven = at
	}
	f.catchUp(cached)
	f.err = err
	switch {
	case err != nil || f.ahead != "":
	case isOlder(version, cached):
		f.ahead, f.asked = cached, nil
	default:
		f.asked = append(f.asked[:min(len(f.asked), mostAsked-1)], answer{at, version})
	}
}

// catchUp takes note of the version that the watch has come to.
func (f *follower) catchUp(cached string) {
	if f.ahead != "" && isOlder(cached, f.ahead) {
		f.ahead = "" // it was listed again
	}
	for len(f.asked) > 0 && !isOlder(cached, f.asked[0].version) {
		f.proven = f.asked[0].at
		f.asked = f.asked[1:]
	}
}

// behind returns for how long the watch has not come to where the server was; what
// is wrong with it, or nil; and whether the server was restored to an older state.
func (f *follower) behind() (age time.Duration, restored bool, wrong error) {
	cached := f.cached()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.catchUp(cached)
	if f.proven.IsZero() {
		return 0, false, nil
	}
	age = time.Since(f.proven)
	switch {
	case f.ahead != "":
		wrong = fmt.Errorf("%s: the watch has come to version %s, and the server was at an older one: was it restored from a backup? Restart this program", f.resource, f.ahead)
	case age <= f.patience:
	case f.err != nil:
		wrong = fmt.Errorf("%s: the watch is %v behind, and the server does not say where it is: %w", f.resource, age.Round(time.Second), f.err)
	default:
		wrong = fmt.Errorf("%s: the watch is %v behind the server", f.resource, age.Round(time.Second))
	}
	return age, f.ahead != "", wrong
}

// tell logs that something is wrong, and that it is no more, once each.
func (f *follower) tell(ctx context.Context) {
	_, _, wrong := f.behind()
	if (wrong != nil) == f.told {
		return
	}
	f.told = wrong != nil
	if f.told {
		klog.FromContext(ctx).Error(wrong, "A watch does not follow the server", "resource", f.resource)
		return
	}
	klog.FromContext(ctx).Info("The watch follows the server again", "resource", f.resource)
}

// isOlder is false for versions that cannot be compared.
func isOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}

var watchAge = prometheus.NewDesc("replicakit_watch_age_seconds",
	"Age of the newest state of the server that the watch is known to have come to. Up to a minute and a half is usual, as bookmarks come once a minute.",
	[]string{"resource"}, nil)

func newRelists() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "replicakit_watch_relists_total",
		Help: "Watches that hung and were broken, and their resources listed anew.",
	}, []string{"resource"})
}

// A watchCollector tells the age of the watches of the followers at work.
type watchCollector struct{ followers func() []*follower }

func (c watchCollector) Describe(descs chan<- *prometheus.Desc) { descs <- watchAge }

// Collect tells of each resource the worst, where there are several watches of it.
func (c watchCollector) Collect(collected chan<- prometheus.Metric) {
	ages := map[string]float64{}
	for _, f := range c.followers() {
		age, _, _ := f.behind()
		ages[f.resource] = max(ages[f.resource], age.Seconds())
	}
	for resource, age := range ages {
		collected <- prometheus.MustNewConstMetric(watchAge, prometheus.GaugeValue, age, resource)
	}
}
