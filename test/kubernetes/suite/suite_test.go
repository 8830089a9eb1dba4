// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package suite_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/replicakit/replicakit/test/kubernetes/suite"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	known := suite.Suite{
		Name: "unit", Specs: 3,
		Differences: []suite.Difference{{Test: "TestOrder/ages", Says: []string{"row 1: got", "row 3: got"}, Why: "W28: a total order"}},
		LeftOut:     []suite.Difference{{Test: "TestInside", Why: "it looks at unexported fields"}},
	}
	differs := suite.Result{Test: "TestOrder/ages", Output: "    a_test.go:7: row 1: got a\n    a_test.go:7: row 3: got b\n    helper.go:3: a log line"}
	passes := func(name string) suite.Result { return suite.Result{Test: name, Passed: true} }
	tests := []struct {
		name    string
		results []suite.Result
		news    []string
	}{
		{"as known", []suite.Result{passes("TestA"), differs, passes("TestB")}, nil},
		{
			"a test begins to fail",
			[]suite.Result{passes("TestA"), differs, {Test: "TestB", Output: "oh"}},
			[]string{"TestB fails:\noh"},
		},
		{
			"a known difference begins to pass",
			[]suite.Result{passes("TestA"), passes("TestB"), passes("TestOrder/ages")},
			[]string{"TestOrder/ages passes; it was a known difference: W28: a total order"},
		},
		{
			"a known difference fails in another way",
			[]suite.Result{passes("TestA"), passes("TestB"), {Test: "TestOrder/ages", Output: "panic"}},
			[]string{"TestOrder/ages fails, but its output does not match the known failure [\"row 1: got\" \"row 3: got\"]:\npanic"},
		},
		{
			"a test says very much",
			[]suite.Result{passes("TestA"), differs, {Test: "TestB", Output: strings.Repeat("a log line\n", 1000) + "oh"}},
			[]string{"TestB fails:\n" + strings.Repeat("a log line\n", 49) + "oh"},
		},
		{
			"a test says what is wrong, and then very much",
			[]suite.Result{passes("TestA"), differs, {Test: "TestB", Output: "began\n    b_test.go:9: oh\n" + strings.Repeat("a log line\n", 1000)}},
			[]string{"TestB fails:\n    b_test.go:9: oh\n...\n" + strings.Repeat("a log line\n", 49)},
		},
		{
			"another row fails, too",
			[]suite.Result{passes("TestA"), passes("TestB"), {Test: "TestOrder/ages", Output: differs.Output + "\n    a_test.go:7: row 2: got c"}},
			[]string{"TestOrder/ages fails, but its output does not match the known failure [\"row 1: got\" \"row 3: got\"]:\n" + differs.Output + "\n    a_test.go:7: row 2: got c"},
		},
		{
			"one of the rows passes",
			[]suite.Result{passes("TestA"), passes("TestB"), {Test: "TestOrder/ages", Output: "    a_test.go:7: row 1: got a"}},
			[]string{"TestOrder/ages fails, but its output does not match the known failure [\"row 1: got\" \"row 3: got\"]:\n    a_test.go:7: row 1: got a"},
		},
		{
			"tests are missing",
			[]suite.Result{passes("TestA")},
			[]string{"TestOrder/ages is a known difference and did not run", "1 tests ran, not 3"},
		},
		{
			"a test is reported twice",
			[]suite.Result{passes("TestA"), passes("TestA"), differs},
			[]string{"TestA is reported twice"},
		},
		{"a test is new", []suite.Result{passes("TestA"), passes("TestB"), passes("TestC"), differs}, []string{"4 tests ran, not 3"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.news, known.Judge(tc.results).News)
		})
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	unit := suite.Suite{
		Name: "unit", Specs: 2,
		Differences: []suite.Difference{{Test: "TestB", Why: "W28"}},
		LeftOut:     []suite.Difference{{Test: "TestC", Why: "no such field"}, {Test: "TestD", Why: "no such method"}},
		Instead:     "options are no gates",
	}
	e2e := suite.Suite{Name: "e2e", Specs: 1}
	passed := suite.Result{Test: "TestA", Passed: true}
	table := `| suite | specs | passed | known differences | left out |
|---|--:|--:|---|---|
| unit | 2 | 1 | TestB | TestC, TestD |
| e2e | 1 | 1 | none | none |

unit: options are no gates
unit, TestB: W28
unit, TestC: no such field
unit, TestD: no such method

figures: unit 1 of 2, e2e 1 of 1
`
	t.Run("nothing is news", func(t *testing.T) {
		t.Parallel()
		var page strings.Builder
		require.NoError(t, suite.Print(&page, []suite.Verdict{
			unit.Judge([]suite.Result{passed, {Test: "TestB"}}), e2e.Judge([]suite.Result{passed}),
		}))
		assert.Equal(t, table, page.String())
	})
	t.Run("something is", func(t *testing.T) {
		t.Parallel()
		var page strings.Builder
		err := suite.Print(&page, []suite.Verdict{
			unit.Judge([]suite.Result{passed, {Test: "TestB", Passed: true}}), e2e.Judge([]suite.Result{passed}),
		})
		require.EqualError(t, err, "1 results are not in the tables of known differences")
		assert.Contains(t, page.String(), "| unit | 2 | 2 |")
		assert.Contains(t, page.String(), "\nNEWS unit: TestB passes; it was a known difference: W28\n")
	})
	t.Run("nobody reads it", func(t *testing.T) {
		t.Parallel()
		assert.ErrorIs(t, suite.Print(closed{}, nil), errClosed)
	})
}

