// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// shop is a file with the Deployment of the fleet, and a ReplicationController with one pod.
const shop = "testdata/fleet-a.deployment.yaml"

// TestEveryCommandShown puts a link to this test binary on PATH, under the name kubectl. If the binary runs as
// "kubectl scaledown", TestMain runs the plugin. If the binary runs as any other kubectl command, TestMain prints
// all objects of the server.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "kubectl" {
		os.Exit(m.Run())
	}
	if os.Args[1] == "scaledown" {
		os.Exit(run(context.Background(), os.Args[2:], genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}, time.Now))
	}
	response, err := http.Get(os.Getenv("SHOP_SERVER") + "/everything")
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(os.Stdout, response.Body)
	_ = response.Body.Close()
}

// A server is an API server that serves items. The server answers 403 to requests for the forbidden resource.
type server struct {
	items     []json.RawMessage
	forbidden string // a resource, such as pods
	changed   chan string
	users     chan string
}

// start starts the server. It returns the path of a kubeconfig for the server, and the URL of the server.
func (s *server) start(t *testing.T) (kubeconfig, url string) {
	t.Helper()
	if s.items == nil {
		s.items = shopItems(t)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return kubeconfigOf(t, server.URL), server.URL
}

func kubeconfigOf(t *testing.T, url string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"here",
"clusters":[{"name":"here","cluster":{"server":%q}}],
"contexts":[{"name":"here","context":{"cluster":"here","namespace":"fleet-1-3645"}}]}`, url), 0o600))
	return path
}

// shopItems returns the objects of the files fleet and shop.
func shopItems(t *testing.T) []json.RawMessage {
	t.Helper()
	items := fleetList(t).Items
	text, err := os.ReadFile(shop)
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(text), "---\n") {
		item, err := yaml.ToJSON([]byte(document))
		require.NoError(t, err)
		items = append(items, item)
	}
	return items
}

// lists maps each resource to the apiVersion and the kind of its list.
var lists = map[string][2]string{
	"deployments": {"apps/v1", "DeploymentList"}, "replicasets": {"apps/v1", "ReplicaSetList"}, "replicationcontrollers": {"v1", "ReplicationControllerList"},
	"pods": {"v1", "PodList"}, "nodes": {"v1", "NodeList"}, "poddisruptionbudgets": {"policy/v1", "PodDisruptionBudgetList"},
	"resourcequotas": {"v1", "ResourceQuotaList"}, "events": {"v1", "EventList"}, "horizontalpodautoscalers": {"autoscaling/v2", "HorizontalPodAutoscalerList"},
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	resource, namespace := parts[len(parts)-1], ""
	if i := slices.Index(parts, "namespaces"); i > 0 {
		namespace = parts[i+1]
		if i+2 == len(parts) {
			resource = "namespaces"
		}
	}
	if user := r.Header.Get("Impersonate-User"); user != "" && s.users != nil {
		s.users <- user
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case resource == s.forbidden:
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: resource + ` is forbidden: User "guest" cannot list them`})
		return
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
		return
	case resource == "namespaces" && namespace != "fleet-1-3645":
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404, Message: `namespaces "` + namespace + `" not found`})
		return
	case resource == "namespaces":
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+namespace+`"},"status":{"phase":"Terminating"}}`)
		return
	}
	found := list{APIVersion: "v1", Kind: "List", Items: []json.RawMessage{}}
	if l, ok := lists[resource]; ok {
		found.APIVersion, found.Kind = l[0], l[1]
	}
	for _, item := range s.items {
		var head metav1.PartialObjectMetadata
		_ = json.Unmarshal(item, &head)
		if resource == "everything" || strings.ToLower(head.Kind)+"s" == resource && (namespace == "" || namespace == head.Namespace) {
			found.Items = append(found.Items, item)
		}
	}
	_ = json.NewEncoder(w).Encode(found)
}

// watch handles a watch request. If the resource is pods, watch waits for a pod name from s.changed. Then watch
// removes this pod from s.items, and sends one DELETED event.
func (s *server) watch(w http.ResponseWriter, r *http.Request, resource string) {
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	if resource != "pods" {
		<-r.Context().Done()
		return
	}
	select {
	case name := <-s.changed:
		s.items = slices.DeleteFunc(slices.Clone(s.items), func(item json.RawMessage) bool {
			var head metav1.PartialObjectMetadata
			_ = json.Unmarshal(item, &head)
			return head.Name == name
		})
		_, _ = io.WriteString(w, `{"type":"DELETED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"`+name+`"}}}`)
	case <-r.Context().Done():
	}
}

