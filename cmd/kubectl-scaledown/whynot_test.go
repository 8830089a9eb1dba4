// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// calm is a ReplicaSet with the one pod that it wants, web-a. The text also has a Namespace, a ResourceQuota, an
// Event and the HorizontalPodAutoscaler of another ReplicaSet, because --why-not reads these.
var calm = strings.Replace(strings.Join(strings.Split(web, "---")[:2], "---"), "status: {replicas: 2}", "status: {replicas: 1}", 1) + `---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}, status: {phase: Active}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {namespace: shop, name: compute}, status: {hard: {pods: "2", services: "1", requests.storage: 1Gi}, used: {pods: "1", services: "1", requests.storage: 1Gi}}}
---
{apiVersion: v1, kind: Event, metadata: {namespace: shop, name: begin}, type: Normal, reason: Scaled, involvedObject: {kind: ReplicaSet, namespace: shop, name: web, uid: rs-1}}
---
{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {namespace: shop, name: cpu}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: ReplicaSet, name: api}, minReplicas: 2, maxReplicas: 9}, status: {desiredReplicas: 3}}
`

var autoscaler = calm[strings.LastIndex(calm, "---"):]

// podOf returns a pod with the labels that the ReplicaSet selects, and with the given metadata.
func podOf(name, metadata string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: %s, uid: %s, labels: {app: web}, %s}, spec: {nodeName: node-1}}\n", name, name, metadata)
}

const byWeb = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: rs-1, controller: true}]"

// warning returns an event about a ReplicaSet.
func warning(name, uid, times string) string {
	return fmt.Sprintf("---\n{apiVersion: v1, kind: Event, metadata: {namespace: shop, name: %s}, type: Warning, reason: FailedCreate, message: \"no\\n  %s\", "+
		"involvedObject: {kind: ReplicaSet, namespace: shop, name: web, uid: %s}, %s}\n", name, name, uid, times)
}

// whyNot runs the plugin with --why-not. whyNot returns the facts from the output, and the whole result.
func whyNot(t *testing.T, input string) (facts []string, got result) {
	t.Helper()
	got = try(input, append(atNoon, "--why-not")...)
	require.Equal(t, 0, got.code, got.stderr)
	for _, m := range regexp.MustCompile(`(?m)^- (.*)$`).FindAllStringSubmatch(got.stdout, -1) {
		facts = append(facts, m[1])
	}
	return facts, got
}

