// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	v1 "github.com/replicakit/replicakit/examples/workerpool/api/v1"
	"github.com/replicakit/replicakit/replicas/faults"
)

// Ten bad minutes on a real API server. docs/testing.md tells readers to copy this test, so it uses little of the harness:
// w.create, w.scale and w.manager stand for the reader's own code, and so does newWorld, which makes a namespace.
func TestInBadMinutes(t *testing.T) {
	t.Parallel()
	config := server(t)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	for seed := range uint64(10) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, config)
			f := &faults.Faults{Seed: seed, Rules: faults.Minute(seed, "workerpools", "workers")}
			judge := &faults.Judge{
				Client: client, Server: config.Host, Faults: f, Namespace: w.namespace,
				Owner: v1.GroupVersion.WithResource("workerpools"),
				Child: v1.GroupVersion.WithResource("workers"),
			}
			require.NoError(t, judge.Begin(t.Context()))
			spoiled, ended := rest.CopyConfig(config), make(chan error, 1)
			spoiled.Wrap(f.Wrap)
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				ended <- f.Run(ctx, func(ctx context.Context) error {
					mgr, err := w.manager(0, spoiled)
					if err != nil {
						return err
					}
					return mgr.Start(ctx)
				})
			}()
			w.create(w.pool(3))
			require.NoError(t, judge.Settled(t.Context()))
			for _, replicas := range []int{5, 1, 4} {
				w.scale(replicas)
				require.NoError(t, judge.Settled(t.Context()))
			}
			report, err := judge.End(t.Context())
			require.NoError(t, err)
			t.Log(report)
			stop()
			assert.NoError(t, <-ended)
		})
	}
}
