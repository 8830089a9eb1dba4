// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/utils/lru"

	kinds "github.com/replicakit/replicakit/replicas/controller"
)

// keptPasses is the maximum number of passes that are kept for one owner. keptOwners is the maximum
// number of owners with kept passes. The least recently used owners are dropped first.
const keptOwners, keptPasses = 1000, 5

// passes keeps the last passes of each owner, so that a user can find out why an owner's pods were
// not created or deleted. A pass is kept only if it changed something, failed, or was held back by
// more than a short wait for the cache.
type passes struct {
	mu     sync.Mutex
	owners *lru.Cache // from the namespace and name of an owner to its passes, a []string with the oldest first
}

func newPasses() *passes { return &passes{owners: lru.New(keptOwners)} }

// keep stores a pass if the pass changed something, failed, or has a gate that is not a short wait.
func keep[O, C kinds.Object](p *passes, kind string, pass kinds.Pass[O, C]) {
	if len(pass.Created)+len(pass.Deleted)+len(pass.Adopted)+len(pass.Released) == 0 && pass.Err == nil && !slices.ContainsFunc(pass.Gates, isNoShortWait) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	path := pass.Name.String()
	kept := append(slices.Clone(p.passesAt(path)), kind+" "+pass.String())
	p.owners.Add(path, kept[max(len(kept)-keptPasses, 0):])
}

// isNoShortWait reports whether a gate tells more than that the cache does not show a write yet. After
// each write, such a wait usually ends within 50 ms, and would replace a pass that tells more.
func isNoShortWait(g kinds.Gate) bool {
	switch g.Reason {
	case kinds.OwnWriteNotSeen, kinds.OwnerStale, kinds.CallsNotSeen, kinds.CacheBehind:
		return g.Lasting
	}
	return true
}

func (p *passes) passesAt(path string) []string {
	kept, _ := p.owners.Get(path)
	all, _ := kept.([]string)
	return all
}

const passesPath = "/debug/passes/"

// ServeHTTP writes the kept passes of an owner as text, oldest first.
func (p *passes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, passesPath)
	if len(strings.Split(path, "/")) != 2 {
		http.Error(w, "ask for "+passesPath+"NAMESPACE/NAME", http.StatusNotFound)
		return
	}
	p.mu.Lock()
	all := p.passesAt(path)
	p.mu.Unlock()
	if len(all) == 0 {
		http.Error(w, fmt.Sprintf("no pass of %s is kept. A pass is kept if it changed something, failed, or was held back for a second or by something else than a late cache. It is dropped when this process ends, or when %d other owners have had later passes", path, keptOwners), http.StatusNotFound)
		return
	}
	for _, pass := range all {
		_, _ = fmt.Fprintln(w, pass)
	}
}
