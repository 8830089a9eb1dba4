// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow checks whether the watches that fill a cache keep up with the API server. A watch that keeps
// up is said to follow the server.
//
// A watch that hangs returns no error, and looks like a watch of objects that do not change. Therefore this
// package reads the server's current resourceVersion every minute, and the watch must reach that
// resourceVersion. A server sends a bookmark to each watch every minute, so a healthy watch is at most about
// two minutes behind. If the watch is further behind, its objects are listed again, which replaces a watch
// that hangs. If the server sends no bookmarks, a new list also proves that the watch follows the server.
package follow

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/resourceversion"
	"github.com/replicakit/replicakit/replicas/controller"
)

const (
	// askPatience is the timeout of a request for the server's resourceVersion.
	askPatience = 10 * time.Second
	// mostAsked is the largest number of the server's answers that are kept, even if the watch hangs for a
	// long time.
	mostAsked = 20
	// backOff is the longest time that an informer waits between the end of a watch and a new list.
	backOff = 30 * time.Second
	// bookmarksNeeded is how many bookmarks in a row prove that the server sends bookmarks.
	bookmarksNeeded = 3
)

// Times are the intervals and limits of a Watch. Tests use shorter times.
type Times struct {
	Look   time.Duration // between two checks of the cache
	Ask    time.Duration // between two requests to the server
	Relist time.Duration // the age of a watch at which its objects are listed again
	Stale  time.Duration // the age of a watch at which it counts as not following the server
}

var usual = Times{Look: 20 * time.Second, Ask: time.Minute, Relist: 150 * time.Second, Stale: 3 * time.Minute}

type timesKey struct{}

// WithTimes returns a context with which Follow uses other times. Only tests call WithTimes.
func WithTimes(ctx context.Context, times Times) context.Context {
	return context.WithValue(ctx, timesKey{}, times)
}

// A Watch checks the watch of one kind of objects. The methods of a Watch are safe for concurrent use.
type Watch struct {
	Kind string
	// Cached returns the resourceVersion that the watch has reached, or "" before the first list. If Cached
	// is nil, that resourceVersion is unknown. Then only new lists prove that the watch follows the server.
	Cached func() string
	// Live returns the server's resourceVersion for a namespace, or for all namespaces if namespace is "". If
	// Live is nil, the server cannot be asked, and the watch is not followed.
	Live func(ctx context.Context, namespace string) (string, error)
	// Namespace is the namespace of the watch, or "" if it watches all namespaces. If the server forbids Live
	// for all namespaces, Live is called with the namespace that Other returns. Other returns "" if it knows
	// no namespace.
	Namespace string
	Other     func(ctx context.Context) string
	// Relist ends each watch that has sent nothing for the duration silent, so that its objects are listed
	// again. The function done reports whether the new lists have been answered. If Relist is nil, the
	// objects cannot be listed again.
	Relist func(silent time.Duration) (done func() bool)

	mu     sync.Mutex
	times  Times
	proven time.Time // the watch is known to have reached the server's state of this time; zero before Follow begins
	asked  []answer  // the answers that the watch has not reached yet, oldest first
	last   time.Time // when the server was last asked, or when Follow began
	came   time.Time // when the server last answered, or when Follow began
	err    error     // the error of the last request
	newest string    // the resourceVersion in the server's last answer
	ahead  string    // the resourceVersion of the watch, if the server was at an older one

	relisted time.Time   // when the objects were last listed again; zero means never
	done     func() bool // reports whether the new list has been answered; nil if none is awaited
	until    string      // the server's resourceVersion when the objects were last listed again
	missed   int         // events up to that resourceVersion that only the new list has brought
	hung     int         // new lists that brought such missed events

	reported bool // the log says that the watch does not follow the server
	noRight  bool // the log says that a right is missing

	events, bookmarks int
	bookmark          time.Time // when the last bookmark came
	seen              [2]sight  // the states at the last check and at the check before
}

// An answer says that the server had reached at least this resourceVersion at this time.
type answer struct {
	at      time.Time
	version string
}

// A sight is the state of a watch at one check of the cache.
type sight struct {
	cached string
	events int
}

