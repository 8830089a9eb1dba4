// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/unicode"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
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
		"lists of a list":             `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` + jsonSet + `]},` + jsonPod + `]}`,
		"other kinds are passed over": jsonOther + jsonSet + jsonPod,
		"a kind behind its items":     `{"items":[{"metadata":{"namespace":"shop","name":"web"}}],"kind":"ReplicaSetList","apiVersion":"apps/v1"}` + jsonPod,
		"no items":                    `{"kind":"PodList","apiVersion":"v1","items":null}` + jsonSet + jsonPod,
		"UTF-16":                      utf16(jsonSet + jsonPod),
		"a foreign kind unlike a pod": `{"kind":"List","items":[{"kind":"Job","apiVersion":"x/v1","metadata":{"name":"x"},"spec":[],"status":{"startTime":1}},` + jsonSet + "," + jsonPod + `]}`,
		"typed lists, whose items need not tell their type": `{"apiVersion":"apps/v1","kind":"ReplicaSetList","items":[{"metadata":{"namespace":"shop","name":"web"}}]}` +
			`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"namespace":"shop","name":"web-a"}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assertReadsBoth(t, input, "-")
		})
	}
}

// assertReadsBoth checks that the plugin reads the ReplicaSet web and the pod web-a from the files.
func assertReadsBoth(t *testing.T, stdin string, files ...string) {
	t.Helper()
	cmd := &options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(stdin)}, files: genericclioptions.FileNameFlags{Recursive: new(bool)}}
	objs, err := cmd.readFiles(files)
	require.NoError(t, err)
	assert.Equal(t, "rs/web", listed(objs.owners(), ""))
	require.Len(t, objs.pods, 1)
	assert.Equal(t, "web-a", objs.pods[0].Name)
}

// utf16 returns text as PowerShell saves it.
func utf16(text string) string {
	encoded, err := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewEncoder().String(text)
	if err != nil {
		panic(err)
	}
	return encoded
}

func TestReadsSeveralFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/sets.json", []byte(jsonSet), 0o600))
	require.NoError(t, os.WriteFile(dir+"/notes.txt", []byte("no manifest"), 0o600))
	assertReadsBoth(t, yamlPod, dir+"/sets.json", "-")
	assertReadsBoth(t, yamlPod, dir, "-")
}

func TestRefusesInputWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
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
		"empty":              {"", nil, "nothing in standard input: expected what 'kubectl get deployments,rs,pods -o json' prints"},
		"blank":              {" \n\n", nil, "nothing in standard input: expected"},
		"comments alone":     {"# nothing\n---\nnull\n", nil, "no Deployment, ReplicaSet or ReplicationController in the input, which holds nothing\n"},
		"a login page":       {"<!DOCTYPE html>\n<html>\n<title>Sign in: proxy</title>\n", nil, "error parsing standard input: yaml: line 3"},
		"text":               {"No resources found", nil, "error parsing standard input: No resources found is not an object\n"},
		"an array":           {"[1]", nil, "error parsing standard input: [ is not an object\n"},
		"another JSON":       {`{"name":"web"}`, nil, `error parsing standard input: Object 'Kind' is missing in '{"name":"web"}'`},
		"no items":           {`{"apiVersion":"v1","kind":"List","items":[]}`, nil, "no Deployment, ReplicaSet or ReplicationController in the input, which holds nothing"},
		"other kinds":        {jsonOther + jsonOther + jsonPod, nil, "no Deployment, ReplicaSet or ReplicationController in the input, which holds 1 Pod, 2 other objects"},
		"items of no list":   {`{"apiVersion":"v1","kind":"List","items":{}}`, nil, "error parsing standard input: items is not a list, but begins with {\n"},
		"null among items":   {`{"apiVersion":"v1","kind":"List","items":[null]}`, nil, "error parsing standard input: items[0]: Object 'Kind' is missing in 'null'"},
		"cut in an object":   {string(data[:4000]), nil, "error parsing standard input: unexpected EOF"},
		"cut in a string":    {jsonSet + jsonPod[:30], nil, "error parsing standard input: unexpected EOF"},
		"cut in a list":      {`{"kind":"List","items":[` + jsonSet, nil, "error parsing standard input: unexpected EOF\n"},
		"cut behind a list":  {`{"kind":"List","items":[` + jsonSet + "]", nil, "error parsing standard input: unexpected EOF\n"},
		"cut in an item":     {`{"kind":"List","items":[` + jsonSet[:30], nil, "error parsing standard input: unexpected EOF\n"},
		"a wrong item":       {`{"kind":"List","items":[` + jsonSet + "," + strings.Replace(jsonPod, `"web-a"`, "1", 1) + "]}", nil, "items[1]: json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string\n"},
		"a number for kind":  {`{"kind":1}`, nil, "error parsing standard input: json: cannot unmarshal number into Go value of type string\n"},
		"garbage behind":     {jsonSet + "\nERROR: no route", nil, "Object 'Kind' is missing in '{\"ERROR\":\"no route\"}'"},
		"YAML put together":  {yamlSet + yamlPod, nil, "no Deployment, ReplicaSet or ReplicationController in the input, which holds 1 Pod"},
		"a wrong separator":  {yamlSet + "---- pods\n" + yamlPod, nil, "standard input: invalid Yaml document separator"},
		"text for a number":  {edited("replicas: 1", "replicas: one"), nil, `error parsing standard input: json: cannot unmarshal string into Go struct field ReplicaSetSpec.spec.replicas of type int32`},
		"number for a text":  {edited("nodeName: node-1", "nodeName: 1"), nil, `error parsing standard input: json: cannot unmarshal number into Go struct field PodSpec.spec.nodeName of type string`},
		"number for a name":  {edited("name: web", "name: 1"), nil, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"},
		"a wrong time":       {edited("2026-11-21T11:00:00Z", "yesterday"), nil, `error parsing standard input: parsing time "yesterday"`},
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
		"several, no name":   {web + "---" + strings.ReplaceAll(documents[0], "shop", "bank"), []string{"web"}, "more than one object matches: name one of these: rs/web -n shop, rs/web -n bank\n"},
		"a crowd, no name":   {crowdOfSets(25), nil, "rs/set-18, rs/set-19, and 5 more\n"},
		"a missing file":     {"", []string{"-f", "testdata/none.json"}, "testdata/none.json: no such file or directory"},
		"an empty directory": {"", []string{"-f", empty}, "no file in " + empty + " ends in one of [.json .yaml .yml]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(tt.input, tt.args...)
			assert.Equal(t, 1, got.code)
			assert.Empty(t, got.stdout)
			assert.True(t, strings.HasPrefix(got.stderr, "error: "), got.stderr)
			assert.Contains(t, got.stderr, tt.want)
		})
	}
}

func crowdOfSets(n int) string {
	var input strings.Builder
	for i := range n {
		input.WriteString("---" + strings.ReplaceAll(strings.Split(web, "---")[0], "name: web", fmt.Sprintf("name: set-%d", i)))
	}
	return input.String()
}

func TestAnAmbiguousNameIsSettledByItsNamespace(t *testing.T) {
	t.Parallel()
	input := web + "---" + strings.ReplaceAll(strings.Split(web, "---")[0], "shop", "bank")
	for _, args := range [][]string{{"rs/web", "-n", "shop"}, {"web", "-n", "shop"}, {"-nshop"}} {
		got := try(input, args...)
		assert.Equal(t, 0, got.code, got.stderr)
		assert.Contains(t, got.stdout, "ReplicaSet shop/web at ", args)
	}
}

func TestRefusesInputThatIsIncomplete(t *testing.T) {
	t.Parallel()
	set, _, _ := strings.Cut(web, "---")
	const why = "only 0 of the 2 pods in the status of ReplicaSet shop/web were read: the input is incomplete (--allow-incomplete answers anyway)\n"
	for _, format := range []string{"wide", "name", "json"} {
		assert.Equal(t, result{1, "", "error: " + why}, try(set, "--replicas=2", "-o", format))
	}
	got := try(set, "--replicas=2", "--allow-incomplete")
	assert.Equal(t, 0, got.code)
	assert.Contains(t, got.stdout, "0 pods, 2 wanted: create 2")
	assert.Equal(t, "note: "+why, got.stderr)
	half := strings.Replace(shopRollout, "  template: {metadata: {labels: {app: web}}, spec: {priority: 3}}", "  template: {metadata: {labels: {app: web}}, spec: {priority: 3}}\nstatus: {replicas: 6}", 1)
	assert.Contains(t, try(half, "deployment/web").stderr, "error: only 5 of the 6 pods in the status of Deployment shop/web were read: ")
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestTellsOfFailedReadsAndWrites(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	streams := genericiooptions.IOStreams{In: strings.NewReader(web), Out: brokenPipe{}, ErrOut: &stderr}
	assert.Equal(t, 1, run(t.Context(), append([]string{"-f=-"}, atNoon...), streams, time.Now))
	assert.Equal(t, "error: no space left\n", stderr.String())
	assert.Contains(t, ask(t.Context(), iotest.ErrReader(errors.New("gone")), "-f=-").stderr, "error: error parsing standard input: gone\n")
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		web, jsonSet + jsonPod, yamlSet + "---\n" + yamlPod, jsonOther, "", "# nothing", "[1]", `{"kind":"List","items":[null]}`,
		`{"kind":"PodList","items":[{}]}`, "a: &a [*a]", jsonSet + " garbage", "---x",
	} {
		f.Add(seed)
	}
	// The fuzzer found these inputs.
	f.Add("%")
	f.Add("109")
	f.Add("%aa0")
	f.Add("\"\\\"")
	f.Add("%FFF\xf2")
	f.Add("*YffffffffY")
	f.Add("apiVe\\sion: @")
	f.Add("&---------------------")
	f.Add("{\"apiV\xf0\xf0\xf0\xf0\xf0\xf0\"'")
	f.Add("\xfe\xff*****************************************************")
	f.Add("apiVersian: apps/v1\nkind: ReplicaSet\nmetodata:\n  namespace: shop\n  name: web\n---\nappVersvon: v1\xf3kind: Pod\nmetadat\x05\x9f\r\n")
	f.Add("\napiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {namespace: shop, name: web, uid: rs-1}\nspec:\n  replicas: 1\n\" selector: {match<abels: {app: web}}\nkindmplatr: {metadata: {labels: {app: web}}}\nstatus: {replic")
	f.Fuzz(func(t *testing.T, input string) {
		for _, flag := range []string{"-o=", "-o=wide", "-o=json", "-o=yaml", "-o=name", "--why-not"} {
			got := try(input, flag)
			if got.code == 0 {
				continue
			}
			assert.Equal(t, 1, got.code)
			assert.Empty(t, got.stdout)
			assert.Contains(t, got.stderr, "error: ")
		}
	})
}

// readerFunc is a function that implements io.Reader.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The plugin decodes a list item by item while it reads the list. Before it reads the end of the list, it has
// already decoded more than 90% of the items.
func TestReadsAListItemByItem(t *testing.T) {
	t.Parallel()
	const n = 2000
	objs, seen := &objects{}, 0
	list := `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat(jsonPod+",", n)
	end := readerFunc(func(p []byte) (int, error) {
		seen = len(objs.pods)
		return copy(p, jsonPod+"]}"), io.EOF
	})
	require.NoError(t, objs.addStream("x", io.MultiReader(strings.NewReader(list), end)))
	assert.Len(t, objs.pods, n+1)
	assert.Greater(t, seen, n*9/10)
}

func BenchmarkReadsADump(b *testing.B) {
	data, err := os.ReadFile(fleet)
	require.NoError(b, err)
	var l list
	require.NoError(b, json.Unmarshal(data, &l))
	pod := l.Items[len(l.Items)-1]
	dump := `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat(string(pod)+",", 4999) + string(pod) + "]}"
	b.Run("pods=5000", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(dump)))
		for b.Loop() {
			require.NoError(b, (&objects{}).addStream("dump", strings.NewReader(dump)))
		}
	})
}
