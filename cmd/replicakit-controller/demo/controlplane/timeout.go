// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// margin is how long before the timeout of a test binary everything is stopped, at most.
const margin = 30 * time.Second

var processBegan = time.Now()

// BeforeTimeout calls stop shortly before go test -timeout ends the process. The timeout
// runs no deferred calls, so programs that tests have started would run forever. Tests
// that still run then fail, and the process ends with the stacks of all goroutines. A
// TestMain calls flag.Parse before. Call off when there is nothing left to stop. In a
// program that is no test, or without a timeout, stop is never called.
//
// Start and StartProgram call BeforeTimeout themselves.
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

// testTimeout returns the timeout of go test, or 0 if there is none.
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
