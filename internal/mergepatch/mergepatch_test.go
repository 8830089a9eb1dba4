// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package mergepatch_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/mergepatch"
)

func object(t *testing.T, text string) (o map[string]any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	return o
}

func TestBetween(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ was, is, want string }{
		"nothing has changed":                     {`{"a":1,"b":{"c":[1]}}`, `{"a":1,"b":{"c":[1]}}`, `{"a":1,"b":{"c":[1]}}`},
		"there was nothing":                       {`null`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"nothing is left":                         {`{"a":1,"b":{"c":2}}`, `null`, `{"a":null,"b":null}`},
		"a number changes":                        {`{"a":1,"b":2}`, `{"a":3,"b":2}`, `{"a":3,"b":2}`},
		"a field that is gone is null":            {`{"a":1,"b":2}`, `{"b":2}`, `{"a":null,"b":2}`},
		"a list changes as a whole":               {`{"a":[{"x":1},{"y":2}]}`, `{"a":[{"x":1}]}`, `{"a":[{"x":1}]}`},
		"the last element of a list goes":         {`{"a":[1],"b":[1]}`, `{"b":[]}`, `{"a":null,"b":[]}`},
		"an object changes by its fields":         {`{"a":{"b":1,"c":2,"d":{"e":3}}}`, `{"a":{"b":1,"d":{"e":4}}}`, `{"a":{"b":1,"c":null,"d":{"e":4}}}`},
		"an object becomes a list":                {`{"a":{"b":1}}`, `{"a":[1]}`, `{"a":[1]}`},
		"a list becomes an object":                {`{"a":[1]}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"null is the same as nothing":             {`{"a":null}`, `{"b":null}`, `{"b":null}`},
		"null in the place of a value is sent":    {`{"a":1}`, `{"a":null}`, `{"a":null}`},
		"a value in the place of null is sent":    {`{"a":null}`, `{"a":0}`, `{"a":0}`},
		"an empty object is not the same as none": {`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":null}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			was, is := object(t, tt.was), object(t, tt.is)
			patch, err := json.Marshal(mergepatch.Between(was, is))
			require.NoError(t, err)
			assert.JSONEq(t, tt.want, string(patch))
		})
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ was, is, want string }{
		"nothing has changed":                    {`{"a":1,"b":{"c":[1]}}`, `{"a":1,"b":{"c":[1]}}`, `{}`},
		"there was nothing":                      {`null`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"nothing is left":                        {`{"a":1,"b":{"c":2}}`, `null`, `{"a":null,"b":null}`},
		"only what changes is sent":              {`{"a":1,"b":2,"c":{"d":3,"e":4}}`, `{"a":3,"b":2,"c":{"d":3,"e":5}}`, `{"a":3,"c":{"e":5}}`},
		"a field that is gone is null":           {`{"a":1,"b":{"c":1,"d":2}}`, `{"b":{"d":2}}`, `{"a":null,"b":{"c":null}}`},
		"a list changes as a whole":              {`{"a":[{"x":1},{"y":2}],"b":[1]}`, `{"a":[{"x":1}],"b":[1]}`, `{"a":[{"x":1}]}`},
		"an object becomes a list":               {`{"a":{"b":1}}`, `{"a":[1]}`, `{"a":[1]}`},
		"a list becomes an object":               {`{"a":[1]}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"an object becomes empty":                {`{"a":{"b":1}}`, `{"a":{}}`, `{"a":{"b":null}}`},
		"an empty object is new":                 {`{}`, `{"a":{}}`, `{"a":{}}`},
		"null is the same as nothing":            {`{"a":null,"b":{"c":null}}`, `{"b":{"d":null},"e":null}`, `{}`},
		"null in the place of a value is sent":   {`{"a":1}`, `{"a":null}`, `{"a":null}`},
		"a value in the place of null is sent":   {`{"a":null}`, `{"a":0}`, `{"a":0}`},
		"an object in the place of null is sent": {`{"a":null}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			patch, err := json.Marshal(mergepatch.Difference(object(t, tt.was), object(t, tt.is)))
			require.NoError(t, err)
			assert.JSONEq(t, tt.want, string(patch))
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	for _, tt := range [][3]string{ // the examples of RFC 7386, appendix A, that patch objects
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`null`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		is, err := json.Marshal(mergepatch.Apply(object(t, tt[0]), object(t, tt[1])))
		require.NoError(t, err)
		assert.JSONEq(t, tt[2], string(is), "%s, patched with %s", tt[0], tt[1])
	}
}

// withoutNulls removes the fields with the value null, because a merge patch cannot set them. Lists stay
// unchanged.
func withoutNulls(v any) any {
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	kept := map[string]any{}
	for k, v := range o {
		if v != nil {
			kept[k] = withoutNulls(v)
		}
	}
	return kept
}

// value returns a random JSON value with few keys and values, so that many of them are equal.
func value(r *rand.Rand, depth int) any {
	n := 6
	if depth == 0 {
		n = 4
	}
	switch r.IntN(n) {
	case 0:
		return nil
	case 1:
		return float64(r.IntN(2))
	case 2:
		return "x"
	case 3:
		return map[string]any{}
	case 4:
		return []any{value(r, depth-1)}
	}
	return fields(r, depth-1)
}

func fields(r *rand.Rand, depth int) map[string]any {
	o := map[string]any{}
	for _, key := range []string{"a", "b", "c"} {
		if r.IntN(3) > 0 {
			o[key] = value(r, depth)
		}
	}
	return o
}

// checkDifference shows that the difference leads from one object to the other, and that no field of it can be left out.
func checkDifference(t *testing.T, was, is map[string]any) {
	t.Helper()
	patch := mergepatch.Difference(was, is)
	if is == nil {
		is = map[string]any{}
	}
	want := withoutNulls(is)
	require.Equal(t, want, withoutNulls(mergepatch.Apply(withoutNulls(was).(map[string]any), patch)), "%v to %v", was, is)
	require.Empty(t, mergepatch.Difference(is, is))
	for key := range patch {
		less := maps.Clone(patch)
		delete(less, key)
		require.NotEqual(t, want, withoutNulls(mergepatch.Apply(withoutNulls(was).(map[string]any), less)), "%v to %v: %q is not needed", was, is, key)
	}
}

func TestDifferencesLeadFromOneObjectToTheOther(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		checkDifference(t, fields(r, 3), fields(r, 3))
	}
}

func FuzzBetween(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"replicas":3,"readyReplicas":1,"conditions":[{"type":"ReplicaFailure"}]}`, `{"replicas":3}`},
		{`{"a":{"b":[null,{"c":null}]}}`, `{"a":{"b":null,"d":{"e":null}},"f":{}}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var was, is map[string]any
		if json.Unmarshal([]byte(a), &was) != nil || json.Unmarshal([]byte(b), &is) != nil {
			return
		}
		checkDifference(t, was, is)
		patch := mergepatch.Between(was, is)
		if is == nil {
			is = map[string]any{}
		}
		require.Equal(t, withoutNulls(is), withoutNulls(mergepatch.Apply(was, patch)))
		require.Equal(t, withoutNulls(is), withoutNulls(mergepatch.Apply(nil, mergepatch.Between(was, is))), "of an object that lacks what was there before")
	})
}
