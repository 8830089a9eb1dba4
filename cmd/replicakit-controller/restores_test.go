// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	kinds "github.com/replicakit/replicakit/replicas/controller"
)

func TestARestoredServerIsNoticed(t *testing.T) {
	t.Parallel()
	const none = ""
	for name, story := range map[string]struct {
		answers []string // the answers of the server, one for each request
		told    []string
		last    int // the index of the answer that shows the last restore
	}{
		"a server that goes on":                        {answers: []string{"99", "99", "100", "250"}},
		"a server that was away, and goes on":          {answers: []string{none, "99", none, none, "99"}},
		"versions that cannot be compared":             {answers: []string{"99", "x", "7", "x"}},
		"a server that goes back, and on from there":   {answers: []string{"99", "100", "60", "70", "300"}, told: []string{"100 to 60"}, last: 2},
		"a server that goes back while it is away":     {answers: []string{"100", none, none, "99", "99"}, told: []string{"100 to 99"}, last: 3},
		"a server that goes back twice":                {answers: []string{"100", "60", "80", "70", "70"}, told: []string{"100 to 60", "80 to 70"}, last: 3},
		"servers that have not all been started again": {answers: []string{"100", "60", "100", "61", "62"}, told: []string{"100 to 60", "100 to 61"}, last: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var notes []string
				began, asked, refused := time.Now(), 0, false
				r := &restores{
					live: func(context.Context) (string, error) {
						asked++
						if version := story.answers[asked-1]; version != none {
							return version, nil
						}
						return "", errors.New("no connection")
					},
					tell: func(_ context.Context, note string) error {
						if refused = !refused; refused { // each event is refused once
							return errors.New("not yet ready to handle request")
						}
						notes = append(notes, note)
						return nil
					},
					noticed: newRestored(),
				}
				go r.notice(ctx)
				time.Sleep(time.Duration(len(story.answers)-1) * askInterval)
				synctest.Wait()
				require.Len(t, story.answers, asked)
				var told []string
				for _, versions := range story.told {
					told = append(told, "the API server went back from resourceVersion "+versions+": it was restored from a backup")
				}
				assert.Equal(t, told, notes)
				var metric dto.Metric
				require.NoError(t, r.noticed.Write(&metric))
				at := 0.0
				if told != nil {
					at = float64(began.Add(time.Duration(story.last) * askInterval).Unix())
				}
				assert.InDelta(t, at, metric.GetGauge().GetValue(), 0.001)
			})
		})
	}
}

// A leader whose controller has noticed a restore ends its work at once, so that the lease is released and a standby
// takes over within seconds.
func TestARestoreEndsTheWorkAtOnce(t *testing.T) {
	t.Parallel()
	m := newManager(defaults(), &rest.Config{Host: "http://127.0.0.1:1"})
	w := &worker{manager: m, others: newOthers(m)}
	ctx, end := context.WithCancelCause(t.Context())
	w.end = end
	w.restoredServer(ctx, fmt.Errorf("version 5: %w", kinds.ErrRestored))
	require.ErrorIs(t, context.Cause(ctx), kinds.ErrRestored)
	var metric dto.Metric
	require.NoError(t, m.restored.Write(&metric))
	assert.Positive(t, metric.GetGauge().GetValue())
	w.others.telling.Wait()
}