// A Log logs a message with an error, or only the message if err is nil.
type Log func(err error, message string, keysAndValues ...any)

// Updated records an update event as Saw does. If both objects have the same resourceVersion, the update
// comes from a resync or a list, and Updated does not count it.
func (w *Watch) Updated(old, cur any) {
	if versionOf(old) != versionOf(cur) {
		w.Saw(cur)
	}
}

// Saw records an event of an object. For a deletion, obj is the object's last state. A value that is not an
// object is a tombstone, which means that the watch missed the deletion. If the watch reaches a
// resourceVersion without an event, a bookmark has brought this resourceVersion.
func (w *Watch) Saw(obj any) {
	if w == nil {
		return
	}
	version := versionOf(obj)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
	if resourceversion.Reached(w.until, version) {
		w.missed++
	}
}

func versionOf(obj any) string {
	if o, ok := obj.(metav1.Object); ok {
		return o.GetResourceVersion()
	}
	return "1"
}

// Check returns an error if the watch is more than three minutes behind the server, or ahead of the server.
func (w *Watch) Check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp(w.cached())
	if age, known := w.age(time.Now()); known && age > w.times.Stale && w.err == nil || w.ahead != "" {
		return w.wrong(age)
	}
	return nil
}

func (w *Watch) cached() string {
	if w.Cached == nil {
		return ""
	}
	return w.Cached()
}

// begin starts to follow the watch, but sends no request to the server yet.
func (w *Watch) begin(times Times) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.times, w.proven, w.last, w.came = times, now, now, now
}

