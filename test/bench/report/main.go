// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command report writes docs/benchmarks.md from the output of benchstat:
//
//	benchstat -col /side -format csv bench.txt | report ../..
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("usage: report DIRECTORY <BENCHSTAT.csv")
	}
	results, err := read(os.Stdin)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(args[0], "docs", "benchmarks.md"), results.markdown(), 0o644)
}
