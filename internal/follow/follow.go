// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package follow finds out whether the watches behind a cache follow the API server.
//
// A watch that hangs returns no error, and is as quiet as a watch of objects that do not change. So each
// minute the server is asked for its version, and the watch must reach that version. A server sends its
// watches a bookmark each minute, so a watch is about two minutes behind at most. If the watch is further
// behind, its objects are listed again, which replaces a watch that hangs. If the server sends no
// bookmarks, such a list also proves that the watch follows.
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
	// askPatience is how long the server may take to return its version.
	askPatience = 10 * time.Second
	// mostAsked is how many answers of the server are kept at most, even if the watch hangs for a long
	// time.
	mostAsked = 20
	// backOff is how long an informer may wait between the end of a watch and a list.
	backOff = 30 * time.Second
	// bookmarksNeeded is how many bookmarks in a row show that the server sends them.
	bookmarksNeeded = 3
)

// Times are the intervals and limits of a Watch. Tests shorten them.
type Times struct {
	Look   time.Duration // between two looks at the cache
	Ask    time.Duration // between two questions to the server
	Relist time.Duration // the age at which the objects are listed again
	Stale  time.Duration // the age at which the watch counts as not following
}

var usual = Times{Look: 20 * time.Second, Ask: time.Minute, Relist: 150 * time.Second, Stale: 3 * time.Minute}

type timesKey struct{}

// WithTimes returns a context for a Follow with other times. It is for tests.
func WithTimes(ctx context.Context, times Times) context.Context {
	return context.WithValue(ctx, timesKey{}, times)
}

// A Watch is the watch of one kind. Its methods may be called by several goroutines at once.
type Watch struct {
	Kind string
	// Cached returns the version that the watch has reached, or "" before the first list. nil means that it
	// is not known. Then only new lists show that the watch follows.
	Cached func() string
	// Live returns the server's version in a namespace, or in all if namespace is "". nil means that the
	// server cannot be asked, and the watch is not followed.
	Live func(ctx context.Context, namespace string) (string, error)
	// Namespace is the namespace of the watch, or "" if it watches all namespaces. If Live is forbidden
	// there, the namespace that Other returns is used. Other may return "".
	Namespace string
	Other     func(ctx context.Context) string
	// Relist ends the watches that have sent nothing for the time silent, and has their objects listed
	// again. done reports whether the lists have been answered. If Relist is nil, the objects cannot be
	// listed again.
	Relist func(silent time.Duration) (done func() bool)

	mu     sync.Mutex
	times  Times
	proven time.Time // when the server was at a version that the watch has reached; zero before the first look
	asked  []answer  // that the watch has not reached yet, the oldest first
	last   time.Time // when the server was last asked, or Follow began
	came   time.Time // when it last answered, or Follow began
	err    error     // of the last request
	newest string    // its answer
	ahead  string    // the version that the watch had reached when the server was at an older one

	relisted time.Time   // when the objects were last listed again; zero means never
	done     func() bool // whether that has happened; nil if that is known
	until    string      // the server's version before that
	missed   int         // events up to that version that the watch had not sent
	hung     int         // relists that showed such events

	reported bool // it was reported that the watch does not follow
	noRight  bool // it was reported that a right is missing

	events, bookmarks int
	bookmark          time.Time // when the last one came
	seen              [2]sight  // at the last look, and at the one before
}

// An answer says that the server had at least this version at an instant.
type answer struct {
	at      time.Time
	version string
}

// A sight is the state at one look.
type sight struct {
	cached string
	events int
}

// A Log logs an error, or only a message if err is nil.
type Log func(err error, message string, keysAndValues ...any)

// Updated records an update as Saw does. If the version is the same, the update is a resync or part of a
// list, and does not count as an event.
func (w *Watch) Updated(old, cur any) {
	if versionOf(old) != versionOf(cur) {
		w.Saw(cur)
	}
}

// Saw records an event of an object, or of the last state of one that is gone. Any other value is a
// tombstone, whose event was missed. If the watch reaches a version without an event, that is the version
// of a bookmark.
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

