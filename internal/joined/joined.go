// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joined joins errors as errors.Join does, but limits the length of the message.
package joined

import (
	"fmt"
	"strings"
)

// shown is the maximum number of errors in the message of a joined error.
const shown = 10

type joined struct{ errs []error }

// Errors returns one error that wraps all errors of the slice errs. If errs is empty, Errors returns nil. The
// slice must not contain nil. The returned error keeps the slice, so the slice must not be changed later.
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
