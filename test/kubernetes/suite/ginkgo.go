// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// ginkgoReport holds the fields that this package reads from a report of ginkgo --json-report.
type ginkgoReport []struct {
	SpecReports []ginkgoSpec
}

type ginkgoSpec struct {
	ContainerHierarchyTexts    []string
	LeafNodeType               string
	LeafNodeText               string
	State                      string
	Failure                    struct{ Message string }
	CapturedGinkgoWriterOutput string
}

// ReadGinkgo reads a report of ginkgo --json-report. Specs that did not run are omitted. Setup and cleanup
// nodes, such as BeforeSuite, are included only if they failed.
func ReadGinkgo(r io.Reader) ([]Result, error) {
	var report ginkgoReport
	if err := json.NewDecoder(r).Decode(&report); err != nil {
		return nil, fmt.Errorf("suite: reading ginkgo's report: %w", err)
	}
	var results []Result
	for _, suite := range report {
		for _, spec := range suite.SpecReports {
			if spec.counts() {
				results = append(results, spec.result())
			}
		}
	}
	return results, nil
}

// counts reports whether ReadGinkgo returns a result for the spec or the node.
func (s ginkgoSpec) counts() bool {
	switch s.State {
	case "skipped", "pending":
		return false
	case "passed":
		return s.LeafNodeType == "It"
	default:
		return true
	}
}

func (s ginkgoSpec) result() Result {
	text := s.LeafNodeText
	if text == "" {
		text = s.LeafNodeType
	}
	result := Result{Test: strings.Join(append(s.ContainerHierarchyTexts, text), " "), Passed: s.State == "passed"}
	if !result.Passed {
		result.Output = s.State + ": " + s.Failure.Message + "\n" + s.CapturedGinkgoWriterOutput
	}
	return result
}
