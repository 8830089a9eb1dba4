// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/handlers"
)

// The Controller has created or deleted a pod, and waits for the events of this pod. The events may arrive before,
// during or after the read of the cache. In each case, the pod counts once.
func TestEventsWhileTheCacheIsRead(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the pass", "before the cache is read", "after the cache was read", "around it", "after the pass"} {
		for _, versions := range [][]string{{"", "", ""}, {"10", "20", "30"}} {
			for _, row := range []struct {
				name            string
				cached          int                                                                  // how many pods exist before the first pass, while the owner wants 3
				created, gone   int                                                                  // how many pods the first pass creates and deletes
				comes, goes     func(c *controller.Controller, pod any, q ...handlers.Enqueue) error // the handlers of the pod's creation and deletion; the first handler is nil if the cache already has the pod
				shows           int                                                                  // how many other pods the cache has
				replaced, fewer int                                                                  // how many pods the later passes create (replaced) and delete (fewer), in total
			}{
				{"created, and deleted by others", 2, 1, 0, (*controller.Controller).ChildAdded, (*controller.Controller).ChildDeleted, 2, 1, 0},
				{"deleted", 4, 0, 1, nil, (*controller.Controller).ChildDeleted, 3, 0, 0},
			} {
				t.Run(row.name+", events "+when+", version "+versions[0], func(t *testing.T) {
					t.Parallel()
					r := newRig(3)
					r.version, r.childrenVersion = "15", versions[0]
					pods := podsOf(r.owner, row.cached)
					p, err := r.pass(t, 0, pods...)
					require.NoError(t, err)
					require.Len(t, p.Created, row.created)
					require.Len(t, p.Deleted, row.gone)
					pod := append(p.Created, p.Deleted...)[0]
					rest := slices.DeleteFunc(slices.Clone(pods), func(c *corev1.Pod) bool { return c.UID == pod.UID })
					require.Len(t, rest, row.shows)
					tell := func(now string) {
						if now == when && row.comes != nil {
							require.NoError(t, row.comes(r.start(), pod))
						}
						if now == when {
							require.NoError(t, row.goes(r.start(), pod))
						}
					}

					tell("before the pass")
					r.now, r.childrenVersion = r.now.Add(time.Second), versions[1]
					r.children = func() ([]*corev1.Pod, error) {
						if when == "around it" {
							if row.comes != nil {
								require.NoError(t, row.comes(r.start(), pod))
							}
							defer func() { require.NoError(t, row.goes(r.start(), pod)) }()
							return append(slices.Clone(rest), pod), nil
						}
						tell("before the cache is read")
						defer tell("after the cache was read")
						if when == "after the cache was read" || when == "after the pass" {
							return pods, nil // the cache as it was before the events
						}
						return rest, nil
					}
					p, err = r.sync(t, t.Context())
					require.NoError(t, err)
					created, deleted := len(p.Created), len(p.Deleted)
					tell("after the pass")
					r.childrenVersion = versions[2]
					p, err = r.pass(t, 2, append(rest, p.Created...)...)
					require.NoError(t, err)
					assert.Equal(t, row.replaced, created+len(p.Created))
					assert.Equal(t, row.fewer, deleted+len(p.Deleted))
				})
			}
		}
	}
}
