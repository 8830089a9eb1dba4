// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBuild(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		info debug.BuildInfo
		want string
	}{
		{
			"a release",
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "v0.1.0"}, Deps: []*debug.Module{{Path: "k8s.io/api", Version: "v0.1.1"}, {Path: "k8s.io/client-go", Version: "v0.36.3"}}},
			"replicakit-controller v0.1.0, revision unknown, built with go1.26.8 and Kubernetes' libraries v0.36.3\n",
		},
		{
			"a working copy",
			debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "83fd3ef"}}},
			"replicakit-controller (devel), revision 83fd3ef, built with go1.26.8 and Kubernetes' libraries unknown\n",
		},
		{"nothing is known", debug.BuildInfo{}, "replicakit-controller (devel), revision unknown, built with unknown and Kubernetes' libraries unknown\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			printVersion(&out, buildOf(&row.info))
			assert.Equal(t, row.want, out.String())
		})
	}
}
