// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
)

func TestLog(t *testing.T) {
	t.Parallel()

	stale := func(owner metav1.Object) error {
		return apierrors.NewConflict(appsv1.Resource("replicasets"), owner.GetName(), errors.New("stale"))
	}

	web := func() *appsv1.ReplicaSet {
		rs := replicaSet("web", 2, func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds = 10 })
		rs.OwnerReferences = controlledBy("uid-deployment")
		return rs
	}
	type line struct {
		message string
		level   int
		keys    string
	}
	for _, test := range []struct {
		name  string
		story func(*bench)
		want  []line
	}{
		{
			name:  "start-up, creation and status",
			story: func(*bench) {},
			want: []line{
				{"Starting controller", 0, "name=replicaset"},
				{"Adding", 4, "replicaSet=default/web"},
				{"Too few replicas", 2, "replicaSet=default/web need=2 creating=2"},
				{"Controller created pod", 4, "controller=web pod=default/web-"},
				{"Pod created", 4, "pod=default/web-"},
				{"Changed the number of replicas", 0, "kind=ReplicaSet replicaSet=default/web need=2 created=2 deleted=0"},
				{"Updating status for ReplicaSet: default/web, replicas 0->2 (need 2), fullyLabeledReplicas 0->2, readyReplicas 0->0, availableReplicas 0->0, terminatingReplicas nil->0, sequence No: 0->1", 4, ""},
				{"Finished syncing", 4, "kind=ReplicaSet key=default/web duration=0s"},
			},
		},
		{
			name: "D2 deletion",
			story: func(b *bench) {
				b.scale(web(), 1)
			},
			want: []line{
				{"replicaSet updated. Desired pod count change.", 4, "replicaSet=default/web oldReplicas=2 newReplicas=1"},
				{"Too many replicas", 2, "replicaSet=default/web need=1 deleting=1"},
				{"Found related ReplicaSets", 2, "replicaSet=default/web relatedReplicaSets="},
				{"Found related pods", 4, "kind=ReplicaSet replicaSet=default/web pods="},
				{"Deleting pod", 2, "controller=web pod=default/web-"},
				{"Pod deleted", 4, "deletion_timestamp=<nil> pod=default/web-"},
				{"Changed the number of replicas", 0, "kind=ReplicaSet replicaSet=default/web need=1 created=0 deleted=1"},
			},
		},
		{
			name: "V9 M6 a pod that changes",
			story: func(b *bench) {
				b.makeReady(b.podNames()[0])
			},
			want: []line{
				{"Pod objectMeta updated.", 4, "pod=default/web-"},
				{"pod will be enqueued after a while for availability check", 2, "duration=10 kind=ReplicaSet pod=default/web-"},
			},
		},
		{
			name: "a pod that loses its labels",
			story: func(b *bench) {
				b.change(b.allPods()[0], func(p object) { p.SetLabels(map[string]string{"app": "debug"}) })
			},
			want: []line{
				{"Releasing pod", 2, "pod=default/web-"},
			},
		},
		{
			name: "V4 V10 an orphan",
			story: func(b *bench) {
				b.setOnPod(func(string, *corev1.Pod) error { return errors.New("no") })
				orphan := b.add(pod("orphan", "web", "node-1"))
				settle()
				b.change(orphan, func(p object) { p.SetLabels(map[string]string{"app": "web", "a": "b"}) })
			},
			want: []line{
				{"Orphan Pod created", 4, "pod=default/orphan detail="},
				{"Orphan Pod objectMeta updated.", 4, "pod=default/orphan oldObjectMeta="},
			},
		},
		{
			name: "K2 creations that fail",
			story: func(b *bench) {
				b.setOnPod(func(string, *corev1.Pod) error { return errors.New("no") })
				b.scale(web(), 9)
			},
			want: []line{
				{"Slow-start failure. Skipping creation of pods, decrementing expectations", 2, "podsSkipped=7 kind=ReplicaSet replicaSet=default/web"},
				{"Sync failed", 0, "kind=ReplicaSet key=default/web"},
			},
		},
		{
			name: "V17 Y3 an owner that is deleted",
			story: func(b *bench) {
				b.remove(web())
			},
			want: []line{
				{"Deleting", 4, "replicaSet=default/web"},
				{"deleted", 4, "kind=ReplicaSet key=default/web"},
			},
		},
		{
			name:  "Z5 the end",
			story: func(b *bench) { b.cancel() },
			want:  []line{{"Shutting down controller", 0, "name=replicaset"}},
		},
	} {
		bubble(t, test.name, func(t inBubble) {
			b := newBench(web())
			b.start(t)
			test.story(b)
			settle()
			for _, want := range test.want {
				assert.True(t, b.hasLine(want.message, want.level, want.keys), "%v", want)
			}
		})
	}

	for _, test := range []struct {
		name  string
		story func(*bench)
		lines int // 0 means that no error is logged
		want  line
	}{
		{
			name: "a Conflict of the status is no error: another pass follows",
			story: func(b *bench) {
				conflicts := 0
				b.onStatus = func(owner metav1.Object) error {
					if conflicts++; conflicts > 4 { // two passes, each with two attempts
						return nil
					}
					return stale(owner)
				}
			},
			want: line{"Status not written, because the owner has changed. The pass is repeated", 2, "kind=ReplicaSet key=default/web"},
		},
		{
			name:  "one that lasts is an error",
			story: func(b *bench) { b.onStatus = stale },
			lines: 1,
			want:  line{"Sync failed", 0, "kind=ReplicaSet key=default/web"},
		},
		{
			name: "a Conflict beside an error does not hide it",
			story: func(b *bench) {
				b.onStatus = stale
				b.setOnPod(func(string, *corev1.Pod) error { return errors.New("no") })
			},
			lines: 1,
			want:  line{"Sync failed", 0, "kind=ReplicaSet key=default/web"},
		},
		{
			name: "the end of the program is no error",
			story: func(b *bench) {
				b.setOnPod(func(string, *corev1.Pod) error {
					b.cancel()
					return fmt.Errorf("waiting for a turn: %w", context.Canceled)
				})
			},
			want: line{"Pass ended early because the program is ending", 2, "kind=ReplicaSet key=default/web"},
		},
		{
			name: "an error in the last moment is one",
			story: func(b *bench) {
				b.setOnPod(func(string, *corev1.Pod) error {
					b.cancel()
					return errors.New("no")
				})
			},
			lines: 1,
			want:  line{"Sync failed", 0, "kind=ReplicaSet key=default/web"},
		},
	} {
		bubble(t, test.name, func(t inBubble) {
			b := newBench(replicaSet("web", 1))
			test.story(b)
			b.start(t)
			assert.True(t, b.hasLine(test.want.message, test.want.level, test.want.keys), "%v", test.want)
			var failed []ktesting.LogEntry
			for _, entry := range b.log.Data() {
				if entry.Type == ktesting.LogError {
					failed = append(failed, entry)
				}
			}
			if test.lines == 0 {
				assert.Empty(t, failed)
				return
			}
			require.NotEmpty(t, failed)
			assert.NotContains(t, failed[0].Err.Error(), "\n", "an entry is one line")
		})
	}

	bubble(t, "V12 a deletion that was never announced is printable", func(t inBubble) {
		b := newBench(replicaSet("web", 1))
		b.start(t)
		b.remove(b.allPods()[0])
		settle()
		assert.Contains(t, b.log.String(), "Pod deleted deletion_timestamp=null pod=")
	})

	bubble(t, "nothing of all that at a lower level", func(t inBubble) {
		b := newBench(web())
		b.verbosity(1)
		b.start(t)
		b.makeReady(b.podNames()[0])
		b.scale(web(), 1)
		settle()
		assert.Len(t, b.allPods(), 1)
		require.NotEmpty(t, b.log.Data())
		for _, entry := range b.log.Data() {
			assert.LessOrEqual(t, entry.Verbosity, 1, entry.Message)
		}
	})

	bubble(t, "A1 a ReplicationController's status line names its kind", func(t inBubble) {
		b := newBench(replicationController("web", 1))
		b.startReplicationManager(t)
		assert.True(t, b.hasLine("Updating status for ReplicationController: default/web, replicas 0->1 (need 1), fullyLabeledReplicas 0->1, readyReplicas 0->0, availableReplicas 0->0, sequence No: 0->1", 4, ""))
	})
}

// hasLine reports whether a message was logged at the given level. The text of the message's key-value pairs must
// begin with the last argument.
func (b *bench) hasLine(message string, level int, keys string) bool {
	for _, entry := range b.log.Data() {
		if entry.Message == message && entry.Verbosity == level && strings.HasPrefix(pairs(&entry), keys) {
			return true
		}
	}
	return false
}

func pairs(entry *ktesting.LogEntry) string {
	var b strings.Builder
	for i := 0; i+1 < len(entry.ParameterKVList); i += 2 {
		key, _ := entry.ParameterKVList[i].(string)
		b.WriteString(key + "=" + value(entry, key) + " ")
	}
	return b.String()
}
