// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"flag"
	"fmt"
	"os"
	"time"
)

// margin is the time between the call to stop and the timeout of go test; see BeforeTimeout. If half
// of the timeout is shorter than margin, BeforeTimeout uses that half instead.
const margin = 30 * time.Second

var processBegan = time.Now()

// BeforeTimeout calls the function stop shortly before the timeout of go test. At the timeout,
// deferred calls do not run, so programs that the tests have started would continue to run. If
// tests still need the stopped programs, these tests fail. If tests still run at the timeout, go
// test ends the process and prints the stacks of all goroutines.
//
// In a TestMain, call flag.Parse before BeforeTimeout. To cancel the call to stop, call the returned
// function off. If the program is not a test, or has no timeout, BeforeTimeout does nothing.
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
