// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/replicakit/replicakit/examples/quorum"
	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/status"
)

// A databaseList is the list type that a scheme needs for Databases.
type databaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []quorum.Database `json:"items"`
}

func (l *databaseList) DeepCopyObject() runtime.Object {
	c := databaseList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		c.Items = append(c.Items, *l.Items[i].DeepCopy())
	}
	return &c
}

// quorumCalls makes the calls of the operator.
type quorumCalls struct {
	client.Client
	server client.Reader // reads from the server instead of the cache
	ending *atomic.Bool  // whether Claim has returned a claim that is being deleted
}

func (q quorumCalls) Claim(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	err := q.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		err = q.server.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	}
	if claim.DeletionTimestamp != nil {
		q.ending.Store(true)
	}
	return claim, err
}

func (q quorumCalls) Keep(ctx context.Context, db *quorum.Database, keep bool) error {
	kept := db.DeepCopyObject().(client.Object)
	if keep {
		controllerutil.AddFinalizer(kept, "quorum.example.com/members")
	} else {
		controllerutil.RemoveFinalizer(kept, "quorum.example.com/members")
	}
	// The patch has the whole list, which another client may have changed since.
	return q.Patch(ctx, kept, client.MergeFromWithOptions(db, client.MergeFromWithOptimisticLock{}))
}

// watchClaims adds a watch of claims. Each event of a claim causes a pass for the claim's database.
func watchClaims(b *builder.Builder) error {
	b.Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, claim client.Object) (passes []reconcile.Request) {
		if db := quorum.DatabaseOf(claim); db.Name != "" {
			passes = append(passes, reconcile.Request{NamespacedName: db})
		}
		return passes
	}))
	return nil
}

// A databases value is a client of the real server. It also does the work of the kubelets, and of the agents in
// the pods.
type databases struct {
	client.Client
	namespace string
	drained   map[types.UID]bool // pods that have drained after a request
}

// tend makes each pod ready, and drains each pod that has a drain annotation. It returns the names and images of
// all pods. If a pod was not ready before the call, tend reports a failure to t.
func (d databases) tend(t *assert.CollectT, ctx context.Context) (members []string) { //nolint:revive // as in testify
	var list corev1.PodList
	require.NoError(t, d.List(ctx, &list, client.InNamespace(d.namespace)))
	ready := 0
	for _, pod := range list.Items {
		members = append(members, pod.Name+" "+pod.Spec.Containers[0].Image)
		if status.IsPodReady(&pod) {
			ready++
		} else {
			patch := []byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
			require.NoError(t, client.IgnoreNotFound(d.Status().Patch(ctx, &pod, client.RawPatch(types.MergePatchType, patch))))
		}
		if pod.Annotations["quorum.example.com/drain"] != "" && pod.Annotations["quorum.example.com/drained"] == "" {
			patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{"quorum.example.com/drained":"true"}}}`, pod.UID)
			require.NoError(t, client.IgnoreNotFound(d.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, patch))))
			d.drained[pod.UID] = true
		}
	}
	assert.Len(t, list.Items, ready)
	return members
}

func (d databases) edit(t *testing.T, patch string) {
	t.Helper()
	db := &quorum.Database{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "db"}}
	require.NoError(t, d.Patch(t.Context(), db, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func (d databases) settles(t *testing.T, want ...string) {
	t.Helper()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Equal(collect, want, d.tend(collect, t.Context()))
		db := &quorum.Database{}
		require.NoError(collect, d.Get(t.Context(), types.NamespacedName{Namespace: d.namespace, Name: "db"}, db))
		assert.True(collect, meta.IsStatusConditionFalse(db.Status.Conditions, "HeldBack"))
		db.Status.Conditions = nil
		assert.Equal(collect, quorum.DatabaseStatus{Replicas: int32(len(want)), ReadyReplicas: int32(len(want)), ObservedGeneration: db.Generation}, db.Status)
	}, patience, tick)
}

// losesClaim deletes the claim of db-1, and makes the pod db-1 fail. A finalizer from the server keeps the
// claim. When the operator has seen that the claim is being deleted, losesClaim removes the finalizer. The
// operator then creates db-1 again, with another claim.
func (d databases) losesClaim(t *testing.T, isWaiting *atomic.Bool) {
	t.Helper()
	name := types.NamespacedName{Namespace: d.namespace, Name: "data-db-1"}
	var deleted corev1.PersistentVolumeClaim
	require.NoError(t, d.Get(t.Context(), name, &deleted))
	require.Equal(t, []string{"kubernetes.io/pvc-protection"}, deleted.Finalizers)
	require.NoError(t, d.Delete(t.Context(), &deleted))
	d.fails(t, "db-1")
	require.Eventually(t, isWaiting.Load, patience, tick)
	require.NoError(t, d.Patch(t.Context(), &deleted, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	d.settles(t, "db-0 two", "db-1 two", "db-2 two")
	var claim corev1.PersistentVolumeClaim
	require.NoError(t, d.Get(t.Context(), name, &claim))
	assert.NotEqual(t, deleted.UID, claim.UID)
}

func (d databases) fails(t *testing.T, pod string) (failed *corev1.Pod) {
	t.Helper()
	failed = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: pod}}
	require.NoError(t, d.Status().Patch(t.Context(), failed, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Failed","conditions":null}}`))))
	return failed
}

