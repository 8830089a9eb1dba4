package expectations

import (
	"encoding/binary"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// A table is a hash table from K to *V that is read without a lock: informer
// handlers and workers look records up all the time, while a record is put in
// or taken out once a pass. A published node never changes. A writer, alone
// under mu, puts a new chain where the old one was, and a reader walks
// whichever of the two it met.
//
// It stands in for sync.Map, which boxes a key of three strings into an
// interface and so takes twice as long. Keys go by pointer for the same reason.
type table[K comparable, V any] struct {
	mu      sync.Mutex
	size    int
	current atomic.Pointer[buckets[K, V]]
}

type buckets[K comparable, V any] struct {
	seed  maphash.Seed
	heads []atomic.Pointer[node[K, V]] // len is a power of two
}

type node[K comparable, V any] struct {
	hash  uint64
	key   K
	value *V // never nil
	next  *node[K, V]
}

const fewestBuckets = 16

// get returns the value under a key, or nil.
func (t *table[K, V]) get(key *K) *V {
	b := t.current.Load()
	if b == nil {
		return nil
	}
	hash := b.hash(key)
	for n := b.head(hash).Load(); n != nil; n = n.next {
		if n.hash == hash && n.key == *key {
			return n.value
		}
	}
	return nil
}

// swap puts a value under a key and returns the one that was there, or nil.
func (t *table[K, V]) swap(key *K, value *V) (old *V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.roomy()
	hash := b.hash(key)
	head := b.head(hash)
	old, rest := head.Load().without(key)
	head.Store(&node[K, V]{hash: hash, key: *key, value: value, next: rest})
	if old == nil {
		t.size++
	}
	return old
}

// remove takes a key out and returns the value that was there, or nil.
func (t *table[K, V]) remove(key *K) (old *V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.current.Load()
	if b == nil {
		return nil
	}
	head := b.head(b.hash(key))
	old, rest := head.Load().without(key)
	if old != nil {
		head.Store(rest)
		t.size--
	}
	return old
}

// nodes returns what stands in the table at one instant.
func (t *table[K, V]) nodes() []*node[K, V] {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.current.Load()
	if b == nil {
		return nil
	}
	nodes := make([]*node[K, V], 0, t.size)
	for i := range b.heads {
		for n := b.heads[i].Load(); n != nil; n = n.next {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// roomy returns buckets with room for one more key. The caller holds mu.
func (t *table[K, V]) roomy() *buckets[K, V] {
	b := t.current.Load()
	switch {
	case b == nil:
		b = newBuckets[K, V](maphash.MakeSeed(), fewestBuckets)
	case t.size == len(b.heads):
		b = b.doubled()
	default:
		return b
	}
	t.current.Store(b)
	return b
}

func newBuckets[K comparable, V any](seed maphash.Seed, n int) *buckets[K, V] {
	return &buckets[K, V]{seed: seed, heads: make([]atomic.Pointer[node[K, V]], n)}
}

// hash returns the hash of a key. The UID alone tells one Key from another, and
// the two ends of it do where it is of the API server's making.
func (b *buckets[K, V]) hash(key *K) uint64 {
	k, ok := any(key).(*Key)
	switch {
	case ok && len(k.UID) == len("00000000-0000-4000-8000-000000000000"):
		return hashUUID(string(k.UID))
	case ok && k.UID != "":
		return maphash.String(b.seed, string(k.UID))
	}
	return maphash.Comparable(b.seed, *key)
}

// hashUUID mixes the ends of a UUID, which are random: it takes less than a
// third of the time of maphash.
func hashUUID(uuid string) uint64 {
	var first, last [8]byte
	copy(first[:], uuid[:8])
	copy(last[:], uuid[len(uuid)-8:])
	const odd = 0x9e3779b97f4a7c15
	mixed := (binary.LittleEndian.Uint64(first[:])*odd ^ binary.LittleEndian.Uint64(last[:])) * odd
	return mixed ^ mixed>>32
}

func (b *buckets[K, V]) head(hash uint64) *atomic.Pointer[node[K, V]] {
	return &b.heads[hash&uint64(len(b.heads)-1)]
}

func (b *buckets[K, V]) doubled() *buckets[K, V] {
	bigger := newBuckets[K, V](b.seed, 2*len(b.heads))
	for i := range b.heads {
		for n := b.heads[i].Load(); n != nil; n = n.next {
			head := bigger.head(n.hash)
			head.Store(&node[K, V]{hash: n.hash, key: n.key, value: n.value, next: head.Load()})
		}
	}
	return bigger
}

// without returns the value under a key, and the chain as it is without that
// key. The nodes before it are copied, those after it are shared.
func (n *node[K, V]) without(key *K) (value *V, rest *node[K, V]) {
	if n == nil {
		return nil, nil
	}
	if n.key == *key {
		return n.value, n.next
	}
	value, rest = n.next.without(key)
	if value == nil {
		return nil, n
	}
	return value, &node[K, V]{hash: n.hash, key: n.key, value: n.value, next: rest}
}
