// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

var update = flag.Bool("update", false, "write the golden outputs anew")

// fleet is a file with the output of kubectl get rs,pods -o json from a Kubernetes 1.36.3 API server. The file
// contains two ReplicaSets of one Deployment. The file fleet-a.deleted.txt lists the pods that Kubernetes deleted
// when one of these ReplicaSets was scaled down, and the time of the scaling.
const fleet = "testdata/fleet-a.json"

// atNoon are flags for a run that does not print how old a dump seems. The clock of ask stands at the same time.
var atNoon = []string{"--at=2026-11-21T12:00:00Z", "--within=1m"}

// A result is the exit code and the output of one run.
type result struct {
	code           int
	stdout, stderr string
}

// try runs the plugin at a fixed time. If args name no file, the plugin reads stdin.
func try(stdin string, args ...string) result {
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-f") }) {
		args = append([]string{"-f", "-"}, args...)
	}
	return ask(context.Background(), strings.NewReader(stdin), args...)
}

// ask runs the plugin with exactly these arguments. The clock of the plugin stands at 12:00 on 2026-11-21.
func ask(ctx context.Context, stdin io.Reader, args ...string) result {
	var stdout, stderr bytes.Buffer
	now := func() time.Time { return time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC) }
	code := run(ctx, args, genericiooptions.IOStreams{In: stdin, Out: &stdout, ErrOut: &stderr}, now)
	return result{code, stdout.String(), stderr.String()}
}

// deleted returns the time, and the names of the pods that Kubernetes deleted, from the file fleet-a.deleted.txt.
func deleted(t *testing.T) (at string, pods []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/fleet-a.deleted.txt")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	at = regexp.MustCompile(`at (\S+),`).FindStringSubmatch(lines[0])[1]
	return at, lines[1:]
}

// scaledByDeployment is the note that the plugin prints if it is asked to scale one ReplicaSet of the fleet.
const scaledByDeployment = "note: ReplicaSet fleet-1-3645/web-5d9c7b6f4d belongs to Deployment web, which resets its replicas. Scale the Deployment, and ask for deployment/web\n"

// outputs contains a section for each golden output. While a test reads or writes the file, it holds the mutex.
const outputs = "testdata/outputs.txtar"

var outputsMutex sync.Mutex

// golden compares an output with its section in the file outputs.
func golden(t *testing.T, name, got string) {
	t.Helper()
	outputsMutex.Lock()
	defer outputsMutex.Unlock()
	sections, i := outputSections(t, name)
	if *update {
		if i < 0 {
			sections, i = append(sections, ""), len(sections)
		}
		sections[i] = name + " --\n" + strings.TrimSuffix(got, "\n")
		require.NoError(t, os.WriteFile(outputs, []byte(strings.Join(sections, "\n-- ")+"\n"), 0o644))
	}
	require.NotEqual(t, -1, i, name)
	assert.Equal(t, strings.TrimPrefix(sections[i], name+" --\n")+"\n", got)
}

// outputSections returns the sections of the file outputs, and the index of the section with this name, or -1.
func outputSections(t *testing.T, name string) (sections []string, i int) {
	t.Helper()
	data, err := os.ReadFile(outputs)
	require.NoError(t, err)
	sections = strings.Split(strings.TrimSuffix(string(data), "\n"), "\n-- ")
	return sections, slices.IndexFunc(sections, func(section string) bool { return strings.HasPrefix(section, name+" --\n") })
}

func TestNamesThePodsThatKubernetesDeleted(t *testing.T) {
	t.Parallel()
	at, want := deleted(t)
	got := try("", "web-5d9c7b6f4d", "-f", fleet, "--replicas", "25", "--at", at, "-o", "name")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Equal(t, scaledByDeployment, got.stderr)
	pods := strings.Fields(strings.ReplaceAll(got.stdout, "pod/", ""))
	slices.Sort(pods)
	assert.Equal(t, want, pods)
}

func TestPrintsTheFleetInEveryForm(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	for name, flags := range map[string]string{
		"table": "", "wide": "-o wide", "json": "-o json", "name": "-o name",
		"explain": "--explain", "explain-wide": "--explain -o wide", "explain-json": "--explain -o json",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"web-5d9c7b6f4d", "--replicas", "25", "--at", at}, strings.Fields(flags)...)
			got := try("", append(args, "-f", fleet)...)
			require.Equal(t, 0, got.code, got.stderr)
			golden(t, "fleet-a."+name, got.stdout)
			for seed := range uint64(20) {
				assert.Equal(t, got, try(shuffled(t, seed), args...), "items shuffled with seed %d", seed)
			}
			assert.Equal(t, got, try(asYAML(t), args...), "the same as YAML")
		})
	}
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

// web is a ReplicaSet that wants one pod. The ReplicaSet has the pod web-a, an orphan web-o to adopt, and a pod
// web-r to release.
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
			require.Equal(t, 0, got.code, got.stderr)
			assert.Empty(t, got.stderr)
			golden(t, name, got.stdout)
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
		"a pod without node, time or conditions":     {web, []string{"--replicas=0"}, "web-o   <none>   False   <unknown>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(tt.input, tt.args...)
			require.Equal(t, 0, got.code, got.stderr)
			assert.Contains(t, got.stdout, tt.want)
		})
	}
}

