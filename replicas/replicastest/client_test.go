// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/selector"
)

func TestClientCalls(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	rs := createReplicaSet(t, c, 1)
	client := c.NewClient()
	var calls []string
	client.Done = func(call replicastest.Call, err error) {
		require.NoError(t, err)
		calls = append(calls, call.String())
	}

	p, err := client.Create(t.Context(), named("a"))
	require.NoError(t, err)
	patch, err := selector.Claimer[*corev1.Pod]{Owner: rs}.ReleasePatch(p)
	require.NoError(t, err)
	_, err = client.Patch(t.Context(), p, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = client.Get(t.Context(), namespace, "a")
	require.NoError(t, err)
	err = client.Delete(t.Context(), p, metav1.DeleteOptions{})
	require.NoError(t, err)
	owner, err := client.GetOwner(t.Context(), namespace, "web")
	require.NoError(t, err)
	assert.Equal(t, rs.UID, owner.GetUID())
	_, err = client.PatchStatus(t.Context(), rs, statusPatch(`"replicas":3`))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"create Pod default/a", "patch Pod default/a", "get Pod default/a", "delete Pod default/a",
		"get ReplicaSet default/web", "status ReplicaSet default/web",
	}, calls)

	client.Done = nil
	owner, err = client.GetOwner(t.Context(), namespace, "none")
	assert.True(t, apierrors.IsNotFound(err), err)
	assert.Nil(t, owner)
}

// statusPatch returns a patch that sets the given fields of a status.
func statusPatch(fields string) selector.Patch {
	return selector.Patch{Type: types.MergePatchType, Data: []byte(`{"status":{` + fields + `}}`)}
}

// named returns a pod with a name and a namespace. The calls of a Client need a pod with a namespace.
func named(name string) *corev1.Pod {
	p := pod(name)
	p.Namespace = namespace
	return p
}

func TestClientEvent(t *testing.T) {
	t.Parallel()
	c := newCluster(0)
	c.NewClient().Event(replicaSet("web", 1), corev1.EventTypeNormal, "Reason", "message")
	assert.Equal(t, []replicastest.Event{{
		At: c.Clock.Now(), About: key("web"), Type: corev1.EventTypeNormal, Reason: "Reason", Message: "message",
	}}, c.Events)
}

func TestFault(t *testing.T) {
	t.Parallel()
	timeout := apierrors.NewTimeoutError("too slow", 1)
	for name, tc := range map[string]struct {
		fault replicastest.Fault
		pods  int
		err   error
	}{
		"none":                                  {replicastest.Fault{}, 1, nil},
		"a call that is not made":               {replicastest.Fault{Before: timeout}, 0, timeout},
		"an answer that is lost":                {replicastest.Fault{After: timeout}, 1, timeout},
		"not made is not lost into the bargain": {replicastest.Fault{Before: timeout, After: assert.AnError}, 0, timeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(0)
			client := c.NewClient()
			client.Fault = func(replicastest.Call) replicastest.Fault { return tc.fault }
			var told error
			client.Done = func(_ replicastest.Call, err error) { told = err }
			p, err := client.Create(t.Context(), named("a"))
			assert.Equal(t, tc.err, err)
			assert.Equal(t, tc.err, told)
			assert.Equal(t, tc.err == nil, p != nil)
			assert.Len(t, c.Children(namespace), tc.pods)
		})
	}
	t.Run("the server's own error comes first", func(t *testing.T) {
		t.Parallel()
		client := newCluster(0).NewClient()
		client.Fault = func(replicastest.Call) replicastest.Fault { return replicastest.Fault{After: timeout} }
		_, err := client.Get(t.Context(), namespace, "none")
		assert.True(t, apierrors.IsNotFound(err), err)
	})
	t.Run("other parts may act while a call is made", func(t *testing.T) {
		t.Parallel()
		c := newCluster(1)
		client := c.NewClient()
		createPod(t, c, pod("a"))
		client.Fault = func(replicastest.Call) replicastest.Fault {
			run(c, 10*time.Second)
			return replicastest.Fault{}
		}
		p, err := client.Get(t.Context(), namespace, "a")
		require.NoError(t, err)
		assert.Equal(t, corev1.PodRunning, p.Status.Phase)
	})
}