func TestWhyNot(t *testing.T) {
	t.Parallel()
	const effect = "Such pods do not count as replicas, but a rollout of strategy Recreate waits for them."
	for name, tt := range map[string]struct {
		old, text string // the text to replace in the variable calm, and the new text
		more      string
		want      []string
	}{
		"nothing": {"", "", "", []string{"Nothing was found that holds it back."}},
		"an owner being deleted": {"uid: rs-1}", `uid: rs-1, deletionTimestamp: "2026-11-21T11:59:30Z", finalizers: [foregroundDeletion, example.com/lock]}`, "", []string{
			"ReplicaSet shop/web is being deleted, so its controller no longer scales it. Check what should remove its finalizers: foregroundDeletion, example.com/lock.",
		}},
		"an owner about to go": {"uid: rs-1}", `uid: rs-1, deletionTimestamp: "2026-11-21T11:59:30Z"}`, "", []string{
			"ReplicaSet shop/web is being deleted, so its controller no longer scales it. It has no finalizers, so it should be gone soon.",
		}},
		"a generation that is not observed": {"uid: rs-1}", "uid: rs-1, generation: 2}", "", []string{
			"ReplicaSet shop/web has generation 2, and its status describes generation 0, so its controller has not acted on the last change. Check that the controller runs, and that it serves this object.",
		}},
		"a Deployment above": {"uid: rs-1}", "uid: rs-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: front, uid: d, controller: true}]}", "", []string{
			"ReplicaSet shop/web belongs to Deployment front, which resets its replicas. Scale the Deployment, and ask for deployment/front.",
		}},
		"an owner of another operator's kind": {"uid: rs-1}", "uid: rs-1, ownerReferences: [{apiVersion: example.com/v1, kind: Fleet, name: front, uid: d, controller: true}]}", "", []string{
			"ReplicaSet shop/web belongs to Fleet front of example.com/v1, whose operator may reset its replicas. Scale that object instead, and check its operator.",
		}},
		"an autoscaler": {"name: api}", "name: web}", "", []string{
			"HorizontalPodAutoscaler shop/cpu sets spec.replicas of ReplicaSet shop/web, and last wanted 3. It resets any other number. Change its minReplicas (2) and maxReplicas (9) instead.",
		}},
		"an autoscaler of a ReplicaSet that was scaled to 0": {"replicas: 1\n  selector", "replicas: 0\n  selector", strings.ReplaceAll(autoscaler, "name: api}", "name: web}"), []string{
			"HorizontalPodAutoscaler shop/cpu does not scale ReplicaSet shop/web, because its spec.replicas is 0.",
		}},
		"ReplicaFailure": {"{replicas: 1}", "{replicas: 1, conditions: [{type: ReplicaFailure, status: 'True', message: exceeded quota}, {type: ReplicaFailure, status: 'False', message: past}]}", "", []string{
			"ReplicaSet shop/web has the condition ReplicaFailure, so its controller could not create or delete a pod: exceeded quota",
		}},
		"an old status": {"{replicas: 1}", "{replicas: 3}", "", []string{
			"The status of ReplicaSet shop/web counts 3 pods, and the input has 1. If no pod is missing there, its controller has not updated the status.",
		}},
		"orphans": {"", "", podOf("o", "") + podOf("p", "") + podOf("q", "") + podOf("r", ""), []string{
			"ReplicaSet shop/web first adopts 4 orphans because the labels match its selector: o, p, q, and 1 more. Check the labels.",
		}},
		"a pod to release": {"", "", strings.Replace(podOf("r", byWeb), "app: web", "app: debug", 1), []string{
			"The status of ReplicaSet shop/web counts 1 pod, and the input has 2. If no pod is missing there, its controller has not updated the status.",
			"ReplicaSet shop/web first releases 1 pod because the labels do not match its selector: r (of ReplicaSet web). Check the labels.",
		}},
		"a pod of another": {"", "", podOf("x", strings.NewReplacer("ReplicaSet", "Job", "rs-1", "j").Replace(byWeb)), []string{
			"ReplicaSet shop/web never counts 1 pod because of another controller, although the labels match its selector: x (of Job web). Check the labels.",
		}},
		"terminating pods": {
			"", "", podOf("held", `finalizers: [example.com/lock], deletionTimestamp: "2026-11-21T11:59:59Z", `+byWeb) +
				podOf("late", `deletionTimestamp: "2026-11-21T11:58:59Z", `+byWeb) + podOf("going", `deletionTimestamp: "2026-11-21T11:59:00Z", `+byWeb),
			[]string{
				"Finalizers keep 1 terminating pod of ReplicaSet shop/web: held (example.com/lock). Check what should remove them. " + effect,
				"The grace period is over for 1 terminating pod of ReplicaSet shop/web: late (node-1). Check the node and its kubelet. " + effect,
			},
		},
		"a namespace being deleted": {"{phase: Active}", "{phase: Terminating, conditions: [{type: Content, status: 'True', message: pods remain.}, {type: Failed, status: 'False', message: none}]}", "", []string{
			"Namespace shop is being deleted, so no pod can be created in it. Content: pods remain.",
		}},
		"a full quota": {`used: {pods: "1"`, `used: {pods: "2"`, "", []string{
			"ResourceQuota shop/compute has nothing left of pods (2 of 2), so new pods may be refused. Raise the quota, or make room.",
		}},
		"a quota of several resources": {`hard: {pods: "2"`, `hard: {requests.cpu: "1", limits.memory: 1Gi, count/pods: "0", pods: "2"`, "", []string{
			"ResourceQuota shop/compute has nothing left of count/pods (0 of 0), so new pods may be refused. Raise the quota, or make room.",
		}},
		"warnings, the newest first": {
			"", "", warning("a", "rs-1", `count: 12, lastTimestamp: "2026-11-21T11:57:00Z"`) + warning("b", "rs-1", `eventTime: "2026-11-21T11:58:00.000000Z"`) +
				warning("c", "rs-1", `series: {count: 7, lastObservedTime: "2026-11-21T11:59:00.000000Z"}`) + warning("another", "rs-0", "count: 1"),
			[]string{
				"ReplicaSet shop/web has the warning FailedCreate (7 times, last at 2026-11-21T11:59:00Z): no c",
				"ReplicaSet shop/web has the warning FailedCreate (1 time, last at 2026-11-21T11:58:00Z): no b",
				"ReplicaSet shop/web has the warning FailedCreate (12 times, last at 2026-11-21T11:57:00Z): no a",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, calm, tt.old)
			facts, got := whyNot(t, strings.Replace(calm, tt.old, tt.text, 1)+tt.more)
			assert.Equal(t, tt.want, facts)
			assert.Empty(t, got.stderr)
			assert.True(t, strings.HasSuffix(got.stdout, "\n/debug/passes/shop/web\n"), got.stdout)
		})
	}
}

