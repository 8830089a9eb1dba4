// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePictureIsThatOfTheDocs(t *testing.T) {
	t.Parallel()
	drawn, err := os.ReadFile("../../docs/dataflow.svg")
	require.NoError(t, err)
	assert.Equal(t, draw(), string(drawn), "go run ./internal/dataflow > docs/dataflow.svg")
}

func TestThePictureIsWellFormed(t *testing.T) {
	t.Parallel()
	decoder := xml.NewDecoder(strings.NewReader(draw()))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// A letter is about six pixels wide.
func TestLinesFitIntoTheirBoxes(t *testing.T) {
	t.Parallel()
	for _, b := range boxes {
		assert.LessOrEqual(t, b.x+b.width, width-28)
		for _, line := range b.lines {
			assert.LessOrEqual(t, 6*len(line)+8, b.width, line)
		}
	}
}

// Each package that has a question in the picture is there.
func TestThePictureNamesPackages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"expectations", "slowstart", "podrank", "selector", "status", "replicas", "replicas/controller", "replicas/controllerruntime", "replicas/clientgo"} {
		assert.Contains(t, draw(), name)
		assert.DirExists(t, "../../"+name)
	}
}
