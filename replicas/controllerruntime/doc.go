// Package controllerruntime runs a controller.Kind with controller-runtime: it
// makes the client, the cache and the event handlers out of a manager.
//
//	mgr, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme})
//	...
//	err = controllerruntime.Add(mgr, kind, controllerruntime.Options{})
//	...
//	err = mgr.Start(ctx)
//
// Left to the manager: connections, caches, leader election, and serving the
// metrics. Those of this package are in controller-runtime's registry and begin
// with "replicakit_"; events go to the manager's recorder.
//
// It needs controller-runtime 0.21 or later. The operator needs the rights to get,
// list and watch owners and children; to create, delete and patch children; to
// update the owners' status; and to create and patch events.
//
// # What is read where
//
// Passes read the cache. Children are found by an index of their controllers, see
// Index, and lists are no deep copies: functions of a Kind must change nothing that
// they are given. BenchmarkChildren shows why: a list of a namespace copies all
// children of all owners, 34 MB for the ten pods of one ReplicaSet among 10,000. The API reader, past the cache, reads the owner before it adopts
// its first orphan, looks for a child whose creation failed, and lists children if
// the cache is known to be old.
//
// The cache may be limited to namespaces, by labels or by fields. It must hold the
// children of all owners that it holds: one that is hidden from it is a child that
// is missing. That it holds the namespaces and has the index is looked at when the
// manager starts; labels and fields are not.
//
// # The version of the cache
//
// A cache of controller-runtime does not tell how far it has come. So an operator
// does not wait for its own writes to come back, but for the creations and
// deletions that it expects. From that follows:
//
//   - A status may be made from an owner that has changed since. That write meets a
//     Conflict, and is made once more from a fresh copy.
//   - An adoption or release may be sent again before the cache shows the first
//     one, which changes nothing.
//   - What a live list has proven is laid over the cache until the cache shows each
//     of the children as the list had it.
//   - A server that was restored from a backup is noticed only if expectations
//     expire: with client-go's caches, which tell, at once.
//
// # Reads that wait for writes
//
// Since 0.25, controller-runtime's client can be told to wait, in a read of the
// cache, until it shows what this client has written
// (client.CacheOptions.EnableReadYourWritesConsistency). If that is on, and all
// writes of children go through that client and succeed, then the cache that an
// operator lists through that client has all it has created, and nothing it has
// deleted: expectations add nothing, and a loop around replicas.Manage needs no
// store for them.
//
// They are still needed in these cases, and this package does not turn them off:
//
//   - A write without an answer, because it timed out or the connection was lost.
//     The client does not know that it took effect, waits for nothing, and the next
//     list lacks the child: one too many is created. Here the child has a name that
//     was chosen before, and is looked for under it.
//   - A watch that hangs. The client's reads then wait until their context ends,
//     and without a deadline that is for ever, also those of all other owners of
//     that kind, since a list waits for every write of the kind. Here only the
//     owners with something outstanding wait, for five minutes, and are then listed
//     live.
//
// Neither helps against somebody else who writes, a former leader say.
//
// Here the cache is read without that client, so it makes no difference whether the
// option is on: passes never wait in a read.
package controllerruntime
