// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReport(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/benchstat.csv")
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	results, err := read(file)
	require.NoError(t, err)

	page := string(results.markdown())
	assert.Contains(t, page, "2 goroutines")
	assert.Contains(t, page, "Run at 0123abcd with Kubernetes v1.36.3 and go")
	assert.Contains(t, page, ", AMD EPYC.\n")
	for _, line := range []string{
		"| choose a tenth of the pods | 5,000 pods | 30.0 ms ±3% | 600 µs ±2% | 50.0x | 94,000 → 14 | 20.0 ms ±3% | 500 µs ±2% | 40.0x | 72,000 → 12 |",
		"| a whole pass with nothing to do | 100 pods | 60.0 µs ±2% | 50.0 µs ±2% | 1.2x | 130 → 114 |",
		"\n|  | 10,000 pods | 6.00 ms ±2% | 4.00 ms ±2% | 1.5x | – → – |",
		"| one observation, one check | 1 owner, 2 goroutines | 200 ns ±1% | 45.0 ns ±1% | 4.4x | 2 → 0 |",
		"| an owner that expects a creation | 10,000 owners | 162 | 205 |",
	} {
		assert.Contains(t, page, line)
	}
	assert.NotContains(t, page, "geomean")
}

func TestReportRefusesWhatIsNoBenchmark(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no size":   ",ours,\n,sec/op,CI\nWork/Choose-2,1,1%\n",
		"no number": ",ours,\n,sec/op,CI\nWork/Choose/pods=1-2,x,1%\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := read(strings.NewReader(text))
			assert.Error(t, err)
		})
	}
}
