// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shard divides the namespaces of a cluster among several managers: by
// ranges of a hash, as the server-side sharded list and watch of Kubernetes does
// (KEP-5866).
package shard

import (
	"fmt"
	"hash/fnv"
	"math"
)

// Hash is the place of a namespace in the hash space: 64-bit FNV-1a of its name,
// as in k8s.io/apimachinery/pkg/sharding.
func Hash(namespace string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(namespace)) // never fails
	return h.Sum64()
}

// A Range is a part of the hash space that is not empty: from First to Last,
// both included. The zero Range is the hash 0 alone.
type Range struct{ First, Last uint64 }

// Whole is the whole hash space.
var Whole = Range{0, math.MaxUint64}

// Contains reports whether the namespace's hash is in the range. Objects without
// a namespace are in none.
func (r Range) Contains(namespace string) bool {
	return namespace != "" && r.has(Hash(namespace))
}

func (r Range) has(hash uint64) bool { return r.First <= hash && hash <= r.Last }

// String is start-end as in --shard-ranges: the end is the first hash after the
// range.
func (r Range) String() string { return r.start() + "-" + r.end() }

// Selector is the range as the server wants it, in the list option shardSelector.
func (r Range) Selector() string {
	return fmt.Sprintf("shardRange(object.metadata.namespace, '%s', '%s')", r.start(), r.end())
}

func (r Range) start() string { return hex(r.First) }

func (r Range) end() string {
	if r.Last == math.MaxUint64 {
		return pastTheLast
	}
	return hex(r.Last + 1)
}

// pastTheLast is 2^64.
const pastTheLast = "0x10000000000000000"

func hex(hash uint64) string { return fmt.Sprintf("0x%016x", hash) }
