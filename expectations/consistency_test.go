// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/expectations"
)

var (
	pods        = schema.GroupResource{Resource: "pods"}
	replicaSets = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	web         = expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "web"}, UID: "1"}
	webAgain    = expectations.Key{NamespacedName: web.NamespacedName, UID: "2"}
)

// caches holds the resource version that each cache has reached.
type caches map[schema.GroupResource]string

func (c caches) version(resource schema.GroupResource) string { return c[resource] }

func consistency(c *clock, versions caches) *expectations.ConsistencyStore {
	return &expectations.ConsistencyStore{ReadVersion: versions.version, Now: c.Now}
}

func ready(s *expectations.ConsistencyStore, owner expectations.Key) bool {
	_, ok := s.Ready(owner)
	return ok
}

func TestConsistencyStore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, at caches)
	}{
		{"X1 each owner's highest version of each resource counts", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			other := expectations.Key{NamespacedName: types.NamespacedName{Namespace: "team", Name: "db"}, UID: "9"}
			s.WroteAt(web, pods, "105")
			s.WroteAt(web, pods, "110")
			s.WroteAt(web, replicaSets, "108")
			s.WroteAt(other, pods, "101")
			at[pods], at[replicaSets] = "105", "108"
			stale, ok := s.Ready(web)
			is.False(ok)
			is.Equal(expectations.Stale{Resource: pods, Read: "105", Wrote: "110", RetryAfter: 50 * time.Millisecond}, stale)
			is.True(ready(s, other))
			at[pods] = "110"
			is.True(ready(s, web))
		}},
		{"X2 a lower or equal version does not replace a higher one", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, _ caches) {
			for _, version := range []string{"105", "105", "104", "99"} {
				s.WroteAt(web, pods, version)
			}
			stale, _ := s.Ready(web)
			is.Equal("105", stale.Wrote)
		}},
		{"X2 where versions cannot be compared the last call counts", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, _ caches) {
			s.WroteAt(web, pods, "not-a-version")
			s.WroteAt(web, pods, "105")
			is.False(ready(s, web))
			s.WroteAt(web, pods, "not-a-version")
			is.True(ready(s, web))
		}},
		{"X2 an empty version tells nothing", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, _ caches) {
			s.WroteAt(web, pods, "105")
			s.WroteAt(web, pods, "")
			is.False(ready(s, web))
			is.Zero(s.GivenUp())
		}},
		{"X3 a write of another UID replaces the whole record", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			s.WroteAt(web, pods, "105")
			s.WroteAt(web, replicaSets, "200")
			s.WroteAt(webAgain, pods, "101")
			is.True(ready(s, web))
			is.False(ready(s, webAgain))
			at[pods] = "101"
			is.True(ready(s, webAgain))
		}},
		{"X3 an owner made again under its name does not wait for the writes of the first", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, _ caches) {
			s.WroteAt(web, pods, "105")
			is.True(ready(s, webAgain))
			is.False(ready(s, expectations.Key{NamespacedName: web.NamespacedName}), "an empty UID asks for whichever wrote")
			is.False(ready(s, web))
		}},
		{"X4 Clear removes on a matching or an empty UID only", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, _ caches) {
			s.Clear(web)
			s.WroteAt(web, pods, "105")
			s.Clear(webAgain)
			is.False(ready(s, web))
			s.Clear(web)
			is.True(ready(s, web))
			s.WroteAt(web, pods, "105")
			s.Clear(expectations.Key{NamespacedName: web.NamespacedName})
			is.True(ready(s, web))
			is.Zero(s.GivenUp())
		}},
		{"X5 no record is ready", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, _ caches) {
			stale, ok := s.Ready(web)
			is.True(ok)
			is.Zero(stale)
		}},
		{"X5 a cache that is as far as the write, or further, is ready", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			for _, version := range []string{"105", "106", "1000"} {
				at[pods] = "100"
				s.WroteAt(web, pods, "105")
				is.False(ready(s, web))
				at[pods] = version
				is.True(ready(s, web))
			}
		}},
		{"X5 of several stale caches the one written first is told", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			s.WroteAt(web, replicaSets, "105")
			s.WroteAt(web, pods, "106")
			stale, _ := s.Ready(web)
			is.Equal(replicaSets, stale.Resource)
			at[replicaSets] = "105"
			stale, _ = s.Ready(web)
			is.Equal(pods, stale.Resource)
		}},
		{"X6 what was seen is forgotten", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			s.WroteAt(web, pods, "105")
			at[pods] = "105"
			is.True(ready(s, web))
			at[pods] = "1"
			is.True(ready(s, web), "even when the cache goes back")
			is.Zero(s.GivenUp())
		}},
		{"X7 versions compare as numbers of any length", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			at[pods] = "9"
			s.WroteAt(web, pods, "10")
			is.False(ready(s, web))
			at[pods] = "99999999999999999999999999999998"
			s.WroteAt(webAgain, pods, "99999999999999999999999999999999")
			is.False(ready(s, webAgain))
			at[pods] = "99999999999999999999999999999999"
			is.True(ready(s, webAgain))
		}},
		{"X8 an unknown read version disables the check for its resource", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			at[pods] = ""
			s.WroteAt(web, pods, "105")
			s.WroteAt(web, schema.GroupResource{Resource: "nodes"}, "105")
			s.WroteAt(web, replicaSets, "105")
			stale, ok := s.Ready(web)
			is.False(ok)
			is.Equal(replicaSets, stale.Resource)
			at[replicaSets] = ""
			is.True(ready(s, web))
			is.Zero(s.GivenUp())
		}},
		{"X9 W41 a release is a write like any other: it raises the version to wait for", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			s.WroteAt(web, pods, "101") // an adoption
			s.WroteAt(web, pods, "107") // a release
			at[pods] = "101"
			is.False(ready(s, web))
		}},
		{"X10 W51 looking again doubles from 50 ms to 1 s", func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, at caches) {
			s.WroteAt(web, pods, "105")
			for _, want := range []time.Duration{50, 100, 200, 400, 800, 1000, 1000} {
				stale, _ := s.Ready(web)
				is.Equal(want*time.Millisecond, stale.RetryAfter)
				stale, _ = s.Ready(web)
				is.Equal(want*time.Millisecond, stale.RetryAfter, "looking twice does not hurry it on")
				c.advance(stale.RetryAfter)
			}
			at[pods] = "105"
			is.True(ready(s, web))
			s.WroteAt(web, pods, "106")
			stale, _ := s.Ready(web)
			is.Equal(50*time.Millisecond, stale.RetryAfter, "the next write starts over")
		}},
		{"X12 it knows nothing of expectations, nor they of it", func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, at caches) {
			exp := expectations.Store[expectations.Key]{Now: c.Now}
			exp.Set(web, changes{Creations: 1})
			is.True(ready(s, web))
			is.Equal(expectations.Waiting, stateOf(&exp, web))
			s.WroteAt(web, pods, "105")
			exp.CreationObserved(web, "x")
			is.False(ready(s, web))
			is.Equal(expectations.Satisfied, stateOf(&exp, web))
			_ = at
		}},
		{"W52 a version that cannot be compared does not hold up, and is counted", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			for i, version := range []string{"0", "007", "12a", "-1", " 1"} {
				s.WroteAt(web, pods, version)
				is.True(ready(s, web))
				is.EqualValues(i+1, s.GivenUp())
			}
			at[pods] = "not-a-version"
			s.WroteAt(web, pods, "105")
			is.True(ready(s, web))
			is.EqualValues(6, s.GivenUp())
		}},
		{"W51 a write never seen is given up after ten minutes of waiting, and counted", func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, _ caches) {
			s.WroteAt(web, pods, "105")
			c.advance(time.Hour) // without a call of Ready, so the wait has not begun
			is.False(ready(s, web))
			c.advance(10*time.Minute - time.Millisecond)
			stale, ok := s.Ready(web)
			is.False(ok)
			is.Equal(time.Millisecond, stale.RetryAfter, "it is never later than giving up")
			is.Zero(s.GivenUp())
			c.advance(stale.RetryAfter)
			stale, ok = s.Ready(web)
			is.True(ok)
			is.Equal("105", stale.Wrote, "the cache is known to be old")
			stale, ok = s.Ready(web)
			is.True(ok)
			is.Zero(stale)
			is.EqualValues(1, s.GivenUp())
		}},
		{"W51 a newer write starts the ten minutes anew, the same one does not", func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, _ caches) {
			s.WroteAt(web, pods, "105")
			is.False(ready(s, web))
			c.advance(9 * time.Minute)
			s.WroteAt(web, pods, "106")
			is.False(ready(s, web))
			c.advance(9 * time.Minute)
			s.WroteAt(web, pods, "106")
			is.False(ready(s, web))
			c.advance(time.Minute)
			is.True(ready(s, web))
		}},
		{"W51 one resource is given up, the other still waits", func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, at caches) {
			s.WroteAt(web, pods, "105")
			is.False(ready(s, web))
			c.advance(5 * time.Minute)
			s.WroteAt(web, replicaSets, "106")
			is.False(ready(s, web))
			c.advance(5 * time.Minute)
			stale, ok := s.Ready(web)
			is.False(ok)
			is.Equal(replicaSets, stale.Resource)
			is.EqualValues(1, s.GivenUp())
			at[replicaSets] = "106"
			is.True(ready(s, web))
		}},
		{"W52 a cache that goes back gives up at once, and is counted", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			s.WroteAt(web, pods, "105")
			at[pods] = "60" // older than at the time of the write
			is.True(ready(s, web))
			is.EqualValues(1, s.GivenUp())

			s.WroteAt(web, pods, "105")
			at[pods] = "80"
			is.False(ready(s, web))
			at[pods] = "79" // older than at the last call of Ready
			is.True(ready(s, web))
			is.EqualValues(2, s.GivenUp())
		}},
		{"W52 a cache that goes back and comes by again is ready", func(is *assert.Assertions, s *expectations.ConsistencyStore, _ *clock, at caches) {
			s.WroteAt(web, pods, "105")
			at[pods] = "60"
			at[pods] = "200"
			is.True(ready(s, web))
			is.Zero(s.GivenUp())
		}},
		{"a clock that went back looks again every 50 ms and gives up later", func(is *assert.Assertions, s *expectations.ConsistencyStore, c *clock, _ caches) {
			s.WroteAt(web, pods, "105")
			is.False(ready(s, web))
			c.advance(-time.Hour)
			stale, _ := s.Ready(web)
			is.Equal(50*time.Millisecond, stale.RetryAfter)
			c.advance(time.Hour + 10*time.Minute)
			is.True(ready(s, web))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, at := &clock{start}, caches{pods: "100", replicaSets: "100"}
			test.run(assert.New(t), consistency(c, at), c, at)
		})
	}
}

