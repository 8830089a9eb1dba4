// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

// zoned is a ReplicaSet of six ready pods in two zones. Only the third pod is on node-c. Two PodDisruptionBudgets
// select these pods, and a third one selects other pods.
var zoned = func() string {
	names := []string{"a", "b", "c", "d", "e", "f"}
	nodes := []string{"node-a", "node-a", "node-c", "node-b", "node-b", "node-b"}
	input := crowd(6, func(i int) string { return "web-" + names[i] }, func(i int) string { return nodes[i] })
	for node, zone := range map[string]string{"node-a": "east", "node-c": "east", "node-b": "west"} {
		input += fmt.Sprintf("---\n{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {topology.kubernetes.io/zone: %s}}}\n", node, zone)
	}
	for name, spec := range map[string]string{
		"four":   "minAvailable: 4, selector: {matchLabels: {app: web}}",
		"thirds": "maxUnavailable: 34%, selector: {matchLabels: {app: web}}",
		"others": "minAvailable: 1, selector: {matchLabels: {app: db}}",
	} {
		input += fmt.Sprintf("---\n{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {namespace: shop, name: %s}, spec: {%s}}\n", name, spec)
	}
	return input
}()

// answered returns the JSON of an answer, and the names of the pods that go.
func answered(t *testing.T, input string, args ...string) (object scaleDown, names []string) {
	t.Helper()
	got := try(input, append(args, "-o=json")...)
	require.Equal(t, 0, got.code, got.stderr)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &object))
	return object, strings.Fields(strings.ReplaceAll(try(input, append(args, "-o=name", "--allow-ties")...).stdout, "pod/", ""))
}

func TestZonesAndBudgets(t *testing.T) {
	t.Parallel()
	got := try(zoned, "--replicas=3")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Contains(t, got.stdout, "\nZONE   BEFORE   AFTER\neast   3        0-3\nwest   3        0-3\n", "all six are alike")
	assert.Regexp(t, `(?m)^BUDGET +READY +AFTER +WANTS +BROKEN\nfour +6 +3 +4 +yes\nthirds +6 +3 +1 +no\n`, sortedBudgets(got.stdout))

	object, _ := answered(t, zoned, "--replicas=3", "--order=zones")
	assert.Equal(t, []change{{"east", 3, 2, 2}, {"west", 3, 1, 1}}, sortedByStaying(object.Zones), "zones stay even, and replicakit-controller's order has no ties")
	assert.True(t, object.Certain)
}

// If an owner asks replicakit-controller for an order by annotation, the plugin still answers for
// kube-controller-manager. If --order is not set and a pod would be deleted, the plugin prints a note about the
// annotation.
func TestAnOrderByAnnotation(t *testing.T) {
	t.Parallel()
	annotated := strings.Replace(zoned, "metadata: {", "metadata: {annotations: {replicakit.dev/scale-down-order: packed}, ", 1)
	require.NotEqual(t, zoned, annotated)
	const note = "asks replicakit-controller for the order packed, which kube-controller-manager does not know; use --order packed to answer with that order\n"
	assert.Contains(t, try(annotated, "--replicas=3").stderr, note)
	assert.NotContains(t, try(annotated, "--replicas=6").stderr, note, "nothing goes")
	assert.NotContains(t, try(annotated, "--replicas=3", "--order=packed").stderr, note)
}

// sortedBudgets sorts the rows of the last table, because zoned contains the budgets in random order.
func sortedBudgets(text string) string {
	head, rows, _ := strings.Cut(text, "BROKEN\n")
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	slices.Sort(lines)
	return head + "BROKEN\n" + strings.Join(lines, "\n") + "\n"
}

func sortedByStaying(zones []change) []change {
	if zones[0].Least < zones[1].Least {
		zones[0].Name, zones[1].Name = zones[1].Name, zones[0].Name
		slices.Reverse(zones)
	}
	return zones
}

func TestWhatIfADeletionCostWereAnother(t *testing.T) {
	t.Parallel()
	_, names := answered(t, zoned, "--replicas=5", "--cost=web-d=-7")
	assert.Equal(t, []string{"web-d"}, names)
	_, names = answered(t, zoned, "--replicas=5", "--cost=pod/web-d=-7")
	assert.Equal(t, []string{"web-d"}, names)
	_, names = answered(t, zoned, "--replicas=1", "--cost=web-d=7")
	assert.NotContains(t, names, "web-d")
	assert.Equal(t, result{1, "", "error: --cost: 0 pods of name web-dd in the input (did you mean web-a, web-b, web-c?)\n"}, try(zoned, "--cost=web-dd=1"))
}

