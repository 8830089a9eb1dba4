// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package distinct finds the entries of a list that have the same string, such as
// the same UID or the same node.
package distinct

import (
	"hash/maphash"
	"math/bits"
)

// A Table finds entries by their strings. It is a hash table with open addressing
// that never grows. Where all strings differ, it takes a third of the time of a map.
type Table struct {
	text func(i int) string
	seed maphash.Seed
	// slots are 0, or the upper half of the hash of an entry's string above one more
	// than its index. A third of them at least is 0.
	slots []uint64
}

// New returns an empty table for at most n entries of a list. text returns the
// string of the entry at an index.
func New(n int, text func(i int) string) *Table {
	return &Table{text: text, seed: maphash.MakeSeed(), slots: make([]uint64, 1<<bits.Len(uint(n+n/2)))}
}

// Add adds an entry, unless there is one with the same string. It returns the index
// of the one that is there then.
func (t *Table) Add(i int) int {
	slot, hash := t.find(t.text(i))
	if *slot == 0 {
		*slot = hash>>32<<32 | uint64(i+1)
	}
	return int(uint32(*slot)) - 1
}

// Find returns the index of the entry with this string, or -1 if there is none.
func (t *Table) Find(text string) int {
	slot, _ := t.find(text)
	return int(uint32(*slot)) - 1
}

// find returns the slot of a string, or the free one where it belongs.
func (t *Table) find(text string) (slot *uint64, hash uint64) {
	hash = maphash.String(t.seed, text)
	mask := uint64(len(t.slots) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		slot = &t.slots[at]
		if *slot == 0 || *slot>>32 == hash>>32 && t.text(int(uint32(*slot))-1) == text {
			return slot, hash
		}
	}
}
