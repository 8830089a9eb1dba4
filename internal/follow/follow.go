// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow checks whether the watches that fill a cache keep up with the API server. A watch that keeps
// up is said to follow the server.
//
// A watch that hangs returns no error, and looks like a watch of objects that do not change. Therefore this
// package reads the server's current resourceVersion every minute, and checks that the watch reaches it. A
// server sends a bookmark to each watch every minute, so a healthy watch is at most about two minutes behind.
// If a watch is more than two and a half minutes behind, this package ends the watch, so that its objects are
// listed and watched again. If the server sends no bookmarks, a new list also proves that the watch follows
// the server.
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
)

const (
	// askPatience is the timeout of a request for the server's resourceVersion.
	askPatience = 10 * time.Second
	// mostAsked is the maximum number of answers from the server that a Watch keeps while the watch hangs.
	mostAsked = 20
	// backOff is the maximum time that an informer waits between the end of a watch and a new list.
	backOff = 30 * time.Second
	// bookmarksNeeded is the number of consecutive bookmarks that prove that the server sends bookmarks.
	bookmarksNeeded = 3
)

// A Times holds the intervals and limits of a Watch. Tests use shorter times.
type Times struct {
	Look   time.Duration // the time between two checks of the cache
	Ask    time.Duration // the time between two requests to the server
	Relist time.Duration // if a watch is further behind than this, its objects are listed again
	Stale  time.Duration // if a watch is further behind than this, it counts as not following the server
}

var usual = Times{Look: 20 * time.Second, Ask: time.Minute, Relist: 150 * time.Second, Stale: 3 * time.Minute}

type timesKey struct{}

// WithTimes returns a context that contains the times for Follow. Only tests call WithTimes.
func WithTimes(ctx context.Context, times Times) context.Context {
	return context.WithValue(ctx, timesKey{}, times)
}

// A Watch checks the watch of one kind of objects. The methods of a Watch are safe for concurrent use.
type Watch struct {
	Kind string
	// Cached returns the resourceVersion that the watch has reached, or "" before the first list. If Cached
	// is nil, this resourceVersion is unknown, and only new lists prove that the watch follows the server.
	Cached func() string
	// Live returns the server's resourceVersion for a namespace, or for all namespaces if namespace is "". If
	// Live is nil, the server's resourceVersion is unknown, and the watch is not checked.
	Live func(ctx context.Context, namespace string) (string, error)
	// Namespace is the namespace of the watch, or "" if the watch covers all namespaces. If the server
	// forbids requests for all namespaces, the function in the field Other returns a namespace for a second
	// call of the function in the field Live. If no namespace is known, the function in the field Other
	// returns "", and the function in the field Live is not called again.
	Namespace string
	Other     func(ctx context.Context) string
	// Relist ends each watch that has been silent for at least the given time, so that its objects are listed
	// again. The returned function reports whether the server has answered the new list requests. If Relist
	// is nil, the objects cannot be listed again.
	Relist func(silent time.Duration) (done func() bool)

	mu     sync.Mutex
	times  Times
	proven time.Time // the watch is assumed to have received all events up to this time; zero before Follow starts
	asked  []answer  // the server's answers with a resourceVersion that the watch has not reached yet, oldest first
	last   time.Time // the time of the last request to the server, or of the start of Follow
	came   time.Time // the time of the server's last answer, or of the start of Follow
	err    error     // the error of the last request
	newest string    // the resourceVersion in the server's last answer
	ahead  string    // the resourceVersion of the watch if the watch was ahead of the server; "" otherwise

	relisted time.Time   // the time when the objects were last listed again; zero means never
	done     func() bool // reports whether the server has answered the new list requests; nil if no answer is pending
	until    string      // the server's resourceVersion at the last call of Relist; "" if no events of a new list are expected
	missed   int         // the number of missed events that the new list has delivered
	hung     int         // the number of new lists that delivered missed events

	reported bool // whether the log says that the watch does not follow the server
	noRight  bool // whether the log says that a right is missing
	doubted  bool // whether the log says that the watch may hang; see report

	events, bookmarks int
	bookmark          time.Time // the time of the last bookmark
	seen              [2]sight  // the states at the last two checks, newest first
}

// An answer holds a time, and a resourceVersion that the server had reached at this time.
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

// Updated must be called for each update event. It does the same as Saw, with one exception. If an event does
// not change the resourceVersion, the event comes from a resync or a list and is ignored.
func (w *Watch) Updated(old, cur any) {
	if versionOf(old) != versionOf(cur) {
		w.Saw(cur)
	}
}

// Saw must be called for each event of an object. For a deletion, obj is the object's last state. If obj is
// not an object, it is a tombstone, and the watch has missed the deletion. If the cache's resourceVersion
// changes without an event, the watch has received a bookmark.
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

// begin initializes the times of the watch. It sends no request to the server.
func (w *Watch) begin(times Times) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.times, w.proven, w.last, w.came = times, now, now, now
}