var errClosed = errors.New("closed")

type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, errClosed }

func TestReadGoTest(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		events string
		want   []suite.Result
	}{
		{"nothing", "", nil},
		{
			"tests and sub-tests",
			`{"Action":"start","Package":"x"}
			{"Action":"run","Package":"x","Test":"TestA"}
			{"Action":"run","Package":"x","Test":"TestA/one"}
			{"Action":"output","Package":"x","Test":"TestA/one","Output":"oh\n"}
			{"Action":"fail","Package":"x","Test":"TestA/one"}
			{"Action":"pass","Package":"x","Test":"TestA/two"}
			{"Action":"fail","Package":"x","Test":"TestA"}
			{"Action":"pass","Package":"x","Test":"TestB"}
			{"Action":"fail","Package":"x"}`,
			[]suite.Result{{Test: "TestA/one", Output: "oh\n"}, {Test: "TestA/two", Passed: true}, {Test: "TestB", Passed: true}},
		},
		{
			"a test fails beside its sub-tests",
			`{"Action":"output","Package":"x","Test":"TestA","Output":"oh\n"}
			{"Action":"pass","Package":"x","Test":"TestA/one"}
			{"Action":"fail","Package":"x","Test":"TestA"}
			{"Action":"fail","Package":"x"}`,
			[]suite.Result{{Test: "TestA", Output: "oh\n"}, {Test: "TestA/one", Passed: true}},
		},
		{
			"a panic ends the run",
			`{"Action":"run","Package":"x","Test":"TestA"}
			{"Action":"output","Package":"x","Test":"TestA","Output":"panic: oh\n"}
			{"Action":"fail","Package":"x"}`,
			[]suite.Result{{Test: "TestA", Output: "panic: oh\n"}},
		},
		{
			"a goroutine is left when all tests have passed",
			`{"Action":"pass","Package":"x","Test":"TestA"}
			{"Action":"output","Package":"x","Output":"leak\n"}
			{"Action":"fail","Package":"x"}`,
			[]suite.Result{{Test: "TestA", Passed: true}, {Test: "x", Output: "leak\n"}},
		},
		{
			"a package does not build",
			`{"ImportPath":"x [x.test]","Action":"build-output","Output":"x.go:1: oh\n"}
			{"ImportPath":"x [x.test]","Action":"build-fail"}
			{"Action":"start","Package":"x"}
			{"Action":"output","Package":"x","Output":"FAIL\n"}
			{"Action":"fail","Package":"x","FailedBuild":"x [x.test]"}`,
			[]suite.Result{{Test: "x", Output: "x.go:1: oh\nFAIL\n"}},
		},
		{"a skipped test", `{"Action":"skip","Package":"x","Test":"TestA"} {"Action":"pass","Package":"x"}`, []suite.Result{{Test: "TestA"}}},
		{"a package without tests", `{"Action":"skip","Package":"x"}`, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got, err := suite.ReadGoTest(strings.NewReader(tc.events))
			require.NoError(t, err)
			assert.ElementsMatch(t, tc.want, got)
		})
	}
	t.Run("no JSON", func(t *testing.T) {
		t.Parallel()
		_, err := suite.ReadGoTest(strings.NewReader("go: no such tool"))
		assert.ErrorContains(t, err, "suite: reading go test -json: ")
	})
}

func TestReadGinkgo(t *testing.T) {
	t.Parallel()
	got, err := suite.ReadGinkgo(strings.NewReader(`[{"SpecReports":[
		{"LeafNodeType":"SynchronizedBeforeSuite","State":"passed"},
		{"ContainerHierarchyTexts":["[sig-apps] ReplicaSet"],"LeafNodeType":"It","LeafNodeText":"should serve","State":"passed"},
		{"ContainerHierarchyTexts":["[sig-apps] Job"],"LeafNodeType":"It","LeafNodeText":"should run","State":"skipped"},
		{"ContainerHierarchyTexts":["[sig-apps]","RC"],"LeafNodeType":"It","LeafNodeText":"should adopt","State":"timedout",
		 "Failure":{"Message":"no pods"},"CapturedGinkgoWriterOutput":"waiting"},
		{"LeafNodeType":"SynchronizedAfterSuite","State":"panicked","Failure":{"Message":"oh"}}
	]}]`))
	require.NoError(t, err)
	assert.Equal(t, []suite.Result{
		{Test: "[sig-apps] ReplicaSet should serve", Passed: true},
		{Test: "[sig-apps] RC should adopt", Output: "timedout: no pods\nwaiting"},
		{Test: "SynchronizedAfterSuite", Output: "panicked: oh\n"},
	}, got)

	_, err = suite.ReadGinkgo(strings.NewReader("no report"))
	assert.ErrorContains(t, err, "suite: reading ginkgo's report: ")
}
