// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/internal/telemetry"
)

var update = flag.Bool("update", false, "write the tables of the pages anew")

// withSpec applies a change to the results of Kind.Spec.
func withSpec(r *podRig, change func(*replicas.SpecOfPods)) {
	withSpecOf(r, func(_ *appsv1.ReplicaSet, spec *replicas.SpecOfPods) { change(spec) })
}

func withSpecOf(r *podRig, change func(*appsv1.ReplicaSet, *replicas.SpecOfPods)) {
	was := r.kind.Spec
	r.kind.Spec = func(rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
		spec, err := was(rs)
		change(rs, &spec)
		return spec, err
	}
}

// Most gates come up in the transcripts. TestEachReason contains those that need functions of the Kind or of the client,
// and checks that no reason is without a test.
func TestEachReason(t *testing.T) {
	t.Parallel()
	hasTemplate := false // the other object that SpecLive reads
	isMended := false    // whether Kind.Status leaves the labels alone
	for reason, tt := range map[controller.GateReason]struct {
		stops      controller.Stops
		begin, end func(r *podRig)
	}{
		controller.CacheBehind: {
			controller.StopsClaims | controller.StopsCreations | controller.StopsDeletions | controller.StopsUpdates,
			func(r *podRig) {
				r.newProcess = true
				r.childrenVersion, r.serverAt = "5", func() (string, error) { return "9", nil }
			},
			func(r *podRig) { r.childrenVersion = "9" },
		},
		controller.InputsStale: {
			controller.StopsDeletions | controller.StopsUpdates,
			func(r *podRig) {
				r.kind.SpecLive = func(_ context.Context, rs *appsv1.ReplicaSet) (replicas.SpecOfPods, error) {
					spec, err := replicas.ReplicaSetSpec(rs)
					spec.Paused = !hasTemplate
					return spec, err
				}
			},
			func(*podRig) { hasTemplate = true },
		},
		controller.HeldByPrepare: {
			controller.StopsDeletions,
			func(r *podRig) {
				r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
					s.Delete, s.RequeueAfter = nil, time.Minute
					return nil
				}
			},
			func(r *podRig) { *r.owner.Spec.Replicas = 4 },
		},
		controller.StatusFaulty: {
			0,
			func(r *podRig) {
				status := r.kind.Status
				*r.owner.Spec.Replicas = 4
				r.kind.Status = func(rs *appsv1.ReplicaSet, o controller.Outcome[*corev1.Pod]) error {
					if !isMended {
						rs.Labels = web
					}
					return status(rs, o)
				}
			},
			func(*podRig) { isMended = true },
		},
	} {
		t.Run(reason.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(1)
			tt.begin(r)
			pass, _ := r.pass(t, 0, versioned(podsOf(r.owner, 4))...)
			require.Len(t, pass.Gates, 1, "%v", pass.Gates)
			gate := requireGate(t, pass.Gates, reason)
			assert.Equal(t, tt.stops, gate.Stops, gate.Stops.String())
			assert.Equal(t, reason != controller.HeldByPrepare && reason != controller.StatusFaulty, pass.Waiting())
			if shortest := controller.ShortestHold(reason); shortest > 0 {
				assert.Equal(t, shortest, gate.Until.Sub(r.now), "the first hold is as long as the table says")
			}
			assert.InDelta(t, 1, r.metric(t, "gated_owners", reason.String()), 0)
			tt.end(r)
			pass, _ = r.pass(t, 70, versioned(podsOf(r.owner, 4))...)
			assert.Empty(t, pass.Gates)
			assert.Zero(t, r.metric(t, "gated_owners", reason.String()))
			for _, s := range r.recorder.Samples() {
				assert.False(t, s.Name == "gate_duration_seconds" && s.Count == 0)
			}
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	// TestListsThatHang tests ListsBusy, TestRefusals tests PassPanicked, and TestMistakesOfAKind tests ReadyUnset.
	seen := "\n  CacheBehind \n  InputsStale \n  HeldByPrepare \n  StatusFaulty \n  ListsBusy \n  PassPanicked \n  ReadyUnset "
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		seen += string(text)
	}
	for _, row := range controller.GateTable() {
		assert.Contains(t, seen, "\n  "+strings.Trim(row[0], "`")+" ", "no test and no transcript has this gate")
	}
}

// Prepare drained a node for an hour, and the first gate of the pass said that BurstReplicas was too small.
func TestTheFirstGateIsTheCause(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	withSpec(r, func(s *replicas.SpecOfPods) { s.BurstReplicas = 1 })
	r.kind.Prepare = nothing
	pass, err := r.pass(t, 0, podsOf(r.owner, 4)...)
	require.NoError(t, err)
	var seen []controller.GateReason
	for _, g := range pass.Gates {
		seen = append(seen, g.Reason)
	}
	assert.Equal(t, []controller.GateReason{controller.HeldByPrepare, controller.BurstLimit}, seen)
}

