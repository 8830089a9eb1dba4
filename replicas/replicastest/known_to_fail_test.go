// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/failure"
	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// The tests of this file say what is right, and fail if it holds: then they belong to the
// other tests. Each says until when it is known to fail.

const untilAuthor = "the author's step can leave out any part, and is told what became of the rest"

func TestADeletionThatIsRefusedAfterTheAuthorsStep(t *testing.T) {
	t.Parallel()
	podtest.KnownToFail(t, untilAuthor, func(t *testing.T, r assert.TestingT) {
		t.Helper()
		claims := sets.New[string]()
		s := openWorkshop(t, membersWith(claims), 5, true)
		s.Deny("delete", failure.Forbidden.Of)
		s.want(t, 4)
		s.world.Run(time.Minute)
		s.want(t, 5)
		s.Webhook = nil
		s.world.Run(time.Hour)
		require.Len(t, s.names(), 5)
		assert.True(r, claims.HasAll(s.names()...), "p-4 lives on, and its claim was deleted")
	})
}

func TestAClaimThatIsBeingDeletedHoldsItsMemberAlone(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]func(scale workerScale, stuck int) workerScale{
		"if the step leaves out all":              func(scale workerScale, _ int) workerScale { scale.Create = 0; return scale },
		"if the step leaves out what follows too": func(scale workerScale, stuck int) workerScale { scale.Create = stuck; return scale },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			podtest.KnownToFail(t, untilAuthor, func(t *testing.T, r assert.TestingT) {
				t.Helper()
				kind := workersOf(func(spec *workers) { spec.Slots = replicas.Ordinals("p") })
				kind.BeforeScale = func(_ context.Context, _ *pool, _ []*worker, scale workerScale) (workerScale, time.Duration, error) {
					if n := slices.Index(scale.Names, "p-0"); n >= 0 {
						return step(scale, n), 10 * time.Second, nil
					}
					return scale, 0, nil
				}
				assert.Equal(r, []string{"p-1", "p-2"}, openWorkshop(t, kind, 3, true).names())
			})
		})
	}
	t.Run("if New fails for it", func(t *testing.T) {
		t.Parallel()
		podtest.KnownToFail(t, untilAuthor, func(t *testing.T, r assert.TestingT) {
			t.Helper()
			s := openWorkshop(t, workersOf(func(spec *workers) {
				spec.Slots = replicas.Ordinals("p")
				inner := spec.New
				spec.New = func(name string) (*worker, error) {
					if name == "p-0" {
						return nil, errors.New("its claim is being deleted")
					}
					return inner(name)
				}
			}), 3, true)
			assert.Equal(r, []string{"p-1", "p-2"}, s.names())
		})
	})
}
