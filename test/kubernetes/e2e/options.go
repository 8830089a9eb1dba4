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
	focus *regexp.Regexp // selects the specs; nil means the specs of the table

	binaries string
}

func parse(args []string) (opts options, err error) {
	fs := flag.NewFlagSet("e2e", flag.ContinueOnError)
	sideList := fs.String("sides", "ours,kubernetes,none", "comma-separated sides, which provide the controllers")
	focus := fs.String("focus", "", "regular expression for the specs to run; if empty, the specs of the table run")
	if err := fs.Parse(args); err != nil {
		return opts, err
	}
	if fs.NArg() > 0 {
		return opts, fmt.Errorf("arguments that are no flags: %q", fs.Args())
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

// A side provides the two controllers.
type side struct {
	name     string
	title    string
	programs []program
}

// works reports whether the side has a program.
func (s side) works() bool { return s.programs != nil }

var sides = []side{
	{
		name: "ours", title: "replicakit",
		programs: []program{{"replicakit-controller", append([]string{
			"--leader-elect=false", "--metrics-bind-address=127.0.0.1:18080",
			"--allow-other-controllers", // specs also write statuses of ReplicaSets, which looks like another controller
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
