// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

// The tests find a kubectl on PATH that is this test binary. It looks at what
// shop has, and fails as real ones do for contexts that say so.
const (
	shop       = "testdata/fleet-a.deployment.yaml"
	rootOfShop = "SCALEDOWN_TEST_DIR"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "kubectl" {
		os.Exit(fakeKubectl(os.Args[1:]))
	}
	os.Exit(withFakeKubectl(m.Run))
}

func withFakeKubectl(run func() int) int {
	dir, err := os.MkdirTemp("", "scaledown-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, err := os.Executable()
	if err != nil {
		panic(err)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "kubectl")); err != nil {
		panic(err)
	}
	here, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	_ = os.Setenv(rootOfShop, here)
	_ = os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return run()
}

// refusals are what kubectl 1.36 says, by context; a real server's are in
// test/e2e.
var refusals = map[string]string{
	"nope":    "Error in configuration: context was not found for specified context: nope",
	"none":    noise + "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
	"far":     noise + "Unable to connect to the server: dial tcp: lookup api.example on 10.0.0.10:53: no such host",
	"slow":    "Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
	"late":    "error: context deadline exceeded",
	"guest":   "Warning: you are a guest\n" + `Error from server (Forbidden): pods is forbidden: User "guest" cannot list resource "pods" in API group "" in the namespace "shop"`,
	"expired": "error: You must be logged in to the server (Unauthorized)",
	"old":     `error: the server doesn't have a resource type "deployments"`,
	"odd":     "error: something else",
	"mute":    "",
}

const noise = `E1122 04:54:37.351787   15070 memcache.go:265] "Unhandled Error" err="couldn't get current server API group list"` + "\n"

// fakeKubectl is kubectl with a fixed cluster: get RESOURCES, and this plugin.
func fakeKubectl(args []string) int {
	if args[0] == "scaledown" {
		return run(args[1:], os.Stdin, os.Stdout, os.Stderr, time.Now)
	}
	for _, arg := range args {
		context, ok := strings.CutPrefix(arg, "--context=")
		if refusal, refused := refusals[context]; ok && refused {
			fmt.Fprintln(os.Stderr, refusal)
			return 1
		}
	}
	if slices.Contains(args, "--context=sleepy") {
		time.Sleep(patience + time.Second)
	}
	kept := list{APIVersion: "v1", Kind: "List", Items: []json.RawMessage{}}
	for _, item := range shopItems() {
		var head header
		if err := json.Unmarshal(item, &head); err != nil {
			panic(err)
		}
		if isAsked(args[1], head.Kind) && !slices.Contains(args, "--namespace=nowhere") {
			kept.Items = append(kept.Items, item)
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(kept); err != nil {
		panic(err)
	}
	return 0
}

// isAsked reports whether the resources, in kubectl's words, hold the kind.
func isAsked(resources, name string) bool {
	return slices.ContainsFunc(strings.Split(resources, ","), func(resource string) bool {
		k := kindOf(resource)
		return k != nil && k.name == name || resource == "pods" && name == "Pod"
	})
}

// shopItems returns all that the fixed cluster has.
func shopItems() (items []json.RawMessage) {
	dir := os.Getenv(rootOfShop)
	data, err := os.ReadFile(filepath.Join(dir, fleet))
	if err != nil {
		panic(err)
	}
	var l list
	if err := json.Unmarshal(data, &l); err != nil {
		panic(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, shop))
	if err != nil {
		panic(err)
	}
	for document := range strings.SplitSeq(string(text), "---\n") {
		item, err := yaml.ToJSON([]byte(document))
		if err != nil {
			panic(err)
		}
		l.Items = append(l.Items, item)
	}
	return l.Items
}
