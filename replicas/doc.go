// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas decides how to keep N pods, or N objects of any other type. Manage compares the
// existing objects with the desired number and returns a plan. The plan says which objects to
// adopt, release, create, change and delete.
//
//	spec, err := replicas.ReplicaSetSpec(rs)
//	spec.Facts.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec)
//	fmt.Println(plan) // delete 2: default/web-b (not ready), default/web-d (deletion cost -5 < 0)
//
// This package makes no API calls. Package controller carries out plans with any client, and adds
// expectations, slow start, events and status. The modules clientgo and controllerruntime add
// caches, a work queue and a client to package controller.
//
// The caller lists the objects and makes the API calls. The caller also needs a work queue that
// never gives the same owner to two workers at the same time.
//
// Differs from Kubernetes: a plan is data, and the order of the input list does not change which
// objects the plan deletes. If a spec is certainly a mistake, it is refused with an error that
// names the object and the field.
package replicas
