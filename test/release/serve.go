// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
)

// A server is a module proxy of the staged modules and, for all others, of this
// machine's module cache. A file:// proxy would do, if go did not go on to the
// next one with each path that might be a module and is none: it must be told
// so by the only proxy it knows.
type server struct {
	staged string // a directory as GOPROXY=file:// reads it
	cached string // the same in the module cache
	root   string // the path of the repository's root module
}

// serve answers until ctx ends, at the address that it returns.
func (s server) serve(ctx context.Context) (url string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	web := &http.Server{Handler: s, BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	go func() { _ = web.Serve(listener) }()
	return "http://" + listener.Addr().String(), nil
}

func (s server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	escaped, file, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/@v/")
	path, err := module.UnescapePath(escaped)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	from := s.staged
	if !within(s.root, path) && !within(path, s.root) {
		from = s.cached
		if !exists(filepath.Join(from, escaped, "@v", file)) {
			download(r.Context(), path, file)
		}
	}
	http.ServeFile(w, r, filepath.Join(from, escaped, "@v", file))
}

// within reports whether the path is prefix, or beneath it.
func within(prefix, path string) bool {
	return path == prefix || strings.HasPrefix(path, prefix+"/")
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, os.ErrNotExist)
}

// download has go put a file into the module cache. If it cannot, there is no
// such file, and that is the answer.
func download(ctx context.Context, path, file string) {
	kind := filepath.Ext(file)
	version, err := module.UnescapeVersion(strings.TrimSuffix(file, kind))
	if err != nil {
		return
	}
	args := []string{"list", "-m"}
	if kind == ".zip" {
		args = []string{"mod", "download"}
	}
	cmd := exec.CommandContext(ctx, "go", append(args, path+"@"+version)...)
	cmd.Dir = os.TempDir()
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	_ = cmd.Run()
}
