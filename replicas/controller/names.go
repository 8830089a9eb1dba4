// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "k8s.io/apimachinery/pkg/util/rand"

// suffix makes the random end of a name, as the API server does for generateName.
func suffix(random func(n int) int) string {
	const letters = 27 // that SafeEncodeString knows
	b := make([]byte, 5)
	for i := range b {
		b[i] = byte(random(letters))
	}
	return rand.SafeEncodeString(string(b))
}
