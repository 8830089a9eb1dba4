// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// held is a namespace in which all stands still, at noon of 2026-11-21.
const held = `# as YAML
{apiVersion: v1, kind: Namespace, metadata: {name: shop}, status: {phase: Terminating, conditions: [
  {type: NamespaceFinalizersRemaining, status: "True", message: "a finalizer is left"}, {type: Other, status: "False", message: never}]}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q, namespace: shop}, status: {
  hard: {pods: 2, requests.cpu: 4, services: 1, count/secrets: 1}, used: {pods: 2, requests.cpu: 500m, services: 1, count/secrets: 1}}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, uid: d, generation: 3}, spec: {replicas: 1, paused: true},
  status: {observedGeneration: 3, conditions: [{type: Progressing, status: "False", message: "no progress"}]}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: old, namespace: shop, uid: o, ownerReferences: [{uid: d, controller: true, kind: Deployment, name: web, apiVersion: apps/v1}]}, spec: {replicas: 0}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: shop, uid: w, generation: 4, deletionTimestamp: "2026-11-21T11:00:00Z", finalizers: [foregroundDeletion],
  ownerReferences: [{uid: d, controller: true, kind: Deployment, name: web, apiVersion: apps/v1}]},
  spec: {replicas: 1, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}}},
  status: {replicas: 4, observedGeneration: 2, conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: "quota q"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, uid: a, labels: {app: web}, ownerReferences: [{uid: w, controller: true, kind: ReplicaSet, name: web-1, apiVersion: apps/v1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop, uid: b, labels: {app: web}, deletionTimestamp: "2026-11-21T11:00:00Z", finalizers: [x/y], ownerReferences: [{uid: w, controller: true, kind: ReplicaSet, name: web-1, apiVersion: apps/v1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: c, namespace: shop, uid: c, labels: {app: web}, deletionTimestamp: "2026-11-21T11:00:00Z", ownerReferences: [{uid: w, controller: true, kind: ReplicaSet, name: web-1, apiVersion: apps/v1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: e, namespace: shop, uid: e, labels: {app: other}, ownerReferences: [{uid: w, controller: true, kind: ReplicaSet, name: web-1, apiVersion: apps/v1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: f, namespace: shop, uid: f, labels: {app: web}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: g, namespace: shop, uid: g, labels: {app: web}, ownerReferences: [{uid: z, controller: true, kind: Job, name: z, apiVersion: batch/v1}]}}
---
{apiVersion: v1, kind: Event, metadata: {name: e1, namespace: shop}, type: Warning, reason: FailedCreate, message: "Error creating: quota q", involvedObject: {uid: w}, lastTimestamp: "2026-11-21T11:59:00Z"}
---
{apiVersion: v1, kind: Event, metadata: {name: e2, namespace: shop}, type: Warning, reason: FailedDelete, message: "Error deleting: no", involvedObject: {uid: w}, eventTime: "2026-11-21T11:00:00.000000Z", series: {count: 2, lastObservedTime: "2026-11-21T11:59:30.000000Z"}}
---
{apiVersion: v1, kind: Event, metadata: {name: e3, namespace: shop}, type: Normal, reason: SuccessfulCreate, message: "Created", involvedObject: {uid: w}}
---
{apiVersion: v1, kind: Event, metadata: {name: e4, namespace: shop}, type: Warning, reason: Unheard, message: "of another", involvedObject: {uid: z}}
`

func TestWhyNot(t *testing.T) {
	t.Parallel()
	got := try(held, "deployment/web", "--why-not")
	assert.Zero(t, got.code, got.stderr)
	assert.Empty(t, got.stderr)
	golden(t, "why-not.golden", got.stdout)
	_, ofReplicaSet, _ := strings.Cut(got.stdout, "\n\n")
	assert.Equal(t, ofReplicaSet, try(held, "rs/web-1", "--why-not").stdout)
}

func TestWhyNotOfWhatNothingHoldsBack(t *testing.T) {
	t.Parallel()
	const rc = `# as YAML
{apiVersion: v1, kind: ReplicationController, metadata: {name: web, namespace: shop, uid: w}, spec: {replicas: 0, selector: {app: web}}}`
	got := try(rc, "rc/web", "--why-not")
	assert.Zero(t, got.code)
	assert.Contains(t, got.stdout, "ReplicationController shop/web: 0 wanted, 0 active\n  nothing can be seen that holds its pods back\n\nIf replicakit-controller is at work")
	assert.Equal(t, "note: no Namespace, ResourceQuota or Event was read: what they tell is missing here\n", got.stderr)
}

func TestWhyNotAsksNothingElse(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"-o json", "--replicas 1", "--explain", "--pod a", "-A", "-l app=web"} {
		got := try(held, append([]string{"--why-not"}, strings.Fields(flags)...)...)
		assert.Equal(t, 1, got.code, flags)
		assert.Contains(t, got.stderr, "--why-not is about one object as it is now", flags)
	}
	got := try(`# as YAML
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web, namespace: shop, uid: w}, spec: {replicas: 1, selector: {matchLabels: {"/": web}}}}`, "--why-not")
	assert.Equal(t, 1, got.code)
	assert.Contains(t, got.stderr, "error: ReplicaSet shop/web: ")
}
