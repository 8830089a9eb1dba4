// Package replicastest is for the tests of your own controller: what Manage plans for
// the children that you build by hand, and what a whole controller does on a simulated
// cluster whose watches hang and whose answers get lost.
//
// What you want to test, and where to start:
//
//	what is planned for some pods          NewReplicaSet, NewPod, Unready, Terminating, WithCost, Orphan; then replicas.Manage
//	your Kind, in minutes that take none   NewClusterOf(kind), NewController, World.Run
//	calls that fail, are lost, land late   ControllerOf.Client: Fail, and Record for what was called
//	watches that lag, hang, break          ControllerOf.View: ChildWatch and OwnerWatch; Lag, Hang, Break
//	a restart, two leaders, a wrong clock  another NewController on the same cluster; ControllerOf.Skew
//	users, quotas, webhooks, namespaces    ClusterOf: EditOwner, SetQuota, Deny, TerminateNamespace
//	a server restored from a backup        ClusterOf: Backup, Restore
//	a controller without replicas/controller    ControllerOf.Sync, or NewClient and NewView alone
//
// A cluster holds owners and children of one kind, in namespaces or not: NewCluster
// makes one of ReplicaSets and pods, NewClusterOf one of your own types. It is an API
// server with UIDs, resource versions, generations, finalizers, preconditions, merge
// patches, quotas and webhooks, and the garbage collector. Only pods have nodes, a
// scheduler and kubelets; other children become ready as ClusterOf.Ready says. It
// does not default, validate or convert what a CRD would: for that, test on a real
// API server.
//
// Everything is in memory, in virtual time and without a goroutine: the same test
// sees the same on every run, and hours take milliseconds. So nothing here is safe
// for concurrent use, but the functions that build objects.
//
// The zero values of ClusterOf, ClientOf, ViewOf and ControllerOf are of no use:
// functions that are called New make them.
package replicastest