func TestWhatIfANodeWereCordoned(t *testing.T) {
	t.Parallel()
	_, names := answered(t, zoned, "--replicas=5", "--cordon=node-c", "--order=leaving")
	assert.Equal(t, []string{"web-c"}, names)
	_, names = answered(t, zoned, "--replicas=5", "--cordon=node/node-c", "--order=leaving")
	assert.Equal(t, []string{"web-c"}, names)
	assert.Contains(t, try(zoned, "--replicas=5", "--cordon=node-c").stderr, "note: Kubernetes' order does not ask whether a node is cordoned")
	assert.Contains(t, try(zoned, "--cordon=node-x").stderr, "error: --cordon: no node node-x, and no pod on this node, in the input\n")
	_, names = answered(t, zoned, "--replicas=3", "--order=kubernetes,packed")
	assert.Equal(t, []string{"web-c", "web-a", "web-b"}, names, "two nodes are emptied")
	assert.Contains(t, try(zoned, "--order=pack").stderr, `error: --order: podrank: order "pack": "pack" is not one of deletion-cost, kubernetes, leaving, newest, packed, zones (did you mean packed?)`)
	assert.Contains(t, try(web, "--order=zones").stderr, "error: --order zones: no node with label topology.kubernetes.io/zone in the input\n")
}

// With the flag --pod, the plugin predicts the pod's place in the deletion order for two possible deletion costs.
// If the flag --cost sets one of the two costs, the pod gets the predicted place.
func TestWhyOnePodGoesOrStays(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	ask := func(pod string, args ...string) position {
		t.Helper()
		object, _ := answered(t, "", append(args, "-f", fleet, "rs/web-5d9c7b6f4d", "--replicas=25", "--at="+at, "--pod="+pod)...)
		return *object.Pod
	}
	stays := ask("web-5d9c7b6f4d-rf8mt")
	assert.Equal(t, position{
		Name: "web-5d9c7b6f4d-rf8mt", Place: 39, Of: 40, Goes: "no",
		Reason: "web-5d9c7b6f4d-ffzks is the last pod to be deleted. It ranks before this pod: not ready",
		First:  &costing{-1, 17, false}, Protect: &costing{101, 40, false},
	}, stays)
	goes := ask("web-5d9c7b6f4d-6kf5f")
	assert.Equal(t, "yes", goes.Goes)
	assert.Equal(t, "deletion cost -200 < 0", goes.Reason)
	for _, p := range []position{stays, goes, ask("web-5d9c7b6f4d-fsv2r")} {
		for _, c := range []*costing{p.First, p.Protect} {
			then := ask(p.Name, fmt.Sprintf("--cost=%s=%d", p.Name, c.Cost))
			assert.Equal(t, c.Place, then.Place, "%s with cost %d", p.Name, c.Cost)
			assert.Equal(t, c.Goes, then.Goes == "yes", "%s with cost %d", p.Name, c.Cost)
		}
	}
	text := try("", "-f", fleet, "rs/web-5d9c7b6f4d", "--replicas=25", "--at="+at, "--pod="+stays.Name).stdout
	assert.Contains(t, text, "\nweb-5d9c7b6f4d-rf8mt is number 39 of 40 to go.\nGoes: no\nWhy: web-5d9c7b6f4d-ffzks is the last pod to be deleted. It ranks before this pod: not ready\n"+
		"With deletion cost -1 it is number 17, and stays.\nWith deletion cost 101 it is number 40, and stays.\n")
	assert.Contains(t, try(zoned, "--replicas=3", "--pod=web-e").stdout, "\nGoes: maybe: 3 of 6 tied pods are deleted\n")
	assert.Contains(t, try(zoned, "--replicas=3", "--pod=web-x").stderr, "error: --pod: ReplicaSet shop/web has no pod web-x (did you mean web-a, web-b, web-c?)\n")
	assert.Equal(t, text, try("", "-f", fleet, "rs/web-5d9c7b6f4d", "--replicas=25", "--at="+at, "--pod=Pod/"+stays.Name).stdout, "as kubectl -o name prints it")
	assert.Contains(t, try(web, "--replicas=1", "--pod=web-o").stdout, "No deletion cost would change its place")
}

