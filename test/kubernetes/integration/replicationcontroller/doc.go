// Package replicationcontroller is where
// k8s.io/kubernetes/test/integration/replicationcontroller runs.
package replicationcontroller
