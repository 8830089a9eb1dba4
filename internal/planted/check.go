// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"slices"
)

// check compiles the packages with all of their defects. An error names the function,
// whose name ends in that of the defect.
func check(ctx context.Context, root string, all []suite, defects []defect) error {
	scratch, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	overlay, err := makeOverlay(root, scratch, defects)
	if err != nil {
		return err
	}
	var dirs []string
	for _, d := range defects {
		if _, err := suiteOf(all, d.dir()); err != nil {
			return err
		}
		dirs = append(dirs, d.dir())
	}
	slices.Sort(dirs)
	return build(ctx, root, slices.Compact(dirs), "build", "-overlay", overlay)
}