func TestReadsTheClusterAsItReadsADump(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	config, _ := (&server{}).start(t)
	for _, args := range []string{
		"deployment/web --replicas 25",
		"deployment/web",
		"rs/web-5d9c7b6f4d --replicas 25 -o json",
		"rs/web-5d9c7b6f4d --replicas 25 --explain -o wide",
		"rc/legacy --replicas 0",
		"rc --replicas 0 -o wide",
		"web --replicas 20 -n fleet-1-3645 --as somebody",
		"-l app=web",
		"-A",
		"-A -o yaml",
		"deploy -l app=web --replicas 0 -o name",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			words := append(strings.Fields(args), "--at", at)
			want := try("", append(words, "-f", fleet, "-f", shop)...)
			require.Equal(t, 0, want.code, want.stderr)
			assert.Equal(t, want, ask(t.Context(), nil, append(words, "--kubeconfig", config)...))
		})
	}
}

func TestSaysWhatIsNotInTheCluster(t *testing.T) {
	t.Parallel()
	config, _ := (&server{}).start(t)
	for args, want := range map[string]string{
		"rs/api":            `no ReplicaSet api in namespace "fleet-1-3645" of the cluster, which holds deployment/web, rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c`,
		"rs":                "more than one object matches: name one of these: rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c",
		"deploy/webb":       `no Deployment webb in namespace "fleet-1-3645" of the cluster, which holds deployment/web, rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c (did you mean deployment/web?)`,
		"web-5d9c7b6f4":     `no Deployment, ReplicaSet or ReplicationController web-5d9c7b6f4 in namespace "fleet-1-3645" of the cluster, which holds deployment/web, rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c, rc/legacy (did you mean rs/web-5d9c7b6f4d?)`,
		"deploy/web -n=far": `namespace "far" does not exist in the cluster`,
		"web --context=far": `context "far" does not exist`,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			got := ask(t.Context(), nil, append(strings.Fields(args), "--kubeconfig", config)...)
			assert.Equal(t, result{1, "", "error: " + want + "\n"}, got)
		})
	}
}

func TestWhatIsForbidden(t *testing.T) {
	t.Parallel()
	config, _ := (&server{forbidden: "pods"}).start(t)
	got := ask(t.Context(), nil, "deployment/web", "--kubeconfig", config)
	assert.Equal(t, result{1, "", `error: cannot list pods of namespace "fleet-1-3645": pods is forbidden: User "guest" cannot list them` + "\n"}, got)

	config, _ = (&server{forbidden: "nodes"}).start(t)
	got = ask(t.Context(), nil, "deployment/web", "--kubeconfig", config)
	assert.Equal(t, 0, got.code)
	assert.Equal(t, `note: cannot list nodes: nodes is forbidden: User "guest" cannot list them`+"\n", got.stderr, "it only costs the zones")

	config, _ = (&server{forbidden: "deployments"}).start(t)
	got = ask(t.Context(), nil, "rs/web-5d9c7b6f4d", "--kubeconfig", config)
	assert.Equal(t, 0, got.code)
	assert.Equal(t, `note: cannot list deployments of namespace "fleet-1-3645": deployments is forbidden: User "guest" cannot list them, so it is unknown whether the Deployment above is paused`+"\n", got.stderr)
	got = ask(t.Context(), nil, "deployment/web", "--kubeconfig", config)
	assert.Equal(t, 1, got.code)
}

func TestAsksAsSomebodyElse(t *testing.T) {
	t.Parallel()
	s := &server{users: make(chan string, 100)}
	config, _ := s.start(t)
	require.Equal(t, 0, ask(t.Context(), nil, "deployment/web", "--kubeconfig", config, "--as", "alice").code)
	assert.Equal(t, "alice", <-s.users)
}