// A stuck rollout has pods that do not become ready, and its Deployment has the condition Progressing. An
// autoscaler scales the Deployment. All of this is also the reason if only the new ReplicaSet is asked for.
func TestWhyNotOfARolloutThatIsStuck(t *testing.T) {
	t.Parallel()
	const exceeded = `status: {conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, message: ReplicaSet "web-3" has timed out progressing.}]}` + "\n"
	const ready = `conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-11-21T11:31:00Z"}]`
	waiting := strings.NewReplacer("web-3-a", "web-3-z", ready, "containerStatuses: [{state: {waiting: {reason: ImagePullBackOff}}}]").Replace(pods("web-3", "3", "node-1"))
	stuck := strings.Replace(shopRollout, "spec:\n", exceeded+"spec:\n", 1) + waiting + strings.Replace(autoscaler, "kind: ReplicaSet, name: api", "kind: Deployment, name: web", 1)
	for _, of := range []string{"deployment/web", "rs/web-3"} {
		got := try(stuck, of, "--why-not")
		require.Equal(t, 0, got.code, got.stderr)
		for _, want := range []string{
			"\n- The rollout of Deployment shop/web makes no progress, as its condition Progressing says (ProgressDeadlineExceeded): ReplicaSet \"web-3\" has timed out progressing.\n",
			"\n- HorizontalPodAutoscaler shop/cpu sets spec.replicas of Deployment shop/web, and last wanted 3. It resets any other number. Change its minReplicas (2) and maxReplicas (9) instead.\n",
			"\n- Not ready: 1 pod of ReplicaSet shop/web-3: web-3-z (ImagePullBackOff). A rollout waits until enough pods are ready.\n",
		} {
			assert.Contains(t, got.stdout, want, of)
		}
	}
}

func TestWhyNotSaysWhatAPodWaitsFor(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ pod, want string }{
		"an image":                  {"spec: {nodeName: node-1}, status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: ErrImagePull}}}]}", "ErrImagePull"},
		"an init container":         {"spec: {nodeName: node-1}, status: {phase: Pending, initContainerStatuses: [{state: {waiting: {reason: CrashLoopBackOff}}}], containerStatuses: [{state: {waiting: {reason: PodInitializing}}}]}", "CrashLoopBackOff"},
		"room on a node":            {"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable}]}", "Unschedulable"},
		"a scheduler":               {"status: {phase: Pending}", "no node"},
		"its readiness probe alone": {"spec: {nodeName: node-1}, status: {phase: Running}", "Running"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objs := &objects{}
			require.NoError(t, objs.addStream("x", strings.NewReader("---\n{apiVersion: v1, kind: Pod, metadata: {name: p}, "+tt.pod+"}")))
			assert.Equal(t, "p ("+tt.want+")", fewOf(objs.pods, waitsFor))
		})
	}
}

