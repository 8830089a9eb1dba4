// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/podrank"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		args string
		want func(t *testing.T, o options)
	}{
		{"no constant number of calls a second", "", func(t *testing.T, o options) {
			t.Helper()
			assert.Zero(t, o.qps)
			assert.Equal(t, 30, o.burst)
		}},
		{"zeros mean the defaults", "--kube-api-qps=0 --kube-api-burst=0", func(t *testing.T, o options) {
			t.Helper()
			assert.Zero(t, o.qps)
			assert.Equal(t, 30, o.burst)
		}},
		{"Z3 the rates can be set", "--kube-api-qps=0.5 --kube-api-burst=7", func(t *testing.T, o options) {
			t.Helper()
			assert.InDelta(t, 0.5, o.qps, 0)
			assert.Equal(t, 7, o.burst)
		}},
		{"Z2 five workers each, bursts of 500", "", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, 5, *o.workers["replicaset-controller"])
			assert.Equal(t, 5, *o.workers["replicationcontroller-controller"])
			assert.Equal(t, 500, o.burstReplicas)
		}},
		{"Z2 no workers means five, no burst 500", "--concurrent-replicaset-syncs=0 --concurrent-rc-syncs=0 --burst-replicas=0", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, 5, *o.workers["replicaset-controller"])
			assert.Equal(t, 5, *o.workers["replicationcontroller-controller"])
			assert.Equal(t, 500, o.burstReplicas)
		}},
		{"Z2 workers by kind, underscores as Kubernetes takes them", "--concurrent-replicaset-syncs=2 --concurrent_rc_syncs 3 --burst-replicas=4", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, 2, *o.workers["replicaset-controller"])
			assert.Equal(t, 3, *o.workers["replicationcontroller-controller"])
			assert.Equal(t, 4, o.burstReplicas)
		}},
		{"the lease is held as Kubernetes' components hold theirs, under a name of its own", "", func(t *testing.T, o options) {
			t.Helper()
			assert.True(t, o.elect)
			assert.Equal(t, []time.Duration{15 * time.Second, 10 * time.Second, 2 * time.Second}, []time.Duration{o.leaseDuration, o.renewDeadline, o.retryPeriod})
			assert.Equal(t, types.NamespacedName{Namespace: "kube-system", Name: "replicakit-controller"}, o.lease)
		}},
		{"lease durations do not matter without election", "--leader-elect=false --leader-elect-lease-duration=1ms", func(t *testing.T, o options) {
			t.Helper()
			assert.False(t, o.elect)
		}},
		{"metrics stay on this machine", "", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, "127.0.0.1:8443", o.metricsAddress)
			assert.Equal(t, []string{"/healthz", "/readyz", "/livez"}, o.openPaths)
		}},
		{"a certificate is for any address", "--tls-cert-file=a --tls-private-key-file=b --authorization-always-allow-paths=/metrics,/debug/*", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, "a", o.certFile)
			assert.Equal(t, []string{"/metrics", "/debug/*"}, o.openPaths)
		}},
		{"R4 pods go by their deletion cost", "--feature-gates=PodDeletionCost=true", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, "costly", firstOf(o))
		}},
		{"R4 pods go by their deletion cost by default", "", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, "costly", firstOf(o))
		}},
		{"R4 pods go as if none had a deletion cost", "--feature-gates=PodDeletionCost=false", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, "young", firstOf(o))
		}},
		{"E3 what is started may take five minutes to be seen, failing pods are replaced ever more slowly, and statuses written as fast as Kubernetes does", "", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, 5*time.Minute, o.expectationsTimeout)
			assert.True(t, o.podFailureBackOff)
			assert.Zero(t, o.statusDelay)
		}},
		{"all three can be set", "--expectations-timeout=7s --pod-failure-backoff=false --status-delay=2s", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, 7*time.Second, o.expectationsTimeout)
			assert.False(t, o.podFailureBackOff)
			assert.Equal(t, 2*time.Second, o.statusDelay)
		}},
		{"no time for what is started means five minutes", "--expectations-timeout=0", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, 5*time.Minute, o.expectationsTimeout)
		}},
		{"0 is no metrics", "--metrics-bind-address=0", func(t *testing.T, o options) {
			t.Helper()
			assert.False(t, o.metrics())
		}},
		{"several namespaces, each once", "--namespace=b,a --namespace=b", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, []string{"a", "b"}, o.namespaces)
			assert.Equal(t, []string{"a", "b"}, o.watched())
		}},
		{"without the flag, all namespaces", "--v=2", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, []string{""}, o.watched())
		}},
		{"kubeconfig, master, namespace and verbosity", "--kubeconfig=k --master=m --namespace=n -v=0", func(t *testing.T, o options) {
			t.Helper()
			assert.Equal(t, []string{"k", "m", "n"}, []string{o.kubeconfig, o.master, strings.Join(o.namespaces, ",")})
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			opts, err := parse(strings.Fields(row.args), &bytes.Buffer{})
			require.NoError(t, err)
			row.want(t, opts)
		})
	}
}

