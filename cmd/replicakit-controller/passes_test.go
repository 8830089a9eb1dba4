// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kinds "github.com/replicakit/replicakit/replicas/controller"
)

func TestPassesOfAnOwner(t *testing.T) {
	t.Parallel()
	p := newPasses()
	pass := kinds.Pass[*appsv1.ReplicaSet, *corev1.Pod]{Name: types.NamespacedName{Namespace: "shop", Name: "web"}, Observed: true}
	get := func(path string) (int, string) {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, passesPath+path, nil))
		return w.Code, w.Body.String()
	}
	keep(p, "ReplicaSet", pass)
	code, text := get("shop/web")
	assert.Equal(t, http.StatusNotFound, code, "nothing was done and nothing was held back")
	assert.Contains(t, text, "no pass of shop/web is kept")
	code, text = get("web")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Contains(t, text, "NAMESPACE/NAME")

	for _, wait := range []kinds.GateReason{kinds.OwnWriteNotSeen, kinds.OwnerStale, kinds.CallsNotSeen, kinds.CacheBehind} {
		short := pass
		short.Gates = []kinds.Gate{{Reason: wait}}
		keep(p, "ReplicaSet", short)
	}
	code, _ = get("shop/web")
	assert.Equal(t, http.StatusNotFound, code, "a short wait for the cache tells nothing")
	late := pass
	late.Gates = []kinds.Gate{{Reason: kinds.CallsNotSeen, Lasting: true}}
	keep(p, "ReplicaSet", late)
	_, text = get("shop/web")
	assert.Contains(t, text, "CallsNotSeen")

	pass.Desired = 1
	pass.Gates = []kinds.Gate{{Reason: kinds.QuotaFull, Stops: kinds.StopsCreations, Object: "shop", Err: errors.New("exceeded quota")}}
	keep(p, "ReplicaSet", pass)
	_, text = get("shop/web")
	for _, said := range []string{"ReplicaSet ", "shop/web: 1 wanted, 0 active", "QuotaFull of shop stops creations", "a quota is full (exceeded quota)"} {
		assert.Contains(t, text, said)
	}

	pass.Gates = nil
	for i := range keptPasses + 1 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i)}}
		pass.Created, pass.Calls = []*corev1.Pod{pod}, []kinds.Call{{Verb: "Create", Name: pod.Name}}
		keep(p, "ReplicaSet", pass)
	}
	_, text = get("shop/web")
	assert.Equal(t, keptPasses, strings.Count(text, "Create web-"))
	assert.NotContains(t, text, "Create web-0\n", "the latest are kept")
}
