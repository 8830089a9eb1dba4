// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas decides how to keep N pods, or N objects of any other type. Manage compares the
// objects that exist with the number that is wanted, and returns a plan. The plan says which
// objects to adopt, release, create and delete.
//
//	spec, err := replicas.ReplicaSetSpec(rs)
//	spec.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec)
//	fmt.Println(plan) // delete 2: default/web-b (not ready), default/web-d (deletion cost -5 < 0)
//
// This package calls no API. Package controller carries out plans with any client, and adds
// expectations, slow start, events and status. The modules clientgo and controllerruntime run
// package controller with caches, a work queue and a client.
//
// The caller lists the objects and makes the API calls. The caller also needs a work queue that
// gives each owner to only one worker at a time.
//
// Differs from Kubernetes: a plan is data, and the order of the input list does not change which
// objects the plan deletes. A spec that can only be a mistake is refused, with an error that names
// the object and the field.
package replicas
