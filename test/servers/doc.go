// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers contains only tests. The tests run replicas/clientgo and replicas/controllerruntime on a
// real etcd and a real kube-apiserver. All tests together take less than a minute. With each of these
// adapters, a controller creates, scales and adopts pods, restarts, and handles lost responses. In two
// tests, another client changes the owner, or the pod to be deleted, just before the controller's request
// arrives. The tests in test/e2e check the same behavior and much more. The tests in test/e2e use only
// replicas/clientgo and take minutes.
//
// `make test-servers` builds the needed programs and runs the tests.
package servers
