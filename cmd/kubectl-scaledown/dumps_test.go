// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// edited returns the fleet after a change of each object. The function edit gets the kind, the metadata and the
// status of an object.
func edited(t *testing.T, edit func(kind string, object, metadata, status map[string]any)) string {
	t.Helper()
	list := fleetList(t)
	for i, item := range list.Items {
		var object map[string]any
		require.NoError(t, json.Unmarshal(item, &object))
		status, _ := object["status"].(map[string]any)
		edit(object["kind"].(string), object, object["metadata"].(map[string]any), status)
		var err error
		list.Items[i], err = json.Marshal(object)
		require.NoError(t, err)
	}
	data, err := json.Marshal(list)
	require.NoError(t, err)
	return string(data)
}

// Without --at, the plugin answers for now, and says how old the dump seems. The newest pod of the fleet became
// ready seconds before the dump was made.
func TestSaysHowOldADumpSeems(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	made, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	const replicas = "--replicas=25"
	for name, tt := range map[string]struct {
		age  time.Duration
		args []string
		more string
		want string
	}{
		"a week":                          {7 * 24 * time.Hour, []string{replicas}, "", "note: the input seems to be 7d old, because nothing in it is newer than 2026-11-21T11:40:49Z. The answer is for now, as if nothing had changed since. If the input was saved at another time, give that time with --at\n"},
		"a week, for --why-not":           {7 * 24 * time.Hour, []string{"--why-not"}, "", "note: the input seems to be 7d old"},
		"a week, as names":                {7 * 24 * time.Hour, []string{replicas, "-o=name", "--allow-ties"}, "", "note: the input seems to be 7d old"},
		"a week, but its time is given":   {7 * 24 * time.Hour, []string{replicas, "--at=" + at}, "", ""},
		"a minute":                        {time.Minute, []string{replicas}, "", ""},
		"a kubelet reported a node":       {time.Hour, []string{replicas}, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"2026-11-21T12:36:00Z"}]}}`, ""},
		"the last event is an hour old":   {8 * time.Hour, []string{replicas}, `{"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},"lastTimestamp":"2026-11-21T18:40:00Z"}`, "note: the input seems to be 60m old"},
		"the last rollout is an hour old": {8 * time.Hour, []string{replicas}, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"status":{"conditions":[{"lastUpdateTime":"2026-11-21T18:40:00Z"}]}}`, "note: the input seems to be 60m old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dump, err := os.ReadFile(fleet)
			require.NoError(t, err)
			var stdout, stderr strings.Builder
			streams := genericiooptions.IOStreams{In: strings.NewReader(string(dump) + tt.more), Out: &stdout, ErrOut: &stderr}
			code := run(context.Background(), append([]string{"web-5d9c7b6f4d", "-f=-"}, tt.args...), streams, func() time.Time { return made.Add(tt.age) })
			require.Zero(t, code, &stderr)
			if tt.want == "" {
				assert.NotContains(t, stderr.String(), "seems")
				return
			}
			assert.Contains(t, stderr.String(), tt.want)
		})
	}
}

// If an object lacks what the order compares, no pod is certain, with any order. Only all pods together are.
func TestADumpThatLacksFieldsIsNotCertain(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	for name, tt := range map[string]struct {
		edit func(kind string, object, metadata, status map[string]any)
		want string
	}{
		"UIDs": {func(kind string, _, metadata, _ map[string]any) {
			if kind == "Pod" {
				delete(metadata, "uid")
			}
		}, "UIDs of pods"},
		"creation times": {func(_ string, _, metadata, _ map[string]any) { delete(metadata, "creationTimestamp") }, "creation times of pods"},
		"statuses of pods": {func(kind string, object, _, _ map[string]any) {
			if kind == "Pod" {
				delete(object, "status")
			}
		}, "statuses of pods"},
		"a phase": {func(_ string, _, metadata, status map[string]any) {
			if metadata["name"] == "web-5d9c7b6f4d-jb62l" {
				delete(status, "phase")
			}
		}, "statuses of pods"},
		"all statuses": {func(_ string, object, _, _ map[string]any) { delete(object, "status") }, "the status of ReplicaSet fleet-1-3645/web-5d9c7b6f4d, statuses of pods"},
		"the status of the owner": {func(kind string, object, _, _ map[string]any) {
			if kind == "ReplicaSet" {
				delete(object, "status")
			}
		}, "the status of ReplicaSet fleet-1-3645/web-5d9c7b6f4d"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dump := edited(t, tt.edit)
			for _, order := range []string{"", "--order=newest"} {
				args := []string{"web-5d9c7b6f4d", "--at=" + at}
				if order != "" {
					args = append(args, order)
				}
				got := try(dump, append(args, "--replicas=25")...)
				require.Zero(t, got.code, got.stderr)
				assert.Contains(t, got.stdout, "but it is not known which: the input lacks "+tt.want+"; kube-controller-manager chooses by these, replicakit-controller by these.\n")
				object, _ := answered(t, dump, append(args, "--replicas=25")...)
				assert.False(t, object.Certain)
				assert.Contains(t, try(dump, append(args, "--replicas=25", "-o=name")...).stderr, "but it is not known which (--allow-ties prints one choice): the input lacks "+tt.want)
				names := strings.Fields(try(dump, append(args, "--replicas=0", "-o=name")...).stdout)
				assert.GreaterOrEqual(t, len(names), 40, "all go, and without statuses pods that have failed seem to be among them")
			}
		})
	}
}

// A wrong --order is an error before anything is read.
func TestAWrongOrderIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	got := ask(t.Context(), nil, "deployment/web", "--order=pack", "--kubeconfig", kubeconfigOf(t, "http://127.0.0.1:1"))
	assert.Contains(t, got.stderr, `error: --order: podrank: order "pack": "pack" is not one of`)
}

// The field of a PodDisruptionBudget can be a text that is no percentage, if a dump was changed by hand.
func TestABudgetWithoutAPercentage(t *testing.T) {
	t.Parallel()
	got := try(strings.Replace(zoned, "34%", "x%", 1), "--replicas=3")
	_, said, _ := strings.Cut(got.stderr, "error: ")
	assert.Equal(t, "PodDisruptionBudget shop/thirds: minAvailable or maxUnavailable is neither a number nor a percentage\n", said)
}