// The Deployment above a ReplicaSet is paused, which both the usual answer and --why-not say.
func TestAReplicaSetOfAPausedDeployment(t *testing.T) {
	t.Parallel()
	paused := strings.Replace(shopRollout, "spec:\n", "spec:\n  paused: true\n", 1)
	const above = "ReplicaSet shop/web-2 belongs to Deployment web, which is paused, but still resets its replicas. Scale the Deployment, and ask for deployment/web"
	assert.Contains(t, try(paused, "rs/web-2", "--replicas=1").stderr, "note: "+above+"\n")
	stdout := try(paused, "rs/web-2", "--why-not").stdout
	assert.Contains(t, stdout, "\n- "+above+".\n")
	assert.Contains(t, stdout, "\n- Deployment shop/web is paused, so its rollout goes no further.")

	server := &server{}
	for _, item := range shopItems(t) {
		server.items = append(server.items, []byte(strings.Replace(string(item), `"replicas":48`, `"replicas":48,"paused":true`, 1)))
	}
	config, _ := server.start(t)
	got := ask(t.Context(), nil, "rs/web-5d9c7b6f4d", "--replicas=25", "--kubeconfig", config)
	assert.Contains(t, got.stderr, "belongs to Deployment web, which is paused, but still resets", got.stdout)
}

// Each creation that fails has an event with the name of a pod that never existed. Events that differ in such a
// name are one line, with the number of all of them.
func TestWhyNotCountsWarningsThatDifferInAGeneratedName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60)
	for name, tt := range map[string]struct {
		owner, message string
		names          []string
		want           []string
	}{
		"names of pods":            {"web", "pods %s is forbidden", []string{"web-bcdfg", "web-xz24x", "web-22222"}, []string{"FailedCreate (3 times, last at 2026-11-21T11:52:00Z): pods web-22222 is forbidden"}},
		"names of a Deployment":    {"web", "pods %s is forbidden", []string{"web-7c8d4f5b9c-bcdfg", "web-7c8d4f5b9c-22222"}, []string{"FailedCreate (2 times, last at 2026-11-21T11:51:00Z): pods web-7c8d4f5b9c-22222 is forbidden"}},
		"names that are cut":       {long, "pods %s is forbidden", []string{long[:58] + "bcdfg", long[:58] + "22222"}, []string{"FailedCreate (2 times, last at 2026-11-21T11:51:00Z): pods " + long[:58] + "22222 is forbidden"}},
		"names of something else":  {"web", "no secret %s", []string{"db", "cache"}, []string{"FailedCreate (1 time, last at 2026-11-21T11:51:00Z): no secret cache", "FailedCreate (1 time, last at 2026-11-21T11:50:00Z): no secret db"}},
		"equal but for the number": {"web", "used %s", []string{"1", "2"}, []string{"FailedCreate (1 time, last at 2026-11-21T11:51:00Z): used 2", "FailedCreate (1 time, last at 2026-11-21T11:50:00Z): used 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			input := calm
			for i, pod := range tt.names {
				input += strings.Replace(warning(fmt.Sprint("e", i), "rs-1", fmt.Sprintf(`lastTimestamp: "2026-11-21T11:5%d:00Z"`, i)), fmt.Sprintf("no\\n  e%d", i), fmt.Sprintf(tt.message, pod), 1)
			}
			facts, _ := whyNot(t, strings.ReplaceAll(strings.ReplaceAll(input, "name: web,", "name: "+tt.owner+","), "name: web}", "name: "+tt.owner+"}"))
			for i := range tt.want {
				tt.want[i] = "ReplicaSet shop/" + tt.owner + " has the warning " + tt.want[i]
			}
			assert.Equal(t, tt.want, facts)
		})
	}
}

