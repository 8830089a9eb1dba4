// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// manifest reads the objects of a file. An unknown field is an error.
func manifest(t *testing.T, name string) []runtime.Object {
	t.Helper()
	text, err := os.ReadFile("manifests/" + name)
	require.NoError(t, err)
	var objects []runtime.Object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(document, object), name)
		objects = append(objects, object)
	}
}

func TestTheClusterRoleGrantsWhatTheControllersNeed(t *testing.T) {
	t.Parallel()
	granted := map[right]bool{}
	for _, object := range manifest(t, "rbac.yaml") {
		role, ok := object.(*rbacv1.ClusterRole)
		if !ok {
			continue
		}
		for _, rule := range role.Rules {
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			for _, verb := range rule.Verbs {
				granted[right{verb, rule.APIGroups[0], resource, subresource}] = true
			}
		}
	}
	needed := map[right]bool{{"get", "", "namespaces", ""}: true, {"list", "", "nodes", ""}: true, {"watch", "", "nodes", ""}: true}
	for _, c := range controllers() {
		needed[right{"update", c.resource.Group, c.resource.Resource, "finalizers"}] = true
		for _, r := range c.rights() {
			needed[r] = true
		}
	}
	assert.Equal(t, sorted(needed), sorted(granted))
}

func sorted(rights map[right]bool) []string {
	var texts []string
	for r := range rights {
		texts = append(texts, r.String())
	}
	slices.SortFunc(texts, cmp.Compare)
	return texts
}

func TestTheRoleNamesTheLeaseAndTheProbes(t *testing.T) {
	t.Parallel()
	lease := defaults().lease.Name
	granted := map[string][]string{}
	for _, object := range manifest(t, "rbac.yaml") {
		role, ok := object.(*rbacv1.Role)
		if !ok {
			continue
		}
		for _, rule := range role.Rules {
			for _, name := range rule.ResourceNames {
				granted[rule.Resources[0]+" "+name] = rule.Verbs
			}
		}
	}
	needed := map[string][]string{"leases " + lease: {"get", "update"}}
	for _, c := range controllers() {
		needed[c.resource.Resource+" "+lease] = []string{"get", "delete"}
	}
	assert.Equal(t, needed, granted)
}

func TestTheDeploymentsFlagsAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, object := range manifest(t, "deployment.yaml") {
		deployment, ok := object.(*appsv1.Deployment)
		require.True(t, ok)
		container := deployment.Spec.Template.Spec.Containers[0]
		opts, err := parse(expanded(container, "a-namespace"), io.Discard)
		require.NoError(t, err)
		assert.Equal(t, "a-namespace", opts.lease.Namespace, "the Role for it is there")
		for path, probe := range map[string]*corev1.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
			assert.Equal(t, path, probe.HTTPGet.Path)
			assert.Contains(t, opts.openPaths, path)
			assert.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
		}
		assert.Greater(t, *deployment.Spec.Template.Spec.TerminationGracePeriodSeconds, int64(writeTimeout.Seconds()))
	}
	manifest(t, "metrics-rbac.yaml")
}

// expanded returns the flags of a container as the kubelet passes them to the program in the given namespace.
func expanded(container corev1.Container, namespace string) (args []string) {
	for _, arg := range container.Args {
		for _, env := range container.Env {
			if env.ValueFrom.FieldRef.FieldPath == "metadata.namespace" {
				arg = strings.ReplaceAll(arg, "$("+env.Name+")", namespace)
			}
		}
		args = append(args, arg)
	}
	return args
}

func TestTheStaticPodsFlagsAreUnderstood(t *testing.T) {
	t.Parallel()
	objects := manifest(t, "static-pod.yaml")
	require.Len(t, objects, 1)
	pod, ok := objects[0].(*corev1.Pod)
	require.True(t, ok)
	container := pod.Spec.Containers[0]
	opts, err := parse(container.Args, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, opts.kubeconfig, container.VolumeMounts[0].MountPath)
	assert.Equal(t, opts.kubeconfig, pod.Spec.Volumes[0].HostPath.Path)
	assert.Greater(t, *pod.Spec.TerminationGracePeriodSeconds, int64(writeTimeout.Seconds()))
	for path, probe := range map[string]*corev1.Probe{"/livez": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
		assert.Equal(t, path, probe.HTTPGet.Path)
		assert.Contains(t, opts.openPaths, path)
		assert.Equal(t, corev1.URISchemeHTTPS, probe.HTTPGet.Scheme)
		assert.Equal(t, opts.metricsAddress, net.JoinHostPort(probe.HTTPGet.Host, probe.HTTPGet.Port.String()))
	}
}

func TestWhatStandsBesideTheDeploymentSelectsItsPods(t *testing.T) {
	t.Parallel()
	deployment := manifest(t, "deployment.yaml")[0].(*appsv1.Deployment)
	pods := deployment.Spec.Template.Labels
	port := deployment.Spec.Template.Spec.Containers[0].Ports[0].Name
	for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		assert.Equal(t, pods, constraint.LabelSelector.MatchLabels)
	}
	budget := manifest(t, "poddisruptionbudget.yaml")[0].(*policyv1.PodDisruptionBudget)
	assert.Equal(t, pods, budget.Spec.Selector.MatchLabels)
	assert.Less(t, budget.Spec.MaxUnavailable.IntVal, *deployment.Spec.Replicas)
	service := manifest(t, "service.yaml")[0].(*corev1.Service)
	assert.Equal(t, pods, service.Spec.Selector)
	assert.Equal(t, port, service.Spec.Ports[0].TargetPort.StrVal)
	policy := manifest(t, "networkpolicy.yaml")[0].(*networkingv1.NetworkPolicy)
	assert.Equal(t, pods, policy.Spec.PodSelector.MatchLabels)
	assert.Equal(t, port, policy.Spec.Ingress[0].Ports[0].Port.StrVal)
}
