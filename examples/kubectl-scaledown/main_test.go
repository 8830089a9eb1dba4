// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
)

var update = flag.Bool("update", false, "write the golden files anew")

// fleet is what kubectl get rs,pods -o json printed on a Kubernetes 1.36.3 API
// server: two ReplicaSets of one Deployment. fleet-a.deleted.txt beside it says
// which pods Kubernetes itself deleted when one of them was scaled down, and
// when.
const fleet = "testdata/fleet-a.json"

// A result is what a user sees of one run.
type result struct {
	code           int
	stdout, stderr string
}

// try runs the program with stdin at a fixed instant.
func try(stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	now := func() time.Time { return time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC) }
	code := run(args, strings.NewReader(stdin), &stdout, &stderr, now)
	return result{code, stdout.String(), stderr.String()}
}

// deleted returns the instant and the pods of fleet-a.deleted.txt: what
// Kubernetes deleted.
func deleted(t *testing.T) (at string, pods []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/fleet-a.deleted.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	at = regexp.MustCompile(`at (\S+),`).FindStringSubmatch(lines[0])[1]
	return at, lines[1:]
}

// scaledByDeployment is what is said whenever one ReplicaSet of the fleet shall be
// scaled.
const scaledByDeployment = "note: ReplicaSet fleet-1-3645/web-5d9c7b6f4d belongs to Deployment web, which sets its replicas again: scale that one, and ask for deployment/web\n"

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func TestNamesThePodsThatKubernetesDeleted(t *testing.T) {
	t.Parallel()
	at, want := deleted(t)
	got := try("", "web-5d9c7b6f4d", "-f", fleet, "--replicas", "25", "--at", at, "-o", "name")
	require.Equal(t, exitOK, got.code, got.stderr)
	assert.Equal(t, scaledByDeployment, got.stderr)
	pods := strings.Fields(strings.ReplaceAll(got.stdout, "pod/", ""))
	slices.Sort(pods)
	assert.Equal(t, want, pods)
}

func TestPrintsTheFleetInEveryForm(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	for name, flags := range map[string]string{
		"table": "-o table", "wide": "-o wide", "json": "-o json", "name": "-o name", "svg": "-o svg",
		"explain": "--explain", "explain-wide": "--explain -o wide", "explain-json": "--explain -o json", "explain-svg": "--explain -o svg",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"web-5d9c7b6f4d", "--replicas", "25", "--at", at}, strings.Fields(flags)...)
			got := try("", append(args, "-f", fleet)...)
			require.Equal(t, exitOK, got.code, got.stderr)
			golden(t, goldenOf(name), got.stdout)
			for seed := range uint64(20) {
				assert.Equal(t, got, try(shuffled(t, seed), args...), "items shuffled with seed %d", seed)
			}
			assert.Equal(t, got, try(asYAML(t), args...), "the same as YAML")
		})
	}
}

// goldenOf returns the file of a form of the fleet. The README shows the picture.
func goldenOf(form string) string {
	if form == "svg" {
		return "../../../docs/scaledown.svg"
	}
	return "fleet-a." + form + ".golden"
}

// shuffled returns the fleet with its items in another order.
func shuffled(t *testing.T, seed uint64) string {
	t.Helper()
	list := fleetList(t)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(list.Items), func(i, j int) {
		list.Items[i], list.Items[j] = list.Items[j], list.Items[i]
	})
	data, err := json.Marshal(list)
	require.NoError(t, err)
	return string(data)
}

type list struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func fleetList(t *testing.T) (l list) {
	t.Helper()
	data, err := os.ReadFile(fleet)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &l))
	return l
}

// asYAML returns the fleet as kubectl get -o yaml prints it.
func asYAML(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(fleet)
	require.NoError(t, err)
	var value map[string]any
	require.NoError(t, utiljson.Unmarshal(data, &value))
	return mergepatch.ToYAMLOrError(value)
}

// web is a ReplicaSet of one pod, web-a, with an orphan to adopt, web-o, and a
// pod to release, web-r.
const web = `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {namespace: shop, name: web, labels: {app: web}, uid: rs-1}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}}
status: {replicas: 2}
---
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web-a
  uid: a
  creationTimestamp: "2026-11-21T11:00:00Z"
  labels: {app: web}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: rs-1, controller: true}]
spec: {nodeName: node-1}
status:
  phase: Running
  conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-11-21T11:00:10Z"}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: web-o, uid: o, labels: {app: web}}
status: {phase: Pending}
---
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: web-r
  uid: r
  creationTimestamp: "2026-11-21T11:59:00Z"
  labels: {app: debug}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: rs-1, controller: true}]
spec: {nodeName: node-2}
status: {phase: Running}
`

