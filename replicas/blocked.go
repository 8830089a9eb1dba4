package replicas

import (
	"time"

	"github.com/replicakit/replicakit/expectations"
)

// A Blocked says why a plan creates and deletes nothing. The zero Blocked says
// that nothing held it back.
type Blocked struct {
	Reason Reason `json:"reason"`
	// Until is when this ends by itself at the latest, and another pass is due;
	// zero if it does not, or at once.
	Until time.Time `json:"until,omitzero"`
}

// String returns the reason and, if there is one, the instant; "" for the zero
// Blocked.
func (b Blocked) String() string {
	if b.Until.IsZero() {
		return string(b.Reason)
	}
	return string(b.Reason) + " until " + b.Until.UTC().Format(time.RFC3339)
}

// A Reason says why a plan creates and deletes nothing.
type Reason string

// The reasons of Plan.Blocked.
const (
	// ExpectationsPending: earlier creations or deletions have not been
	// observed. Plan again when they are, or when the expectation expires, which is
	// Blocked.Until: nobody else asks for a pass then.
	ExpectationsPending Reason = "expectations are pending"
	// ViewIsOld: the expectation has expired, so that the list proves nothing, and
	// the plan would create or delete something. List the children live, past every
	// cache, and call Manage again with that list and Pending Satisfied; if the list
	// fails, change nothing. Settle the record by expectations.SyncLive, which keeps
	// what the cache has still to see: if it were forgotten, the next plan would be
	// made from the old cache. Record what is started then with Add, not Set.
	ViewIsOld Reason = "view is old"
	// OwnerDeleted: the owner has a deletionTimestamp; what happens to its children
	// is the garbage collector's business.
	OwnerDeleted Reason = "owner is being deleted"
)

// blocked says why nothing may be created or deleted, whatever it be. Deletion of
// the owner comes first: it stays.
func (s *SpecOf[T]) blocked() Blocked {
	switch {
	case s.Owner.GetDeletionTimestamp() != nil:
		return Blocked{Reason: OwnerDeleted}
	case s.Pending == expectations.Waiting:
		return Blocked{Reason: ExpectationsPending, Until: s.Now.Add(s.PendingFor)}
	}
	return Blocked{}
}

// viewIsOld reports whether a list that nothing vouches for would be acted upon.
func (s *SpecOf[T]) viewIsOld(step step) bool {
	return s.Pending == expectations.Expired && (step.create > 0 || step.remove > 0)
}
