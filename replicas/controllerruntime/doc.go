// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime runs a controller.Kind with controller-runtime. The client, the cache and the
// work queue come from a manager.
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
// The manager holds the connections and the caches, elects the leader, and serves the metrics. The metrics
// of this package are registered in controller-runtime's registry, and their names begin with
// "replicakit_". Events go to the manager's recorder.
//
// The package needs controller-runtime 0.21 or later. The operator's role must allow it to:
//   - get, list and watch owners and children
//   - create, delete and patch children
//   - patch the status of owners
//   - update the finalizers subresource of owners, such as workerpools/finalizers
//   - create and patch Event objects
//
// For leader election, a Role in the namespace of the lease must allow it to create leases, and to get and
// update the lease by its name (resourceNames). A ClusterRole would allow it to take the leases of the
// control plane.
//
// The permission for finalizers is required if the admission plugin OwnerReferencesPermissionEnforcement is on, as
// on OpenShift, because children block the deletion of their owner.
//
// # What is read where
//
// Passes read the cache, and find children by an index; see Index. They list the cached objects without copying
// them, so the functions of a Kind must not change these objects. Without an index, and with copies, a pass would
// copy all pods in the namespace, even for a ReplicaSet with ten pods: 34 MB with 10,000 pods; see
// BenchmarkChildren.
//
// The manager's API reader reads from the server, without a cache. With it, a pass reads the owner before the
// first adoption and before children are deleted, looks for a child whose creation failed, and lists the children
// if the cache is known to be old or the process is new.
//
// A transform of the cache (cache.Options.DefaultTransform, or ByObject.Transform) may drop fields that the
// Kind does not read, such as annotations and managedFields.
//
// You may limit the cache to namespaces, labels or fields. But when the cache contains an owner, it must also
// contain all its children, because a child outside the cache counts as missing. The index and the namespaces of
// the cache are checked when the manager starts, but not its label selectors and field selectors.
//
// # The version of the cache
//
// In controller-runtime 0.24 and later, a cache reports the resourceVersion that it has reached, and a pass waits
// until the cache shows the writes of earlier passes. In earlier releases it reports none, and neither does the
// cache of a manager with several cache.Options.DefaultNamespaces. Then a pass waits for the creations and
// deletions that the controller expects, but not for the controller's other writes of children:
//   - After a child was adopted or released, passes use the child from the server's response until the cache
//     shows the change. When that takes longer than the ExpectationsTimeout, the child is adopted or released
//     once more.
//   - After a live list, passes use each child from that list until the cache shows the same or a newer version.
//   - A new process makes one live list of an owner's children before it first creates or deletes children of
//     that owner, where one small list for all owners is sufficient with a cache that reports its
//     resourceVersion. It also makes a live read of the owner before it first creates children of that owner,
//     unless the owner was written after the process started.
//   - The restore of a server from a backup (controller.ErrRestored) is noticed later, because no list can
//     be compared with the resourceVersion of the cache.
//
// # Reads that wait for writes
//
// In controller-runtime 0.25 and later, a client's reads from the cache can wait until the cache shows the
// client's own writes (client.CacheOptions.EnableReadYourWritesConsistency). While this option is on, all writes
// of children go through the client, and all succeed, a list through the client contains every child that was
// created, and no child that was deleted. Then a reconcile loop that calls replicas.Manage needs no record of its
// calls. This package keeps one because of these four cases:
//   - A create request gets no response, because it timed out or the connection was lost. The client does
//     not know that the child was created, so later reads do not wait, the next list lacks the child, and the
//     loop creates one child too many. With this package, a child has a name before it is created, and passes
//     look for the child under that name.
//   - A watch hangs. Reads through the client then wait until their context ends, which may never happen,
//     and those for other owners too, because a list waits for every write of its kind. With this package, an
//     owner waits only until the cache shows the calls for that owner. After five minutes, its passes list the
//     children live.
//   - The server is restored from a backup. The server's resourceVersions are then older than those that
//     the client has seen, so reads no longer wait, and no error is returned. With this package, the
//     program ends when a live list or read shows an older state than an earlier list or read.
//   - A new leader does not know the writes of the previous one. When the new leader's watch is late, it creates
//     the same children again. With this package, a new process compares the cache with the server before it
//     first creates or deletes children.
//
// docs/why.md compares a plain loop with this package in each of the four cases. Neither protects you if another
// process writes at the same time, for example a previous leader that has not stopped.
//
// This package reads the cache directly instead of through the client, so passes never wait in a read, whether or
// not the option is on.
package controllerruntime
