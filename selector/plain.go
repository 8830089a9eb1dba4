// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// arePlain reports whether the map is not empty and all of its labels are obviously valid. Such
// labels are not passed to the validation of apimachinery, so making a selector takes only a third
// of the time. For all other labels, apimachinery does the validation and returns the error.
func arePlain(set map[string]string) bool {
	for key, value := range set {
		if !isPlainKey(key) || value != "" && !isPlain(value) {
			return false
		}
	}
	return len(set) > 0
}

// isPlainKey reports whether a key consists of an optional plain prefix in lower case and a plain
// name.
func isPlainKey(key string) bool {
	prefix, name, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return isPlain(key)
	}
	return isPlain(prefix) && isPlain(name) && !strings.Contains(prefix, "_") && strings.ToLower(prefix) == prefix
}

// isPlain reports whether a string consists of letters and digits, with at most one "-", "_" or "."
// between two of them. The string must also be short enough for the value of a label.
func isPlain(text string) bool {
	between := true // true at the beginning, and after a separator
	for i := range len(text) {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
			between = false
		case between || c != '-' && c != '_' && c != '.':
			return false
		default:
			between = true
		}
	}
	return !between && len(text) <= validation.LabelValueMaxLength
}
