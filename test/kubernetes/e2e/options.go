// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

type options struct {
	sides []side
	focus *regexp.Regexp // selects the specs; nil means the expressions in known.go

	binaries string
}

func parse(args []string) (opts options, err error) {
	fs := flag.NewFlagSet("e2e", flag.ContinueOnError)
	sideList := fs.String("sides", "ours,kubernetes,none", "comma-separated list of the sides that provide the controllers")
	focus := fs.String("focus", "", "regular expression that selects the specs to run; if empty, all known specs run")
	if err := fs.Parse(args); err != nil {
		return opts, err
	}
	if fs.NArg() > 0 {
		return opts, fmt.Errorf("arguments that are not flags: %q", fs.Args())
	}
	if *focus != "" {
		if opts.focus, err = regexp.Compile(*focus); err != nil {
			return opts, fmt.Errorf("-focus: %w", err)
		}
	}
	if opts.sides, err = chooseSides(*sideList); err != nil {
		return opts, err
	}
	opts.binaries, err = controlplane.Binaries()
	return opts, err
}

// A side lists the programs that run the controllers of ReplicaSets and ReplicationControllers.
type side struct {
	name     string
	title    string
	programs []program
}

// works reports whether the side runs any controllers.
func (s side) works() bool { return s.programs != nil }

var sides = []side{
	{
		name: "ours", title: "replicakit",
		programs: []program{{"replicakit-controller", append([]string{
			"--leader-elect=false", "--metrics-bind-address=127.0.0.1:18080",
			"--allow-other-controllers", // some specs write the status of ReplicaSets, as another controller would
		}, fast...)}},
	},
	{
		name: "kubernetes", title: "Kubernetes' own controllers",
		programs: []program{{"kube-controller-manager", append([]string{
			"--controllers=replicaset-controller,replicationcontroller-controller", "--leader-elect=false", "--secure-port=0",
		}, fast...)}},
	},
	{name: "none", title: "no controllers"},
}

// chooseSides returns the sides in a comma-separated list such as "ours,none".
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
