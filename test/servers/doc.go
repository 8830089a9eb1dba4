// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers has only tests. The tests run replicas/clientgo and replicas/controllerruntime on one real
// etcd and one real kube-apiserver, and take less than a minute. Each adapter creates, scales and adopts
// pods, is restarted, and loses answers from the server. In two tests, a victim or the owner changes just
// before the controller's request arrives. Package e2e tests the same and much more with replicas/clientgo,
// but takes minutes.
//
// `make test-servers` builds the needed programs and runs the tests.
package servers
