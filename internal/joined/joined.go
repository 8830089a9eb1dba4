// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package joined joins errors as errors.Join does, but limits the length of the message.
package joined

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// shown is the maximum number of errors in the message of a joined error.
const shown = 10

type joined struct{ errs []error }

// Errors returns one error that wraps all errs, or nil if there are none. The slice must not contain nil, and must
// not be changed later, because the error keeps it.
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

// maxReasonsTold is the maximum number of different failures in the message of a summary.
const maxReasonsTold = 10

// A summary combines the errors of several calls in a short message.
type summary struct {
	error
	text string
}

func (s *summary) Error() string { return s.text }

func (s *summary) Unwrap() error { return s.error }

// Summary returns err, which wraps the failures of several calls, with a shorter message. Of failures that differ only
// in the name of the object, it contains one and the number of the others.
func Summary(err error, failures []error) error {
	if len(failures) < 2 {
		return err
	}
	var reasons, texts []string
	alike := map[string]int{}
	// A quota has refused sixteen pods, each with its name. The reason stands there once.
	for _, f := range failures {
		reason := WithoutName(f)
		if alike[reason]++; alike[reason] == 1 {
			reasons, texts = append(reasons, reason), append(texts, f.Error())
		}
	}
	for i, reason := range reasons {
		if n := alike[reason]; n > 1 {
			texts[i] += fmt.Sprintf(" (and %d more like it)", n-1)
		}
	}
	if more := len(texts) - maxReasonsTold; more > 0 {
		texts = append(texts[:maxReasonsTold], fmt.Sprintf("(%d other reasons left out)", more))
	}
	return &summary{err, strings.Join(texts, "; ")}
}

// WithoutName returns the message of an error without the name of the object that the server refused, or "" for a nil
// error.
func WithoutName(err error) string {
	if err == nil {
		return ""
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), strconv.Quote(status.Status().Details.Name), "")
}
