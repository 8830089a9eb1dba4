// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/follow"
)

// A world is a server, a watch of this server, and the log messages about the watch.
type world struct {
	*follow.Watch
	t *testing.T

	mu           sync.Mutex
	cached, live int
	strange      bool // whether the server's version is not a number
	err          error
	asked        []string // the namespaces that the server was asked about
	relists      int
	works        bool  // whether Relist brings the watch up to date; see relistable
	missed       []any // the objects of the events that Relist delivers; see relistable
	log          []string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, cached: 100, live: 100}
	w.Watch = &follow.Watch{
		Kind: "Pod",
		Cached: func() string {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.cached == 0 {
				return ""
			}
			return strconv.Itoa(w.cached)
		},
		Live: func(_ context.Context, namespace string) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.asked = append(w.asked, namespace)
			if w.strange {
				return "x", w.err
			}
			return strconv.Itoa(w.live), w.err
		},
		Other: func(context.Context) string { return "" },
		Relist: func(time.Duration) func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.relists++
			if !w.works {
				return func() bool { return false }
			}
			w.cached = w.live
			for _, obj := range w.missed {
				time.AfterFunc(time.Second, func() { w.Saw(obj) })
			}
			return func() bool { return true }
		},
	}
	return w
}

// relistable makes Relist work. A call of Relist brings the watch to the server's version. One second after the
// call, the events of the missed objects arrive.
func (w *world) relistable(missed ...any) {
	w.set(func() { w.works, w.missed = true, missed })
}

// podAt returns a pod with this resourceVersion.
func podAt(version int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(version)}}
}

// start starts Follow, which runs until the test ends, and delivers a first event.
func (w *world) start() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.t.Cleanup(cancel)
	go follow.Watches{Children: w.Watch}.Follow(ctx, func(err error, message string, _ ...any) {
		if err != nil {
			message += ": " + err.Error()
		}
		w.set(func() { w.log = append(w.log, message) })
	})
	synctest.Wait()
	w.Saw(podAt(1))
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// pass lets the time d pass. Each minute, the server's version changes and a bookmark brings the watch to this
// version.
func (w *world) pass(d time.Duration) {
	for ; d >= time.Minute; d -= time.Minute {
		time.Sleep(time.Minute)
		w.set(func() { w.live++; w.cached = w.live })
	}
	w.sleep(d)
}

func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) said() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.log
	w.log = nil
	return said
}

func (w *world) listed() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.relists
}

func (w *world) questions() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *world) isMended() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live == w.cached
}

func (w *world) age() float64 {
	w.t.Helper()
	for _, s := range (follow.Watches{Owners: &follow.Watch{}, Children: w.Watch}).Samples() {
		if s.Name == "watch_age_seconds" && s.Kind == "Pod" {
			return s.Value
		}
	}
	w.t.Fatal("there is no age")
	return 0
}

func (w *world) hung() float64 {
	for _, s := range (follow.Watches{Children: w.Watch}).Samples() {
		if s.Name == "watch_relists_total" {
			return s.Value
		}
	}
	return -1
}

