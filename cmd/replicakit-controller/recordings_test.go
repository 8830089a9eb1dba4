// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kinds "github.com/replicakit/replicakit/replicas/controller"
)

func TestRecordings(t *testing.T) {
	t.Parallel()
	pass := func(owner, verb, pod string) kinds.Recording {
		return kinds.Recording{
			Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, Owner: types.NamespacedName{Namespace: "shop", Name: owner},
			Calls: []kinds.Call{{Verb: verb, Namespace: "shop", Name: pod}},
		}
	}
	ask := func(r *recordings, path string) (int, string) {
		answer := httptest.NewRecorder()
		r.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return answer.Code, answer.Body.String()
	}
	r := newRecordings(2)
	for i := range 3 {
		r.add(pass("web", "Delete", fmt.Sprint("web-", i)))
		r.add(pass("web", "UpdateStatus", "web"))
	}
	r.add(pass("db", "Create", "db-1"))

	code, text := ask(r, "/debug/recordings/replicaset/shop/web")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, `0001-01-01T00:00:00Z ReplicaSet shop/web: 0 wanted, 0 believed
  Delete shop/web-1 null
0001-01-01T00:00:00Z ReplicaSet shop/web: 0 wanted, 0 believed
  Delete shop/web-2 null
`, text, "the last two that changed something")
	code, text = ask(r, "/debug/recordings/replicaset/shop/web?format=json")
	assert.Equal(t, http.StatusOK, code)
	var all []kinds.Recording
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	require.Len(t, all, 2)
	assert.Equal(t, "web-2", all[0].Calls[0].Name)

	code, text = ask(r, "/debug/recordings/")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Equal(t, "ask for /debug/recordings/replicaset/NAMESPACE/NAME\n", text)
	code, text = ask(r, "/debug/recordings/replicaset/shop/other")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, text, "no pass is kept of replicaset/shop/other")

	for i := range recordedOwners {
		r.add(pass(fmt.Sprint("another-", i), "Create", "pod"))
	}
	code, _ = ask(r, "/debug/recordings/replicaset/shop/web")
	assert.Equal(t, http.StatusNotFound, code, "too many others had passes since")
	assert.Nil(t, newRecordings(0).record(), "then nothing is recorded")
}
