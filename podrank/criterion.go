package podrank

import (
	"fmt"
	"slices"
	"strconv"
)

// A Criterion is what decided between two pods. It is written in words, such as
// "not-ready". The zero value is None.
type Criterion uint8

// The criteria, in the order in which they are looked at.
const (
	None            Criterion = iota // nothing tells the two pods apart
	Unassigned                       // without a node before on a node (R1)
	Phase                            // Pending and whatever is unheard of, Unknown, Running (R2)
	NotReady                         // not ready before ready (R3)
	DeletionCost                     // the lower cost first (R4)
	Colocation                       // the higher rank first, more related pods on the node (R6)
	ReadyTime                        // ready for less time first; only among ready pods (R7, R8)
	Restarts                         // more restarts of a container first (R10)
	SidecarRestarts                  // more restarts of a sidecar first (R10)
	CreationTime                     // the younger first (R11)
	UID                              // the lexically smaller first
	Name                             // the lexically smaller namespace, then name, first
	All                              // no order: no pod survives
)

var criteria = [...]string{
	None:            "none",
	Unassigned:      "unassigned",
	Phase:           "phase",
	NotReady:        "not-ready",
	DeletionCost:    "deletion-cost",
	Colocation:      "colocation",
	ReadyTime:       "ready-time",
	Restarts:        "restarts",
	SidecarRestarts: "sidecar-restarts",
	CreationTime:    "creation-time",
	UID:             "uid",
	Name:            "name",
	All:             "all",
}

// String returns the criterion as MarshalText writes it, and Criterion(200) for
// a value that is none.
func (c Criterion) String() string {
	if int(c) >= len(criteria) {
		return "Criterion(" + strconv.Itoa(int(c)) + ")"
	}
	return criteria[c]
}

// MarshalText writes the criterion in words, such as "not-ready". A value that
// is no criterion is an error.
func (c Criterion) MarshalText() ([]byte, error) {
	if int(c) >= len(criteria) {
		return nil, fmt.Errorf("podrank: %v is unknown", c)
	}
	return []byte(criteria[c]), nil
}

// UnmarshalText reads what MarshalText writes. Anything else is an error, and
// leaves the criterion as it was.
func (c *Criterion) UnmarshalText(text []byte) error {
	i := slices.Index(criteria[:], string(text))
	if i < 0 {
		return fmt.Errorf("podrank: criterion %q is unknown", text)
	}
	*c = Criterion(i)
	return nil
}
