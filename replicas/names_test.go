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

	"github.com/replicakit/replicakit/replicas"
)

// inTurn returns a function for Facts.Names. The function returns the given names in order, and then returns the
// last name again and again.
func inTurn(names ...string) func(string) string {
	return func(string) string {
		name := names[0]
		if len(names) > 1 {
			names = names[1:]
		}
		return name
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	rs := replicaSet(2)
	for name, tt := range map[string]struct {
		have  []*worker
		names func(string) string
		want  []string
	}{
		"W11 as they come":                             {nil, inTurn("b", "a"), []string{"b", "a"}},
		"none that a child bears":                      {[]*worker{newWorker(rs, "b", 1)}, inTurn("b", "a"), []string{"a"}},
		"none that a child bears which does not count": {[]*worker{newWorker(replicaSet(0), "b", 1, func(w *worker) { w.OwnerReferences, w.Labels = nil, nil })}, inTurn("b", "a", "c"), []string{"a", "c"}},
		"none that it has returned before":             {nil, inTurn("b", "b", "b", "a"), []string{"b", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := workerSpec(2)
			spec.Facts.Names = tt.names
			plan, err := replicas.Manage(tt.have, spec)
			require.NoError(t, err)
			require.Equal(t, tt.want, plan.Scale.Names)
			require.Equal(t, len(tt.want), plan.Scale.Create)
			for i, name := range tt.want {
				child, err := plan.Scale.New(i)
				require.NoError(t, err)
				assert.Equal(t, name, child.Name)
				assert.Equal(t, "web-", child.GenerateName, "P6 others derive the workload from it")
			}
		})
	}
	t.Run("a counter finds the gap however many there are", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(1001)
		var have []*worker
		for i := range 1000 {
			have = append(have, newWorker(rs, fmt.Sprintf("web-%d", i), 1))
		}
		n := -1
		spec.Facts.Names = func(prefix string) string { n++; return fmt.Sprint(prefix, n) }
		plan, err := replicas.Manage(have, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{"web-1000"}, plan.Scale.Names)
	})
	t.Run("without, the API server chooses", func(t *testing.T) {
		t.Parallel()
		plan, err := replicas.Manage(nil, workerSpec(2))
		require.NoError(t, err)
		assert.Nil(t, plan.Scale.Names)
		child, err := plan.Scale.New(1)
		require.NoError(t, err)
		assert.Empty(t, child.Name)
		assert.Equal(t, "web-", child.GenerateName)
	})
	t.Run("no child, no name", func(t *testing.T) {
		t.Parallel()
		spec := workerSpec(0)
		spec.Facts.Names = func(string) string { t.Error("asked for"); return "" }
		plan, err := replicas.Manage(nil, spec)
		require.NoError(t, err)
		assert.Nil(t, plan.Scale.Names)
	})
}

// A prefix plus five characters is never longer than the longest name that the API server generates.
func TestNamePrefix(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"web":                   "web-",
		strings.Repeat("a", 57): strings.Repeat("a", 57) + "-",
		strings.Repeat("a", 58): strings.Repeat("a", 58),
		strings.Repeat("a", 99): strings.Repeat("a", 58),
	} {
		rs, spec := replicaSet(1), workerSpec(1)
		rs.Name = name
		spec.Owner = rs
		spec.Facts.Names = func(prefix string) string {
			assert.Equal(t, want, prefix)
			return prefix + "x"
		}
		plan, err := replicas.Manage(nil, spec)
		require.NoError(t, err)
		assert.Equal(t, []string{want + "x"}, plan.Scale.Names)
	}
}

// Fake clients accept an owner with an illegal name. For such an owner, Facts.Names may return any name that is not
// empty.
func TestNamesOfAnOwnerWhoseOwnNameIsNotLegal(t *testing.T) {
	t.Parallel()
	owned := func(names func(string) string) (replicas.Plan[*worker], error) {
		rs, spec := replicaSet(2), workerSpec(2)
		rs.Name = "ReplicaSet-test"
		spec.Owner, spec.Facts.Names = rs, names
		return replicas.Manage(nil, spec)
	}
	plan, err := owned(inTurn("ReplicaSet-testx", "ReplicaSet-testy"))
	require.NoError(t, err)
	assert.Equal(t, []string{"ReplicaSet-testx", "ReplicaSet-testy"}, plan.Scale.Names)
	_, err = owned(inTurn(""))
	require.ErrorContains(t, err, `replicas: ReplicaSet "default/ReplicaSet-test": Names returned ""`)
}

func TestNamesThatServeNobody(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		names func(string) string
		want  string
	}{
		"an empty one":          {inTurn(""), `Names returned "": a lowercase RFC 1123 subdomain must consist of`},
		"one that is not legal": {inTurn("Web_1"), `Names returned "Web_1": a lowercase RFC 1123 subdomain must consist of`},
		"one that is too long":  {inTurn(strings.Repeat("a", 254)), "must be no more than 253"},
		"the same for ever":     {inTurn("a"), "Names returned only 1 free names, 3 are needed"},
		"a taken one for ever":  {inTurn("web-000"), "Names returned only 0 free names, 3 are needed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs := replicaSet(4)
			spec := specOf(t, rs)
			spec.Facts.Names = tt.names
			plan, err := replicas.Manage(podsOf(rs, 1), spec)
			require.ErrorContains(t, err, `replicas: ReplicaSet "default/web": `)
			require.ErrorContains(t, err, tt.want)
			assert.Zero(t, plan)
		})
	}
}

// For any results of Facts.Names, a plan has one name for each new child. These names are all different, and no
// other child has one of them. If Manage returns an error, the plan is zero.
func FuzzNames(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(5), uint8(9))
	f.Add(uint64(2), uint8(200), uint8(200), uint8(1))
	f.Fuzz(func(t *testing.T, seed uint64, have, want, letters uint8) {
		rs, spec := replicaSet(int32(want)), workerSpec(int32(want))
		r := rand.New(rand.NewPCG(seed, 6))
		spec.Facts.Names = func(prefix string) string { return fmt.Sprint(prefix, r.IntN(1+int(letters)*4)) }
		taken := map[string]bool{}
		var children []*worker
		for range have {
			children = append(children, newWorker(rs, spec.Facts.Names("web-"), 1))
			children[len(children)-1].UID = ""
			taken[children[len(children)-1].Name] = true
		}
		plan, err := replicas.Manage(children, spec)
		if err != nil {
			assert.Zero(t, plan)
			return
		}
		require.Len(t, plan.Scale.Names, plan.Scale.Create)
		for _, name := range plan.Scale.Names {
			require.False(t, taken[name], "%s is taken", name)
			taken[name] = true
		}
	})
}
