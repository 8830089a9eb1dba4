// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

func TestKnown(t *testing.T) {
	t.Parallel()
	ours, nobodys := sides[0], sides[2]
	ran := make([]suite.Result, 2)
	tests := map[string]struct {
		side                        side
		focus                       string
		specs, differences, leftOut int
	}{
		"all, if somebody works":          {side: ours, specs: specsOfAll, leftOut: 3},
		"about the two, if nobody works":  {side: nobodys, specs: specsOfThem, differences: specsOfThem, leftOut: 2},
		"what ran, if some are asked for": {side: ours, focus: "ReplicaSet .*quota", specs: 2},
		"what is known of those":          {side: nobodys, focus: "ReplicaSet .*quota", specs: 2, differences: 1},
		"what leaves itself out of those": {side: nobodys, focus: "ReplicaSet .*image", specs: 2, differences: 1, leftOut: 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := options{}
			if test.focus != "" {
				opts.focus = regexp.MustCompile(test.focus)
			}
			s := opts.known(test.side, ran)
			assert.Equal(t, "end to end, "+test.side.title, s.Name)
			assert.Equal(t, test.specs, s.Specs)
			assert.Len(t, s.Differences, test.differences)
			assert.Len(t, s.LeftOut, test.leftOut)
		})
	}
}

func TestTheControlKnowsOnlySpecsAboutTheTwo(t *testing.T) {
	t.Parallel()
	for _, d := range unattended {
		assert.Regexp(t, aboutThem, d.Test)
		assert.Regexp(t, aboutAll, d.Test)
	}
}

func TestThePagesCountTheSpecs(t *testing.T) {
	t.Parallel()
	for page, counts := range map[string][]string{
		"../../README.md": {
			fmt.Sprintf("\n| replicakit | %d | %[1]d |\n", specsOfAll),
			fmt.Sprintf("\n| Kubernetes' own controllers | %d | %[1]d |\n", specsOfAll),
			fmt.Sprintf("\n| nobody; the %d specs about the two kinds | %[1]d | 0 |\n", specsOfThem),
		},
	} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, count := range counts {
			assert.Contains(t, string(text), count, page)
		}
	}
}
