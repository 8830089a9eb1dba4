// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostUnplain is the maximum number of unplain expressions in 1,000 words of comments. This maximum may only be
// lowered.
const mostUnplain = 0.4

// unplain lists expressions that made people read a sentence twice, and advice on what to write instead.
var unplain = []struct {
	expression *regexp.Regexp
	write      string
}{
	{regexp.MustCompile(`(?i)\bnobody\b`), "say who: the Controller, no other process"},
	{regexp.MustCompile(`(?i)\b(who(m)?ever|somebody|whatever)\b`), "say who or what"},
	{regexp.MustCompile(`(?:^|[.:] )What \w+`), "begin with the thing"},
	{regexp.MustCompile(`(?i)\b(tells?|told|telling)\b`), "say, report, log, return, remember"},
	{regexp.MustCompile(`(?i)\bof (which|whom)\b`), "make two sentences"},
	{regexp.MustCompile(`(?i)\bbesides?\b`), "also, in addition, next to"},
	{regexp.MustCompile(`(?i)\bbut for\b`), "except"},
	{regexp.MustCompile(`(?i)\b(no|any) more\b`), "no longer"},
	{regexp.MustCompile(`(?i)\b(go|goes|went) by\b`), "use"},
	{regexp.MustCompile(`(?i)\b(is|are|was|were) to be\b`), "must be, will be"},
	{regexp.MustCompile(`(?i)\bcomes? back\b`), "return"},
	{regexp.MustCompile(`(?i)\ball the same\b`), "anyway"},
	{regexp.MustCompile(`(?i)\bby now\b`), "now"},
}

// notUnplain matches plain texts that the expressions in unplain also match.
var notUnplain = regexp.MustCompile(`(?i)\b(no|any) more than\b|(?:^|[.:] )What (it|is|are|does|do|did|was)\b`)

// Comments outside test files must be plain English. If these comments contain too many unplain expressions,
// TestPlainWords lists all of them with their files and lines.
func TestPlainWords(t *testing.T) {
	t.Parallel()
	words, found := 0, []string(nil)
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == ".cache" || d.Name() == "testdata"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		n, places := unplainOf(t, path)
		words, found = words+n, append(found, places...)
		return nil
	}))
	assert.Greater(t, words, 50_000)
	rate := 1000 * float64(len(found)) / float64(words)
	assert.LessOrEqual(t, rate, mostUnplain, "%d expressions in %d words of comments:\n%s", len(found), words, strings.Join(found, "\n"))
	assert.GreaterOrEqual(t, rate, mostUnplain-0.3, "comments have become plainer: lower mostUnplain")
}

// unplainOf returns the number of words in the comments of a file, and the place of each unplain expression in
// them.
func unplainOf(t *testing.T, path string) (words int, places []string) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	comment := regexp.MustCompile(`(?:^|\s)//\s?(.*)`)
	lines := bufio.NewScanner(file)
	for line := 1; lines.Scan(); line++ {
		m := comment.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		words += len(strings.Fields(m[1]))
		text := notUnplain.ReplaceAllString(m[1], "")
		for _, u := range unplain {
			for range u.expression.FindAllString(text, -1) {
				places = append(places, path+":"+strconv.Itoa(line)+": "+u.write+": "+m[1])
			}
		}
	}
	require.NoError(t, lines.Err())
	return words, places
}
