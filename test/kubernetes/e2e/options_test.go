// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// programs is a directory with files of those names.
func programs(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o700))
	}
	return dir
}

var allPrograms = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "replicakit-controller", "ginkgo", specsBinary}

func TestParse(t *testing.T) {
	dir := programs(t, allPrograms...)
	t.Setenv("KUBEBUILDER_ASSETS", dir)
	opts, err := parse([]string{"-sides=none,ours", "-parts=specs", "-focus=Replica.*", "-procs=3", "-timeout=1m"})
	require.NoError(t, err)
	require.Len(t, opts.sides, 2)
	assert.Equal(t, "none", opts.sides[0].name)
	assert.Equal(t, "ours", opts.sides[1].name)
	assert.True(t, opts.has(partSpecs))
	assert.False(t, opts.has(partRolling))
	assert.Equal(t, "Replica.*", opts.focus.String())
	assert.Equal(t, 3, opts.procs)
	assert.Equal(t, time.Minute, opts.timeout)
	assert.Equal(t, dir, opts.binaries)
}

func TestParseRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"-parts=rolling -sides=none": "-parts=rolling -sides=none: nobody does the work",
		"-sides=ours,mine":           `-sides=ours,mine: "mine" is not one of ours,kubernetes,none`,
		"-sides=":                    `-sides=: "" is not one of ours,kubernetes,none`,
		"-parts=units":               `-parts=units: "units" is not one of specs,rolling`,
		"-focus=(":                   "-focus: error parsing regexp: missing closing ): `(`",
		"-procs=0":                   "-procs=0 and -timeout=45m0s must be positive",
		"-timeout=-1s":               "-procs=8 and -timeout=-1s must be positive",
		"ours":                       `arguments that are no flags: ["ours"]`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Setenv("KUBEBUILDER_ASSETS", programs(t, allPrograms...))
			_, err := parse(strings.Fields(args))
			assert.EqualError(t, err, want)
		})
	}
}

func TestParseNamesTheProgramThatIsMissing(t *testing.T) {
	for i, name := range allPrograms {
		t.Run(name, func(t *testing.T) {
			dir := programs(t, allPrograms[:i]...)
			t.Setenv("KUBEBUILDER_ASSETS", dir)
			_, err := parse(nil)
			require.EqualError(t, err, "no "+name+" in "+dir+": `make kubernetes-e2e` builds it")
		})
	}
}
