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

// For keptOwners owners, those with the latest passes, the last keptPasses passes are kept.
const keptOwners, keptPasses = 1000, 5

// passes keeps the last passes of each owner that changed something or were held back, to explain
// later why.
type passes struct {
	mu     sync.Mutex
	owners *lru.Cache // of []string, the latest last, by namespace and name
}

func newPasses() *passes { return &passes{owners: lru.New(keptOwners)} }

// keep keeps a pass that changed something or was held back.
func keep[O, C kinds.Object](p *passes, kind string, pass kinds.Pass[O, C]) {
	if len(pass.Created)+len(pass.Deleted)+len(pass.Adopted)+len(pass.Released)+len(pass.Gates) == 0 && pass.Err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	path := pass.Name.String()
	kept := append(slices.Clone(p.of(path)), kind+" "+pass.String())
	p.owners.Add(path, kept[max(len(kept)-keptPasses, 0):])
}

func (p *passes) of(path string) []string {
	kept, _ := p.owners.Get(path)
	all, _ := kept.([]string)
	return all
}

const passesPath = "/debug/passes/"

// ServeHTTP writes the passes of an owner as text.
func (p *passes) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := strings.TrimPrefix(req.URL.Path, passesPath)
	if len(strings.Split(path, "/")) != 2 {
		http.Error(w, "ask for "+passesPath+"NAMESPACE/NAME", http.StatusNotFound)
		return
	}
	p.mu.Lock()
	all := p.of(path)
	p.mu.Unlock()
	if len(all) == 0 {
		http.Error(w, fmt.Sprintf("no pass is kept of %s: none changed something or was held back since this process began, or %d other owners had one since", path, keptOwners), http.StatusNotFound)
		return
	}
	for _, pass := range all {
		_, _ = fmt.Fprintln(w, pass)
	}
}
