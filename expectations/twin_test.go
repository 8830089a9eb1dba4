// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/sim/podtest"
)

// A twin is a slow, obvious implementation of Store with one map of plain records.
type twin struct {
	clock   *clock
	jitter  time.Duration
	records map[string]*twinRecord
	made    int
}

type twinRecord struct {
	creations, deletions int
	names                map[string]int // the values count up, so they show which name was recorded first
	uids                 map[types.UID]int
	since                time.Time
	patience             time.Duration
}

func (w *twin) add(key string, what changes) {
	r := w.records[key]
	if r == nil {
		r = &twinRecord{names: map[string]int{}, uids: map[types.UID]int{}}
		w.records[key] = r
	}
	r.since, r.patience = w.clock.now, timeout+w.jitter
	for r.creations+len(r.names) < 0 {
		r.creations++
	}
	for r.deletions+len(r.uids) < 0 {
		r.deletions++
	}
	r.creations += what.Creations + note(w, r.names, what.Creating)
	r.deletions += what.Deletions + note(w, r.uids, what.Deleting)
}

func note[T ~string](w *twin, tokens map[T]int, list []T) (empty int) {
	for _, token := range list {
		if _, known := tokens[token]; token != "" && !known {
			w.made++
			tokens[token] = w.made
		}
		if token == "" {
			empty++
		}
	}
	return empty
}

func (w *twin) set(key string, what changes) {
	delete(w.records, key)
	w.add(key, what)
}

func (w *twin) lower(key string, what changes) {
	r := w.records[key]
	if r == nil {
		return
	}
	r.creations -= what.Creations
	r.deletions -= what.Deletions
	for _, name := range what.Creating {
		if name == "" {
			r.creations--
		}
		delete(r.names, name)
	}
	for _, uid := range what.Deleting {
		if uid == "" {
			r.deletions--
		}
		delete(r.uids, uid)
	}
}

func settle[T ~string](tokens map[T]int, token T, number *int) bool {
	if _, ok := tokens[token]; ok {
		delete(tokens, token)
		return true
	}
	if *number > 0 {
		*number--
		return true
	}
	return false
}

func (w *twin) created(key, name string) bool {
	r := w.records[key]
	return r != nil && settle(r.names, name, &r.creations)
}

func (w *twin) deleted(key string, uid types.UID) bool {
	r := w.records[key]
	return r != nil && settle(r.uids, uid, &r.deletions)
}

func (w *twin) sync(key string, live, terminating []*corev1.Pod) {
	r := w.records[key]
	if r == nil {
		return
	}
	for _, pod := range slices.Concat(live, terminating) {
		delete(r.names, pod.Name)
	}
	for uid := range r.uids {
		if !slices.ContainsFunc(live, func(pod *corev1.Pod) bool { return pod.UID == uid }) {
			delete(r.uids, uid)
		}
	}
}

// owners calls the given function for each record. If the function returns a positive number for a record, the
// list that owners returns contains the key of this record. The keys are sorted by the numbers.
func (w *twin) owners(since func(*twinRecord) int) []string {
	var keys []string
	for key, r := range w.records {
		if since(r) > 0 {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Compare(since(w.records[a]), since(w.records[b])) })
	return keys
}

func (w *twin) state(key string) (expectations.State, time.Duration) {
	r := w.records[key]
	if r == nil || r.creations+len(r.names) <= 0 && r.deletions+len(r.uids) <= 0 {
		return expectations.Satisfied, 0
	}
	age := w.clock.now.Sub(r.since)
	if age > r.patience {
		return expectations.Expired, 0
	}
	return expectations.Waiting, min(r.patience-age, r.patience) + 1
}

func (w *twin) get(key string) (p expectations.Pending, ok bool) {
	r := w.records[key]
	if r == nil {
		return p, false
	}
	p = expectations.Pending{Changes: changes{Creations: r.creations, Deletions: r.deletions}, Since: r.since}
	for name := range r.names {
		p.Creating = append(p.Creating, name)
	}
	for uid := range r.uids {
		p.Deleting = append(p.Deleting, uid)
	}
	slices.Sort(p.Creating)
	slices.Sort(p.Deleting)
	return p, true
}

// A tape holds the choices of one run. After its end, every choice is 0.
type tape []byte

