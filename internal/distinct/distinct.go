// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package distinct finds the entries of a list that have the same string, such as
// the same UID or the same node.
package distinct

import (
	"hash/maphash"
	"math/bits"
)

// A Table maps the strings of a list's entries to the indexes of these entries. It is a hash table with open
// addressing and a fixed size. If all strings differ, a Table takes about half the time of a map.
type Table struct {
	text func(i int) string
	// A free slot is 0. In a used slot, the lower bits hold the number i+1, where i is the index of an entry.
	// The upper bits hold some bits of the hash of the entry's string. At least half of the slots are free.
	slots []uint32
	index uint // the number of bits in a slot that hold the number i+1, where i is the index of an entry
}

// seed is the seed of all hashes in this process.
var seed = maphash.MakeSeed()

// New returns an empty table for the n entries of a list. The string of the entry at index i is text(i).
func New(n int, text func(i int) string) *Table {
	return &Table{
		text:  text,
		slots: make([]uint32, 1<<bits.Len(uint(2*n))), index: uint(bits.Len(uint(n))),
	}
}

// Add adds the entry at index i with the given string, and returns i. If the table already contains an entry
// with this string, Add changes nothing, and returns the index of the existing entry.
func (t *Table) Add(i int, text string) int {
	slot, part := t.find(text)
	if *slot == 0 {
		*slot = part | uint32(i+1)
	}
	return t.entry(*slot)
}

// Find returns the index of the entry with this string, or -1 if the table contains no such entry.
func (t *Table) Find(text string) int {
	slot, _ := t.find(text)
	return t.entry(*slot)
}

// entry returns the index that a slot holds, or -1 if the slot is free.
func (t *Table) entry(slot uint32) int { return int(slot&(1<<t.index-1)) - 1 }

// find returns the slot of a string, or the free slot where the string belongs. The second result is the part
// of the hash that a slot stores for this string.
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
