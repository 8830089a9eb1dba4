// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

const (
	jsonSet   = `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"namespace":"shop","name":"web"}}`
	jsonPod   = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web-a"}}`
	jsonOther = `{"apiVersion":"apps/v1","kind":"StatefulSet","metadata":{"namespace":"shop","name":"web"},"spec":{"replicas":"many"}}`
	yamlSet   = "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata:\n  namespace: shop\n  name: web\n"
	yamlPod   = "apiVersion: v1\nkind: Pod\nmetadata:\n  namespace: shop\n  name: web-a\n"
)

func TestReadsEveryFormThatKubectlPrints(t *testing.T) {
	t.Parallel()
	for name, input := range map[string]string{
		"list":                        `{"apiVersion":"v1","kind":"List","items":[` + jsonSet + "," + jsonPod + `]}`,
		"objects back to back":        jsonSet + jsonPod,
		"objects on lines":            "\n" + jsonSet + "\n\n" + jsonPod + "\n",
		"JSON documents":              jsonSet + "\n---\n" + jsonPod,
		"YAML documents":              "---\n" + yamlSet + "---\n" + yamlPod + "---\n",
		"YAML documents and comments": "# saved\n---\n# sets\n---\n" + yamlSet + "--- # pods\n" + yamlPod,
		"YAML and JSON documents":     yamlSet + "---\n" + jsonPod,
		"Windows lines":               strings.ReplaceAll(yamlSet+"---\n"+yamlPod, "\n", "\r\n"),
		"byte order mark":             "\ufeff" + yamlSet + "---\n" + yamlPod,
		"byte order mark and JSON":    "\ufeff" + jsonSet + "\n---\n" + jsonPod,
		"YAML list":                   "apiVersion: v1\nkind: List\nitems:\n- " + jsonSet + "\n- " + jsonPod,
		"lists of a list":             `{"kind":"List","items":[{"kind":"List","items":[` + jsonSet + `]},` + jsonPod + `]}`,
		"other kinds are passed over": jsonOther + jsonSet + jsonPod,
		"typed lists, whose items need not tell their type": `{"apiVersion":"apps/v1","kind":"ReplicaSetList","items":[{"metadata":{"namespace":"shop","name":"web"}}]}` +
			`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"namespace":"shop","name":"web-a"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objs, err := readAll([]string{"-"}, strings.NewReader(input))
			require.NoError(t, err)
			assert.Equal(t, "rs/web", listed(objs.owners(), ""))
			assert.Equal(t, []string{"web-a"}, podNames(objs.pods))
		})
	}
}

func podNames(pods []*corev1.Pod) (list []string) {
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return list
}

func TestReadsSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/sets.json", []byte(jsonSet), 0o600))
	objs, err := readAll([]string{dir + "/sets.json", "-"}, strings.NewReader(yamlPod))
	require.NoError(t, err)
	assert.Equal(t, "rs/web", listed(objs.owners(), ""))
	assert.Equal(t, []string{"web-a"}, podNames(objs.pods))
}

func TestRefusesInputWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(fleet)
	require.NoError(t, err)
	edited := func(old, text string) string {
		require.Contains(t, web, old)
		return strings.Replace(web, old, text, 1)
	}
	documents := strings.Split(web, "---")
	for name, tt := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"empty":              {"", nil, "standard input is empty: expected what 'kubectl get deployments,rs,pods -o json' prints"},
		"blank":              {" \n\n", nil, "standard input is empty"},
		"comments alone":     {"# nothing\n---\nnull\n", nil, "standard input is empty"},
		"a login page":       {"<!DOCTYPE html>\n<html>\n<title>Sign in: proxy</title>\n", nil, "standard input: document 1: error converting YAML to JSON: yaml: line 3"},
		"text":               {"No resources found", nil, "document 1: not a Kubernetes object"},
		"an array":           {"[1]", nil, "document 1: not a Kubernetes object"},
		"another JSON":       {`{"name":"web"}`, nil, "document 1: not a Kubernetes object: it has no kind"},
		"no items":           {`{"apiVersion":"v1","kind":"List","items":[]}`, nil, "no Deployment, ReplicaSet or ReplicationController in the input, which holds nothing"},
		"other kinds":        {jsonOther + jsonOther + jsonPod, nil, "no Deployment, ReplicaSet or ReplicationController in the input, which holds 2 apps/v1 StatefulSet, 1 v1 Pod"},
		"items of no list":   {`{"kind":"List","items":{}}`, nil, "document 1: json: cannot unmarshal object into Go struct field header.items"},
		"null among items":   {`{"kind":"PodList","items":[null]}`, nil, "document 1: items[0]: not a Kubernetes object"},
		"cut in an object":   {string(data[:4000]), nil, "document 1: JSON ends in the middle of an object"},
		"cut in a string":    {jsonSet + jsonPod[:30], nil, "document 1: JSON ends in the middle of an object"},
		"garbage behind":     {jsonSet + "\nERROR: no route", nil, "document 1: JSON line 2: invalid character 'E'"},
		"YAML put together":  {yamlSet + yamlPod, nil, `key "apiVersion" already set in map`},
		"a wrong separator":  {yamlSet + "---- pods\n" + yamlPod, nil, "standard input: invalid Yaml document separator"},
		"text for a number":  {edited("replicas: 1", "replicas: one"), nil, `document 1: ReplicaSet "shop/web": json: cannot unmarshal string into Go struct field ReplicaSetSpec.spec.replicas of type int32`},
		"number for a text":  {edited("nodeName: node-1", "nodeName: 1"), nil, `document 2: Pod "shop/web-a": json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string`},
		"number for a name":  {edited("name: web", "name: 1"), nil, "document 1: json: cannot unmarshal number into Go struct field .metadata.name of type string"},
		"a wrong time":       {edited("2026-11-21T11:00:00Z", "yesterday"), nil, `document 2: Pod "shop/web-a": parsing time "yesterday"`},
		"no UID":             {edited(", uid: rs-1}", "}"), nil, "ReplicaSet shop/web: metadata.uid is empty"},
		"no replicas":        {edited("replicas: 1", "replicas: null"), []string{"--replicas=1"}, `ReplicaSet "shop/web": spec.replicas is nil`},
		"negative replicas":  {edited("replicas: 1", "replicas: -1"), nil, `ReplicaSet "shop/web": replicas -1 is negative`},
		"no selector":        {edited("  selector: {matchLabels: {app: web}}\n", ""), nil, `"shop/web": selector is nil`},
		"an empty selector":  {edited("{matchLabels: {app: web}}", "{}"), nil, `"shop/web": selector is empty`},
		"a wrong selector":   {edited("{matchLabels: {app: web}}", "{matchExpressions: [{key: app, operator: Near}]}"), nil, `"shop/web": `},
		"another template":   {edited("{metadata: {labels: {app: web}}}", "{metadata: {labels: {app: api}}}"), nil, `ReplicaSet "shop/web": template labels "app=api" do not match selector "app=web"`},
		"a pod twice":        {web + "---" + documents[1], nil, `ReplicaSet "shop/web": child "shop/web-a" (a) is listed twice`},
		"a ReplicaSet twice": {web + "---" + documents[0], nil, "ReplicaSet shop/web is in the input twice"},
		"an unknown name":    {web, []string{"api"}, "no Deployment, ReplicaSet or ReplicationController api in the input, which holds rs/web\n"},
		"another kind":       {web, []string{"deploy/web"}, "no Deployment web in the input, which holds rs/web\n"},
		"another namespace":  {web, []string{"rs", "-n", "bank"}, "no ReplicaSet of namespace bank in the input, which holds rs/web -n shop\n"},
		"other labels":       {web, []string{"-l", "app=api"}, "no Deployment, ReplicaSet or ReplicationController with labels app=api in the input"},
		"several, no name":   {web + "---" + strings.ReplaceAll(documents[0], "shop", "bank"), []string{"web"}, "more than one can be meant, name one of these: rs/web -n shop, rs/web -n bank\n"},
		"a crowd, no name":   {web + strings.Repeat("---"+strings.NewReplacer("web", "api").Replace(documents[0]), 24), nil, "rs/api, rs/api, and 5 more\n"},
		"a missing file":     {"", []string{"-f", "testdata/none.json"}, "open testdata/none.json: no such file"},
		"a directory":        {"", []string{"-f", "testdata"}, "error: read testdata: is a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(tt.input, tt.args...)
			assert.Equal(t, exitError, got.code)
			assert.Empty(t, got.stdout)
			assert.True(t, strings.HasPrefix(got.stderr, "error: "), got.stderr)
			assert.Contains(t, got.stderr, tt.want)
		})
	}
}

func TestAnAmbiguousNameIsSettledByItsNamespace(t *testing.T) {
	t.Parallel()
	input := web + "---" + strings.ReplaceAll(strings.Split(web, "---")[0], "shop", "bank")
	for _, args := range [][]string{{"rs/web", "-n", "shop"}, {"web", "-n", "shop"}, {"-nshop"}} {
		got := try(input, args...)
		assert.Equal(t, exitOK, got.code, got.stderr)
		assert.Contains(t, got.stdout, "ReplicaSet shop/web at ", args)
	}
}

func TestTellsThatPodsAreMissing(t *testing.T) {
	t.Parallel()
	got := try(strings.Split(web, "---")[0], "--replicas=2")
	assert.Equal(t, exitOK, got.code)
	assert.Contains(t, got.stdout, "0 pods, 2 wanted: create 2")
	assert.Equal(t, "note: 0 pods of ReplicaSet shop/web were read, and its status counts 2: is the input complete?\n", got.stderr)
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestTellsOfFailedReadsAndWrites(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	assert.Equal(t, exitError, run(nil, strings.NewReader(web), brokenPipe{}, &stderr, time.Now))
	assert.Equal(t, "error: no space left\n", stderr.String())
	stderr.Reset()
	assert.Equal(t, exitError, run(nil, iotest.ErrReader(errors.New("gone")), &bytes.Buffer{}, &stderr, time.Now))
	assert.Equal(t, "error: standard input: gone\n", stderr.String())
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		web, jsonSet + jsonPod, yamlSet + "---\n" + yamlPod, jsonOther, "", "# nothing", "[1]", `{"kind":"List","items":[null]}`,
		`{"kind":"PodList","items":[{}]}`, "a: &a [*a]", jsonSet + " garbage", "---x",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		for format := range formats {
			got := try(input, "-o", format)
			if got.code == exitOK {
				if format == "svg" {
					wellFormed(t, got.stdout)
				}
				continue
			}
			assert.Equal(t, exitError, got.code)
			assert.Empty(t, got.stdout)
			assert.Contains(t, got.stderr, "error: ")
		}
	})
}
