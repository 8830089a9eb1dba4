// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	modzip "golang.org/x/mod/zip"
)

// addToProxy adds what go would make of the module if the tree were tagged, and
// returns its lines of go.sum.
func addToProxy(proxy string, m *goModule, version, tree string) (sums []string, err error) {
	escaped, err := module.EscapePath(m.path())
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(proxy, escaped, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	mod, err := os.ReadFile(m.at("go.mod"))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, version)
	err = errors.Join(
		os.WriteFile(filepath.Join(dir, "list"), []byte(version+"\n"), 0o644),
		os.WriteFile(file+".info", fmt.Appendf(nil, `{"Version":%q}`, version), 0o644),
		os.WriteFile(file+".mod", mod, 0o644),
		writeZip(file+".zip", m, version, tree))
	if err != nil {
		return nil, err
	}
	return sumLines(m.path(), version, file)
}

func writeZip(file string, m *goModule, version, tree string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	subdir := strings.TrimPrefix(filepath.ToSlash(m.dir), ".")
	err = modzip.CreateFromVCS(f, module.Version{Path: m.path(), Version: version}, m.tree, tree, subdir)
	return errors.Join(err, f.Close())
}

// sumLines returns the lines of go.sum for a module in the proxy.
func sumLines(path, version, file string) ([]string, error) {
	zipped, err := dirhash.HashZip(file+".zip", dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	mod, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return os.Open(file + ".mod") })
	return []string{
		fmt.Sprintf("%s %s %s\n", path, version, zipped),
		fmt.Sprintf("%s %s/go.mod %s\n", path, version, mod),
	}, err
}
