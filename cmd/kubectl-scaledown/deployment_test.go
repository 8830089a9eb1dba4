// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rollout is a Deployment of 4 replicas in the middle of a rollout. The new ReplicaSet has 2 replicas, and the
// previous one has 3. The oldest ReplicaSet has no replicas.
var rollout = `
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: shop, name: web, uid: d, labels: {app: web}}
spec:
  replicas: 4
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}
  template: {metadata: {labels: {app: web}}, spec: {priority: 3}}
` + revision("3", "2", "2026-11-21T11:30:00Z") + revision("2", "3", "2026-11-20T11:00:00Z") + revision("1", "0", "2026-11-19T11:00:00Z")

// revision returns a ReplicaSet of the Deployment. The annotations say that the Deployment wanted 4 replicas when
// it last sized the ReplicaSet.
func revision(n, replicas, since string) string {
	return strings.NewReplacer("$n", n, "$replicas", replicas, "$since", since).Replace(`
---
apiVersion: apps/v1
kind: ReplicaSet
metadata:
  namespace: shop
  name: web-$n
  uid: rs-$n
  labels: {app: web}
  creationTimestamp: "$since"
  annotations: {deployment.kubernetes.io/desired-replicas: "4", deployment.kubernetes.io/max-replicas: "5"}
  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d, controller: true}]
spec:
  replicas: $replicas
  selector: {matchLabels: {app: web, pod-template-hash: "$n"}}
  template: {metadata: {labels: {app: web, pod-template-hash: "$n"}}, spec: {priority: $n}}
status: {replicas: $replicas}
`)
}

// pods returns running pods of a ReplicaSet, one for each node.
func pods(set, hash string, nodes ...string) string {
	var text strings.Builder
	for i, node := range nodes {
		name := set + "-" + string(rune('a'+i))
		text.WriteString(`
---
apiVersion: v1
kind: Pod
metadata:
  namespace: shop
  name: ` + name + `
  uid: ` + name + `
  creationTimestamp: "2026-11-21T11:30:00Z"
  labels: {app: web, pod-template-hash: "` + hash + `"}
  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: ` + set + `, uid: rs-` + hash + `, controller: true}]
spec: {nodeName: ` + node + `}
status:
  phase: Running
  conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-11-21T11:31:00Z"}]
`)
	}
	return text.String()
}

var shopRollout = rollout + pods("web-2", "2", "node-1", "node-2", "node-3") + pods("web-3", "3", "node-3", "node-2")

func TestADeploymentIsPlannedByReplicaSet(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"proportions": {"deployment/web", "--replicas=2"},
		"unscaled":    {"deploy/web"},
		"zero":        {"web", "-n", "shop", "--replicas=0", "--explain"},
		"json":        {"deployment", "web", "--replicas=2", "-o", "json", "--explain"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(shopRollout, append(args, atNoon...)...)
			require.Equal(t, 0, got.code, got.stderr)
			assert.Empty(t, got.stderr)
			golden(t, "deployment-"+name, got.stdout)
		})
	}
}

