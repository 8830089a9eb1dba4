// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joined joins errors as errors.Join does, but limits the length of the text.
package joined

import (
	"fmt"
	"strings"
)

// shown is the largest number of errors that the text of a joined error contains.
const shown = 10

type joined struct{ errs []error }

// Errors returns an error that wraps all of errs, which must not contain nil. The returned error keeps the
// slice. If errs is empty, Errors returns nil.
func Errors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return &joined{errs}
}

func (j *joined) Unwrap() []error { return j.errs }

func (j *joined) Error() string {
	var lines []string
	for _, err := range j.errs[:min(len(j.errs), shown)] {
		lines = append(lines, err.Error())
	}
	if more := len(j.errs) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("(%d more left out)", more))
	}
	return strings.Join(lines, "\n")
}
