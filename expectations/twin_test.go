package expectations_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/internal/podtest"
)

// A twin is the slow, obvious form of both types: one map of plain records.
type twin struct {
	clock   *clock
	records map[string]*twinRecord
	made    int
}

type twinRecord struct {
	adds, dels int
	byName     bool
	names      map[string]bool
	uids       map[types.UID]bool
	since      time.Time
	order      int
}

func newTwin(c *clock) *twin { return &twin{clock: c, records: map[string]*twinRecord{}} }

func (w *twin) set(key string, adds, dels int) *twinRecord {
	w.made++
	r := &twinRecord{adds: adds, dels: dels, names: map[string]bool{}, uids: map[types.UID]bool{}, since: w.clock.now, order: w.made}
	w.records[key] = r
	return r
}

func (w *twin) expectNames(key string, names []string) {
	r := w.set(key, 0, 0)
	for _, name := range names {
		r.names[name] = true
	}
	r.byName, r.adds = true, len(r.names)
}

func (w *twin) expectUIDs(key string, uids []types.UID) {
	r := w.set(key, 0, 0)
	for _, uid := range uids {
		r.uids[uid] = true
	}
	r.dels = len(r.uids)
}

func (w *twin) add(key string, adds, dels int) {
	if r := w.records[key]; r != nil {
		r.adds, r.dels = r.adds+adds, r.dels+dels
	}
}

func (w *twin) created(key, name string) bool {
	r := w.records[key]
	if r == nil || r.byName && !r.names[name] {
		return false
	}
	delete(r.names, name)
	r.adds--
	return r.byName || r.adds >= 0
}

func (w *twin) deleted(key string, uid types.UID) bool {
	r := w.records[key]
	if r == nil || !r.uids[uid] {
		return false
	}
	delete(r.uids, uid)
	r.dels--
	return true
}

func (w *twin) observe(key string, live []metav1.Object) {
	r := w.records[key]
	if r == nil {
		return
	}
	for name := range r.names {
		if slices.ContainsFunc(live, func(o metav1.Object) bool { return o.GetName() == name }) {
			w.created(key, name)
		}
	}
	for uid := range r.uids {
		if !slices.ContainsFunc(live, func(o metav1.Object) bool { return o.GetUID() == uid && o.GetDeletionTimestamp() == nil }) {
			w.deleted(key, uid)
		}
	}
}

func (w *twin) owner(uid types.UID) (owner string, ok bool) {
	last := 0
	for key, r := range w.records {
		if r.uids[uid] && r.order > last {
			owner, ok, last = key, true, r.order
		}
	}
	return owner, ok
}

func (w *twin) state(key string) (expectations.State, time.Duration) {
	r := w.records[key]
	if r == nil || r.adds <= 0 && r.dels <= 0 {
		return expectations.Satisfied, 0
	}
	age := w.clock.now.Sub(r.since)
	if age > timeout {
		return expectations.Expired, 0
	}
	return expectations.Waiting, min(timeout-age, timeout) + 1
}

func (w *twin) all() map[string]expectations.Pending {
	all := map[string]expectations.Pending{}
	for key, r := range w.records {
		if r.adds <= 0 && r.dels <= 0 {
			continue
		}
		p := expectations.Pending{Adds: r.adds, Dels: r.dels, Since: r.since}
		for name := range r.names {
			p.Creating = append(p.Creating, name)
		}
		for uid := range r.uids {
			p.Deleting = append(p.Deleting, uid)
		}
		slices.Sort(p.Creating)
		slices.Sort(p.Deleting)
		all[key] = p
	}
	return all
}

// A tape gives the choices of one run; at its end every choice is 0.
type tape []byte

