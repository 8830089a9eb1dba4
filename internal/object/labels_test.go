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
			in := make([]bool, 2)
			list.InEach([]map[string]string{set, nil}, in)
			assert.Equal(t, []bool{tt.want, len(tt.list) == 0}, in)
		})
	}
	assert.False(t, object.ListLabels(set).In(nil))
}
