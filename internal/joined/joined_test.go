// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package joined_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/internal/joined"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	require.NoError(t, joined.Errors(nil))
	require.NoError(t, joined.Errors([]error{}))
	var errs []error
	for i := range 12 {
		errs = append(errs, fmt.Errorf("error %d", i))
	}
	require.EqualError(t, joined.Errors(errs[:2]), "error 0\nerror 1")
	assert.Equal(t, 10, strings.Count(joined.Errors(errs[:10]).Error(), "error"))
	err := joined.Errors(errs)
	assert.True(t, strings.HasSuffix(err.Error(), "error 9\n(2 more left out)"))
	for _, each := range errs {
		require.ErrorIs(t, err, each)
	}
	assert.NotErrorIs(t, err, errors.New("error 0"))
}
