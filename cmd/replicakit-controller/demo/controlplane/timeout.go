// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// margin is how long before the end of a test binary everything is stopped.
const margin = 30 * time.Second

var processBegan = time.Now()

// BeforeTimeout has stop called shortly before go test -timeout ends the process,
// which runs nothing that is deferred: what tests have started would go on for
// ever. Tests that still run then fail, and the process ends with the stacks of
// all goroutines. A TestMain calls flag.Parse before. Call off when there is nothing left to stop. In a program that
// is no test, and without a timeout, nothing is ever called.
//
// Start and StartProgram see to it themselves.
func BeforeTimeout(stop func()) (off func()) {
	timeout := testTimeout()
	if timeout <= 0 {
		return func() {}
	}
	left := timeout - min(margin, timeout/2) - time.Since(processBegan)
	timer := time.AfterFunc(left, func() {
		fmt.Fprintf(os.Stderr, "controlplane: -timeout=%v is near: stopping what the tests started\n", timeout)
		stop()
	})
	return func() { timer.Stop() }
}

// testTimeout is that of go test; 0 if there is none.
func testTimeout() time.Duration {
	f := flag.Lookup("test.timeout")
	if f == nil {
		return 0
	}
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return 0
	}
	timeout, _ := getter.Get().(time.Duration)
	return timeout
}
