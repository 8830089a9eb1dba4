// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/sim/invariant"
)

// inexact is the error of an act that causes other calls, passes or events than it may.
type inexact struct{ error }

// Harm says what a story that fails with err does to running children, or "" if there is no harm.
func Harm(err error) string {
	rule := string(invariant.RuleOf(err))
	is := func(prefixes ...string) bool {
		for _, prefix := range prefixes {
			if strings.HasPrefix(rule, prefix) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil || errors.As(err, new(inexact)):
		// A call too many harms no child.
		return ""
	case rule == "":
		// The judges of pools name no rule, so this may be harm.
		return "harm that no rule names"
	case is("fewer", "anothers", "ruled"):
		return "a living child is lost"
	case is("more"):
		return "a child is doubled"
	case is("asleep", "unsettled"):
		return "for more than five minutes, there are too few or too many children"
	case is("missing"):
		return "for more than ten seconds, there are too few children"
	}
	return ""
}

// Keep adds a line to a file of known seeds, with the seed, the harm and the error.
func Keep(file string, seed uint64, err error) error {
	harm := Harm(err)
	if harm == "" {
		harm = "no child"
	}
	f, open := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if open != nil {
		return open
	}
	_, write := fmt.Fprintf(f, "%d: %s: %s\n", seed, harm, strings.Join(strings.Fields(err.Error()), " "))
	return errors.Join(write, f.Close())
}

// Known returns the seeds in a file that Keep has written.
func Known(file string) (sets.Set[uint64], error) {
	text, err := os.ReadFile(file)
	known := sets.New[uint64]()
	for line := range strings.Lines(string(text)) {
		seed, _, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseUint(seed, 10, 64); err == nil { // not a comment
			known.Insert(n)
		}
	}
	return known, err
}