func TestConsistencyStoreThatKnowsNothing(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		store *expectations.ConsistencyStore
	}{
		{"X11 the zero store is always ready", &expectations.ConsistencyStore{}},
		{"X11 a nil store is always ready", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.store.WroteAt(web, pods, "105")
			assert.True(t, ready(test.store, web))
			test.store.Clear(web)
			assert.Zero(t, test.store.GivenUp())
		})
	}
}

func TestGiveUpAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name        string
		given, want time.Duration
	}{
		{"W51 zero means ten minutes", 0, 10 * time.Minute},
		{"W51 a negative duration means ten minutes", -1, 10 * time.Minute},
		{"W51 it may be chosen", 3 * time.Millisecond, 3 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &clock{start}
			s := consistency(c, caches{pods: "100"})
			s.GiveUpAfter = test.given
			s.WroteAt(web, pods, "105")
			assert.False(t, ready(s, web))
			c.advance(test.want - 1)
			assert.False(t, ready(s, web))
			c.advance(1)
			assert.True(t, ready(s, web))
		})
	}

	t.Run("W51 a nil Now is the real clock", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &expectations.ConsistencyStore{ReadVersion: caches{pods: "100"}.version}
			s.WroteAt(web, pods, "105")
			began, looks := time.Now(), 0
			for stale, ok := s.Ready(web); !ok; stale, ok = s.Ready(web) {
				looks++
				time.Sleep(stale.RetryAfter)
			}
			assert.Equal(t, 10*time.Minute, time.Since(began))
			assert.Equal(t, 604, looks)
		})
	})
}

