// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

// CacheIsWhole lets a Controller know that its cache has whole owners: no status write is
// preceded by a read then.
func CacheIsWhole(c *Controller) {
	if r, ok := c.reconciler.(interface{ cacheIsWhole() }); ok {
		r.cacheIsWhole()
	}
}

func (r *reconciler[O, C]) cacheIsWhole() { r.whole.compared.Store(wholeEnough) }
