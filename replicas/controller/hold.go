// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"time"

	"github.com/replicakit/replicakit/internal/backoff"
)

// The cache is looked at for a newer owner after the first of these, doubling to the second,
// and then the server, at least as often as the third says. An owner that is gone is looked
// for at least as often as the fourth says.
const (
	ownerHoldFirst, ownerHoldLast = 50 * time.Millisecond, time.Second
	ownerReadLast, ownerGoneLast  = 10 * time.Second, 5 * time.Minute
)

// leftHold is how long an owner is not read again because children of it left.
const leftHold = time.Minute

// aside is an orphan whose adoption failed, or a child whose release did.
type aside struct {
	Version string    // of the child then
	First   time.Time // when it began; zero if the server called it Invalid
	Hold    backoff.Hold
	Reason  Reason // AdoptionUndecided, AdoptionRefused or ReleaseFailed
}
