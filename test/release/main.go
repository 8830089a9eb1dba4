// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command release copies each self-contained example of a module into a separate program, as a user would do.
// The release script is in the same folder.
//
//	go run . <folder of the module> <folder of the programs>
package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/doc"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(module, to string) error {
	return filepath.WalkDir(module, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && file != module && !isFolderOf(file) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		name, err := filepath.Rel(module, strings.TrimSuffix(file, "_test.go"))
		return errors.Join(err, copyOut(file, filepath.Join(to, name)))
	})
}

// isFolderOf reports whether the folder belongs to the module and contains packages that other modules can
// import.
func isFolderOf(folder string) bool {
	_, err := os.Stat(filepath.Join(folder, "go.mod"))
	name := filepath.Base(folder)
	return err != nil && name != "internal" && name != "testdata" && name[0] != '.'
}

// copyOut writes each example of a test file as a program. It skips examples that need code from other files.
func copyOut(file, to string) error {
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, file, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	for _, e := range doc.Examples(parsed) {
		if e.Play == nil {
			continue
		}
		var source bytes.Buffer
		folder := filepath.Join(to, "Example"+e.Name)
		if err := errors.Join(format.Node(&source, fset, e.Play), os.MkdirAll(folder, 0o755)); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, "main.go"), source.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
