// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// A stranger has a proxy with the staged modules, an empty module cache and
// nothing else of the repository.
type stranger struct {
	dir     string
	env     []string
	version string
	log     io.Writer
}

// take does what strangers do with a release: they get each library into an
// empty module and build its examples, and install the programs.
func (r request) take(ctx context.Context, s *stage) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	who, err := r.stranger(ctx, s)
	if err != nil {
		return err
	}
	for _, m := range s.released {
		if err := who.checkOut(ctx, m); err != nil {
			return err
		}
		if !m.isLibrary() {
			continue
		}
		if err := who.get(ctx, m); err != nil {
			return err
		}
	}
	for _, program := range r.programs {
		if err := who.install(ctx, path.Join(s.root.path(), program)); err != nil {
			return err
		}
	}
	return nil
}

func (r request) stranger(ctx context.Context, s *stage) (*stranger, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE", "GOCACHE").Output()
	if err != nil {
		return nil, err
	}
	modcache, buildcache, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	web := server{
		staged: s.proxy,
		cached: filepath.Join(modcache, "cache", "download"),
		root:   s.root.path(),
	}
	url, err := web.serve(ctx)
	if err != nil {
		return nil, err
	}
	return &stranger{
		dir:     s.dir,
		version: r.version,
		log:     r.log,
		env: append(os.Environ(),
			"GOENV=off", "GOWORK=off", "GOPROXY="+url, "GOPRIVATE=", "GONOPROXY=", "GOSUMDB=off",
			"GOCACHE="+buildcache,
			"GOMODCACHE="+filepath.Join(s.dir, "modcache"),
			"GOBIN="+filepath.Join(s.dir, "bin"),
			// With trimmed paths the build cache knows the packages again next time.
			"GOFLAGS=-modcacherw -trimpath"),
	}, nil
}

// get gets the module into an empty one and builds its examples there.
func (who *stranger) get(ctx context.Context, m *goModule) error {
	examples, err := findExamples(m)
	if err != nil {
		return err
	}
	if len(examples) == 0 {
		return fmt.Errorf("%s: no example that can be copied out of it", m.dir)
	}
	dir := filepath.Join(who.dir, "empty", m.dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, e := range examples {
		if err := e.write(dir); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"mod", "init", "example.com/empty"},
		{"get", m.path() + "@" + who.version},
		{"mod", "tidy"},
		{"list", "-export", "-f", "{{.ImportPath}}", "./..."}, // compiles them, and links none
		{"build", "-o", os.DevNull, "./" + examples[0].dir},
	} {
		if err := who.run(ctx, dir, args...); err != nil {
			return err
		}
	}
	return nil
}

// checkOut looks at the module as whoever checks out the tag: it needs nothing
// beside it, and go.mod and go.sum are as go wants them.
func (who *stranger) checkOut(ctx context.Context, m *goModule) error {
	return who.run(ctx, filepath.Join(m.tree, m.dir), "mod", "tidy", "-diff")
}

// install installs a program, which must then be there by its own name.
func (who *stranger) install(ctx context.Context, program string) error {
	if err := who.run(ctx, who.dir, "install", program+"@latest"); err != nil {
		return err
	}
	_, err := os.Stat(filepath.Join(who.dir, "bin", path.Base(program)))
	return err
}

func (who *stranger) run(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, who.env, &out, &out
	start := time.Now()
	err := cmd.Run()
	command := "go " + strings.Join(args, " ")
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", command, err, out.Bytes())
	}
	_, err = fmt.Fprintf(who.log, "%5.1fs %s\n", time.Since(start).Seconds(), command)
	return err
}
