// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// margin is how long before the timeout of a test binary everything is stopped. For short timeouts,
// margin is half the timeout instead.
const margin = 30 * time.Second

var processBegan = time.Now()

// BeforeTimeout calls stop shortly before the timeout of go test ends the process. At the timeout,
// deferred calls do not run, so programs that the tests have started would run forever. After stop
// was called, tests that need the stopped programs fail. If tests still run at the timeout, the
// timeout ends the process with the stacks of all goroutines.
//
// In a TestMain, call flag.Parse before BeforeTimeout. Call off when nothing is left to stop. If
// the program is not a test, or there is no timeout, stop is never called.
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
