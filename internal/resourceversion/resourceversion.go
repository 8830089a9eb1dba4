// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resourceversion compares resourceVersions.
package resourceversion

import (
	"cmp"
	"fmt"
	"strings"
)

// Compare compares two resourceVersions. A negative number means that a is older. Versions are numbers of
// any length (X7), and any other string is an error.
func Compare(a, b string) (int, error) {
	for _, version := range []string{a, b} {
		if !isVersion(version) {
			return 0, fmt.Errorf("resourceVersion %q is not a positive decimal number", version)
		}
	}
	return compare(a, b), nil
}

func compare(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }

// Older reports whether version a comes before version b. If one of them is no version, it returns false.
func Older(a, b string) bool { return isVersion(a) && isVersion(b) && compare(a, b) < 0 }

// Reached reports whether version a is b or comes after it. If one of them is no version, it returns false.
func Reached(a, b string) bool { return isVersion(a) && isVersion(b) && compare(a, b) >= 0 }

func isVersion(s string) bool {
	for i := range len(s) { // strings.Trim takes several times as long, and each event calls this
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != "" && s[0] != '0'
}
