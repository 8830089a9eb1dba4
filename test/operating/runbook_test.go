// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package operating_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// commandsOf returns the commands of a page by section. For each section, the shell blocks come first, and then
// the kubectl commands in the text.
func commandsOf(page string) map[string][]string {
	commands := map[string][]string{}
	headings := regexp.MustCompile(`(?m)^##+ (.*)\n`).FindAllStringSubmatchIndex(page, -1)
	block, inline := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$"), regexp.MustCompile("`(kubectl [^`]+)`")
	for i, at := range headings {
		end := len(page)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		section, text := page[at[2]:at[3]], page[at[1]:end]
		for _, found := range block.FindAllStringSubmatch(text, -1) {
			if found[1] == "sh" {
				commands[section] = append(commands[section], found[2])
			}
		}
		for _, found := range inline.FindAllStringSubmatch(block.ReplaceAllString(text, ""), -1) {
			commands[section] = append(commands[section], found[1])
		}
	}
	return commands
}

// For each section of docs/operating.md that has commands, the test puts the cluster into the situation of the
// section. Each command of the section then succeeds, and prints the expected text.
func TestTheCommandsOfTheRunbook(t *testing.T) {
	t.Parallel()
	f := fleetOf(t)
	commands := commandsOf(runbook(t))
	// The fleet was installed with the commands of the section Install. TestAPrometheusSeesARestoredServer runs
	// the commands of the other section.
	sections := []string{"Install", "ReplicakitServerRestored"}
	//nolint:paralleltest // there is one fleet, and what happens to it comes one after the other
	for _, story := range []struct {
		section string
		given   func(*testing.T, *fleet)
		says    []string // the expected output of each command
	}{
		{"Look at first", nothing, []string{`(?s)holderIdentity: \S+_.*No resources found in kube-system`, `^\S+ +replicaset.apps/\S+ +[0-9]+ +[0-9]+ +0 `}},
		{"ReplicakitAbsent", nothing, []string{"^ok$"}},
		{"ReplicakitNoLeader", nothing, []string{"^ok$"}},
		{"ReplicakitOtherController", anotherWritesAStatus, []string{"OtherController +replicaset/web +kube-controller-manager wrote the status of this ReplicaSet, which replicakit-controller serves"}},
		{"ReplicakitRestarts", aLeaseIsLost, []string{`LeaseLost +lease/replicakit-controller +the lease was lost to \S+; this manager held [0-9]+ writes back`}},
		{"ReplicakitOwnersFrozen", aSpecIsRefused, []string{"InvalidTemplate +replicaset/bare "}},
		{"ReplicakitReplicaFailure", aQuotaIsFull, []string{`(?s)^full/web: pods "web-\w+" is forbidden: exceeded quota: none.*\nfull +none .*pods: 0/0`}},
		{"ReplicakitRunawayCreation", aPodHasFailed, []string{`(?s)^ +1 full\n.*\n\S+ +failed `, "deployment.apps/replicakit-controller scaled"}},
	} {
		sections = append(sections, story.section)
		t.Run(story.section, func(t *testing.T) {
			story.given(t, f)
			require.Len(t, commands[story.section], len(story.says))
			for i, script := range commands[story.section] {
				out, err := f.bash(t.Context(), script)
				require.NoError(t, err, out)
				assert.Regexp(t, story.says[i], strings.TrimRight(out, "\n"), script)
			}
		})
	}
	assert.ElementsMatch(t, sections, slices.Collect(maps.Keys(commands)), "a section has commands that no story runs")
}

func nothing(t *testing.T, _ *fleet) { t.Helper() }

// somebodyLeads waits until a manager holds the lease.
func somebodyLeads(t *testing.T, f *fleet) {
	t.Helper()
	eventually(t, func(c *assert.CollectT) {
		lease, err := f.client.CoordinationV1().Leases("kube-system").Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.NotEmpty(c, lease.Spec.HolderIdentity)
	})
}

// aLeaseIsLost takes the lease away from the leader. The leader creates an event and ends. aLeaseIsLost then
// starts a new manager and releases the lease, so that a waiting manager can take it.
func aLeaseIsLost(t *testing.T, f *fleet) {
	t.Helper()
	leases := f.client.CoordinationV1().Leases("kube-system")
	hold := func(holder string) {
		t.Helper()
		_, err := leases.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"holderIdentity":"`+holder+`"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	hold("somebody")
	eventually(t, func(c *assert.CollectT) {
		events, err := f.client.CoreV1().Events("kube-system").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LeaseLost"})
		require.NoError(c, err)
		assert.NotEmpty(c, events.Items)
	})
	_, err := f.start("--kubeconfig=" + f.account)
	require.NoError(t, err)
	hold("")
	somebodyLeads(t, f)
}

// anotherWritesAStatus writes the status of a ReplicaSet once, as kube-controller-manager would after each change.
// The leader then stands back. The next manager takes the lease, and finds no other controller at work.
func anotherWritesAStatus(t *testing.T, f *fleet) {
	t.Helper()
	sets := f.client.AppsV1().ReplicaSets("default")
	eventually(t, func(c *assert.CollectT) {
		web, err := sets.Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(c, err)
		web.Status.ReadyReplicas = 1 - web.Status.ReadyReplicas
		_, err = sets.UpdateStatus(t.Context(), web, metav1.UpdateOptions{FieldManager: "kube-controller-manager"})
		require.NoError(c, err)
	})
	eventually(t, func(c *assert.CollectT) {
		for namespace, kind := range map[string]string{"default": "ReplicaSet", "kube-system": "Lease"} {
			events, err := f.client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=OtherController,involvedObject.kind=" + kind})
			require.NoError(c, err)
			assert.NotEmpty(c, events.Items)
		}
	})
	_, err := f.start("--kubeconfig=" + f.account)
	require.NoError(t, err)
	somebodyLeads(t, f)
}

// aSpecIsRefused creates a ReplicaSet with a template without labels. The manager refuses this spec.
func aSpecIsRefused(t *testing.T, f *fleet) {
	t.Helper()
	bare := replicaSet("bare")
	bare.Spec.Template.Labels = nil
	bare.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	_, err := f.client.AppsV1().ReplicaSets("default").Create(t.Context(), bare, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) {
		events, err := f.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=bare"})
		require.NoError(c, err)
		assert.NotEmpty(c, events.Items)
	})
}

func aQuotaIsFull(t *testing.T, f *fleet) {
	t.Helper()
	_, err := f.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "full"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	none := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
	quota, err = f.client.CoreV1().ResourceQuotas("full").Create(t.Context(), quota, metav1.CreateOptions{})
	require.NoError(t, err)
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // no quota controller runs, so the test writes the status
	_, err = f.client.CoreV1().ResourceQuotas("full").UpdateStatus(t.Context(), quota, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) { // wait until the server enforces the quota
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}, Spec: replicaSet("probe").Spec.Template.Spec}
		_, err := f.client.CoreV1().Pods("full").Create(t.Context(), probe, metav1.CreateOptions{})
		assert.ErrorContains(c, err, "exceeded quota")
	})
	_, err = f.client.AppsV1().ReplicaSets("full").Create(t.Context(), replicaSet("web"), metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, func(c *assert.CollectT) {
		rs, err := f.client.AppsV1().ReplicaSets("full").Get(t.Context(), "web", metav1.GetOptions{})
		require.NoError(c, err)
		assert.NotEmpty(c, rs.Status.Conditions)
	})
}

func aPodHasFailed(t *testing.T, f *fleet) {
	t.Helper()
	require.NoError(t, f.client.CoreV1().ResourceQuotas("full").Delete(t.Context(), "none", metav1.DeleteOptions{}))
	pods := f.client.CoreV1().Pods("full")
	spec := replicaSet("failed").Spec.Template.Spec
	eventually(t, func(c *assert.CollectT) { // the server may still enforce the deleted quota
		_, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "failed"}, Spec: spec}, metav1.CreateOptions{})
		require.NoError(c, err)
	})
	_, err := pods.Patch(t.Context(), "failed", types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

func eventually(t *testing.T, condition func(c *assert.CollectT)) {
	t.Helper()
	require.EventuallyWithT(t, condition, patience, 50*time.Millisecond)
}
