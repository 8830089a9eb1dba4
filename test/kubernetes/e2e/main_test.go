// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogsStayIfSomethingWentWrong(t *testing.T) {
	tests := map[string]struct {
		err   error
		want  string // the error message, without the directory of the logs
		stays bool
	}{
		"all went well":        {},
		"something went wrong": {err: errors.New("kwok ended"), want: "kwok ended", stays: true},
		"interrupted":          {err: errInterrupted, want: "interrupted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			t.Setenv("HOME", "")
			var dir string
			err := inDirectory(func(d string) error {
				dir = d
				assert.Equal(t, dir, os.Getenv("HOME"))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "log"), nil, 0o600))
				return test.err
			})
			require.ErrorIs(t, err, test.err)
			if test.stays {
				require.EqualError(t, err, test.want+"; logs are in "+dir)
				assert.FileExists(t, filepath.Join(dir, "log"))
				return
			}
			assert.NoDirExists(t, dir)
		})
	}
}