func TestConsistencyStoreConcurrently(t *testing.T) {
	t.Parallel()

	t.Run("X13 no write is lost to a check at the same time", func(t *testing.T) {
		t.Parallel()
		var at atomic.Int64
		s := &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return strconv.FormatInt(at.Load(), 10) }}
		for i := int64(1); i < 500; i++ {
			s.WroteAt(web, pods, strconv.FormatInt(2*i, 10))
			at.Store(2 * i)
			together(2, func(n int) {
				if n == 0 {
					s.WroteAt(web, pods, strconv.FormatInt(2*i+1, 10))
				} else {
					s.Ready(web)
				}
			})
			stale, ok := s.Ready(web)
			require.False(t, ok)
			require.Equal(t, strconv.FormatInt(2*i+1, 10), stale.Wrote)
		}
		assert.Zero(t, s.GivenUp())
	})

	t.Run("X13 what happens while the caches are asked is neither lost nor given up", func(t *testing.T) {
		t.Parallel()
		for _, test := range []struct {
			name string
			// meanwhile runs while ReadVersion returns 100 for pods. At that time, the cache of pods has already
			// reached 105.
			meanwhile func(s *expectations.ConsistencyStore)
			wrote     string // the version that Ready waits for, or "" if the owner is ready
		}{
			{"nothing, and pods have come as far as the write", func(*expectations.ConsistencyStore) {}, ""},
			{"a later write of the same resource", func(s *expectations.ConsistencyStore) { s.WroteAt(web, pods, "106") }, "106"},
			{"a later write, of which the cache has heard already", func(s *expectations.ConsistencyStore) { s.WroteAt(web, pods, "105") }, ""},
			{"the first write of another resource", func(s *expectations.ConsistencyStore) { s.WroteAt(web, replicaSets, "120") }, "120"},
			{"the owner was forgotten, and wrote the same again", func(s *expectations.ConsistencyStore) {
				s.Clear(web)
				s.WroteAt(web, pods, "108")
			}, "108"},
			{"another look, which saw the cache further on", func(s *expectations.ConsistencyStore) {
				s.WroteAt(web, pods, "110")
				s.Ready(web)
			}, "110"},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				s, asking, at := &expectations.ConsistencyStore{}, false, "100"
				s.ReadVersion = func(resource schema.GroupResource) string {
					if resource == replicaSets {
						return "100"
					}
					told := at
					if asking {
						asking, at = false, "105"
						test.meanwhile(s)
					}
					return told
				}
				s.WroteAt(web, pods, "99")
				asking = true
				stale, isReady := s.Ready(web)
				assert.Equal(t, test.wrote == "", isReady)
				assert.Equal(t, test.wrote, stale.Wrote)
				assert.Zero(t, s.GivenUp())
				stale, isReady = s.Ready(web)
				assert.Equal(t, test.wrote == "", isReady)
				assert.Equal(t, test.wrote, stale.Wrote)
				assert.Zero(t, s.GivenUp())
			})
		}
	})

	t.Run("X13 a write made while nothing is known of its cache is left to the next look", func(t *testing.T) {
		t.Parallel()
		s, asking, at := &expectations.ConsistencyStore{}, false, caches{pods: "100"}
		s.ReadVersion = func(resource schema.GroupResource) string {
			if asking {
				asking = false
				s.WroteAt(web, replicaSets, "105")
			}
			return at[resource]
		}
		s.WroteAt(web, pods, "99")
		asking = true
		assert.True(t, ready(s, web))
		at[replicaSets] = "100"
		assert.False(t, ready(s, web))
	})

	t.Run("X13 of two looks at once the one that asked first does not give up", func(t *testing.T) {
		t.Parallel()
		s, asking, at := &expectations.ConsistencyStore{}, false, "100"
		s.ReadVersion = func(schema.GroupResource) string {
			told := at
			if asking {
				asking, at = false, "105"
				assert.False(t, ready(s, web))
			}
			return told
		}
		s.WroteAt(web, pods, "110")
		asking = true
		stale, isReady := s.Ready(web)
		assert.False(t, isReady)
		assert.Equal(t, "110", stale.Wrote)
		assert.Zero(t, s.GivenUp())
	})

	t.Run("X1 the highest of many writes at once counts", func(t *testing.T) {
		t.Parallel()
		s := consistency(&clock{start}, caches{pods: "100"})
		together(8, func(i int) {
			for j := range 100 {
				s.WroteAt(web, pods, strconv.Itoa(101+8*j+i))
				s.Clear(webAgain)
				s.GivenUp()
			}
		})
		stale, _ := s.Ready(web)
		assert.Equal(t, "900", stale.Wrote)
	})
}

