// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceversion compares the resourceVersions of Kubernetes objects.
package resourceversion

import (
	"cmp"
	"fmt"
	"strings"
)

// Compare compares two resourceVersions. The result is negative if a is older, positive if b is older, and 0
// if the two are equal. A resourceVersion is a positive decimal number of any length (X7). For any other
// string, Compare returns an error.
func Compare(a, b string) (int, error) {
	for _, version := range []string{a, b} {
		if !isVersion(version) {
			return 0, fmt.Errorf("resourceVersion %q is not a positive decimal number", version)
		}
	}
	return compare(a, b), nil
}

func compare(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }

// Older reports whether resourceVersion a is older than resourceVersion b. If one of the strings is not a
// resourceVersion, Older returns false.
func Older(a, b string) bool { return isVersion(a) && isVersion(b) && compare(a, b) < 0 }

// Reached reports whether resourceVersion a is equal to or newer than resourceVersion b. If one of the
// strings is not a resourceVersion, Reached returns false.
func Reached(a, b string) bool { return isVersion(a) && isVersion(b) && compare(a, b) >= 0 }

func isVersion(s string) bool {
	for i := range len(s) { // a loop, because strings.Trim is several times slower, and isVersion is called for every event
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && s[0] != '0'
}
