// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// cutChangelog puts the release's heading beneath that of what is unreleased.
func cutChangelog(file, version string, now time.Time) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const unreleased = "\n## Unreleased\n"
	before, after, found := strings.Cut(string(data), unreleased)
	if !found {
		return fmt.Errorf("%s: no heading %q", file, strings.TrimSpace(unreleased))
	}
	heading := fmt.Sprintf("\n## %s - %s\n", strings.TrimPrefix(version, "v"), now.Format(time.DateOnly))
	return os.WriteFile(file, []byte(before+unreleased+heading+after), 0o644)
}
