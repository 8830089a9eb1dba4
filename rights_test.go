// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicakit_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// refused says what is wrong with a rule of a ClusterRole, or returns "". Leases and secrets of the whole cluster
// include the control plane's own. Events are in the namespaces of what they are about, so a program of the whole
// cluster may create and patch them, but not read, replace or delete those of others.
func refused(rule rbacv1.PolicyRule) string {
	names := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	for _, resource := range []struct {
		group, name string
		may         []string
	}{
		{"coordination.k8s.io", "leases", nil},
		{"", "secrets", nil},
		{"", "events", []string{"create", "patch"}},
		{"events.k8s.io", "events", []string{"create", "patch"}},
	} {
		if !names(rule.APIGroups, resource.group) || !names(rule.Resources, resource.name) {
			continue
		}
		for _, verb := range rule.Verbs {
			if !slices.Contains(resource.may, verb) {
				return verb + " " + resource.name
			}
		}
	}
	return ""
}

func TestNoManifestHasRightsOnTheLeasesSecretsAndEventsOfAll(t *testing.T) {
	t.Parallel()
	roles := 0
	for name, text := range filesWith(t, "kind: ClusterRole\n", ".yaml", ".yml") {
		documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, name)
			var role rbacv1.ClusterRole
			require.NoError(t, yaml.Unmarshal(document, &role), name)
			if role.Kind != "ClusterRole" {
				continue
			}
			roles++
			for _, rule := range role.Rules {
				assert.Empty(t, refused(rule), "%s: ClusterRole %s", name, role.Name)
			}
		}
	}
	assert.Greater(t, roles, 3)
}

// controller-gen makes a ClusterRole of each marker that names no namespace.
func TestNoMarkerHasRightsOnTheLeasesSecretsAndEventsOfAll(t *testing.T) {
	t.Parallel()
	marker, field := regexp.MustCompile(`(?m)^//\s*\+kubebuilder:rbac:(.*)$`), regexp.MustCompile(`(\w+)=("[^"]*"|[^,]*)`)
	markers := 0
	for name, text := range filesWith(t, "+kubebuilder:rbac:", ".go") {
		for _, found := range marker.FindAllStringSubmatch(string(text), -1) {
			markers++
			fields := map[string][]string{}
			for _, f := range field.FindAllStringSubmatch(found[1], -1) {
				fields[f[1]] = strings.Split(strings.Trim(f[2], `"`), ";")
			}
			if fields["namespace"] == nil {
				assert.Empty(t, refused(rbacv1.PolicyRule{APIGroups: fields["groups"], Resources: fields["resources"], Verbs: fields["verbs"]}), "%s: %s", name, found[0])
			}
		}
	}
	assert.Greater(t, markers, 5)
}

// filesWith returns the files of this repository that contain a text and have one of the extensions.
func filesWith(t *testing.T, text string, extensions ...string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(extensions, filepath.Ext(name)):
			return nil
		}
		content, err := os.ReadFile(name)
		if bytes.Contains(content, []byte(text)) {
			found[name] = content
		}
		return err
	}))
	return found
}

func TestRefusedRights(t *testing.T) {
	t.Parallel()
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	for want, rules := range map[string][]rbacv1.PolicyRule{
		"get leases":    {rule("coordination.k8s.io", "leases", "get", "create"), rule("*", "leases", "get"), rule("coordination.k8s.io", "*", "get")},
		"list secrets":  {rule("", "secrets", "list"), rule("", "*", "list")},
		"update events": {rule("", "events", "create", "update"), rule("events.k8s.io", "events", "update")},
		"":              {rule("", "events", "create", "patch"), rule("apps", "leases", "get"), rule("", "pods", "get")},
	} {
		for _, r := range rules {
			assert.Equal(t, want, refused(r), r)
		}
	}
}
