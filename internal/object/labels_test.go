// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package object_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/replicakit/replicakit/internal/object"
)

func TestLabels(t *testing.T) {
	t.Parallel()
	set := map[string]string{"app": "web", "empty": ""}
	for name, tt := range map[string]struct {
		list map[string]string
		want bool
	}{
		"none":                     {nil, true},
		"one of two":               {map[string]string{"app": "web"}, true},
		"both":                     {map[string]string{"app": "web", "empty": ""}, true},
		"another value":            {map[string]string{"app": "db"}, false},
		"one that is missing":      {map[string]string{"app": "web", "tier": "a"}, false},
		"an empty one that is not": {map[string]string{"tier": ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := object.ListLabels(tt.list)
			assert.Equal(t, tt.want, list.In(set))
			in := []bool{false, true, true}
			list.InEach([]map[string]string{set, nil, {"empty": ""}}, in)
			assert.Equal(t, []bool{tt.want, len(tt.list) == 0, list.In(map[string]string{"empty": ""})}, in)
		})
	}
	assert.False(t, object.ListLabels(set).In(nil))
	in := make([]bool, 1)
	object.Labels{{Key: "tier"}, {Key: "app", Value: "web"}}.InEach([]map[string]string{set}, in)
	assert.False(t, in[0], "the second label does not undo the first")
}