// look checks the watch once. If the last request is old enough, it reads the server's resourceVersion. It
// also logs whether the watch follows the server. If the watch is too far behind, it calls Relist.
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
	return now.Sub(w.last) >= w.times.Ask || w.isTimeToRelist(now) // before a new list, ask; the answer shows which events were missed
}

func (w *Watch) isTimeToRelist(now time.Time) bool {
	age, known := w.age(now)
	return known && age > w.times.Relist && w.Relist != nil && w.err == nil && w.ahead == "" && now.Sub(w.relisted) > w.times.Relist
}

// noteMissed checks whether a new list has delivered events that the watch missed. If so, it logs that the
// watch hung.
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

// note handles the server's answer to a request. The parameter cached is the resourceVersion that the watch
// had reached before the request. If the previous answer is very old, this process may have been paused, or
// the server may not have answered. In this case, note assumes that the watch has received all events up to
// the time of the new answer.
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

// catchUp records which resourceVersions in the server's answers the watch has reached. It also records
// whether the server has answered a new list request. If the parameter cached is not empty, but cannot be
// compared with the resourceVersion of an answer, catchUp assumes that the watch has reached the
// resourceVersion of the answer.
func (w *Watch) catchUp(cached string) {
	if w.done != nil && w.done() {
		w.done = nil
		if w.Cached == nil {
			w.proven = w.relisted
		}
	}
	if resourceversion.Older(cached, w.ahead) {
		w.ahead = "" // the cache has been filled again by a new list, so the watch is no longer ahead of the server
	}
	for len(w.asked) > 0 && cached != "" && !resourceversion.Older(cached, w.asked[0].version) {
		w.proven = w.asked[0].at
		w.asked = w.asked[1:]
	}
}

// noteBookmark counts bookmarks, which change the cache's resourceVersion without an event. The cache reaches
// the resourceVersion of an event shortly before the handlers receive the event. Therefore noteBookmark
// compares the resourceVersions of two earlier checks. A new list can also change the resourceVersion without
// an event, but not every minute.
func (w *Watch) noteBookmark(now time.Time, cached string) {
	last, before := w.seen[0], w.seen[1]
	w.seen = [2]sight{{cached, w.events}, last}
	if before.cached == "" || last.cached == before.cached || w.events != before.events || w.events == 0 || w.bookmarked() {
		return // if no event has ever arrived, the handlers are possibly not connected
	}
	if now.Sub(w.bookmark) > 2*w.times.Ask {
		w.bookmarks = 0
	}
	w.bookmarks, w.bookmark = w.bookmarks+1, now
}

func (w *Watch) bookmarked() bool { return w.bookmarks >= bookmarksNeeded }

// age returns the time by which the watch may be behind the server. The second result reports whether this
// time is reliable. It is not reliable if the server sends no bookmarks and Relist is nil. A watch of
// unchanged objects then receives nothing.
func (w *Watch) age(now time.Time) (age time.Duration, known bool) {
	if w.proven.IsZero() || apierrors.IsForbidden(w.err) {
		return 0, false
	}
	return now.Sub(w.proven), w.bookmarked() || w.Relist != nil
}

// report logs a message if the watch stops following the server or follows it again. It also logs a missing
// right. Each change is logged only once.
func (w *Watch) report(now time.Time, log Log) {
	if missing := apierrors.IsForbidden(w.err); missing != w.noRight {
		w.noRight = missing
		if missing {
			log(w.err, "Without this right, the program cannot check whether a watch follows the server", "kind", w.Kind)
		}
	}
	age, known := w.age(now)
	if !known && age > w.times.Stale && w.err == nil && len(w.asked) > 0 && !w.doubted {
		// The watch has hung since the start, so no bookmark could show that the server sends them. Nobody can list the
		// objects again, and a restart helps no server without bookmarks, so this is said and Check returns no error.
		w.doubted = true
		log(w.wrong(age), "A watch hangs, or the server sends no bookmarks. With the option Watches, the objects of a watch that hangs are listed again", "kind", w.Kind)
	}
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

// A Sample is a metric of a watch with its current value. A metric is a counter or a gauge.
type Sample struct {
	Name, Help string
	Counter    bool
	Kind       string // the kind of the watched objects
	Value      float64
}

// samples returns the metrics of the watch. The age metric is NaN while the age of the watch is unknown.
func (w *Watch) samples() []Sample {
	age := math.NaN()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp(w.cached())
	if known, ok := w.age(time.Now()); ok {
		age = known.Seconds()
	}
	return []Sample{{
		Name: "watch_age_seconds", Help: "Age of the newest state of the server that the watch has shown. Up to two minutes is usual, because bookmarks come once a minute. NaN means unknown.",
		Kind: w.Kind, Value: age,
	}, {
		Name: "watch_relists_total", Help: "Watches that hung and were ended. A new list of the objects showed what they had missed.",
		Counter: true, Kind: w.Kind, Value: float64(w.hung),
	}}
}
