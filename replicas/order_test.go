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

	"github.com/replicakit/replicakit/internal/podtest"
	"github.com/replicakit/replicakit/replicas"
)

// randomUIDs are n different UIDs, each of length characters of an alphabet.
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

func TestRelatedPodsCountOnce(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	crowded, alone := podtest.On("crowded"), podtest.On("alone")
	mine := []*corev1.Pod{
		podtest.Pod("a", owned(rs), alone, podtest.UID("0a")), podtest.Pod("b", owned(rs), crowded, podtest.UID("0b")),
		podtest.Pod("c", owned(rs), crowded, podtest.UID("0c")), podtest.Pod("d", owned(rs), alone, podtest.UID("0d")),
	}
	sibling := podtest.Pod("sibling", crowded, podtest.UID("00"))
	moved := podtest.Pod("a", owned(rs), crowded, podtest.UID("0a"))
	for name, related := range map[string][]*corev1.Pod{
		"L5 the owned pods are added":                {sibling},
		"L5 the owned pods are not counted again":    {mine[0], mine[1], mine[2], mine[3], sibling},
		"L5 in whatever order they come":             {mine[3], sibling, mine[1], mine[0], mine[2]},
		"L5 a related pod is counted once":           {sibling, sibling, nil, sibling.DeepCopy()},
		"L5 of two views of an owned pod its own is": {moved, sibling},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := specOf(t, rs)
			spec.Related = related
			plan, err := replicas.Manage(mine, spec)
			require.NoError(t, err)
			require.Equal(t, []string{"b", "c"}, victims(plan.Scale))
			assert.Equal(t, "3", plan.Scale.Delete[0].Values.Victim)
			assert.Equal(t, "2", plan.Scale.Delete[0].Values.Survivor)
		})
	}
}