func (d *tape) next(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

func (d *tape) key() string { return strconv.Itoa(d.next(40)) }

func (d *tape) count() int { return d.next(7) - 2 }

func (d *tape) uid() types.UID { return types.UID(fmt.Sprint("uid-", d.next(8))) }

func (d *tape) name() string { return strconv.Itoa(d.next(8)) }

func few[T any](d *tape, one func() T) []T {
	list := make([]T, d.next(5))
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

func FuzzControllerExpectations(f *testing.F) {
	randomTapes(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, c := tape(data), &clock{start}
		e, w := counters(c), newTwin(c)
		for len(d) > 0 {
			key := d.key()
			switch adds, dels := d.count(), d.count(); d.next(9) {
			case 0:
				e.SetExpectations(key, adds, dels)
				w.set(key, adds, dels)
			case 1:
				e.ExpectCreations(key, adds)
				w.set(key, adds, 0)
			case 2:
				e.ExpectDeletions(key, dels)
				w.set(key, 0, dels)
			case 3:
				e.CreationObserved(key)
				w.add(key, -1, 0)
			case 4:
				e.DeletionObserved(key)
				w.add(key, 0, -1)
			case 5:
				e.RaiseExpectations(key, adds, dels)
				w.add(key, adds, dels)
			case 6:
				e.LowerExpectations(key, adds, dels)
				w.add(key, -adds, -dels)
			case 7:
				e.DeleteExpectations(key)
				delete(w.records, key)
			case 8:
				d.pass(c)
			}
			adds, dels, ok := e.GetExpectations(key)
			r := w.records[key]
			require.Equal(t, r != nil, ok)
			if ok {
				require.Equal(t, [2]int{r.adds, r.dels}, [2]int{adds, dels})
			}
			sameState(t, e, w, key)
		}
		require.Equal(t, w.all(), collect(e))
	})
}

func FuzzUIDTrackingControllerExpectations(f *testing.F) {
	randomTapes(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, c := tape(data), &clock{start}
		e, w := tracking(c), newTwin(c)
		for len(d) > 0 {
			key := d.key()
			switch d.next(11) {
			case 0:
				adds := d.count()
				e.ExpectCreations(key, adds)
				w.set(key, adds, 0)
			case 1:
				names := few(&d, d.name)
				e.ExpectCreationsOf(key, names)
				w.expectNames(key, names)
			case 2, 3:
				uids := few(&d, d.uid)
				e.ExpectDeletions(key, uids)
				w.expectUIDs(key, uids)
			case 4:
				e.CreationObserved(key)
				if r := w.records[key]; r != nil && !r.byName {
					w.add(key, -1, 0)
				}
			case 5:
				name := d.name()
				require.Equal(t, w.created(key, name), e.CreationObservedOf(key, name))
			case 6:
				uid := d.uid()
				require.Equal(t, w.deleted(key, uid), e.DeletionObserved(key, uid))
			case 7:
				adds, dels := d.count(), d.count()
				e.LowerExpectations(key, adds, dels)
				w.add(key, -adds, -dels)
			case 8:
				live := few(&d, func() metav1.Object {
					pod := podtest.Pod(d.name(), podtest.UID(d.uid()))
					if d.next(3) == 0 {
						podtest.Deleting(pod)
					}
					return pod
				})
				e.Observe(key, live)
				w.observe(key, live)
			case 9:
				e.DeleteExpectations(key)
				delete(w.records, key)
			case 10:
				d.pass(c)
			}
			sameState(t, e, w, key)
			uid := d.uid()
			wantOwner, wantOK := w.owner(uid)
			owner, ok := e.OwnerOfDeletion(uid)
			require.Equal(t, wantOK, ok)
			require.Equal(t, wantOwner, owner)
		}
		require.Equal(t, w.all(), collect(e))
	})
}

func sameState(t *testing.T, s store, w *twin, key string) {
	t.Helper()
	wantState, wantRemaining := w.state(key)
	state, remaining := s.State(key)
	require.Equal(t, wantState, state)
	require.Equal(t, wantRemaining, remaining)
	require.Equal(t, wantState != expectations.Waiting, s.SatisfiedExpectations(key))
}
