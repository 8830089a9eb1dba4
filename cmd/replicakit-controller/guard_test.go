// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// reviews is an API server that answers TokenReviews and SubjectAccessReviews, and counts them.
type reviews struct {
	mu    sync.Mutex
	away  bool
	asked map[string]int // the number of requests, by resource
}

func (r *reviews) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resource := path.Base(req.URL.Path)
	r.asked[resource]++
	if r.away {
		http.Error(w, "away", http.StatusForbidden)
		return
	}
	var answer any
	if resource == "tokenreviews" {
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(req.Body).Decode(&review)
		review.Status.Authenticated = !strings.HasPrefix(review.Spec.Token, "wrong")
		review.Status.User.Username = review.Spec.Token
		if !review.Status.Authenticated {
			review.Status.Error = "invalid bearer token" // as a real API server does
		}
		answer = review
	} else {
		var review authorizationv1.SubjectAccessReview
		_ = json.NewDecoder(req.Body).Decode(&review)
		review.Status.Allowed = review.Spec.User == "scraper" && review.Spec.NonResourceAttributes.Path == "/metrics"
		answer = review
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, path, token string
		away              bool
		code              int
		asked             map[string]int
		lines             int // the number of lines in the log
	}{
		{"a client with the right passes", "/metrics", "scraper", false, http.StatusOK, map[string]int{"tokenreviews": 1, "subjectaccessreviews": 1}, 0},
		{"a client without it does not", "/metrics", "somebody", false, http.StatusForbidden, map[string]int{"tokenreviews": 1, "subjectaccessreviews": 1}, 0},
		{"a wrong token is asked about and told once", "/metrics", "wrong", false, http.StatusUnauthorized, map[string]int{"tokenreviews": 1}, 1},
		{"without a token nobody is asked", "/metrics", "", false, http.StatusUnauthorized, map[string]int{}, 0},
		{"a server that cannot be asked is asked again", "/metrics", "scraper", true, http.StatusInternalServerError, map[string]int{"tokenreviews": 2 * wrongTokens}, 2 * wrongTokens},
		{"an open path is for everybody", "/livez", "", true, http.StatusOK, map[string]int{}, 0},
		{"even with a wrong token", "/livez", "wrong", true, http.StatusOK, map[string]int{}, 0},
		{"what is below it is not", "/livez/etcd", "", false, http.StatusUnauthorized, map[string]int{}, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			reviews := &reviews{away: row.away, asked: map[string]int{}}
			server := httptest.NewServer(reviews)
			t.Cleanup(server.Close)
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
			require.NoError(t, err)
			var log bytes.Buffer
			logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(2)))
			guarded, err := newGuard(logger, client, []string{"/livez"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "inside") }))
			require.NoError(t, err)
			for range 2 * wrongTokens {
				request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, row.path, nil), httptest.NewRecorder()
				if row.token != "" {
					request.Header.Set("Authorization", "Bearer "+row.token)
				}
				guarded.ServeHTTP(answer, request)
				assert.Equal(t, row.code, answer.Code)
				assert.Equal(t, row.code == http.StatusOK, answer.Body.String() == "inside")
			}
			reviews.mu.Lock()
			defer reviews.mu.Unlock()
			assert.Equal(t, row.asked, reviews.asked)
			assert.Equal(t, row.lines, bytes.Count(log.Bytes(), []byte("\n")), log.String())
		})
	}
}

func TestTokensWithoutEnd(t *testing.T) {
	t.Parallel()
	reviews := &reviews{asked: map[string]int{}}
	server := httptest.NewServer(reviews)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	require.NoError(t, err)
	guarded, err := newGuard(klog.Background(), client, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, err)
	get := func(address, token string) int {
		request, answer := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil), httptest.NewRecorder()
		request.RemoteAddr = address
		request.Header.Set("Authorization", "Bearer "+token)
		guarded.ServeHTTP(answer, request)
		return answer.Code
	}
	require.Equal(t, http.StatusOK, get("10.0.0.1:1000", "scraper"))
	codes := map[int]int{}
	for i := range 60 {
		codes[get("10.0.0.1:"+strconv.Itoa(2000+i), "wrong-"+strconv.Itoa(i))]++
	}
	assert.Equal(t, map[int]int{http.StatusUnauthorized: wrongTokens, http.StatusTooManyRequests: 60 - wrongTokens}, codes)
	assert.Equal(t, 1+wrongTokens, reviews.asked["tokenreviews"])
	assert.Equal(t, http.StatusOK, get("10.0.0.1:3000", "scraper"), "a token that was right goes on")
	assert.Equal(t, http.StatusForbidden, get("10.0.0.2:1000", "somebody"), "another address does not wait")

	guard, _ := guarded.(*guard)
	for _, key := range guard.tokens.Keys() {
		kept, _ := guard.tokens.Get(key)
		kept.(*tokenAnswer).until = time.Now()
	}
	before := reviews.asked["tokenreviews"]
	assert.Equal(t, http.StatusOK, get("10.0.0.1:4000", "scraper"), "and is asked about again after a minute, whatever else that address shows")
	assert.Equal(t, before+1, reviews.asked["tokenreviews"])
}
