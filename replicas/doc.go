// Package replicas keeps N of something, pods or any other objects: given those
// that exist and what is wanted, it says which to adopt, release, create and
// delete.
//
// Manage is pure: it returns a plan, and the caller makes the calls. Package
// controller makes them too, over any client, with names, expectations, slow
// start, events and status.
//
//	spec, err := replicas.ReplicaSetSpec(rs)
//	spec.Now = time.Now()
//	plan, err := replicas.Manage(pods, spec)
//	fmt.Println(plan) // delete 2: default/web-b (not ready), default/web-d (deletion cost -5 < 0)
//
// Left to the caller: caches, a work queue that never runs one owner twice at
// once, a client. The modules clientgo and controllerruntime have all three.
//
// Differs from Kubernetes: a plan is data, and whom it deletes does not depend on
// the order of its input; a spec that can only be a mistake is refused with an
// error that names the object and the field.
package replicas
