// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// randomUIDs returns n different UIDs. Each UID consists of length random characters of the alphabet.
func randomUIDs(r *rand.Rand, n, length int, alphabet string) []types.UID {
	seen := map[types.UID]bool{}
	var uids []types.UID
	for len(uids) < n {
		var b strings.Builder
		for range length {
			b.WriteByte(alphabet[r.IntN(len(alphabet))])
		}
		if uid := types.UID(b.String()); !seen[uid] {
			seen[uid] = true
			uids = append(uids, uid)
		}
	}
	return uids
}

func TestPlansAreInTheOrderOfTheList(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	const hexadecimal = "0123456789abcdef"
	for name, list := range map[string][]types.UID{
		"as the API server makes them": randomUIDs(r, 3000, 36, hexadecimal),
		"of few digits":                randomUIDs(r, 200, 4, hexadecimal),
		"beginning alike":              append(randomUIDs(r, 300, 12, "01"), "0", "00", "000"),
		"a single one":                 {"00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(0)
			var pods []*corev1.Pod
			var mine, orphans []types.UID
			for i, uid := range list {
				if i%5 == 1 {
					pods = append(pods, podtest.Pod(fmt.Sprintf("web-%d", i), podtest.UID(uid)))
					orphans = append(orphans, uid)
				} else {
					pods = append(pods, podtest.Pod(fmt.Sprintf("web-%d", i), podtest.UID(uid), owned(rs)))
					mine = append(mine, uid)
				}
			}
			plan, err := replicas.Manage(pods, specOf(t, rs))
			require.NoError(t, err)
			assert.Equal(t, mine, uids(plan.Claims.Owned))
			assert.Equal(t, orphans, uids(plan.Claims.Adopt))

			again := len(pods) / 2
			_, err = replicas.Manage(append(pods, pods[again].DeepCopy()), specOf(t, rs))
			require.EqualError(t, err, fmt.Sprintf("replicas: ReplicaSet %q: child %q (%s) is listed twice", "default/web", "default/"+pods[again].Name, list[again]))
		})
	}
}
