// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import "k8s.io/apimachinery/pkg/util/rand"

// freshName makes a name that no owner expects.
func (p *pass[O, C]) freshName(prefix string) string {
	name := prefix + suffix(p.opts.Random)
	for tries := 0; tries < nameTries && len(p.pending.OwnersOfCreation(name)) > 0; tries++ {
		name = prefix + suffix(p.opts.Random)
	}
	return name
}

// nameTries is how often a name is made in vain that somebody waits for: many more
// would not help, as nearly all names must be taken or Options.Random is not random.
const nameTries = 100

// suffix makes the random end of a name, as the API server does for generateName.
func suffix(random func(n int) int) string {
	const letters = 27 // that SafeEncodeString knows
	b := make([]byte, 5)
	for i := range b {
		b[i] = byte(random(letters))
	}
	return rand.SafeEncodeString(string(b))
}
