// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package slowstart_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/replicakit/replicakit/slowstart"
)

var errQuota = errors.New("exceeded quota: pods=5")

// A quota of five pods stops the run in its third batch.
func ExampleBatch() {
	created, err := slowstart.Batch(context.Background(), 500, slowstart.DefaultInitialBatchSize,
		func(_ context.Context, i int) error {
			if i >= 5 {
				return fmt.Errorf("pod %d: %w", i, errQuota)
			}
			return nil
		})
	fmt.Println(created, "created")
	fmt.Println(err)
	// Output:
	// 5 created
	// pod 5: exceeded quota: pods=5
	// pod 6: exceeded quota: pods=5
}

func ExampleRun() {
	opts := slowstart.Options{MaxParallel: 128}
	result := slowstart.Run(context.Background(), 500, opts, func(_ context.Context, i int) error {
		if i == 4 {
			return errQuota
		}
		return nil
	})
	fmt.Println("succeeded:", result.Succeeded)
	fmt.Println("failed:   ", result.Failed)
	fmt.Println("skipped:  ", result.Skipped)
	fmt.Println("quota hit:", errors.Is(result.Err, errQuota))
	// Output:
	// succeeded: [0 1 2 3 5 6]
	// failed:    [{4 exceeded quota: pods=5}]
	// skipped:   493
	// quota hit: true
}

// If a call panics, Run panics with a *Panic. A deferred clean-up function can recover the *Panic, and read in the
// field Result which calls have succeeded.
func ExamplePanic() {
	defer func() {
		if p, ok := recover().(*slowstart.Panic); ok {
			fmt.Println("panic:", p.Value)
			fmt.Println("not created:", 10-len(p.Result.Succeeded))
		}
	}()
	slowstart.Run(context.Background(), 10, slowstart.Options{}, func(_ context.Context, i int) error {
		if i == 2 {
			panic("index out of range")
		}
		return nil
	})
	// Output:
	// panic: index out of range
	// not created: 8
}

// The calls of a Run can have different tasks, and each call has its own error. With RecoverPanics, a panic in a
// call does not end the process.
func ExampleOptions() {
	tasks := []string{"service", "pod-0", "pod-1", "pod-2"}
	opts := slowstart.Options{MaxParallel: 5, RecoverPanics: true}
	result := slowstart.Run(context.Background(), len(tasks), opts, func(_ context.Context, i int) error {
		switch tasks[i] {
		case "pod-0":
			panic("nil map")
		case "pod-1":
			return errQuota
		}
		return nil
	})
	for _, f := range result.Failed {
		fmt.Printf("%s: %v\n", tasks[f.Index], f.Err)
	}
	fmt.Println("not tried:", tasks[len(tasks)-result.Skipped:])
	// Output:
	// pod-0: slowstart: panic in call: nil map
	// pod-1: exceeded quota: pods=5
	// not tried: [pod-2]
}
