// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package servers contains only tests. The tests run replicas/clientgo and replicas/controllerruntime on a
// real etcd and a real kube-apiserver. All tests together take less than a minute. With each of these
// adapters, a controller creates, scales and adopts pods, restarts, and handles lost responses. In two
// tests, another client changes the owner, or the pod to be deleted, just before the controller's request
// arrives. Package e2e tests the same behavior and much more. That package uses only replicas/clientgo and
// takes minutes.
//
// `make test-servers` builds the needed programs and runs the tests.
package servers
