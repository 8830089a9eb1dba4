// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package distinct finds the entries of a list that have the same string, such as
// the same UID or the same node.
package distinct

import (
	"hash/maphash"
	"math/bits"
)

// A Table finds entries by their strings. It is a hash table with open addressing that never grows. If all
// strings differ, it takes about half the time of a map.
type Table struct {
	text func(i int) string
	// A slot is 0 if it is free. Otherwise its lower bits are one more than an entry's index, and the
	// others are bits of the hash of its string. At least half of the slots are 0.
	slots []uint32
	index uint // how many bits an index has
}

// seed is the seed of all hashes, and never changes.
var seed = maphash.MakeSeed()

// New returns an empty table for the entries of a list with indices below n. text returns the string of the
// entry at an index.
func New(n int, text func(i int) string) *Table {
	return &Table{
		text:  text,
		slots: make([]uint32, 1<<bits.Len(uint(2*n))), index: uint(bits.Len(uint(n))),
	}
}

// Add adds the entry at index i, whose string is text, unless an entry has the same string. It returns the
// index of the entry that is in the table.
func (t *Table) Add(i int, text string) int {
	slot, part := t.find(text)
	if *slot == 0 {
		*slot = part | uint32(i+1)
	}
	return t.entry(*slot)
}

// Find returns the index of the entry with this string, or -1 if there is none.
func (t *Table) Find(text string) int {
	slot, _ := t.find(text)
	return t.entry(*slot)
}

// entry returns the index in a slot, or -1 if it is free.
func (t *Table) entry(slot uint32) int { return int(slot&(1<<t.index-1)) - 1 }

// find returns the slot of a string, or the free slot where it belongs. It also returns the bits of the
// string's hash that a slot has.
func (t *Table) find(text string) (slot *uint32, part uint32) {
	hash := maphash.String(seed, text)
	part = uint32(hash>>32) >> t.index << t.index
	mask := uint64(len(t.slots) - 1)
	for at := hash & mask; ; at = (at + 1) & mask {
		slot = &t.slots[at]
		if *slot == 0 || *slot>>t.index == part>>t.index && t.text(t.entry(*slot)) == text {
			return slot, part
		}
	}
}
