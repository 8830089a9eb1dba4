// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package unit lists Kubernetes' unit tests that run with this project's packages. For each test that does
// not pass or does not run, the list gives the reason.
package unit

import (
	"github.com/replicakit/replicakit/test/kubernetes/suite"
	"github.com/replicakit/replicakit/test/kubernetes/upstream"
)

// This is the prefix of the import paths of our packages that replace Kubernetes' packages.
const here = "github.com/replicakit/replicakit/test/kubernetes/unit/"

// Each of these reasons applies to several differences.
const (
	totalOrder = "the order is total: if two pods are equal in all other criteria, the name decides (W28)"
	oneOwner   = "a release patch is that of one owner"
)

// Suites returns the unit tests.
func Suites() []upstream.Suite {
	return []upstream.Suite{controllerSuite, replicaSetSuite, replicationSuite, consistencySuite}
}

var controllerSuite = upstream.Suite{
	Suite: suite.Suite{
		Name:  "unit/controller",
		Specs: 69,
		Differences: []suite.Difference{
			{
				Test: "TestGeneratePatchBytesForDelete/check_the_structure_of_patch_bytes_with_multiple_owners",
				Says: []string{`got = {"metadata":{"uid":"ss2","ownerReferences":[{"$patch":"delete","uid":"ss1"}]}}, want`},
				Why:  oneOwner,
			},
			{
				Test: "TestGeneratePatchBytesForDelete/check_the_structure_of_patch_bytes_with_a_finalizer_and_multiple_owners",
				Says: []string{`got = {"metadata":{"uid":"ss2","ownerReferences":[{"$patch":"delete","uid":"ss1"}],"$deleteFromPrimitiveList/finalizers":["f1"]}}, want`},
				Why:  oneOwner,
			},
			{
				Test: "TestSortingActivePodsWithRanks/Equality_tests_9",
				Says: []string{`expected pod "unscheduled-5-hours" to be equivalent to "unscheduled-10-hours"`},
				Why:  totalOrder,
			},
			{
				Test: "TestSortingActivePodsWithRanks/Equality_tests_10",
				Says: []string{`expected pod "ready-5-hours" to be equivalent to "ready-10-hours"`},
				Why:  totalOrder,
			},
		},
		LeftOut: []suite.Difference{
			{Test: "TestActiveReplicaSetsFiltering", Why: "tests a function for Deployments, which finds the active ReplicaSets"},
			{Test: "TestComputeHash", Why: "tests a function for Deployments, which computes the hash of a template"},
			{Test: "TestAddOrUpdateTaintOnNode", Why: "is about nodes"},
			{Test: "TestRemoveTaintOffNode", Why: "is about nodes"},
			{Test: "TestFilterPodsByOwner", Why: "the index is not a public part of replicas/clientgo; TestIndexes covers it"},
		},
	},
	From: "pkg/controller",
	In:   "unit/controller",
	Unused: []string{
		"NewFakeControllerExpectationsLookup", // our package controller defines this function itself
	},
}

var replicaSetSuite = upstream.Suite{
	Suite: suite.Suite{
		Name:  "unit/replicaset",
		Specs: 44,
		Differences: []suite.Difference{
			{
				Test: "TestControllerUpdateRequeue",
				Says: []string{"queue.Len() = 0, want 1"},
				Why:  "the test makes updates of the status fail, but our controller patches the status (U3)",
			},
			{
				Test: "TestControllerUpdateStatusWithFailure",
				Says: []string{"Expected 1 get and 2 updates, got 1 gets 0 updates"},
				Why:  "our controller patches the status (U3) and repeats the patch only after a Conflict (W47); the test counts a patch as a get",
			},
			{
				Test: "TestGetPodsToDelete",
				Says: []string{
					"various pod phases and conditions, diff = len(pods): unexpected",
					"various pod phases and conditions, diff = len(pods), relatedPods empty: unexpected",
					"ready vs not-ready, diff < len(pods): unexpected",
				},
				Why: "these rows list a pod twice, but our code deletes it once; our code also sorts the pods if all of them are deleted",
			},
			{
				Test: "TestSyncReplicaSetDormancy",
				Says: []string{"Unexpected number of creates.  Expected 1, saw 0"},
				Why:  "a pod that was created is missing, so our controller reads the owner before it replaces the pod; the server of the test has no owner",
			},
			{
				Test: "TestCalculateStatusConditions/manageReplicasErr_!=_nil_&&_failureCond_!=_nil",
				Says: []string{"FailedCreate fake manageReplicasErr"},
				Why:  "a ReplicaFailure condition is refreshed if its reason changes (W45)",
			},
		},
		LeftOut: []suite.Difference{
			{Test: "TestGetPodKeys", Why: "deletions are known by UID, not by name"},
			{Test: "TestReplicaSetAvailabilityCheck", Why: "the test panics without an update of the status, but our controller patches the status (U3); test/conformance covers M1"},
			{Test: "TestRSSyncExpectations", Why: "the test replaces the expectations with a fake, but our expectations are not an interface; test/conformance covers Y4"},
		},
	},
	From:    "pkg/controller/replicaset",
	In:      "unit/replicaset",
	Imports: map[string]string{"k8s.io/kubernetes/pkg/controller": here + "controller"},
	Unused:  []string{"FakeRSExpectations"},
}

var replicationSuite = upstream.Suite{
	Suite: suite.Suite{Name: "unit/replication", Specs: 3},
	From:  "pkg/controller/replication",
	In:    "unit/replication",
}

var consistencySuite = upstream.Suite{
	Suite: suite.Suite{
		Name:  "unit/consistency",
		Specs: 2,
		LeftOut: inside("TestOwnerRecord_WroteAt", "TestConsistencyStore_New", "TestConsistencyStore_EnsureWrittenRecord",
			"TestConsistencyStore_EnsureWrittenRecord_Concurrent", "TestConsistencyStore_WroteAt", "TestConsistencyStore_Clear"),
	},
	From: "pkg/controller/util/consistency",
	In:   "unit/consistency",
}

// inside returns a Difference for each of the given tests. These tests read unexported fields.
func inside(tests ...string) []suite.Difference {
	left := make([]suite.Difference, len(tests))
	for i, test := range tests {
		left[i] = suite.Difference{Test: test, Why: "the test reads unexported fields that our code does not have"}
	}
	return left
}
