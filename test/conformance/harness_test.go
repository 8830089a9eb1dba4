// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/replicaset/metrics"
)

// The settings come from environment variables.
var (
	multiplier = setting("CONFORMANCE_CASES", 1) // multiplies the number of cases of every test
	seed       = setting("CONFORMANCE_SEED", 1)
	only       = setting("CONFORMANCE_CASE", -1) // the number of the only case to run, or -1 for all cases
)

// scaled returns the largest number of cases that a test runs. The argument n is the number of cases in the code
// of the test.
func scaled(n int) int { return max(n*multiplier/share, 1) }

// few returns the number of cases that a test always runs. The argument n is the number of cases in the code of
// the test. With -short, few returns about one twentieth of the cases. If a difference or a situation that must
// occur has not occurred in these cases, a comparison runs more cases until it has occurred. A comparison never
// runs more than scaled(n) cases.
func few(n int) int {
	if testing.Short() {
		n = (n + 19) / 20
	}
	return scaled(n)
}

func setting(name string, otherwise int) int {
	value := os.Getenv(name)
	if value == "" {
		return otherwise
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	return n
}

// TestMain turns off the logs of Kubernetes, because the tests cause many log messages. It also registers the
// metrics of Kubernetes' ReplicaSet controller.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	utilruntime.ErrorHandlers = nil
	must(metrics.Register(legacyregistry.Register)) // before any test starts, because no lock protects the metrics
	os.Exit(m.Run())
}

// quiet returns a context with a logger that drops everything.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// A comparison gives the same random inputs to Kubernetes and to this library.
type comparison[C any] struct {
	// cases is the number of cases. The field named each is the number of things that one case compares. The value
	// 0 counts as 1. In the log, the string in x.of is the name of these things, for example "pairs of pods".
	cases, each int
	of          string
	// input makes the input of one case. The input must depend only on g.
	input func(g *gen) C
	// differ describes the difference between the two sides, or returns "" if there is none. If a difference has a
	// name, differ counts the difference instead of returning it. differ must not change c.
	differ func(c C, named *tally) string
	// names are the names of all differences that must occur. reaches are the names of all situations that must
	// occur.
	names, reaches []string
}

// run runs the cases. At the first case for which x.differ returns a difference, run fails the test.
func (x comparison[C]) run(t *testing.T) {
	t.Helper()
	named := newTally()
	from, enough, to := 0, few(x.cases), scaled(x.cases)
	if only >= 0 {
		from, enough, to = only, only+1, only+1
	}
	ran := 0
	for i := from; i < enough || i < to && !x.complete(named); i++ {
		ran++
		c := x.input(newGen(t.Name(), i))
		if difference := x.differ(c, named); difference != "" {
			t.Fatal(x.failure(t.Name(), i, c, difference))
		}
	}
	t.Logf("%s %s: no difference%s", thousands(ran*max(x.each, 1)), x.of, named)
	if only < 0 {
		requireAll(t, "difference", x.names, named.differences)
		requireAll(t, "situation", x.reaches, named.situations)
	}
}

// complete reports whether every named difference and every situation has occurred.
func (x comparison[C]) complete(named *tally) bool {
	return !slices.ContainsFunc(x.names, func(name string) bool { return named.differences[name] == 0 }) &&
		!slices.ContainsFunc(x.reaches, func(name string) bool { return named.situations[name] == 0 })
}

func (x comparison[C]) failure(name string, i int, c C, difference string) string {
	what, _, _ := strings.Cut(difference, ":")
	shrink(&c, func() (still bool) {
		defer func() { _ = recover() }() // a smaller input may be invalid and cause a panic
		d := x.differ(c, newTally())
		still = strings.HasPrefix(d, what) // a smaller input may cause a different failure, which does not count
		if still {
			difference = d
		}
		return still
	})
	return fmt.Sprintf("%s\ninput, made as small as possible:\n%s\nagain: CONFORMANCE_SEED=%d CONFORMANCE_CASE=%d go test -run '^%s$' .",
		difference, dump(c), seed, i, strings.ReplaceAll(name, "/", "$/^"))
}

// newGen returns the gen of one case. The gen depends only on the seed, the test and the number of the case.
func newGen(test string, i int) *gen {
	h := fnv.New64a()
	_, _ = h.Write([]byte(test))
	return &gen{rand.New(rand.NewPCG(uint64(seed)^h.Sum64(), uint64(i)))}
}

// A tally counts the differences that have names, and the situations that the inputs of a test must reach.
type tally struct{ differences, situations map[string]int }

func newTally() *tally { return &tally{map[string]int{}, map[string]int{}} }

func (n *tally) add(difference string)  { n.differences[difference]++ }
func (n *tally) reach(situation string) { n.situations[situation]++ }

func (n *tally) String() string {
	var b strings.Builder
	list := func(heading string, counts map[string]int) {
		for i, name := range slices.Sorted(maps.Keys(counts)) {
			if i == 0 {
				b.WriteString(heading)
			}
			fmt.Fprintf(&b, "\n  %10s  %s", thousands(counts[name]), name)
		}
	}
	list(" but those with a name:", n.differences)
	list("\nreached:", n.situations)
	return b.String()
}

// requireAll fails the test if one of the names was never counted, or if counts contains any other name.
func requireAll(t *testing.T, what string, names []string, counts map[string]int) {
	t.Helper()
	for _, name := range names {
		if counts[name] == 0 {
			t.Errorf("no case has the %s %q: the inputs do not reach it", what, name)
		}
	}
	for name := range counts {
		if !slices.Contains(names, name) {
			t.Errorf("the %s %q is not among those of this test", what, name)
		}
	}
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
