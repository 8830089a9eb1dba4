// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceversion compares resourceVersions.
package resourceversion

import (
	"cmp"
	"fmt"
	"strings"
)

// Compare compares two resourceVersions: a negative number means that a is the
// older one. They are numbers of any length (X7); a version that is none is an
// error.
func Compare(a, b string) (int, error) {
	for _, version := range []string{a, b} {
		if !isVersion(version) {
			return 0, fmt.Errorf("resourceVersion %q is not a positive decimal number", version)
		}
	}
	return compare(a, b), nil
}

func compare(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }

// Older reports whether version a comes before version b. Nothing comes before
// or after what is not a version.
func Older(a, b string) bool { return isVersion(a) && isVersion(b) && compare(a, b) < 0 }

// Reached reports whether version a is b or comes after it. What is not a version
// is reached by nothing.
func Reached(a, b string) bool { return isVersion(a) && isVersion(b) && compare(a, b) >= 0 }

func isVersion(s string) bool {
	for i := range len(s) { // strings.Trim takes several times as long, and events ask this all the time
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && s[0] != '0'
}