// look reads the server's resourceVersion if the time for that has come, and logs whether the watch follows
// the server. If the watch is too far behind, look has its objects listed again.
func (w *Watch) look(ctx context.Context, log Log) {
	now := time.Now()
	if w.isTimeToAsk(now) {
		cached := w.cached()
		version, err := w.ask(ctx)
		w.note(answer{now, version}, cached, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	cached := w.cached()
	w.catchUp(cached)
	w.noteMissed(log)
	w.noteBookmark(now, cached)
	w.report(now, log)
	if w.isTimeToRelist(now) {
		w.relisted, w.until, w.missed = now, w.newest, 0
		silent := w.times.Relist / 2
		if w.Cached == nil {
			silent = w.times.Relist
		}
		w.done = w.Relist(silent)
	}
}

func (w *Watch) isTimeToAsk(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return now.Sub(w.last) >= w.times.Ask || w.isTimeToRelist(now) // the answer shows which events of a new list came too late
}

func (w *Watch) isTimeToRelist(now time.Time) bool {
	age, known := w.age(now)
	return known && age > w.times.Relist && w.Relist != nil && w.err == nil && w.ahead == "" && now.Sub(w.relisted) > w.times.Relist
}

// noteMissed logs that the watch hung, if a new list brought events that the watch should have sent earlier.
func (w *Watch) noteMissed(log Log) {
	if w.missed > 0 {
		log(fmt.Errorf("%s: the watch hung", w.Kind), "A watch hung and was ended. A new list has shown the events that the watch missed", "kind", w.Kind, "events", w.missed)
		w.hung++
		w.missed = 0
	}
	if time.Since(w.relisted) > 2*w.times.Look+backOff && w.done == nil {
		w.until = "" // the handlers have had enough time to receive the events of the new list
	}
}

func (w *Watch) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	version, err := w.Live(ctx, w.Namespace)
	if apierrors.IsForbidden(err) && w.Namespace == "" {
		if other := w.Other(ctx); other != "" {
			return w.Live(ctx, other)
		}
	}
	return version, err
}

// note records the server's answer to a request. The parameter cached is the resourceVersion that the watch
// had reached before the request. If this process was paused, or the server did not answer for a long time,
// the age of the watch is counted from the time of the answer.
func (w *Watch) note(a answer, cached string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last, w.err = a.at, err
	if err != nil {
		return
	}
	if a.at.Sub(w.came) > w.times.Ask+w.times.Relist {
		w.proven, w.asked = a.at, nil
	}
	w.came, w.newest = a.at, a.version
	switch {
	case w.Cached == nil || a.version == "" || w.ahead != "":
	case resourceversion.Older(a.version, cached):
		w.ahead, w.asked = cached, nil
	default:
		w.asked = append(w.asked[:min(len(w.asked), mostAsked-1)], a)
	}
}

// catchUp records which answers of the server the watch has reached, and whether a new list has been
// answered. If two resourceVersions cannot be compared, the watch counts as having reached the answer.
func (w *Watch) catchUp(cached string) {
	if w.done != nil && w.done() {
		w.done = nil
		if w.Cached == nil {
			w.proven = w.relisted
		}
	}
	if resourceversion.Older(cached, w.ahead) {
		w.ahead = "" // a new list has brought the older version of the server
	}
	for len(w.asked) > 0 && cached != "" && !resourceversion.Older(cached, w.asked[0].version) {
		w.proven = w.asked[0].at
		w.asked = w.asked[1:]
	}
}

// noteBookmark counts bookmarks, which change the cache's resourceVersion without an event. The cache has a
// resourceVersion shortly before the handlers get its event, so noteBookmark compares two earlier checks. A
// new list also brings a resourceVersion without an event, but not every minute.
func (w *Watch) noteBookmark(now time.Time, cached string) {
	last, before := w.seen[0], w.seen[1]
	w.seen = [2]sight{{cached, w.events}, last}
	if before.cached == "" || last.cached == before.cached || w.events != before.events || w.events == 0 || w.bookmarked() {
		return // if no event has ever arrived, the handlers may not be connected
	}
	if now.Sub(w.bookmark) > 2*w.times.Ask {
		w.bookmarks = 0
	}
	w.bookmarks, w.bookmark = w.bookmarks+1, now
}

func (w *Watch) bookmarked() bool { return w.bookmarks >= bookmarksNeeded }

// age returns how far the watch may be behind the server, and whether this age proves anything. If the server
// sends no bookmarks and Relist is nil, a high age proves nothing, because a watch of unchanged objects gets
// no events.
func (w *Watch) age(now time.Time) (age time.Duration, known bool) {
	if w.proven.IsZero() || apierrors.IsForbidden(w.err) {
		return 0, false
	}
	return now.Sub(w.proven), w.bookmarked() || w.Relist != nil
}

// report logs once that the watch does not follow the server, and once that the watch follows it again. A
// missing right is also logged once.
func (w *Watch) report(now time.Time, log Log) {
	if missing := apierrors.IsForbidden(w.err); missing != w.noRight {
		w.noRight = missing
		if missing {
			log(w.err, "Without this right, the program cannot check whether a watch follows the server", "kind", w.Kind)
		}
	}
	age, known := w.age(now)
	if behind := known && age > w.times.Stale && w.err == nil || w.ahead != ""; behind != w.reported {
		w.reported = behind
		if behind {
			log(w.wrong(age), "A watch does not follow the server", "kind", w.Kind)
			return
		}
		log(nil, "The watch follows the server again", "kind", w.Kind)
	}
}

// wrong returns the error for a watch that does not follow the server.
func (w *Watch) wrong(age time.Duration) error {
	age = age.Round(time.Second)
	if w.ahead != "" {
		return fmt.Errorf("%s: the watch has reached version %s, but the server was at an older version. If the server was restored from a backup, restart this program", w.Kind, w.ahead)
	}
	return fmt.Errorf("%s: the watch is %v behind the server", w.Kind, age)
}

// samples returns the metrics of the watch. While the age of the watch is unknown, its value is NaN.
func (w *Watch) samples() []controller.Sample {
	age := math.NaN()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp(w.cached())
	if known, ok := w.age(time.Now()); ok {
		age = known.Seconds()
	}
	return []controller.Sample{{
		Name: "watch_age_seconds", Help: "Age of the newest state of the server that the watch has shown. Up to two minutes is usual, because bookmarks come once a minute. NaN means unknown.",
		Type: controller.Gauge, Kind: w.Kind, Value: age,
	}, {
		Name: "watch_relists_total", Help: "Watches that hung and were ended. A new list of the objects showed what they had missed.",
		Type: controller.Counter, Kind: w.Kind, Value: float64(w.hung),
	}}
}