// If --at is before the creation of a pod, the plugin refuses to answer. The dump does not show which pods existed
// at that time.
func TestRefusesAnInstantBeforeThePodsExisted(t *testing.T) {
	t.Parallel()
	got := try(web, "--at=2026-11-21T10:00:00Z", "--replicas=0")
	assert.Equal(t, 1, got.code)
	assert.Empty(t, got.stdout)
	assert.Regexp(t, `^error: --at 2026-11-21T10:00:00Z: pod web-[ab] of ReplicaSet shop/web did not exist then: it was created at 2026-11-21T1\d:\d\d:\d\dZ\n$`, got.stderr)
}

func TestShowsTheWholeSurplusBeyondTheBurst(t *testing.T) {
	t.Parallel()
	input := crowd(600, func(i int) string { return fmt.Sprintf("web-%d", i) }, func(int) string { return "node-1" })
	got := try(input, "--replicas=1", "-oname", "--allow-ties")
	assert.Len(t, strings.Fields(got.stdout), 599)
	got = try(input, "--replicas=1")
	assert.Contains(t, got.stdout, "\nA controller deletes 500 in one pass and decides anew after it.\n")
}

func TestSaysWhyThereAreNoNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, result{0, "", "note: 2 pods, 5 wanted: create 3\n"}, try(web, "--replicas=5", "-o=name"))
}

func TestUnderstandsFlagsAsKubectlUsersTypeThem(t *testing.T) {
	t.Parallel()
	want := try(web, "--replicas", "1", "-o", "name", "web")
	require.Equal(t, result{0, "pod/web-o\n", ""}, want)
	for _, line := range []string{
		"web --replicas 1 -o name",
		"--replicas=1 web -o=name",
		"-o name web --replicas=1",
		"-oname -nshop web",
		"--output=name --namespace=shop",
		"rs/web -o name",
		"-o name rs --replicas 1 web",
		"replicaset/web -o name",
		"replicasets/web -o name",
		"replicaset.apps/web -o name",
		"replicaset.v1.apps/web -n=shop -o name",
		"RS/web -o name",
		"rs -o name",
		"rs web -n shop -oname",
		"--explain=false -o name",
		"--request-timeout 2m -o name",
		"--request-timeout=30 -o name",
		"--request-timeout=0 -o name",
		"-o wide -o name",
		"--allow-ties -o name",
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
		got := try("", strings.Fields(line)...)
		assert.Zero(t, got.code, line)
		assert.True(t, strings.HasPrefix(got.stdout, "Usage:\n  kubectl scaledown [KIND/NAME | KIND NAME] [flags]\n\nShow which pods would go"), "the usage comes first: %.200s", got.stdout)
		assert.Contains(t, got.stdout, long)
		assert.Contains(t, got.stdout, examples)
		for _, flag := range []string{"--context", "--as ", "--all-namespaces", "--watch", "--recursive", "--no-headers", "--token"} {
			assert.Contains(t, got.stdout, flag)
		}
	}
}

