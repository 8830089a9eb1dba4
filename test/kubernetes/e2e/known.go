// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

// The expression aboutAll matches all specs that need the controllers of ReplicaSets and
// ReplicationControllers. The expression aboutThem matches only the specs that test these two controllers.
// The side without controllers runs only the specs that aboutThem matches.
var (
	aboutAll  = regexp.MustCompile(`\[sig-apps\] (ReplicaSet|ReplicationController|Deployment|DisruptionController) |\[sig-api-machinery\] (Garbage collector|ResourceQuota) `)
	aboutThem = regexp.MustCompile(`\[sig-apps\] (ReplicaSet|ReplicationController) `)
)

// focusOf returns the regular expression that selects the specs to run.
func (o options) focusOf(sd side) *regexp.Regexp {
	switch {
	case o.focus != nil:
		return o.focus
	case !sd.works():
		return aboutThem
	}
	return aboutAll
}

// known returns the suite for this side, with the expected results of its specs. If the flag -focus is set,
// the suite contains only the specs that the flag selects.
func (o options) known(sd side, ran []suite.Result) suite.Suite {
	s := suite.Suite{Name: "end to end, " + sd.title, Specs: specsOfAll, LeftOut: leftOut}
	if !sd.works() {
		s.Specs, s.Differences = specsOfThem, unattended
	}
	focus := o.focusOf(sd)
	s.LeftOut = slices.DeleteFunc(slices.Clone(s.LeftOut), func(d suite.Difference) bool { return !focus.MatchString(d.Test) })
	if o.focus != nil {
		s.Specs = len(ran)
		s.Differences = slices.DeleteFunc(slices.Clone(s.Differences), func(d suite.Difference) bool { return !focus.MatchString(d.Test) })
	}
	return s
}

// leftOut lists the specs that skip themselves.
var leftOut = []suite.Difference{
	{Test: replicaSet + "should serve a basic image on each replica with a private image", Why: "needs a registry at GCE"},
	{Test: replicationController + "should serve a basic image on each replica with a private image", Why: "needs a registry at GCE"},
	{Test: "[sig-apps] Deployment should not disrupt a cloud load-balancer's connectivity during rollout", Why: "needs a cloud's load balancer"},
}

const (
	replicaSet            = "[sig-apps] ReplicaSet "
	replicationController = "[sig-apps] ReplicationController "

	nobody = "nobody does the work"

	specsOfAll, specsOfThem = 82, 13 // how many specs run
)

// unattended lists the specs that fail if neither controller runs. These are all specs that the expression
// aboutThem matches.
var unattended = []suite.Difference{
	{Test: replicaSet + "Replace and Patch tests [Conformance]", Says: []string{"Gave up waiting"}, Why: nobody},
	{Test: replicaSet + "Replicaset should have a working scale subresource [Conformance]", Says: []string{"never had desired number", "error in waiting for pods to come up"}, Why: nobody},
	{Test: replicaSet + "should adopt matching pods on creation and release no longer matching pods [Conformance]", Says: []string{"timed out waiting"}, Why: nobody},
	{Test: replicaSet + "should list and delete a collection of ReplicaSets [Conformance]", Says: []string{"Gave up waiting"}, Why: nobody},
	{Test: replicaSet + "should serve a basic image on each replica with a public image [Conformance]", Says: []string{"Gave up waiting"}, Why: nobody},
	{Test: replicaSet + "should surface a failure condition on a common issue like exceeded quota", Says: []string{"never added the failure condition"}, Why: nobody},
	{Test: replicaSet + "should validate Replicaset Status endpoints [Conformance]", Says: []string{"Gave up waiting"}, Why: nobody},
	{Test: replicationController + "should adopt matching pods on creation [Conformance]", Says: []string{"timed out waiting"}, Why: nobody},
	{Test: replicationController + "should get and update a ReplicationController scale [Conformance]", Says: []string{"failed to confirm the quantity"}, Why: nobody},
	{Test: replicationController + "should release no longer matching pods [Conformance]", Says: []string{"Gave up waiting"}, Why: nobody},
	{Test: replicationController + "should serve a basic image on each replica with a public image [Conformance]", Says: []string{"Gave up waiting"}, Why: nobody},
	{Test: replicationController + "should surface a failure condition on a common issue like exceeded quota [Conformance]", Says: []string{"never added the failure condition"}, Why: nobody},
	{Test: replicationController + "should test the lifecycle of a ReplicationController [Conformance]", Says: []string{"timed out waiting"}, Why: nobody},
}