func TestWhyNotPrintsTheWholeAnswer(t *testing.T) {
	t.Parallel()
	paused := strings.Replace(shopRollout, "spec:\n", "status: {conditions: [{type: ReplicaFailure, status: 'True', message: exceeded quota}]}\nspec:\n  paused: true\n", 1) +
		podOf("old", `finalizers: [example.com/lock], deletionTimestamp: "2026-11-21T11:59:59Z", `+byWeb) // a pod of the old revision
	for name, input := range map[string]string{"calm": calm, "claims": web, "deployment": paused} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, got := whyNot(t, input)
			golden(t, "why-not-"+name, got.stdout)
		})
	}
}

func TestWhyNotNamesTenWarnings(t *testing.T) {
	t.Parallel()
	var events strings.Builder
	for i := range 11 {
		events.WriteString(warning(fmt.Sprintf("e%02d", i), "rs-1", "count: 1"))
	}
	facts, _ := whyNot(t, calm+events.String())
	assert.Len(t, facts, 10)
}

func TestWhyNotSaysWhatADumpLacks(t *testing.T) {
	t.Parallel()
	_, got := whyNot(t, web)
	assert.Equal(t, "note: no events in the input, so it is unknown which warnings there are\n"+
		"note: no horizontalpodautoscalers in the input, so it is unknown whether one resets spec.replicas\n"+
		"note: no namespaces in the input, so it is unknown whether the namespace is being deleted\n"+
		"note: no resourcequotas in the input, so it is unknown whether a quota is full\n", got.stderr)
}

func TestWhyNotOfAReplicationController(t *testing.T) {
	t.Parallel()
	facts, got := whyNot(t, strings.NewReplacer("apiVersion: apps/v1\nkind: ReplicaSet", "apiVersion: v1\nkind: ReplicationController", "{matchLabels: {app: web}}", "{app: web}",
		"uid: rs-1}", "uid: rs-1, generation: 2}", "{replicas: 1}", "{replicas: 1, observedGeneration: 1, conditions: [{type: ReplicaFailure, status: 'True', message: denied}]}").Replace(calm))
	assert.Len(t, facts, 2)
	assert.Contains(t, got.stdout, "\n1 pod, 1 wanted by its spec.replicas: nothing to create or delete, as it has what it wants\n")
}

// If the user may not read namespaces, resourcequotas or events, a note says what is unknown. The plugin still
// prints all other facts.
func TestWhyNotGoesOnWithoutWhatIsForbidden(t *testing.T) {
	t.Parallel()
	const going = "Namespace fleet-1-3645 is being deleted, so no pod can be created in it."
	for forbidden, want := range map[string]string{
		"none":                     "",
		"namespaces":               `note: cannot list namespaces: namespaces is forbidden: User "guest" cannot list them, so it is unknown whether the namespace is being deleted` + "\n",
		"resourcequotas":           `note: cannot list resourcequotas of namespace "fleet-1-3645": resourcequotas is forbidden: User "guest" cannot list them, so it is unknown whether a quota is full` + "\n",
		"horizontalpodautoscalers": `note: cannot list horizontalpodautoscalers of namespace "fleet-1-3645": horizontalpodautoscalers is forbidden: User "guest" cannot list them, so it is unknown whether one resets spec.replicas` + "\n",
		"events":                   `note: cannot list events of namespace "fleet-1-3645": events is forbidden: User "guest" cannot list them, so it is unknown which warnings there are` + "\n",
	} {
		t.Run(forbidden, func(t *testing.T) {
			t.Parallel()
			config, _ := (&server{forbidden: forbidden}).start(t)
			got := ask(t.Context(), nil, "deployment/web", "--why-not", "--kubeconfig", config)
			assert.Equal(t, 0, got.code)
			assert.Equal(t, want, got.stderr)
			assert.Equal(t, forbidden != "namespaces", strings.Contains(got.stdout, going))
			assert.Contains(t, got.stdout, "\n48 pods, 48 wanted by its spec.replicas\n")
		})
	}
}
