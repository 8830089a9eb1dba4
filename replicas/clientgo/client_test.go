// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package clientgo_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/selector"
)

// newClient returns a client of a server. To answer a request, the server calls the given function with the query
// of the request.
func newClient(t *testing.T, answer func(url.Values) (code int, body string)) controller.Client[*appsv1.ReplicaSet, *corev1.Pod] {
	t.Helper()
	return clientTo(t, func(asked *url.URL) (int, string) { return answer(asked.Query()) })
}

// clientTo returns a client of a server. To answer a request, the server calls the given function with the URL of
// the request.
func clientTo(t *testing.T, answer func(*url.URL) (code int, body string)) controller.Client[*appsv1.ReplicaSet, *corev1.Pod] {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, body := answer(r.URL)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	require.NoError(t, err)
	return typed.NewClient(client.AppsV1().ReplicaSets, client.CoreV1().Pods)
}

// The client sends the options of a patch to the server. If the client dropped DryRun, a dry run of an adoption
// would adopt the pod.
func TestPatchOptionsReachTheServer(t *testing.T) {
	t.Parallel()
	var asked url.Values
	pods := newClient(t, func(query url.Values) (int, string) {
		asked = query
		return http.StatusOK, `{"apiVersion":"v1","kind":"Pod"}`
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-a"}}
	patch := selector.Patch{Type: types.StrategicMergePatchType, Data: []byte("{}")}
	_, err := pods.Patch(t.Context(), pod, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(t, err)
	assert.Equal(t, url.Values{"dryRun": {"All"}}, asked)
	_, err = pods.Patch(t.Context(), pod, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	assert.Empty(t, asked)
}

// A patch of a subresource goes to the subresource, so the server refuses what a change of the pod itself may not do.
func TestAPatchGoesToItsSubresource(t *testing.T) {
	t.Parallel()
	var asked []string
	pods := clientTo(t, func(asking *url.URL) (int, string) {
		asked = append(asked, asking.Path)
		return http.StatusOK, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-a","generation":2}}`
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-a"}}
	for _, subresource := range []string{"", "resize", "status"} {
		patched, err := pods.Patch(t.Context(), pod, selector.Patch{Type: types.MergePatchType, Data: []byte("{}"), Subresource: subresource}, metav1.PatchOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 2, patched.Generation)
	}
	const path = "/api/v1/namespaces/default/pods/web-a"
	assert.Equal(t, []string{path, path + "/resize", path + "/status"}, asked)
}

func TestList(t *testing.T) {
	t.Parallel()
	page := func(version, next string, names ...string) string {
		items := ""
		for i, name := range names {
			if i > 0 {
				items += ","
			}
			items += fmt.Sprintf(`{"metadata":{"name":%q}}`, name)
		}
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"PodList","metadata":{"resourceVersion":%q,"continue":%q},"items":[%s]}`, version, next, items)
	}
	list := func(t *testing.T, answer func(url.Values) (int, string)) ([]string, error) {
		t.Helper()
		selector, err := labels.Parse("app=web,tier in (a,b)")
		require.NoError(t, err)
		list, err := newClient(t, answer).List(t.Context(), "default", selector)
		var names []string
		for _, pod := range list.Items {
			names = append(names, pod.Name)
		}
		return names, err
	}

	t.Run("it asks for the newest, by selector and in pages, and puts the pages together", func(t *testing.T) {
		t.Parallel()
		var asked []url.Values
		names, err := list(t, func(query url.Values) (int, string) {
			asked = append(asked, query)
			if query.Get("continue") == "" {
				return http.StatusOK, page("7", "more", "a", "b")
			}
			return http.StatusOK, page("7", "", "c")
		})
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b", "c"}, names)
		require.Len(t, asked, 2)
		assert.Equal(t, url.Values{"labelSelector": {"app=web,tier in (a,b)"}, "limit": {"500"}}, asked[0], "no resourceVersion")
		assert.Equal(t, "more", asked[1].Get("continue"))
	})
	t.Run("pages of two versions prove nothing", func(t *testing.T) {
		t.Parallel()
		_, err := list(t, func(query url.Values) (int, string) {
			if query.Get("continue") == "" {
				return http.StatusOK, page("7", "more", "a")
			}
			return http.StatusOK, page("8", "", "b")
		})
		require.EqualError(t, err, `typed: listing children: a page of version "8" follows a page of version "7"`)
	})
	t.Run("nor does a list that grows too old on the way", func(t *testing.T) {
		t.Parallel()
		names, err := list(t, func(query url.Values) (int, string) {
			if query.Get("continue") == "" {
				return http.StatusOK, page("7", "more", "a")
			}
			return http.StatusGone, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"inconsistent"},"status":"Failure","reason":"Expired","code":410}`
		})
		assert.True(t, apierrors.IsResourceExpired(err), err)
		assert.Empty(t, names)
	})
}

// To read the server's current resourceVersion, the client lists at most one object. The request sets no
// resourceVersion, so the answer is not stale.
func TestServerVersions(t *testing.T) {
	t.Parallel()
	const refused = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
	for kind, ask := range map[string]func(controller.Versioner) func(context.Context, string) (string, error){
		"ReplicaSet": func(v controller.Versioner) func(context.Context, string) (string, error) {
			return v.ServerOwnersVersion
		},
		"Pod": func(v controller.Versioner) func(context.Context, string) (string, error) {
			return v.ServerChildrenVersion
		},
	} {
		t.Run("of a list of "+kind, func(t *testing.T) {
			t.Parallel()
			var asked *url.URL
			code, answer := http.StatusOK, `{"kind":"`+kind+`List","metadata":{"resourceVersion":"7","continue":"more"},"items":[{"metadata":{"name":"a"}}]}`
			client, ok := clientTo(t, func(url *url.URL) (int, string) {
				asked = url
				return code, answer
			}).(controller.Versioner)
			require.True(t, ok)
			version, err := ask(client)(t.Context(), "default")
			require.NoError(t, err)
			assert.Equal(t, "7", version)
			assert.True(t, strings.HasSuffix(asked.String(), "/namespaces/default/"+strings.ToLower(kind)+"s?limit=1"), asked)
			code, answer = http.StatusForbidden, refused
			_, err = ask(client)(t.Context(), "default")
			assert.True(t, apierrors.IsForbidden(err), err)
		})
	}
}
