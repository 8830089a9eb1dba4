// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// margin is the time between the call to stop and the timeout of a test binary. If margin is longer
// than half the timeout, stop is called after half the timeout.
const margin = 30 * time.Second

var processBegan = time.Now()

// BeforeTimeout calls stop shortly before go test ends the process because of its timeout. Deferred
// calls do not run at the timeout, so programs that the tests have started would otherwise continue
// to run. After the call to stop, tests that need the stopped programs fail. If tests still run at
// the timeout, go test ends the process and prints the stacks of all goroutines.
//
// In a TestMain, call flag.Parse before BeforeTimeout. The function off cancels the call to stop.
// If the program is not a test, or there is no timeout, stop is never called.
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
