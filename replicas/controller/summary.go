// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/slowstart"
)

// maxReasonsTold is how many failures the text of a summary tells.
const maxReasonsTold = 10

// A summary is the error of a run, told in one line: a quota that refuses sixteen
// pods has one reason, not sixteen.
type summary struct {
	error
	text string
}

func (s *summary) Error() string { return s.text }

func (s *summary) Unwrap() error { return s.error }

// summarize returns run.Err, with a text in which failures that differ in nothing
// but the name of the object are told once, and counted.
func summarize(run slowstart.Result) error {
	if len(run.Failed) < 2 {
		return run.Err
	}
	var reasons, texts []string
	alike := map[string]int{}
	for _, f := range run.Failed {
		reason := withoutName(f.Err)
		if alike[reason]++; alike[reason] == 1 {
			reasons, texts = append(reasons, reason), append(texts, f.Err.Error())
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
	return &summary{run.Err, strings.Join(texts, "; ")}
}

// withoutName returns an error's text without the name of the object that the
// server refused.
func withoutName(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Name == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), strconv.Quote(status.Status().Details.Name), "")
}

// withoutNames returns an error's text without the name of the object, "" for nil.
func withoutNames(err error) string {
	if err == nil {
		return ""
	}
	return withoutName(err)
}