// firstOf returns the name of the pod that is deleted first. The pod named "costly" has a negative deletion cost,
// and the pod named "young" has a later creation time.
func firstOf(o options) string {
	costly, young := &corev1.Pod{}, &corev1.Pod{}
	costly.Name, young.Name = "costly", "young"
	costly.Annotations = map[string]string{corev1.PodDeletionCost: "-5"}
	costly.CreationTimestamp, young.CreationTimestamp = metav1.Unix(0, 0), metav1.Unix(1000, 0)
	victims := podrank.Select([]*corev1.Pod{costly, young}, 1, podrank.PodOptions{Now: time.Unix(1001, 0), Order: newOrders(o).order(&appsv1.ReplicaSet{})})
	return victims[0].Object.Name
}

func TestControllersFlag(t *testing.T) {
	t.Parallel()
	const rs, rc = "replicaset-controller", "replicationcontroller-controller"
	for _, row := range []struct {
		name, list string
		want       []string
	}{
		{"Z1 all by default", "*", []string{rs, rc}},
		{"Z1 by name", rs + "," + rc, []string{rs, rc}},
		{"Z1 by alias", "replicationcontroller", []string{rc}},
		{"Z1 all but one, by name", "*,-" + rc, []string{rs}},
		{"Z1 all but one, by alias, in any order", "-replicaset,*", []string{rc}},
		{"Z1 one named, the other left out", "replicaset,-replicationcontroller", []string{rs}},
		{"Z1 named twice is run once", "*,replicaset,replicaset-controller", []string{rs, rc}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			opts, err := parse([]string{"--controllers=" + row.list}, &bytes.Buffer{})
			require.NoError(t, err)
			var names []string
			for _, c := range opts.enabled {
				names = append(names, c.name)
			}
			assert.Equal(t, row.want, names)
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, args, want string }{
		{"a log format that is none", "--logging-format=xml", `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"verbosity by file in JSON", "--logging-format=json --vmodule=sync=4", "--vmodule: Forbidden: Only supported for text log format"},
		{"a log that is never flushed", "--log-flush-frequency=0s", "--log-flush-frequency: Invalid value: "},
		{"profiles that nobody serves", "--profiling --metrics-bind-address=0", "--profiling: requires --metrics-bind-address, which is 0"},
		{"negative workers", "--concurrent-replicaset-syncs=-1", "--concurrent-replicaset-syncs=-1: must be a positive number, or 0 for the default"},
		{"negative workers of the other kind", "--concurrent-rc-syncs=-5", "--concurrent-rc-syncs=-5: must be"},
		{"a negative delay of statuses", "--status-delay=-1s", "--status-delay=-1s: must not be negative"},
		{"a negative time for what is started", "--expectations-timeout=-1s", "--expectations-timeout=-1s: must be a positive number, or 0 for the default"},
		{"a negative burst of replicas", "--burst-replicas=-1", "--burst-replicas=-1: must be"},
		{"a negative rate", "--kube-api-qps=-1", "--kube-api-qps=-1: must be"},
		{"a rate without an end", "--kube-api-qps=Inf", "--kube-api-qps=+Inf: must be"},
		{"a rate that is no number", "--kube-api-qps=NaN", "--kube-api-qps=NaN: must be"},
		{"a negative burst of calls", "--kube-api-burst=-1", "--kube-api-burst=-1: must be"},
		{"text for a number", "--kube-api-burst=many", `invalid argument "many" for "--kube-api-burst"`},
		{"Z1 a controller of Kubernetes that is not here", "--controllers=*,deployment", `--controllers=*,deployment: "deployment" is not one of replicaset, replicationcontroller`},
		{"Z1 a controller that is not here left out", "--controllers=*,-deployment", `"-deployment" is not one of`},
		{"Z1 a controller both run and left out", "--controllers=replicaset,-replicaset-controller", "both runs replicaset-controller and leaves it out"},
		{"Z1 none but what is left out", "--controllers=-replicaset", "leaves no controller to run; to leave one out, write *,-NAME"},
		{"Z1 none at all", "--controllers=", "leaves no controller to run"},
		{"Z1 all left out", "--controllers=*,-replicaset,-replicationcontroller", "leaves no controller to run"},
		{"a feature gate of Kubernetes that is not here", "--feature-gates=SidecarContainers=true", "--feature-gates=SidecarContainers=true: the only feature gate is PodDeletionCost"},
		{"a word that is no order", "--scale-down-order=packed,zone", `--scale-down-order: podrank: order "packed,zone": "zone" is not one of deletion-cost, kubernetes, leaving, newest, packed, zones`},
		{"no order at all", "--scale-down-order=", `--scale-down-order: podrank: order "": "" is not one of`},
		{"a feature gate that is neither on nor off", "--feature-gates=PodDeletionCost=maybe", "--feature-gates=PodDeletionCost=maybe: must be true or false"},
		{"an address without a port", "--metrics-bind-address=127.0.0.1", `--metrics-bind-address="127.0.0.1": must be host:port, or 0 for none: address 127.0.0.1: missing port in address`},
		{"an empty address", "--metrics-bind-address=", "must be host:port, or 0 for none"},
		{"a port that is none", "--metrics-bind-address=:65536", "value out of range"},
		{"a certificate without a key", "--metrics-bind-address=:0 --tls-cert-file=a", "set both or neither"},
		{"a certificate for no metrics", "--tls-cert-file=a --tls-private-key-file=b --metrics-bind-address=0", `--tls-cert-file="a": requires --metrics-bind-address, which is 0`},
		{"a path that is no beginning", "--authorization-always-allow-paths=/debug/*/a", `--authorization-always-allow-paths=/debug/*/a: only trailing * allowed in "debug/*/a"`},
		{"no namespace", "--namespace=", "--namespace: must not be empty; to serve all namespaces, leave the flag out"},
		{"no namespace beside another", "--namespace=web --namespace=", "--namespace: must not be empty"},
		{"no namespace between others", "--namespace=a,,b", "--namespace: must not be empty"},
		{"a namespace that can not be", "--namespace=Web_1", `--namespace="Web_1": a lowercase RFC 1123 label`},
		{"one of several namespaces that can not be", "--namespace=web,Web_1", `--namespace="Web_1": a lowercase RFC 1123 label`},
		{"a lease that ends before it is renewed", "--leader-elect-lease-duration=10s", "--leader-elect-lease-duration=10s: lasts 10s in whole seconds, must be more than --leader-elect-renew-deadline=10s"},
		{"a deadline that leaves no time for a second try", "--leader-elect-retry-period=9s", "--leader-elect-renew-deadline=10s: must be more than 1.2 times --leader-elect-retry-period=9s"},
		{"a negative period", "--leader-elect-retry-period=-1s", "--leader-elect-retry-period=-1s: must be positive"},
		{"a lease of less than its unit", "--leader-elect-lease-duration=900ms --leader-elect-renew-deadline=500ms --leader-elect-retry-period=100ms", "must be at least one second"},
		{"another kind of lock", "--leader-elect-resource-lock=endpoints", `--leader-elect-resource-lock="endpoints": must be leases`},
		{"a lease without a name", "--leader-elect-resource-name=", "--leader-elect-resource-name: must not be empty"},
		{"a lease with a name that can not be", "--leader-elect-resource-name=Bad_Name", `--leader-elect-resource-name="Bad_Name": a lowercase RFC 1123 subdomain`},
		{"a lease in a namespace that can not be", "--leader-elect-resource-namespace=Bad_Name", `--leader-elect-resource-namespace="Bad_Name": a lowercase RFC 1123 label`},
		{"a lease of whole seconds that ends before it is renewed", "--leader-elect-lease-duration=10900ms --leader-elect-renew-deadline=10500ms", "--leader-elect-lease-duration=10.9s: lasts 10s in whole seconds, must be more than --leader-elect-renew-deadline=10.5s"},
		{"a lease without a namespace", "--leader-elect-resource-namespace=", "--leader-elect-resource-namespace: must not be empty"},
		{"all that is wrong is said at once", "--kube-api-qps=-1 --burst-replicas=-2 --controllers=x", "--kube-api-qps=-1: must be a positive number, or 0 for as many as the server answers\n--burst-replicas=-2: must be a positive number, or 0 for the default\n--controllers=x: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(strings.Fields(row.args), &bytes.Buffer{})
			require.ErrorContains(t, err, row.want)
		})
	}
}
