// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime runs a controller.Kind with controller-runtime. It takes the client, the cache
// and the work queue from a manager.
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
// The manager has the connections and the caches, elects the leader, and serves the metrics. The metrics of
// this package are in controller-runtime's registry. Their names begin with "replicakit_". Events go to the
// manager's recorder.
//
// The package needs controller-runtime 0.21 or later. The operator needs the rights to:
//   - get, list and watch owners and children
//   - create, delete and patch children
//   - patch the status of owners
//   - update the finalizers sub-resource of owners (such as workerpools/finalizers), because children block
//     the deletion of their owner; a server asks for this right if the admission plugin
//     OwnerReferencesPermissionEnforcement is on, as on OpenShift
//   - create and patch events
//   - create, get and update leases
//
// # What is read where
//
// Passes read the cache. They find children by an index; see Index. The objects in their lists are those of
// the cache and not copies, so the functions of a Kind must not change them. If a namespace were listed
// with copies of all children of all owners, that would take 34 MB for the ten pods of one ReplicaSet among
// 10,000; see BenchmarkChildren.
//
// The manager's API reader uses no cache. It reads the owner before its first adoption in a pass and before
// children are deleted, and looks for a child whose creation failed. If the cache is known to be old or the
// process is new, it lists children.
//
// A transform of the cache (cache.Options.DefaultTransform, or ByObject.Transform) may drop fields that the
// Kind does not read, such as annotations and managedFields.
//
// You may limit the cache to namespaces, labels or fields. For each owner that it holds, it must hold all
// children, because a child that it hides counts as missing. When the manager starts, the index and the
// namespaces of the cache are checked. Labels and fields are not checked.
//
// # The version of the cache
//
// From controller-runtime 0.24 on, a cache reports the resourceVersion up to which it is filled, and passes
// wait until it shows their writes. The cache of a manager with several cache.Options.DefaultNamespaces
// does not report its version, nor does any cache before 0.24. Then a pass waits for the creations and
// deletions that it expects, but not for its other writes:
//   - A status may be made from an owner that has changed since. That write gets a Conflict, and is made
//     once more from a fresh copy.
//   - An adopted or released child counts as in the server's answer until the cache shows it so, or until
//     the ExpectationsTimeout has passed. Then it is adopted or released once more.
//   - The result of a live list counts until the cache shows each child as it was in that list.
//   - A new process lists the children of each owner live, once, before it creates or deletes for the first
//     time. If the cache reports its version, one small list for all owners is enough. The process reads an
//     owner before its first creations, unless the owner was written since the process began.
//   - If a server was restored from a backup (controller.ErrRestored), that is noticed later, because no
//     list is compared with the version of the cache.
//
// # Reads that wait for writes
//
// Since 0.25, controller-runtime's client can wait in each read of the cache until the cache shows the
// writes of this client (client.CacheOptions.EnableReadYourWritesConsistency). Suppose that this option is
// on, all writes of children go through that client, and they succeed. Then a list through that client has
// every child that was created, and none that was deleted, and a loop around replicas.Manage needs no
// record of its calls. This package still keeps one, because of four cases:
//   - A write gets no answer, because it timed out or the connection was lost. The client does not know
//     that the write took effect, so it does not wait. The next list lacks the child, and one too many is
//     created. Here a child has its name before the call, and is looked for under that name.
//   - A watch hangs. Then reads through the client wait until their context ends, which may be never. Reads
//     for other owners wait too, because a list waits for every write of its kind. Here only the owners
//     whose calls the cache does not show wait, for five minutes, and then list live.
//   - The server is restored from a backup. Its versions are then older than those that the client has
//     seen, so reads no longer wait, and no error is returned. Here a live list or read that is older than
//     an earlier one ends the program.
//   - A new leader does not know the writes of the former one. If its watch is late, it creates the same
//     children again. Here the first pass of a process that creates or deletes compares the cache with the
//     server.
//
// docs/why.md compares a plain loop and this package in each case. Neither protects you from another
// process that writes at the same time, such as a leader that does not stop.
//
// This package reads the cache without that client. So passes never wait in a read, whether the option is
// on or off.
package controllerruntime
