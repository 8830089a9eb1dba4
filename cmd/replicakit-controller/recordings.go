// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/lru"

	kinds "github.com/replicakit/replicakit/replicas/controller"
)

// recordedOwners is of how many owners passes are kept: those with the latest ones.
const recordedOwners = 1000

// recordings keeps the last passes of each owner that changed something, so that it can be
// told later why they did.
type recordings struct {
	each int // how many of an owner

	mu     sync.Mutex
	owners *lru.Cache // of []kinds.Recording, the latest first, by path
}

func newRecordings(each int) *recordings {
	return &recordings{each: each, owners: lru.New(recordedOwners)}
}

// record returns what takes passes, nil if none are kept.
func (r *recordings) record() func(kinds.Recording) {
	if r == nil || r.each == 0 {
		return nil
	}
	return r.add
}

func (r *recordings) add(is kinds.Recording) {
	if !is.Changes() {
		return
	}
	path := strings.ToLower(is.Kind.Kind) + "/" + is.Owner.String()
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.of(path)
	r.owners.Add(path, append([]kinds.Recording{is}, before[:min(len(before), r.each-1)]...))
}

func (r *recordings) of(path string) []kinds.Recording {
	kept, _ := r.owners.Get(path)
	all, _ := kept.([]kinds.Recording)
	return all
}

// get returns what is kept of an owner, the latest first.
func (r *recordings) get(path string) []kinds.Recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of(path)
}

const recordingsPath = "/debug/recordings/"

// ServeHTTP tells the passes of an owner as text, or as JSON, which Replay reads, if the
// query asks for format=json.
func (r *recordings) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, recordingsPath)
	all := r.get(path)
	switch {
	case len(strings.Split(path, "/")) != 3:
		http.Error(w, "ask for "+recordingsPath+"replicaset/NAMESPACE/NAME", http.StatusNotFound)
	case len(all) == 0:
		http.Error(w, fmt.Sprintf("no pass is kept of %s: none changed something since this process began, or %d other owners had one since", path, recordedOwners), http.StatusNotFound)
	case req.URL.Query().Get("format") == "json":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(all) // the client may have gone
	default:
		for _, is := range slices.Backward(all) {
			_, _ = fmt.Fprintln(w, is)
		}
	}
}