func (d *tape) next(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

func (d *tape) key() string { return strconv.Itoa(d.next(6)) }

func (d *tape) count() int { return max(d.next(9)-4, 0) - d.next(2) }

// name returns a name, which is sometimes empty.
func (d *tape) name() string { return []string{"", "a", "b", "c", "d", "e", "f", "g"}[d.next(8)] }

func (d *tape) uid() types.UID { return types.UID(d.name()) }

func (d *tape) changes() changes {
	return changes{Creations: d.count(), Deletions: d.count(), Creating: few(d, d.name), Deleting: few(d, d.uid)}
}

func (d *tape) pod() *corev1.Pod { return podtest.Pod(d.name(), podtest.UID(d.uid())) }

func few[T any](d *tape, one func() T) []T {
	list := make([]T, max(d.next(6)-2, 0))
	for i := range list {
		list[i] = one()
	}
	return list
}

func (d *tape) pass(c *clock) {
	steps := []time.Duration{0, time.Second, timeout / 2, timeout, 1, -time.Minute}
	c.advance(steps[d.next(len(steps))])
}

func randomTapes(f *testing.F) {
	f.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		data := make([]byte, 1500)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
}

func FuzzStore(f *testing.F) {
	randomTapes(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, c := tape(data), &clock{start}
		w := &twin{clock: c, records: map[string]*twinRecord{}}
		s := &store{Now: c.Now, Jitter: func() time.Duration { return w.jitter }}
		for len(d) > 0 {
			w.jitter = time.Duration(d.next(3)) * time.Minute
			key := d.key()
			act(t, &d, s, w, key)
			compare(t, s, w, key, d.name())
		}
		want := map[string]expectations.Pending{}
		for key := range w.records {
			if state, _ := w.state(key); state != expectations.Satisfied {
				want[key], _ = w.get(key)
			}
		}
		require.Equal(t, want, all(s))
	})
}

// act makes the same call on the Store and on the twin. If the call has results, act compares them.
func act(t *testing.T, d *tape, s *store, w *twin, key string) {
	t.Helper()
	switch d.next(10) {
	case 0:
		what := d.changes()
		s.Set(key, what)
		w.set(key, what)
	case 1:
		what := d.changes()
		s.Add(key, what)
		w.add(key, what)
	case 2:
		what := d.changes()
		wantState, wantRemaining := w.state(key)
		if wantState == expectations.Satisfied {
			w.set(key, what)
		}
		state, remaining := s.Try(key, what)
		require.Equal(t, fmt.Sprint(wantState, wantRemaining), fmt.Sprint(state, remaining))
	case 3:
		what := d.changes()
		s.Lower(key, what)
		w.lower(key, what)
	case 4, 5:
		name := d.name()
		require.Equal(t, w.created(key, name), s.CreationObserved(key, name))
	case 6, 7:
		uid := d.uid()
		require.Equal(t, w.deleted(key, uid), s.DeletionObserved(key, uid))
	case 8:
		live, terminating := few(d, d.pod), few(d, d.pod)
		w.sync(key, live, terminating)
		want, _ := w.get(key)
		require.Equal(t, want, expectations.Sync(s, key, live, terminating))
	case 9:
		if d.next(3) == 0 {
			s.Forget(key)
			delete(w.records, key)
		}
		d.pass(w.clock)
	}
}

// compare checks that the Store and the twin agree on the record of an owner. The Store and the twin must also
// agree on which owners expect the creation or the deletion of an object with the given token.
func compare(t *testing.T, s *store, w *twin, key, token string) {
	t.Helper()
	want, wantOK := w.get(key)
	got, ok := s.Get(key)
	require.Equal(t, wantOK, ok)
	require.Equal(t, want, got)
	wantState, wantRemaining := w.state(key)
	state, remaining := s.State(key)
	require.Equal(t, fmt.Sprint(wantState, wantRemaining), fmt.Sprint(state, remaining))
	uid := types.UID(token)
	require.Equal(t, w.owners(func(r *twinRecord) int { return r.names[token] }), s.OwnersOfCreation(token))
	require.Equal(t, w.owners(func(r *twinRecord) int { return r.uids[uid] }), s.OwnersOfDeletion(uid))
	require.Equal(t, slices.Contains(want.Deleting, uid), s.Deleting(key, uid))
}
