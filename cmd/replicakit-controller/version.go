// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// A build describes how the program was built.
type build struct {
	version    string // the version of this module, or "(devel)" if the build has none
	revision   string // the commit of the source, or "unknown" if the build was not made in a working copy
	goVersion  string
	kubernetes string // the version of k8s.io/client-go
}

// readBuild returns the build information that the go command wrote into the program.
func readBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(info)
}

func buildOf(info *debug.BuildInfo) build {
	b := build{
		version:    cmp.Or(info.Main.Version, "(devel)"),
		revision:   "unknown",
		goVersion:  cmp.Or(info.GoVersion, "unknown"),
		kubernetes: "unknown",
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.revision = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == "k8s.io/client-go" {
			b.kubernetes = m.Version
		}
	}
	return b
}

// printVersion prints the output of --version.
func printVersion(w io.Writer, b build) {
	_, _ = fmt.Fprintf(w, "replicakit-controller %s, revision %s, built with %s and Kubernetes' libraries %s\n", b.version, b.revision, b.goVersion, b.kubernetes)
}

// collector returns the metric about the build. The value of the metric is always 1.
func (b build) collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "replicakit_build_info",
		Help: "Always 1. The labels have the version of the program, the revision of its source, and the versions of Go and of Kubernetes' libraries.",
		ConstLabels: prometheus.Labels{
			"version": b.version, "revision": b.revision, "go_version": b.goVersion, "kubernetes_version": b.kubernetes,
		},
	}, func() float64 { return 1 })
}