func TestSaysWhatIsAdoptedReleasedAndCreated(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"claims-and-delete": {"--replicas", "1"},
		"claims-and-create": {"--replicas", "5"},
		"claims-only":       {"--replicas", "2"},
		"claims-json":       {"-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(web, args...)
			require.Equal(t, exitOK, got.code, got.stderr)
			assert.Empty(t, got.stderr)
			golden(t, name+".golden", got.stdout)
		})
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	deleting := strings.Replace(web, "uid: rs-1}", `uid: rs-1, deletionTimestamp: "2026-11-21T11:59:30Z"}`, 1)
	for name, tt := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"spec.replicas where no number is asked for": {web, nil, "\n2 pods, 1 wanted by its spec.replicas: delete 1, in this order:\n"},
		"a number asked for":                         {web, []string{"--replicas=0"}, "\n2 pods, 0 wanted: delete 2, in this order:\n"},
		"enough pods":                                {web, []string{"--replicas=2"}, "\n2 pods, 2 wanted: nothing to create or delete\n"},
		"far more than there are":                    {web, []string{"--replicas=2147483647"}, ": create 2147483645\n"},
		"owner being deleted":                        {deleting, nil, ": nothing to create or delete, as the owner is being deleted\n"},
		"the default instant is now":                 {web, nil, "ReplicaSet shop/web at 2026-11-21T12:00:00Z\n"},
		"instants are shown in UTC":                  {web, []string{"--at=2026-11-21T13:30:00.5+01:00"}, " at 2026-11-21T12:30:00.5Z\n"},
		"an instant before the pods were made":       {web, []string{"--at=2026-11-21T10:00:00Z", "--replicas=0"}, "web-a   node-1   True    <invalid>"},
		"a pod without node, time or conditions":     {web, []string{"--replicas=0"}, "web-o   <none>   False   <unknown>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(tt.input, tt.args...)
			require.Equal(t, exitOK, got.code, got.stderr)
			assert.Contains(t, got.stdout, tt.want)
		})
	}
}

func TestShowsTheWholeSurplusBeyondTheBurst(t *testing.T) {
	t.Parallel()
	documents := strings.Split(web, "---")
	var input strings.Builder
	input.WriteString(documents[0])
	for i := range 600 {
		pod := strings.NewReplacer("web-a", fmt.Sprintf("web-%d", i), "uid: a", fmt.Sprintf("uid: a%d", i))
		input.WriteString("---" + pod.Replace(documents[1]))
	}
	got := try(input.String(), "--replicas=1", "-o=name")
	assert.Len(t, strings.Fields(got.stdout), 599)
	got = try(input.String(), "--replicas=1")
	assert.Contains(t, got.stdout, "\nA controller deletes 500 in one pass and decides anew after it.\n")
}

func TestSaysWhyThereAreNoNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, result{exitOK, "", "note: 2 pods, 5 wanted: create 3\n"}, try(web, "--replicas=5", "-o=name"))
}

func TestUnderstandsFlagsAsKubectlUsersTypeThem(t *testing.T) {
	t.Parallel()
	want := try(web, "--replicas", "1", "-o", "name", "web")
	require.Equal(t, result{exitOK, "pod/web-o\n", ""}, want)
	for _, line := range []string{
		"web --replicas 1 -o name",
		"--replicas=1 web -o=name",
		"-o name web --replicas=1",
		"-oname -nshop web",
		"--output=name --namespace=shop",
		"--output name --namespace shop --filename -",
		"-replicas 1 -output name",
		"rs/web -o name",
		"rs web -o name",
		"-o name rs --replicas 1 web",
		"replicaset/web -o name",
		"replicasets/web -o name",
		"replicaset.apps/web -o name",
		"replicaset.v1.apps/web -n=shop -o name",
		"RS/web -o name",
		"rs -o name",
		"rs web -n shop -oname",
		"-l app=web -o name",
		"-lapp=web,tier!=db -o name",
		"rs --selector=app -o name",
		"--explain=false -o name",
		"--request-timeout 2m -o name",
		"--request-timeout=30 -o name",
		"--request-timeout=0 -o name",
		"-o table -o name",
		"-f - -o name",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, want, try(web, strings.Fields(line)...))
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"-h", "--help", "web --help", "--replicas 3 -h"} {
		assert.Equal(t, result{exitOK, usage, ""}, try("", strings.Fields(line)...), line)
	}
}

func TestRefusesArgumentsThatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--frobnicate"}, "flag provided but not defined: --frobnicate"},
		{[]string{"web", "-A"}, "flag provided but not defined: -A"},
		{[]string{"web", "--replicas"}, "flag needs an argument: --replicas"},
		{[]string{"--replicas", "-5"}, `invalid value "-5" for flag --replicas: must be a whole number from 0 to 2147483647`},
		{[]string{"--replicas", "many"}, `invalid value "many" for flag --replicas`},
		{[]string{"--replicas", ""}, `invalid value "" for flag --replicas`},
		{[]string{"--replicas", "2147483648"}, `invalid value "2147483648" for flag --replicas`},
		{[]string{"--at", "yesterday"}, `invalid value "yesterday" for flag --at: must be an instant such as 2026-11-21T11:40:54Z`},
		{[]string{"--at", "0001-01-01T00:00:00Z"}, "for flag --at: must be an instant"},
		{[]string{"-o", "yaml"}, `invalid value "yaml" for flag -o: must be table, wide, json, name or svg`},
		{[]string{"-f", ""}, `invalid value "" for flag -f: must name a file`},
		{[]string{"--context", ""}, `invalid value "" for flag --context: must not be empty`},
		{[]string{"--explain=maybe"}, `invalid boolean value "maybe" for --explain: must be true or false`},
		{[]string{"--request-timeout", "soon"}, `invalid value "soon" for flag --request-timeout: must be a time such as 30s, or 0 for no limit`},
		{[]string{"--request-timeout", "1.5"}, `must be a time such as 30s`},
		{[]string{"--request-timeout=-1s"}, `invalid value "-1s" for flag --request-timeout: must be a time such as 30s`},
		{[]string{"--request-timeout="}, `invalid value "" for flag --request-timeout: must be a time such as 30s`},
		{[]string{"-l", "app in"}, `invalid value "app in" for flag -l: `},
		{[]string{"-l", ""}, `invalid value "" for flag -l: must name labels, as app=web`},
		{[]string{"rs/web", "-l", "app=web"}, `"web" and -l: give a name or labels, not both`},
		{[]string{"--explain", "-o", "name"}, "-o name lists the pods that go, never those that stay: leave --explain out"},
		{[]string{"-f", "a", "--context=b"}, "two sources: -f a and the cluster (--context=b): leave one out"},
		{[]string{"-f", "-", "--kubeconfig=b"}, "two sources: -f - and the cluster (--kubeconfig=b): leave one out"},
		{[]string{"--context=b"}, "two sources: standard input and the cluster (--context=b): leave one out"},
		{[]string{"rs", "web", "api"}, `one name at most: ["rs" "web" "api"]`},
		{[]string{"web", "api"}, `cannot tell for kind "web": it does not rank pods to scale down; ask for deployment/NAME, rs/NAME or rc/NAME`},
		{[]string{"sts/db"}, `cannot tell for kind "sts": it removes its highest ordinals first; ask for`},
		{[]string{"daemonset", "agent"}, `cannot tell for kind "daemonset": it has a pod on each node, and no number; ask for`},
		{[]string{"pod/web-a"}, `cannot tell for kind "pod": ask about what owns it; ask for`},
		{[]string{"shop/web"}, `cannot tell for kind "shop": it does not rank pods to scale down; ask for deployment/NAME, rs/NAME or rc/NAME, and give a namespace with -n`},
		{[]string{"deployments.extensions/web"}, `cannot tell for kind "deployments.extensions"`},
		{[]string{""}, `"" is not KIND/NAME`},
		{[]string{"rs/"}, `"rs/" has no name: say KIND/NAME`},
		{[]string{"/web"}, `"/web" is not KIND/NAME`},
		{[]string{"rs/b/c"}, `"rs/b/c" is not KIND/NAME`},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			got := try(web, tt.args...)
			assert.Equal(t, exitUsage, got.code)
			assert.Empty(t, got.stdout)
			assert.True(t, strings.HasPrefix(got.stderr, "error: "), got.stderr)
			assert.Contains(t, got.stderr, tt.want)
			assert.Contains(t, got.stderr, "\nSee 'kubectl scaledown --help'.\n")
		})
	}
}