func TestRefusesArgumentsThatItDoesNotUnderstand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--frobnicate"}, "unknown flag: --frobnicate\n"},
		{[]string{"--replcas=3"}, "unknown flag: --replcas (did you mean --replicas?)\n"},
		{[]string{"-x"}, "unknown shorthand flag: 'x' in -x\n"},
		{[]string{"--replicas"}, "flag needs an argument: --replicas\n"},
		{[]string{"--replicas", "-5"}, "-5 replicas: must not be negative\n"},
		{[]string{"--replicas", "many"}, "--replicas \"many\": must be a whole number from 0 to 2147483647\n"},
		{[]string{"--replicas", ""}, "--replicas \"\": must be a whole number from 0 to 2147483647\n"},
		{[]string{"--replicas", "2147483648"}, "--replicas \"2147483648\": must be a whole number from 0 to 2147483647\n"},
		{[]string{"--replicas", "3", "--steps", "2"}, "--replicas and --steps: give one of them\n"},
		{[]string{"--steps", "2,3"}, "--steps 2,3: must go down\n"},
		{[]string{"--steps", "2,-3"}, "-3 replicas: must not be negative\n"},
		{[]string{"--steps", "2,x"}, "--steps \"2,x\": must be whole numbers from 0 to 2147483647, such as 40,30,20\n"},
		{[]string{"--cost", "web-a"}, "--cost \"web-a\": must be POD=N, with a whole number N\n"},
		{[]string{"--cost", "web-a=x"}, "--cost \"web-a=x\": must be POD=N, with a whole number N\n"},
		{[]string{"--cost", "rs/web=1"}, "--cost \"rs/web\": must be a name, or pod/NAME\n"},
		{[]string{"--pod", "rs/web"}, "--pod \"rs/web\": must be a name, or pod/NAME\n"},
		{[]string{"--pod", "pod/"}, "--pod \"pod/\": must be a name, or pod/NAME\n"},
		{[]string{"--cordon", "pod/web-a"}, "--cordon \"pod/web-a\": must be a name, or node/NAME\n"},
		{[]string{"--order", "pack"}, `--order: podrank: order "pack": "pack" is not one of`},
		{[]string{"--cost", "web-a=2147483648"}, "--cost web-a=2147483648: must be a number of 32 bits\n"},
		{[]string{"--at", "yesterday"}, `--at "yesterday": must be an instant such as 2026-11-21T11:40:54Z`},
		{[]string{"--at", "0001-01-01T00:00:00Z"}, "must be an instant"},
		{[]string{"--within", "-1s"}, "--within -1s: must not be negative\n"},
		{[]string{"-o", "xml"}, `unable to match a printer suitable for the output format "xml", allowed formats are: `},
		{[]string{"-o", "jsonpath={.a"}, "unclosed action"},
		{[]string{"-o", "go-template"}, "template format specified but no template given"},
		{[]string{"--explain=maybe"}, "--explain \"maybe\": must be true or false\n"},
		{[]string{"--within", "soon"}, "--within \"soon\": must be a duration such as 90s or 5m\n"},
		{[]string{"--request-timeout", "soon"}, "Invalid timeout value. Timeout must be a single integer in seconds"},
		{[]string{"--request-timeout="}, "Invalid timeout value"},
		{[]string{"--request-timeout=-1s"}, "--request-timeout -1s: must not be negative\n"},
		{[]string{"-l", "app in"}, `--selector "app in": must name labels, such as app=web`},
		{[]string{"-l", ""}, `--selector "": must name labels, such as app=web`},
		{[]string{"rs/web", "-l", "app=web"}, `"web" and --selector: give a name or labels, not both`},
		{[]string{"rs/web", "-A"}, `a resource cannot be retrieved by name across all namespaces: "web" and --all-namespaces`},
		{[]string{"--explain", "-o", "name"}, "-o name lists the pods that go, never those that stay: leave --explain out\n"},
		{[]string{"-w"}, "--watch: a dump does not change\n"},
		{[]string{"--why-not", "--replicas=3"}, "--why-not describes an owner as it is: leave out -A, -o, -w, --compare, --explain, --pod, --replicas and --steps\n"},
		{[]string{"--why-not", "--steps=3"}, "--why-not describes an owner"},
		{[]string{"--why-not", "--pod=web-a"}, "--why-not describes an owner"},
		{[]string{"--why-not", "--explain"}, "--why-not describes an owner"},
		{[]string{"--why-not", "--compare=after.json"}, "--why-not describes an owner"},
		{[]string{"--why-not", "-A"}, "--why-not describes an owner"},
		{[]string{"--why-not", "-o=json"}, "--why-not describes an owner"},
		{[]string{"rs", "web", "api"}, `one name at most: ["rs" "web" "api"]`},
		{[]string{"web", "api"}, `cannot answer for kind "web": it does not rank pods to scale down; ask for deployment/NAME, rs/NAME or rc/NAME`},
		{[]string{"deploymnet/web"}, `cannot answer for kind "deploymnet" (did you mean deployment?): it does not rank`},
		{[]string{"sts/db"}, "it removes its highest ordinals first; ask for"},
		{[]string{"daemonset", "agent"}, `cannot answer for kind "daemonset": it has one pod on each node, and no number of replicas; ask for`},
		{[]string{"pod/web-a"}, "ask about what owns it; ask for"},
		{[]string{"deployments.extensions/web"}, `cannot answer for kind "deployments.extensions"`},
		{[]string{""}, `"" is not KIND/NAME`},
		{[]string{"rs/"}, `"rs/" has no name: say KIND/NAME`},
		{[]string{"/web"}, `"/web" is not KIND/NAME`},
		{[]string{"rs/b/c"}, `"rs/b/c" is not KIND/NAME`},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			t.Parallel()
			got := try(web, tt.args...)
			assert.Equal(t, 1, got.code)
			assert.Empty(t, got.stdout)
			assert.True(t, strings.HasPrefix(got.stderr, "error: "), got.stderr)
			assert.Contains(t, got.stderr, tt.want)
			assert.Contains(t, got.stderr, "\nSee 'kubectl scaledown --help' for usage\n")
			assert.NotContains(t, got.stderr, "strconv", "a function of Go")
			assert.NotContains(t, got.stderr, "invalid argument", "an error of a parser")
		})
	}
}

// crowd returns a ReplicaSet with n pods. The functions pod and node return the name and the node of each pod.
func crowd(n int, pod, node func(int) string) string {
	documents := strings.Split(web, "---")
	input := strings.NewReplacer("replicas: 1", fmt.Sprintf("replicas: %d", n), "replicas: 2", fmt.Sprintf("replicas: %d", n)).Replace(documents[0])
	for i := range n {
		input += "---" + strings.NewReplacer("web-a", strconv.Quote(pod(i)), "uid: a", fmt.Sprintf("uid: a%d", i), "node-1", strconv.Quote(node(i))).Replace(documents[1])
	}
	return input
}
