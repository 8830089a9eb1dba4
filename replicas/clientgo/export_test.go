// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo

// Expecting returns how many owners have expectations outstanding.
func (c *Controller) Expecting() int {
	n := 0
	for range c.controller.Expectations().All() {
		n++
	}
	return n
}
