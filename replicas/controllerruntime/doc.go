// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime runs a controller.Kind with controller-runtime: it
// takes the client, the cache and the work queue from a manager.
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{
//		Scheme:         scheme,
//		LeaderElection: true, LeaderElectionID: "pools.example.com", LeaderElectionNamespace: "default",
//	})
//	...
//	err = controllerruntime.Add(mgr, kind, controllerruntime.Options{})
//	...
//	err = mgr.Start(ctx)
//
// Left to the manager: connections, caches, leader election, and serving the
// metrics. The metrics of this package are in controller-runtime's registry; their
// names begin with "replicakit_". Events go to the manager's recorder.
//
// It needs controller-runtime 0.21 or later. The operator needs the rights to get,
// list and watch owners and children; to create, delete and patch children; to
// patch the status of owners; to update the finalizers sub-resource of owners (such as
// workerpools/finalizers), which a server asks for if the admission plugin
// OwnerReferencesPermissionEnforcement is on, as on OpenShift, because children block the deletion
// of their owner; to create and patch events; and to create, get and update leases.
//
// # What is read where
//
// Passes read the cache. They find children by an index, see Index. The objects in
// their lists are those of the cache, not copies: the functions of a Kind must not
// change them. To list a namespace with copies of all children of all owners would
// take 34 MB for the ten pods of one ReplicaSet among 10,000: see
// BenchmarkChildren.
//
// The manager's API reader, which uses no cache, reads the owner before its first
// adoption in a pass and before children are deleted, looks for a child whose creation
// failed, and lists children if the cache is known to be old or the process is new.
//
// A transform of the cache (cache.Options.DefaultTransform, or ByObject.Transform) may drop
// what the Kind does not look at, such as annotations and managedFields.
//
// You may limit the cache to namespaces, labels or fields. For each owner that it
// holds, it must hold all children: a child that it hides counts as missing. When
// the manager starts, it is checked that the cache has the index and the
// namespaces; labels and fields are not checked.
//
// # The version of the cache
//
// From controller-runtime 0.24 on, a cache tells up to which resourceVersion it is
// filled, and passes wait until it shows what they wrote. The cache of a manager with
// several cache.Options.DefaultNamespaces does not tell, nor does any cache before
// 0.24. Then a pass waits for the creations and deletions that it expects, but not for
// other writes of its own:
//   - A status may be made from an owner that has changed since. That write meets a
//     Conflict, and is made once more from a fresh copy.
//   - An adopted or released child counts as the server answered until the cache
//     shows it so, or until the ExpectationsTimeout has gone by. Then it is adopted
//     or released once more.
//   - What a live list has shown counts until the cache shows each child as it was
//     in that list.
//   - A new process lists the children of each owner live, once, before it creates or
//     deletes for the first time. Where the cache tells its version, one small list for
//     all owners is enough. It reads an owner before its first creations, unless the owner
//     was written since the process began.
//   - A server that was restored from a backup (controller.ErrRestored) is noticed later, as
//     no list is compared with the version of the cache.
//
// # Reads that wait for writes
//
// Since 0.25, controller-runtime's client can wait in each read of the cache until
// the cache shows what this client has written
// (client.CacheOptions.EnableReadYourWritesConsistency). If that is on, if all
// writes of children go through that client, and if they succeed, a list through
// that client has every child that was created, and none that was deleted. Then a
// loop around replicas.Manage needs no record of its calls. This package keeps one all the
// same, because of four cases:
//   - A write gets no answer, because it timed out or the connection was lost. The
//     client does not know that it took effect, so it does not wait. The next list
//     lacks the child, and one too many is created. Here a child has its name
//     before the call, and is looked for under it.
//   - A watch hangs. Then reads through the client wait until their context ends,
//     which may be never. Those for other owners wait too, because a list waits for
//     every write of its kind. Here only owners wait whose calls the cache
//     does not show, for five minutes, and then list live.
//   - The server is restored from a backup. Its versions are then older than those that
//     the client has seen, so reads no longer wait, and nothing says so. Here a live list
//     or read that is older than what was shown before ends the program.
//   - A new leader does not know what the former one wrote. If its watch is late, it
//     creates the same children again. Here the first pass of a process that creates or
//     deletes compares the cache with the server.
//
// docs/why.md has what a plain loop and this package do in each case. Nothing protects you
// from somebody else who writes at the same time, such as a leader that does not stop.
//
// This package reads the cache without that client. So passes never wait in a read,
// whether the option is on or off.
package controllerruntime