// A plainStore is a slow, obvious implementation of ConsistencyStore. Each row belongs to one owner and one
// resource, and holds the highest version that was written for this owner and this resource. Versions are numbers.
type plainStore struct {
	rows    []plainRow
	givenUp uint64
}

type plainRow struct {
	owner         expectations.Key
	resource      schema.GroupResource
	version, read int
	waitingSince  *time.Time
}

func (p *plainStore) filter(keep func(*plainRow) bool) {
	var rows []plainRow
	for _, row := range p.rows {
		if keep(&row) {
			rows = append(rows, row)
		}
	}
	p.rows = rows
}

func (p *plainStore) wroteAt(owner expectations.Key, resource schema.GroupResource, version, read int) {
	p.filter(func(row *plainRow) bool {
		return row.owner.NamespacedName != owner.NamespacedName || row.owner == owner
	})
	for i := range p.rows {
		if row := &p.rows[i]; row.owner == owner && row.resource == resource {
			if version > row.version {
				row.version, row.read, row.waitingSince = version, read, nil
			}
			return
		}
	}
	p.rows = append(p.rows, plainRow{owner: owner, resource: resource, version: version, read: read})
}

func (p *plainStore) ready(owner expectations.Key, at map[schema.GroupResource]int, now time.Time) (stale []expectations.Stale) {
	p.filter(func(row *plainRow) bool {
		read := at[row.resource]
		switch {
		case row.owner != owner:
			return true
		case read >= row.version:
			return false
		case read < row.read:
			p.givenUp++
			return false
		}
		row.read = read
		if row.waitingSince == nil {
			row.waitingSince = &now
		}
		waited := now.Sub(*row.waitingSince)
		if waited >= expectations.DefaultGiveUpAfter {
			p.givenUp++
			return false
		}
		stale = append(stale, expectations.Stale{
			Resource: row.resource, Read: strconv.Itoa(read), Wrote: strconv.Itoa(row.version),
			RetryAfter: min(waited+50*time.Millisecond, time.Second, expectations.DefaultGiveUpAfter-waited),
		})
		return true
	})
	return stale
}