// Check returns an error if the watch has not followed the server for three minutes.
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

// begin starts to follow the watch. It does not ask the server yet.
func (w *Watch) begin(times Times) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.times, w.proven, w.last, w.came = times, now, now, now
}

// look asks the server if it is time, and reports. If the watch is behind, its objects are listed again.
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
	return now.Sub(w.last) >= w.times.Ask || w.isTimeToRelist(now) // to know which events came too late
}

func (w *Watch) isTimeToRelist(now time.Time) bool {
	age, known := w.age(now)
	return known && age > w.times.Relist && w.Relist != nil && w.err == nil && w.ahead == "" && now.Sub(w.relisted) > w.times.Relist
}

// noteMissed reports that the watch hung if a new list brought events that the watch should have sent
// before.
func (w *Watch) noteMissed(log Log) {
	if w.missed > 0 {
		log(fmt.Errorf("%s: the watch hung", w.Kind), "A watch hung and was ended. A new list has shown what it missed", "kind", w.Kind, "events", w.missed)
		w.hung++
		w.missed = 0
	}
	if time.Since(w.relisted) > 2*w.times.Look+backOff && w.done == nil {
		w.until = "" // the handlers have had enough time
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

// note records an answer of the server. When the server was asked, the watch had reached the version
// cached. If this process stood still, or the server did not answer for long, the age of the watch is
// counted from now on.
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

// catchUp records that the watch has reached a version, or that a list has been answered. Versions that
// cannot be compared are ignored.
func (w *Watch) catchUp(cached string) {
	if w.done != nil && w.done() {
		w.done = nil
		if w.Cached == nil {
			w.proven = w.relisted
		}
	}
	if resourceversion.Older(cached, w.ahead) {
		w.ahead = "" // it was listed again
	}
	for len(w.asked) > 0 && cached != "" && !resourceversion.Older(cached, w.asked[0].version) {
		w.proven = w.asked[0].at
		w.asked = w.asked[1:]
	}
}

// noteBookmark compares two looks, because the cache has a version a moment before the handlers have the
// event. A new list brings a version without an event too, but not each minute.
func (w *Watch) noteBookmark(now time.Time, cached string) {
	last, before := w.seen[0], w.seen[1]
	w.seen = [2]sight{{cached, w.events}, last}
	if before.cached == "" || last.cached == before.cached || w.events != before.events || w.events == 0 || w.bookmarked() {
		return // without any event, the handlers may not be connected
	}
	if now.Sub(w.bookmark) > 2*w.times.Ask {
		w.bookmarks = 0
	}
	w.bookmarks, w.bookmark = w.bookmarks+1, now
}

func (w *Watch) bookmarked() bool { return w.bookmarks >= bookmarksNeeded }

// age returns the time since the watch last had the server's version, and whether that time proves
// anything. Without bookmarks, a watch of objects that do not change gets no events.
func (w *Watch) age(now time.Time) (age time.Duration, known bool) {
	if w.proven.IsZero() || apierrors.IsForbidden(w.err) {
		return 0, false
	}
	return now.Sub(w.proven), w.bookmarked() || w.Relist != nil
}

// report logs once that the watch does not follow, and once that it follows again.
func (w *Watch) report(now time.Time, log Log) {
	if missing := apierrors.IsForbidden(w.err); missing != w.noRight {
		w.noRight = missing
		if missing {
			log(w.err, "Without this right the program cannot check that a watch follows the server", "kind", w.Kind)
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

// wrong returns an error about a watch that does not follow.
func (w *Watch) wrong(age time.Duration) error {
	age = age.Round(time.Second)
	if w.ahead != "" {
		return fmt.Errorf("%s: the watch has reached version %s, but the server was at an older version: was it restored from a backup? Restart this program", w.Kind, w.ahead)
	}
	return fmt.Errorf("%s: the watch is %v behind the server", w.Kind, age)
}

// samples are the metrics of the watch. The age is NaN while it is not known.
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
