// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers has only tests. They run replicas/clientgo and replicas/controllerruntime on one real
// etcd and one real kube-apiserver, and take less than a minute. Each adapter creates, scales and adopts
// pods, is restarted, and loses answers of the server. Two tests change a victim or the owner right before
// the request of the controller arrives. Package e2e does the same and far more with replicas/clientgo, and
// takes minutes.
//
// `make test-servers` builds the two programs and runs the tests.
package servers