func FuzzConsistencyStore(f *testing.F) {
	randomTapes(f)
	// The fuzzer found these inputs.
	f.Add([]byte("0007"))
	f.Add([]byte("000700"))
	f.Add([]byte("000A0007"))
	f.Add([]byte("0000000700000"))
	f.Add([]byte("10071000100010001"))
	f.Add([]byte("200721072008000020090"))
	f.Add([]byte("002000200020002000200020002000200020002000200020002000200020002"))
	f.Add([]byte("00000000000000000000000000000000000000000000000000000000000000000"))
	f.Add([]byte("11070020200710000000002001072107200000071000100000000020000700202020000010200000010010000"))
	f.Add([]byte("0107210700200090010011071000010700A100A10007000000000000109021000000109000900000100710200107109000900020000000920000011071"))
	f.Add([]byte("0192!21072007010700070092000002029000700002007000000000192700000000010\"00000000000000000000000000000000000000000000000000000000000000000"))
	f.Add([]byte("!005T\xc46{]\xdb\b\xdc\xd7\x06%p|\x05\xc3\xc5\xd0\x1dr\x9d(\x80Ǫc\xd6k\xc7\xf9tE\xe3.*\x18W\xc5\xf5/\xb5\xef6p)\xccT\xebM@\x9c3\x01\x96)4\xc7\x04\xabt\xbc\x10+\x9e\x99-\ba\xdeژ\xc2\x1d\xf8\x0e2V\xd1A\x84W\xcc\x0f\xa0\xb0lk\xca\xe8\x941\x11\x16 \xe8\xea\xf5ځ\xda\xfd\x93=\x9c\x1b\xca\x05\r\xb1\xf4\x92\x02\xf9\x8e\x92S;'G \xcbr<\x1c\x9d\x1c]\xb5\xa4\xf7\xae\xe6c(\x958\xdb(\xecK\xaf\x83 W<\x99;\xed\xd8\xe6M!^\xa2\xc5c\xb1\xd0\x7f\xa6\xf6\x7fH(\xec\xa7\x19\x9d\x95\xe7\x01w\x83\xdfr\xc42\x9a\xdfPX\x1c\x82\xafn\xbd6\xe2\x80\tz\xa6\x95\xc0QY\xfa:,\xaeYF]\xa3\x99\xc3C\x9en]\xc3\xfe\xa4\x87\xe8\xd52\x13\xcb4\x11j\xbePZ\xca\xe1\xc3\xf5>e\xca\xdav\xb1\x9a\xd8\xc7\xd74\xdeI>`\xe4\xf5!\xc2\xefiqjh\xb1j\xed\"\x12?=\x9d8)\xecU\x14\xe4U\xb0\x9a\n\x8eq\x9c\x04\xfc\x1d\x96\t\xccO\x06\x95\x92\xf9\u07bfT\xc0\xfc\xcfx\x9b\x1dB\xf2'2\x9ee\x90!\xe6\xe2\xf1\x17\xbbx\x86n\r\x8c^3\xd0\xf6\x842\xa6z\xee\x81U\xe0K{\xef{\xaa\x10ue`\x7f\xf5r\f\xffϼ[p9\xfd\x85\xd0ж\xe3+\x97\xc2\x02\xcf\xf5\xb7{\xd7n;\x8cQg\xa9J(\xa1[0\xda\xec\xdf\xfc\xe3\xee2\xb7\x02\x11f\xefz\r\xdf\x1f\x8a\xc6\x00\b\xe8\x90R\xcav₵'ҭ\x13\xbc\xb4L\xfd\xd0_\xf4\xe7H\xf6p\x8a\xe4\x02\x87\x96\xf2\x82ߤ\x9c\x86\x9f\xe65\xdb\xc7GB\xed\xf2\xa8\xb1\xfe\xa9L\xc7>\x8fQIj\x9fqR\xf3Y\xffV\x10%L\vS\x8d"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, c, p := tape(data), &clock{start}, &plainStore{}
		at := map[schema.GroupResource]int{pods: 100, replicaSets: 100}
		s := &expectations.ConsistencyStore{Now: c.Now, ReadVersion: func(r schema.GroupResource) string { return strconv.Itoa(at[r]) }}
		for len(d) > 0 {
			owner := []expectations.Key{web, webAgain, {NamespacedName: types.NamespacedName{Name: "db"}, UID: "3"}}[d.next(3)]
			resource := []schema.GroupResource{pods, replicaSets}[d.next(2)]
			switch d.next(6) {
			case 0, 1:
				version := max(at[resource]+d.next(12)-2, 1)
				s.WroteAt(owner, resource, strconv.Itoa(version))
				p.wroteAt(owner, resource, version, at[resource])
			case 2:
				at[resource] += d.next(6)
			case 3:
				if d.next(5) == 0 {
					at[resource] = max(at[resource]-d.next(10), 1)
				}
			case 4:
				c.advance([]time.Duration{0, 70 * time.Millisecond, time.Second, 4 * time.Minute}[d.next(4)])
			case 5:
				if d.next(4) == 0 {
					s.Clear(owner)
					p.filter(func(row *plainRow) bool { return row.owner != owner })
				}
			}
			want := p.ready(owner, at, c.now)
			stale, ok := s.Ready(owner)
			require.Equal(t, len(want) == 0, ok)
			if !ok {
				require.Equal(t, want[0], stale)
			}
			require.Equal(t, p.givenUp, s.GivenUp())
		}
	})
}

func BenchmarkConsistencyStore(b *testing.B) {
	keys := benchmarkKeys()
	at := strconv.Itoa(rand.IntN(1000) + 100_000)
	s := &expectations.ConsistencyStore{ReadVersion: func(schema.GroupResource) string { return at }}
	b.Run("ready/nothing-written", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.Ready(keys[i%benchKeys])
		}
	})
	b.Run("wrote-at-and-ready/keys="+strconv.Itoa(benchKeys), func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			s.WroteAt(keys[i%benchKeys], pods, "99")
			s.Ready(keys[i%benchKeys])
		}
	})
}
