// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/replicas/controllerruntime"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/replicas/transport"
)

// The program in the README is that of the function Example, with the function pools before it.
func TestREADME(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, kind, _ := strings.Cut(string(source), "\nfunc pools() ")
	kind, _, _ = strings.Cut(kind, "\n}\n")
	_, body, _ := strings.Cut(string(source), "\nfunc Example() ")
	body, _, _ = strings.Cut(body, "\n}\n")
	program := "func pools() " + kind + "\n}\n\nfunc main() " + body + "\n}\n"
	assert.LessOrEqual(t, strings.Count(program, "\n"), 45, "lines")
	assert.Contains(t, string(readme), "```go\n"+program+"```\n")
}

// The command go doc prints the comment of the package and then its functions. Both fit on a screen of 24 lines.
func TestTheFirstScreenShowsAFunction(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, comment, _ := strings.Cut(string(doc), "\n\n")
	assert.LessOrEqual(t, strings.Count(comment, "\n//")+1, 17, "lines; go doc breaks lines at 80 characters, so it prints more")
}

// The README's program, tested as docs/testing.md says.
func TestPools(t *testing.T) {
	t.Parallel()
	wants := func(n int32) func(*WorkerPool) {
		return func(p *WorkerPool) { p.Spec.Replicas = n }
	}
	err := replicastest.Play(1, 100, func(s *replicastest.Story[*WorkerPool, *Worker]) {
		s.Kind = pools()
		s.Owner = &WorkerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "blue"}, Spec: WorkerPoolSpec{Replicas: 3}}
		s.Ready = func(w *Worker) { w.Status.Ready = true }
		s.Changes = []func(*WorkerPool){wants(2), wants(5)}
		s.Always = map[string]func() error{"never more than five": s.AtMost(5), "never fewer than two": s.AtLeast(2)}
		s.AtEnd = map[string]func() error{"as many as wanted": s.AsWanted}
	})
	if err != nil {
		t.Error(err)
	}
}

// A WorkerPoolReconciler is what kubebuilder makes for an API, without the method Reconcile.
type WorkerPoolReconciler struct {
	client.Client

	Scheme  *runtime.Scheme
	Watches *transport.Watches
}

// SetupWithManager sets up the controller with the Manager, as docs/adopting.md says.
func (r *WorkerPoolReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return controllerruntime.Add(mgr, pools(), controllerruntime.Options{Watches: r.Watches})
}

func TestSetupWithManager(t *testing.T) {
	t.Parallel()
	assert.EqualError(t, (&WorkerPoolReconciler{}).SetupWithManager(nil), "controllerruntime: manager is nil")
}