// Several steps together delete the same number of pods as one large step. Each step ranks the remaining pods
// again.
func TestSteps(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	args := []string{"-f", fleet, "rs/web-5d9c7b6f4d", "--at=" + at}
	steps := strings.Fields(try("", append(args, "--steps=35,30,25", "-o=name")...).stdout)
	assert.Len(t, steps, 15)
	var first []string
	for line := range strings.Lines(try("", append(args, "--replicas=35", "-o=name")...).stdout) {
		first = append(first, strings.TrimSpace(line))
	}
	assert.Equal(t, first, steps[:5])
	text := try("", append(args, "--steps=35,30,25")...).stdout
	for _, want := range []string{"\n40 pods, 35 wanted: delete 5,", "\n35 pods, 30 wanted: delete 5,", "\n30 pods, 25 wanted: delete 5,"} {
		assert.Contains(t, text, want)
	}
	var list struct{ Items []scaleDown }
	require.NoError(t, json.Unmarshal([]byte(try("", append(args, "--steps=35,30", "-o=json")...).stdout), &list))
	require.Len(t, list.Items, 2)
	assert.Equal(t, []int32{35, 30}, []int32{list.Items[0].Replicas, list.Items[1].Replicas})
	assert.Contains(t, try("", "-f", fleet, "-f", shop, "deployment/web", "--steps=9,8").stderr, "--steps: a rollout is under way")
}

// In the later dump of this test, one of the pods that Kubernetes deleted still exists, and one pod that Kubernetes
// did not delete is missing. The comparison names these two pods.
func TestComparesWithWhatWasLater(t *testing.T) {
	t.Parallel()
	at, gone := deleted(t)
	after := fleetList(t)
	isGone := regexp.MustCompile(`"name": ?"(` + strings.Join(gone[1:], "|") + `|web-5d9c7b6f4d-4dfk4)"`)
	after.Items = slices.DeleteFunc(after.Items, func(item json.RawMessage) bool { return isGone.Match(item) })
	data, err := json.Marshal(after)
	require.NoError(t, err)
	path := t.TempDir() + "/after.json"
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(data), `"replicas":40`, `"replicas":25`, 1)), 0o600))
	args := []string{"-f", fleet, "rs/web-5d9c7b6f4d", "--replicas=25", "--at=" + at, "--compare", path}
	assert.Contains(t, try("", args...).stdout, "\n15 pods went since.\n14 of the 15 that were certain did.\nCertain to go, and still there: "+gone[0]+".\nCertain to stay, and gone: web-5d9c7b6f4d-4dfk4.\n")
	object, _ := answered(t, "", args...)
	assert.Equal(t, &comparison{Gone: 15, Certain: 14, Named: 15, Kept: gone[:1], Others: []string{"web-5d9c7b6f4d-4dfk4"}}, object.Compared)
	tied := try(zoned, "--replicas=3", "--compare", path)
	assert.Contains(t, tied.stdout, "6 pods went since.\n0 of the 0 that were certain did.\n6 of the 6 that were a tie did, and 3 were to go.\n")
	assert.Contains(t, try(zoned, "--compare", path).stderr, "error: --compare: no ReplicaSet shop/web with spec.replicas in the later dump: give --replicas\n")
}

func TestManyPodsStartWithASummary(t *testing.T) {
	t.Parallel()
	input := crowd(200, func(i int) string { return fmt.Sprintf("web-%03d", i) }, func(i int) string { return fmt.Sprintf("node-%d", i) })
	input = strings.Replace(input, `status: "True"`, `status: "False"`, 1)
	assert.Contains(t, try(input, "--replicas=180").stdout, "\nGO BECAUSE OF   PODS   CERTAIN\nnot-ready       1      1\nuid             19     0\n\nPOD ")
}

func TestSeveralOwnersAreALineEach(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	got := try("", "-f", fleet, "-f", shop, "-A", "--replicas=3", "--at="+at)
	assert.Regexp(t, `^NAMESPACE +NAME +PODS +WANTED +GO +CERTAIN +TIES\nfleet-1-3645 +deployment/web +48 +3 +44 .*\nfleet-1-3645 +rc/legacy +1 +3 +0 +0 +none\n$`, got.stdout)
	assert.Regexp(t, `^NAMESPACE +NAME .*\nshop +rs/web +2 +1 +1 +1 +none\n$`, try(web, "-A").stdout, "one, too")
	assert.Contains(t, try("", "-f", fleet, "-f", shop, "-A", "-o=name").stderr, "error: -o name, --pod and --compare need exactly one object: name one of these: deployment/web, rc/legacy\n")
	assert.Contains(t, try("", "-f", fleet, "-f", shop, "-A", "-o=jsonpath={.items[*].for.name}").stdout, "web legacy")
}

// On a terminal, the header of a table is bold, and rows that are not certain are yellow.
func TestColours(t *testing.T) {
	t.Parallel()
	o := &options{format: genericclioptions.NewPrintFlags("")}
	assert.False(t, o.colours(), "this is no terminal")
	table := o.table("POD", "CERTAIN")
	table.coloured = true
	table.add(false, "a", "yes")
	table.add(true, "b", "1 of 2")
	var out bytes.Buffer
	require.NoError(t, table.print(&out))
	assert.Equal(t, "\x1b[1mPOD   CERTAIN\x1b[0m\na     yes\n\x1b[33mb     1 of 2\x1b[0m\n", out.String())
}