// The operator of examples/quorum works on a real server.
func TestQuorum(t *testing.T) {
	t.Parallel()
	_, err := envtest.InstallCRDs(realServer(t), envtest.CRDInstallOptions{Paths: []string{filepath.Join("..", "..", "examples", "quorum", "crd.yaml")}, ErrorIfPathMissing: true})
	require.NoError(t, err)
	scheme, version := runtime.NewScheme(), schema.GroupVersion{Group: "quorum.example.com", Version: "v1"}
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	scheme.AddKnownTypes(version, &quorum.Database{})
	scheme.AddKnownTypeWithName(version.WithKind("DatabaseList"), &databaseList{})
	metav1.AddToGroupVersion(scheme, version)

	c, err := client.New(realServer(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	d := databases{c, newNamespace(t, c), map[types.UID]bool{}}
	mgr := newManager(t, manager.Options{Scheme: scheme}, d.namespace)
	calls := quorumCalls{mgr.GetClient(), mgr.GetAPIReader(), &atomic.Bool{}}
	require.NoError(t, controllerruntime.Add(mgr, quorum.Kind(calls), controllerruntime.Options{Build: watchClaims}))
	start(t, mgr)

	require.NoError(t, c.Create(t.Context(), &quorum.Database{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "db"}, Spec: quorum.DatabaseSpec{Replicas: 4, Quorum: 2, Image: "one"},
	}))
	d.settles(t, "db-0 one", "db-1 one", "db-2 one", "db-3 one")
	d.edit(t, `{"spec":{"replicas":3,"image":"two"}}`)
	d.settles(t, "db-0 two", "db-1 two", "db-2 two")

	failed := d.fails(t, "db-1")
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		var pod corev1.Pod
		require.NoError(collect, c.Get(t.Context(), client.ObjectKeyFromObject(failed), &pod))
		assert.NotEqual(collect, failed.UID, pod.UID)
	}, patience, tick)
	d.settles(t, "db-0 two", "db-1 two", "db-2 two")
	d.losesClaim(t, calls.ending)

	var claims corev1.PersistentVolumeClaimList
	require.NoError(t, c.List(t.Context(), &claims, client.InNamespace(d.namespace)))
	assert.Len(t, claims.Items, 4, "a claim stays")

	clear(d.drained)
	db := &quorum.Database{ObjectMeta: metav1.ObjectMeta{Namespace: d.namespace, Name: "db"}}
	require.NoError(t, c.Delete(t.Context(), db))
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		assert.Empty(collect, d.tend(collect, t.Context()))
		assert.True(collect, apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(db), db)))
	}, patience, tick)
	assert.Len(t, d.drained, 3, "each member has drained before it went")
}
