// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package integration lists Kubernetes' integration tests that run with replicas/clientgo, on a real
// kube-apiserver and a real etcd.
package integration

import (
	"github.com/replicakit/replicakit/test/kubernetes/suite"
	"github.com/replicakit/replicakit/test/kubernetes/upstream"
)

const controllers = "github.com/replicakit/replicakit/test/kubernetes/integration/controllers/"

const gates = "Kubernetes reads its feature gates in each pass; here the gates are options, and each gate change starts a new controller"

// Suites returns the integration tests.
func Suites() []upstream.Suite {
	return []upstream.Suite{
		{
			Suite: suite.Suite{Name: "integration/replicaset", Specs: 20, Instead: gates},
			From:  "test/integration/replicaset",
			In:    "integration/replicaset",
			Imports: map[string]string{
				"k8s.io/kubernetes/pkg/controller/replicaset": controllers + "replicaset",
			},
		},
		{
			Suite: suite.Suite{Name: "integration/replicationcontroller", Specs: 14, Instead: gates},
			From:  "test/integration/replicationcontroller",
			In:    "integration/replicationcontroller",
			Imports: map[string]string{
				"k8s.io/kubernetes/pkg/controller/replication": controllers + "replication",
			},
		},
	}
}
