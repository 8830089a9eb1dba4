// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// field returns the entry in managedFields for a write of the given manager. The argument after is the number of
// seconds from the creation of the pod to the write.
func field(manager, subresource string, after int) metav1.ManagedFieldsEntry {
	at := metav1.Unix(int64(1000+after), 0)
	return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at}
}

func TestPodsOfOthers(t *testing.T) {
	t.Parallel()
	const kcm = "kube-controller-manager"
	for _, row := range []struct {
		name       string
		kind       string
		apiVersion string
		began      int // seconds after the creation of the pod
		fields     []metav1.ManagedFieldsEntry
		want       string
	}{
		{"made by another one", "ReplicaSet", "apps/v1", -1, []metav1.ManagedFieldsEntry{field(kcm, "", 0), field("kubelet", "status", 3)}, kcm},
		{"of a ReplicationController", "ReplicationController", "v1", -1, []metav1.ManagedFieldsEntry{field(kcm, "", 0)}, kcm},
		{"made by us", "ReplicaSet", "apps/v1", -1, []metav1.ManagedFieldsEntry{field(userAgent, "", 0), field(kcm, "", 1)}, ""},
		{"made by somebody and adopted by us", "ReplicaSet", "apps/v1", -1, []metav1.ManagedFieldsEntry{field("kubectl", "", 0), field(userAgent, "", 1)}, ""},
		{"made before we began", "ReplicaSet", "apps/v1", 1, []metav1.ManagedFieldsEntry{field(kcm, "", 0)}, ""},
		{"made in the second in which we began", "ReplicaSet", "apps/v1", 0, []metav1.ManagedFieldsEntry{field(kcm, "", 0)}, ""},
		{"of another kind of owner", "DaemonSet", "apps/v1", -1, []metav1.ManagedFieldsEntry{field(kcm, "", 0)}, ""},
		{"of a kind of the same name", "ReplicaSet", "acme.com/v1", -1, []metav1.ManagedFieldsEntry{field(kcm, "", 0)}, ""},
		{"a server that tells nothing", "ReplicaSet", "apps/v1", -1, nil, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m := &manager{controllers: controllers(), foreignWrites: newForeignWrites()}
			o := newOthers(m)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.Unix(1000, 0), ManagedFields: row.fields,
				OwnerReferences: []metav1.OwnerReference{{APIVersion: row.apiVersion, Kind: row.kind, Name: "o", UID: "u", Controller: new(true)}},
			}}
			assert.Empty(t, o.mark(pod), "nothing counts before it began")
			o.begin(time.Unix(int64(1000+row.began), 0))
			kept := o.mark(pod)
			if row.want == "" {
				assert.Empty(t, kept)
				return
			}
			assert.Equal(t, []metav1.ManagedFieldsEntry{{Manager: row.want}}, kept)
		})
	}
}

// A status proves that another controller is at work only if the status has changed, and this program has not
// changed it.
func TestForeignStatus(t *testing.T) {
	t.Parallel()
	const kcm = "kube-controller-manager"
	set := func(replicas int32, fields ...metav1.ManagedFieldsEntry) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{UID: "a", ManagedFields: fields}, Status: appsv1.ReplicaSetStatus{Replicas: replicas}}
	}
	ours := field(userAgent, "status", 1)
	another := set(2, ours, field(kcm, "status", 2))
	another.UID = "b"
	for _, row := range []struct {
		name          string
		before, after *appsv1.ReplicaSet
		probe         bool
		want          string
	}{
		{"written by another one", set(1, ours), set(2, ours, field(kcm, "status", 2)), false, kcm},
		{"written again", set(1, ours, field(kcm, "status", 2)), set(2, ours, field(kcm, "status", 3)), false, kcm},
		{"managed fields that tell of no change", set(1, ours), set(1, ours, field(kcm, "status", 2)), false, ""},
		{"managed fields that somebody added before", set(1, ours, field(kcm, "status", 9)), set(2, field(userAgent, "status", 3), field(kcm, "status", 9)), false, ""},
		{"seen together with a write of ours", set(1, ours), set(2, field(userAgent, "status", 3), field(kcm, "status", 2)), false, ""},
		{"another owner of the same name", set(1, ours), another, false, ""},
		{"written before we began", set(1), set(2, field(kcm, "status", 0)), false, ""},
		{"a probe, by any program", set(0), set(2, field(userAgent, "status", 0)), true, userAgent},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			o := newOthers(&manager{controllers: controllers(), foreignWrites: newForeignWrites()})
			o.begin(time.Unix(1000, 0))
			if row.probe {
				o.expect("a")
			}
			assert.Equal(t, row.want, o.foreignStatus(row.before, row.after))
		})
	}
}

func TestStatusWriter(t *testing.T) {
	t.Parallel()
	fields := []metav1.ManagedFieldsEntry{
		field("a", "", 9), field("a", "status", 1), field("b", "status", 2), field(userAgent, "status", 3), field("c", "scale", 8),
	}
	by, at := statusWriter(fields, userAgent)
	assert.Equal(t, "b", by, "the newest of the others")
	assert.Equal(t, int64(1002), at.Unix())
	by, _ = statusWriter(fields, "")
	assert.Equal(t, userAgent, by)
	by, at = statusWriter(fields[:1], "")
	assert.Empty(t, by)
	assert.True(t, at.IsZero())
}