func TestWhatBecomesOfADeployment(t *testing.T) {
	t.Parallel()
	edited := func(old, text string) string {
		require.Contains(t, shopRollout, old)
		return strings.Replace(shopRollout, old, text, 1)
	}
	for name, tt := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"one ReplicaSet":      {edited("replicas: 2\n", "replicas: 0\n"), []string{"--replicas=1"}, "1 replica wanted: all in one ReplicaSet.\n"},
		"a rollout":           {shopRollout, []string{"--replicas=1"}, "1 replica wanted: a rollout is under way, so each ReplicaSet is sized in proportion, surge included. The next steps of the rollout are not predicted.\n"},
		"no number":           {shopRollout, nil, "4 replicas wanted by its spec.replicas: its ReplicaSets keep their sizes. The rest of its rollout is not predicted.\n"},
		"nothing of its own":  {strings.ReplaceAll(shopRollout, "uid: d, controller", "uid: e, controller"), []string{"deployment/web", "--replicas=1"}, "1 replica wanted: it has no ReplicaSet with pods\n"},
		"a ReplicaSet's turn": {shopRollout, []string{"rs/web-2"}, "3 pods, 3 wanted by its spec.replicas: nothing to create or delete\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(tt.input, tt.args...)
			require.Equal(t, 0, got.code, got.stderr)
			assert.Contains(t, got.stdout, tt.want)
		})
	}
	for name, tt := range map[string]struct{ input, want string }{
		"no UID":                  {edited(", uid: d,", ","), "Deployment shop/web: metadata.uid is empty"},
		"no replicas":             {edited("replicas: 4\n", "paused: false\n"), "Deployment shop/web: spec.replicas is nil or negative"},
		"negative replicas":       {edited("replicas: 4\n", "replicas: -4\n"), "Deployment shop/web: spec.replicas is nil or negative"},
		"a ReplicaSet without":    {edited("replicas: 3\n", "replicas: null\n"), "ReplicaSet shop/web-2: spec.replicas is nil"},
		"a ReplicaSet of nothing": {edited(`{matchLabels: {app: web, pod-template-hash: "2"}}`, "{}"), `"shop/web-2": selector is empty`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(tt.input, "deployment/web")
			assert.Equal(t, 1, got.code)
			assert.Empty(t, got.stdout)
			assert.Contains(t, got.stderr, tt.want)
		})
	}
}

// For the deletion order, the plugin counts the pods of all ReplicaSets of the Deployment on each node. So node-2
// and node-3 have two pods each, and node-1 has one.
func TestPodsOfSiblingsCount(t *testing.T) {
	t.Parallel()
	got := try(shopRollout, "rs/web-2", "--explain", "-o=wide")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Regexp(t, `1 +no +web-2-[bc] +node-[23] .* 2 +29m`, got.stdout)
	assert.Regexp(t, `3 +no +web-2-a +node-1 .* 1 +29m .*the last one`, got.stdout)
}

// During a paused rollout, the plugin can predict each of the --steps. During a rollout that is not paused, the
// plugin refuses more than one step.
func TestStepsOfADeployment(t *testing.T) {
	t.Parallel()
	got := try(shopRollout, "deployment/web", "--steps=3,2")
	assert.Equal(t, result{1, "", "error: Deployment shop/web: --steps: a rollout is under way, and its progress between the steps cannot be predicted: ask only for the first step, or pause the rollout\n"}, got)

	paused := strings.Replace(shopRollout, "replicas: 4\n", "replicas: 4\n  paused: true\n", 1)
	got = try(paused, "deployment/web", "--steps=3,1")
	require.Equal(t, 0, got.code, got.stderr)
	const why = ": its rollout is paused, so each ReplicaSet is sized in proportion, surge included.\n"
	for _, want := range []string{
		"\n3 replicas wanted" + why, "\nweb-3        2      2\nweb-2        3      2\n", "\n3 pods, 2 wanted: delete 1, in this order:\n",
		"\n1 replica wanted" + why, "\nweb-3        2      1\nweb-2        2      1\n", "ReplicaSet web-2\n\n2 pods, 1 wanted: delete 1, in this order:\n",
	} {
		assert.Contains(t, got.stdout, want)
	}

	alone := strings.Replace(rollout, "replicas: 2\n", "replicas: 0\n", 1) + pods("web-2", "2", "node-1", "node-2", "node-3")
	assert.Contains(t, try(alone, "deployment/web", "--steps=4,2,1").stderr, "a rollout is under way", "it shall have 4 and has 3")
	alone = strings.ReplaceAll(strings.ReplaceAll(alone, "replicas: 4\n", "replicas: 3\n"), `desired-replicas: "4"`, `desired-replicas: "3"`)
	got = try(alone, "deployment/web", "--steps=3,2,1", "--allow-incomplete")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Contains(t, got.stdout, "\nweb-2        2      1\n", "what there is already is a step too")
}
