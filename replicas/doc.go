// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replicas decides how to keep N of something: pods, or objects of any
// other type. From the objects that exist and the number that is wanted it makes a
// plan: which to adopt, to release, to create and to delete.
//
//	spec, err := replicas.ReplicaSetSpec(rs)
//	spec.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec)
//	fmt.Println(plan) // delete 2: default/web-b (not ready), default/web-d (deletion cost -5 < 0)
//
// Nothing here calls an API. Package controller carries plans out, over any client,
// and adds expectations, slow start, events and status. The modules clientgo and
// controllerruntime run that package with caches, a work queue and a client.
//
// Left to the caller: listing the objects, the calls, and a work queue that gives
// one owner to one worker at a time.
//
// Differs from Kubernetes: a plan is data, and which objects it deletes does not
// depend on the order of its input. A spec that can only be a mistake is refused,
// with an error that names the object and the field.
package replicas
