// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

// A side is who does the work of the two controllers.
type side struct {
	name     string
	title    string
	programs []program
	metrics  string // URL
}

// works reports whether anybody does.
func (s side) works() bool { return s.programs != nil }

const metricsAddress = "127.0.0.1:18080" // nobody else is in this network

var sides = []side{
	{
		name: "ours", title: "replicakit",
		programs: []program{{"replicakit-controller", append([]string{
			"--leader-elect=false", "--metrics-bind-address=" + metricsAddress, "--authorization-always-allow-paths=/metrics",
		}, fast...)}},
		metrics: "https://" + metricsAddress + "/metrics",
	},
	{
		name: "kubernetes", title: "Kubernetes' own controllers",
		programs: []program{{"kube-controller-manager", append([]string{
			"--controllers=replicaset-controller,replicationcontroller-controller", "--leader-elect=false",
			"--bind-address=127.0.0.1", "--secure-port=18080", "--authorization-always-allow-paths=/metrics",
		}, fast...)}},
		metrics: "https://" + metricsAddress + "/metrics",
	},
	{name: "none", title: "no controllers"},
}

// chooseSides returns the sides of a list such as ours,none.
func chooseSides(list string) ([]side, error) {
	var chosen []side
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(sides, func(s side) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-sides=%s: %q is not one of ours,kubernetes,none", list, name)
		}
		chosen = append(chosen, sides[i])
	}
	return chosen, nil
}