// The page docs/pass.md lists the same reasons as the table in the code.
func TestTheGatesOfThePage(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	table.WriteString("| reason | what it means (its event, once) | stops | lasts; ends early when |\n|---|---|---|---|\n")
	for _, row := range controller.GateTable() {
		table.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	requireOnPage(t, "../../docs/pass.md", table.String())
}

// requireOnPage compares the text between two marks on a page with want. With the flag -update, it writes want to
// the page instead.
func requireOnPage(t *testing.T, page, want string) {
	t.Helper()
	const begin, end = "<!-- gates -->\n", "<!-- /gates -->"
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, is := strings.Cut(string(text), begin)
	was, after, ends := strings.Cut(rest, end)
	require.True(t, is && ends, "%s has no %q", page, begin)
	if *update {
		require.NoError(t, os.WriteFile(page, []byte(before+begin+want+end+after), 0o600))
		return
	}
	assert.Equal(t, want, was, "go test ./replicas/controller -run TestTheGatesOfThePage -update writes it")
}

// The page docs/operating.md says for each reason what to do.
func TestEachReasonHasARemedy(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating.md")
	require.NoError(t, err)
	for _, row := range controller.GateTable() {
		is := regexp.MustCompile("(?m)^\\| [^|]*" + row[0] + "[^|]*\\| [A-Z]")
		assert.True(t, is.Match(text), "docs/operating.md has no row for %s", row[0])
	}
}

// Of many children and calls, a pass names the first twenty.
func TestTheTextOfALargePass(t *testing.T) {
	t.Parallel()
	r := newRig(50)
	pass, err := r.pass(t, 0)
	require.NoError(t, err)
	require.Len(t, pass.Created, 50)
	require.Len(t, pass.Calls, 51)
	assert.Equal(t, r.now, pass.Calls[50].Ended)
	assert.Equal(t, 20, strings.Count(pass.String(), "Create default/web-"), pass.String())
	assert.Contains(t, pass.String(), "default/web: 50 wanted, 0 active, 0 terminating\n")
	assert.Contains(t, pass.String(), "\n  and 31 more calls")
	pass, err = newRig(50).pass(t, 0, podsOf(r.owner, 50)...)
	require.NoError(t, err)
	assert.Contains(t, pass.String(), " 50 active (web-000 ")
	assert.Contains(t, pass.String(), " web-019 ...), 0 terminating")
}

// If Prepare adds an entry to the step, nothing is created or deleted. The pass has a gate with the error.
func TestAnAnswerOfTheAuthorThatIsWrongIsAGate(t *testing.T) {
	t.Parallel()
	r := newRig(1)
	r.kind.Prepare = func(_ context.Context, _ *appsv1.ReplicaSet, s *controller.Step[*corev1.Pod]) error {
		s.Create = append(s.Create, "x")
		return nil
	}
	pass, err := r.pass(t, 0)
	require.NoError(t, err, "trying again is useless")
	require.Len(t, pass.Gates, 1)
	assert.Equal(t, controller.HeldByPrepare, pass.Gates[0].Reason)
	assert.Equal(t, pass.Err, pass.Gates[0].Err)
}

// Only gates.go sets the field RequeueAfter of a pass, and the field retryAfter, which replaces RequeueAfter after
// an error.
func TestOnlyGatesSayWhenTheNextPassComes(t *testing.T) {
	t.Parallel()
	sets := regexp.MustCompile(`(?m)^[^=\n]*\bp\.(RequeueAfter|retryAfter)\b[^=\n]* :?= `)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	require.Contains(t, files, "gates.go")
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if !strings.HasSuffix(file, "_test.go") {
			assert.Equal(t, file == "gates.go", sets.Match(text), file)
		}
	}
}

func TestAReasonThatThereIsNot(t *testing.T) {
	t.Parallel()
	assert.Empty(t, controller.GateReason(200).String()+controller.GateReason(200).Sentence())
}

// TestHolds contains the cases that a transcript cannot express. The other cases are in the files holds.txt,
// quota.txt and retry-after.txt in testdata.
func TestHolds(t *testing.T) {
	t.Parallel()
	t.Run("a list that its own pass gave up holds nobody", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.awaits(r.owner, "web-lost")
		r.now = r.now.Add(400 * time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		r.live = func() ([]*corev1.Pod, error) {
			cancel()
			return nil, ctx.Err()
		}
		_, err := r.sync(t, ctx)
		require.ErrorIs(t, err, context.Canceled)
		r.live = func() ([]*corev1.Pod, error) { return podsOf(r.owner, 1), nil }
		pass, err := r.sync(t, t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, telemetry.LiveLists(pass.Calls))
	})
	t.Run("V16 the end of another incarnation ends no hold", func(t *testing.T) {
		t.Parallel()
		r := newRig(1)
		r.create = func(int) error { return quotaFull() }
		_, err := r.pass(t, 0)
		require.Error(t, err)
		old := r.owner.DeepCopy()
		old.UID = "old"
		require.NoError(t, r.start().OwnerDeleted(old))
		pass, err := r.passAt(t, 100*time.Millisecond)
		require.NoError(t, err)
		assert.True(t, pass.HeldBack())
	})
}
