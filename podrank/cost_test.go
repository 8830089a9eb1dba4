// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package podrank_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/sim/slowrank"
	"github.com/replicakit/replicakit/podrank"
)

func TestParseDeletionCost(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int32{
		"0": 0, "-0": 0, "1": 1, "-1": -1, "8": 8, "-10": -10, "100": 100, "2147483647": 2147483647, "-2147483648": -2147483648,
	} {
		t.Run(fmt.Sprintf("R5 %q is valid", value), func(t *testing.T) {
			t.Parallel()
			got, err := podrank.ParseDeletionCost(map[string]string{corev1.PodDeletionCost: value})
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	for _, value := range []string{
		"", "+1", "+0", "00", "008", " 1", "1 ", "1.0", "1e3", "-", "--1", "-+1", "0x1", "0b1", "1_000", "text", "-text", "١", "1\x00",
		"2147483648", "-2147483649", "99999999999999999999999999", "-99999999999999999999999999",
	} {
		t.Run(fmt.Sprintf("R5 %q is invalid and 0", value), func(t *testing.T) {
			t.Parallel()
			got, err := podrank.ParseDeletionCost(map[string]string{corev1.PodDeletionCost: value})
			require.EqualError(t, err, fmt.Sprintf("podrank: deletion cost %q is not a decimal number of 32 bits", value))
			assert.Zero(t, got)
		})
	}
	for _, value := range []string{"-008", "-00", "-01"} {
		t.Run(fmt.Sprintf("W38 %q is as invalid as without its sign", value), func(t *testing.T) {
			t.Parallel()
			got, err := podrank.ParseDeletionCost(map[string]string{corev1.PodDeletionCost: value})
			require.Error(t, err)
			assert.Zero(t, got)
		})
	}
	for name, annotations := range map[string]map[string]string{"nil": nil, "others": {"pod-deletion-cost": "1"}} {
		t.Run("R5 no annotation is 0: "+name, func(t *testing.T) {
			t.Parallel()
			got, err := podrank.ParseDeletionCost(annotations)
			require.NoError(t, err)
			assert.Zero(t, got)
		})
	}
}

func FuzzDeletionCost(f *testing.F) {
	for _, value := range []string{"", "0", "-0", "-008", "2147483647", "-2147483648", "2147483648", "+1", "1_0", "٣"} {
		f.Add(value)
	}
	// The fuzzer found these inputs.
	f.Add("1")
	f.Add("𘧴")
	f.Add("\n")
	f.Add("\r\r\r\r")
	f.Add("\b\x00\x00\x00")
	f.Add("\xf2\xb2\xa7\xca")
	f.Add("\xce\xe60\x82\x8d\xf4")
	f.Add("\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t")
	f.Add("\x89\xc5\xd8Ƞɔ\xe30\xb7\x8c\"\xe30\x87")
	f.Add("\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"\"")
	f.Add("000100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000")
	f.Add("90000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000")
	f.Fuzz(func(t *testing.T, value string) {
		got, err := podrank.ParseDeletionCost(map[string]string{corev1.PodDeletionCost: value})
		require.Equal(t, slowrank.ParseCost(value), got)
		if err == nil {
			require.Regexp(t, slowrank.Decimal, value)
		} else {
			require.Zero(t, got)
		}
	})
}