func TestWatch(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]func(t *testing.T, w *world){
		"a day with a bookmark a minute is quiet": func(t *testing.T, w *world) {
			t.Helper()
			w.start()
			for range 24 * 60 {
				w.pass(time.Minute)
				assert.LessOrEqual(t, w.age(), 125.0)
				require.NoError(t, w.Check())
			}
			assert.Empty(t, w.said())
			assert.Zero(t, w.listed())
			assert.LessOrEqual(t, len(w.questions()), 24*60+1, "at most one question a minute")
		},
		"a day of a server that sends no bookmarks is quiet, and a list each few minutes shows that": func(t *testing.T, w *world) {
			t.Helper()
			w.relistable()
			w.start()
			for minute := range 24 * 60 {
				w.set(func() {
					w.live++ // objects of other kinds change
					if minute%97 == 0 {
						w.cached = w.live
					}
				})
				if minute%97 == 0 {
					w.Saw(podAt(w.live))
				}
				w.sleep(time.Minute)
				require.NoError(t, w.Check())
			}
			assert.Empty(t, w.said())
			assert.Greater(t, w.listed(), 300)
		},
		"a day of that without a Relist has one line, because nothing is known": func(t *testing.T, w *world) {
			t.Helper()
			w.Relist = nil
			w.start()
			for range 24 * 60 {
				w.set(func() { w.live++ })
				w.sleep(time.Minute)
				require.NoError(t, w.Check())
				assert.True(t, math.IsNaN(w.age()))
			}
			assert.Len(t, w.said(), 1)
		},
		"without a Relist, a watch that hangs from the start is told within four minutes": func(t *testing.T, w *world) {
			t.Helper()
			w.Relist = nil
			w.start()
			w.set(func() { w.live++ })
			w.sleep(4 * time.Minute)
			said := w.said()
			require.Len(t, said, 1)
			assert.Regexp(t, "^A watch hangs, or the server sends no bookmarks.*: Pod: the watch is 3m20s behind the server$", said[0])
		},
		"a watch that hangs is reported after three minutes, and listed anew again and again": func(t *testing.T, w *world) {
			t.Helper()
			w.start()
			w.pass(10 * time.Minute)
			w.set(func() { w.live++ })
			w.sleep(3 * time.Minute)
			assert.Equal(t, 1, w.listed())
			w.sleep(20 * time.Second)
			require.ErrorContains(t, w.Check(), "Pod: the watch is 3m20s behind the server")
			assert.Equal(t, []string{"A watch does not follow the server: Pod: the watch is 3m20s behind the server"}, w.said())
			w.sleep(time.Hour)
			assert.InDelta(t, time.Hour/(160*time.Second), w.listed(), 3)
			w.set(func() { w.cached = w.live })
			w.sleep(20 * time.Second)
			require.NoError(t, w.Check())
			assert.Equal(t, []string{"The watch follows the server again"}, w.said())
		},
		"one that hangs is mended by each list, also if the new watch hangs, and is reported if it has missed something": func(t *testing.T, w *world) {
			t.Helper()
			w.start()
			w.pass(10 * time.Minute)
			for range 20 {
				w.set(func() { w.live++ })
				w.relistable(podAt(w.live))
				w.sleep(3*time.Minute + 20*time.Second)
				assert.True(t, w.isMended())
				require.NoError(t, w.Check())
				assert.Equal(t, []string{"A watch hung and was ended. A new list has shown the events that the watch missed: Pod: the watch hung"}, w.said())
			}
			assert.InDelta(t, 20, w.hung(), 0)
			w.relistable(nil)
			w.set(func() { w.live++ })
			w.sleep(3*time.Minute + 20*time.Second)
			assert.Len(t, w.said(), 1, "a tombstone was missed too")
			w.relistable(podAt(w.live + 1000))
			w.set(func() { w.live++ })
			w.sleep(10 * time.Minute)
			assert.Empty(t, w.said(), "what has happened since then was not missed")
		},
		"a resync is no event that was missed": func(t *testing.T, w *world) {
			t.Helper()
			w.relistable()
			w.start()
			w.set(func() { w.live++ })
			w.sleep(3 * time.Minute)
			assert.Equal(t, 1, w.listed())
			w.Updated(podAt(1), podAt(1)) // the new list contains an object that has not changed
			w.pass(time.Minute)
			w.Updated(podAt(1), podAt(1))
			w.pass(time.Minute)
			w.Saw(podAt(1)) // an event of the new list that arrives late
			w.pass(time.Minute)
			assert.Empty(t, w.said())
		},
		"without versions, new lists show that the watch follows": func(t *testing.T, w *world) {
			t.Helper()
			w.Cached = nil
			w.relistable()
			w.start()
			w.sleep(time.Hour)
			assert.InDelta(t, time.Hour/(160*time.Second), w.listed(), 3)
			require.NoError(t, w.Check())
			assert.Empty(t, w.said())
			w.relistable(podAt(1))
			w.sleep(4 * time.Minute)
			assert.NotEmpty(t, w.said())
		},
		"without versions, a list that has no answer is reported": func(t *testing.T, w *world) {
			t.Helper()
			w.Cached = nil
			w.start()
			w.sleep(3*time.Minute + 20*time.Second)
			require.ErrorContains(t, w.Check(), "the watch is 3m20s behind")
		},
		"one that nobody can list anew is reported": func(t *testing.T, w *world) {
			t.Helper()
			w.Relist = nil
			w.start()
			w.pass(10 * time.Minute)
			w.set(func() { w.live++ })
			w.sleep(3*time.Minute + 20*time.Second)
			require.ErrorContains(t, w.Check(), "behind the server")
			assert.Len(t, w.said(), 1)
		},
		"the first list hangs": func(t *testing.T, w *world) {
			t.Helper()
			w.cached = 0
			w.start()
			w.sleep(3*time.Minute + 20*time.Second)
			assert.Equal(t, 1, w.listed())
			assert.Len(t, w.said(), 1)
		},
		"a server that does not answer is not the watch's fault": func(t *testing.T, w *world) {
			t.Helper()
			w.start()
			w.pass(10 * time.Minute)
			w.set(func() { w.live++ })
			w.sleep(time.Minute)
			w.set(func() { w.err = errors.New("no connection") })
			for range 60 {
				w.sleep(time.Minute)
				require.NoError(t, w.Check())
			}
			w.set(func() { w.err = nil })
			w.sleep(2 * time.Minute)
			assert.Zero(t, w.listed(), "the time of the outage does not count")
			w.set(func() { w.cached = w.live })
			w.sleep(time.Minute)
			require.NoError(t, w.Check())
			assert.Empty(t, w.said())
		},
		"a right that is missing is reported once": func(t *testing.T, w *world) {
			t.Helper()
			w.err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("cannot list resource"))
			w.start()
			w.sleep(time.Hour)
			said := w.said()
			require.Len(t, said, 1)
			assert.Contains(t, said[0], "cannot check whether a watch follows the server: pods is forbidden")
			require.NoError(t, w.Check())
			assert.Zero(t, w.listed())
		},
		"a right to list one namespace is enough": func(t *testing.T, w *world) {
			t.Helper()
			live := w.Live
			w.Live = func(ctx context.Context, namespace string) (string, error) {
				if namespace == "" {
					return "", apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
				}
				return live(ctx, namespace)
			}
			w.Other = func(context.Context) string { return "shop" }
			w.start()
			w.sleep(time.Minute)
			assert.Equal(t, []string{"shop"}, w.questions())
			assert.Empty(t, w.said())
		},
		"a server that is restored is reported, until it is listed again": func(t *testing.T, w *world) {
			t.Helper()
			w.start()
			w.set(func() { w.live = 60 })
			w.sleep(time.Minute)
			require.ErrorContains(t, w.Check(), "Pod: the watch has reached version 100, but the server was at an older version")
			w.set(func() { w.live, w.cached = 300, 300 }) // the watch has missed the changes between versions 60 and 100
			w.sleep(time.Hour)
			require.Error(t, w.Check())
			assert.Zero(t, w.listed(), "people have to decide")
			w.set(func() { w.live, w.cached = 90, 90 })
			w.sleep(time.Minute + 20*time.Second)
			require.NoError(t, w.Check())
			assert.Len(t, w.said(), 2)
		},
		"versions that cannot be compared are no reason to complain": func(t *testing.T, w *world) {
			t.Helper()
			w.strange = true
			w.start()
			w.sleep(time.Hour)
			require.NoError(t, w.Check())
			assert.Zero(t, w.listed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { story(t, newWorld(t)) })
		})
	}
}

// If the cache reaches a new version every minute without an event, the server sends bookmarks. The age of the
// watch is then known. If new versions come with events, or if they come rarely, they do not prove that the server
// sends bookmarks.
func TestBookmarks(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		every  time.Duration
		events bool
		known  bool
	}{
		"one a minute":                 {every: time.Minute, known: true},
		"versions of events":           {every: time.Minute, events: true},
		"a list now and then":          {every: time.Hour},
		"versions of events, and soon": {every: 20 * time.Second, events: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.Relist = nil
				w.start()
				for range 50 {
					w.set(func() { w.live++; w.cached = w.live })
					if row.events {
						w.Saw(podAt(w.live))
					}
					w.sleep(row.every)
				}
				assert.Equal(t, row.known, !math.IsNaN(w.age()), fmt.Sprint(w.age()))
			})
		})
	}
}

func TestNothingToFollow(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	follow.Watches{}.Follow(ctx, nil)
	require.NoError(t, follow.Watches{}.Check())
	new(follow.Watch).Saw(nil)
	(*follow.Watch)(nil).Saw(nil)
}
