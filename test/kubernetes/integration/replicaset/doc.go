// Package replicaset is where k8s.io/kubernetes/test/integration/replicaset runs.
package replicaset