// If the server never answers, the plugin ends after --request-timeout, or when it is interrupted. The timeout
// also limits the read from standard input.
func TestAServerThatNeverAnswers(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	config := kubeconfigOf(t, "http://"+listener.Addr().String())
	got := ask(t.Context(), nil, "deployment/web", "--kubeconfig", config, "--request-timeout=200ms")
	assert.Equal(t, result{1, "", "error: no answer within 200ms: set a longer --request-timeout\n"}, got)

	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(100*time.Millisecond, func() { stop(context.Canceled) })
	got = ask(ctx, nil, "deployment/web", "--kubeconfig", config)
	assert.Equal(t, result{1, "", "error: interrupted\n"}, got)

	reader, writer := io.Pipe()
	t.Cleanup(func() { assert.NoError(t, writer.Close()) })
	got = ask(t.Context(), reader, "-f=-", "--request-timeout=200ms")
	assert.Equal(t, result{1, "", "error: no answer within 200ms: set a longer --request-timeout\n"}, got)
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	got := ask(t.Context(), nil, "deployment/web", "--kubeconfig", kubeconfigOf(t, "http://127.0.0.1:1"))
	assert.Equal(t, 1, got.code)
	assert.Regexp(t, `^error: cannot list replicasets of namespace "fleet-1-3645": .*connection refused\n$`, got.stderr)
	got = ask(t.Context(), nil, "deployment/web", "--kubeconfig", "/none")
	assert.Equal(t, result{1, "", "error: stat /none: no such file or directory\n"}, got)
}

func TestWatchAnswersAgain(t *testing.T) {
	t.Parallel()
	s := &server{changed: make(chan string)}
	config, _ := s.start(t)
	ctx, stop := context.WithCancel(t.Context())
	out, answers := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"rs/web-5d9c7b6f4d", "--replicas=39", "--at=2026-11-21T11:40:54Z", "--allow-incomplete", "-w", "-o=name", "--kubeconfig", config},
			genericiooptions.IOStreams{Out: answers, ErrOut: io.Discard}, time.Now)
	}()
	first := make([]byte, len("pod/web-5d9c7b6f4d-jb62l\n"))
	_, err := io.ReadFull(out, first)
	require.NoError(t, err)
	s.changed <- "web-5d9c7b6f4d-4dfk4" // 39 pods remain, as wanted, so no pod is printed
	s.changed <- strings.TrimSpace(strings.TrimPrefix(string(first), "pod/"))
	stop()
	assert.Equal(t, 1, <-ended)
}

func TestCompletesNames(t *testing.T) {
	t.Parallel()
	config, _ := (&server{}).start(t)
	for line, want := range map[string]string{
		"de":                        "deployment/\nrs/\nrc/\n:6\n",
		"deployment/w":              "deployment/web\n:4\n",
		"rs w":                      "web-5d9c7b6f4d\nweb-7c8d4f5b9c\n:4\n",
		"deployment/web --output j": "wide\njson\nyaml\nkyaml\nname\ngo-template\ngo-template-file\ntemplate\ntemplatefile\njsonpath\njsonpath-as-json\njsonpath-file\n:4\n",
	} {
		got := ask(t.Context(), nil, append([]string{"__complete", "--kubeconfig", config}, strings.Fields(line)...)...)
		assert.Equal(t, want, got.stdout, line)
	}
}

// Every command in docs/scaledown.md and in the usage works.
func TestEveryCommandShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scaledown.md")
	require.NoError(t, err)
	config, url := (&server{}).start(t)
	dir := t.TempDir()
	binary, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(binary, filepath.Join(dir, "kubectl")))
	for where, text := range map[string]string{"page": string(page), "usage": examples} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			commands := regexp.MustCompile(`(?m)^(?:    |  )(kubectl .*)$`).FindAllStringSubmatch(text, -1)
			require.NotEmpty(t, commands)
			here := t.TempDir()
			for _, command := range commands {
				line := strings.ReplaceAll(command[1], " --watch", "")
				line = strings.ReplaceAll(line, "--compare after.json", "--compare fleet.json")
				shell := exec.CommandContext(t.Context(), "sh", "-c", line)
				shell.Dir, shell.Env = here, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+config, "SHOP_SERVER="+url)
				var stdout, stderr bytes.Buffer
				shell.Stdout, shell.Stderr = &stdout, &stderr
				require.NoError(t, shell.Run(), "%s\n%s", line, &stderr)
				if _, file, ok := strings.Cut(line, "> "); ok {
					written, err := os.ReadFile(filepath.Join(here, file))
					require.NoError(t, err)
					stdout.Write(written)
				}
				assert.NotEmpty(t, stdout.String(), line)
			}
		})
	}
}

// Each row that docs/scaledown.md shows is in the golden table of the fleet.
func TestThePageShowsTheFleet(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/scaledown.md")
	require.NoError(t, err)
	sections, i := outputSections(t, "fleet-a.table")
	require.NotEqual(t, -1, i)
	rows := regexp.MustCompile(`(?m)^    (web-5d9c7b6f4d-.*)$`).FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		assert.Contains(t, sections[i], row[1]+"\n")
	}
}
