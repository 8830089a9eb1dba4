// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ask runs the program as on a terminal: nothing is piped in. What it says of a kubectl
// that is slow is left out, as any is on a busy machine.
func ask(t *testing.T, args ...string) result {
	t.Helper()
	said := askPatiently(t, args...)
	said.stderr = regexp.MustCompile(`(?m)^note: waiting for kubectl.*\n`).ReplaceAllString(said.stderr, "")
	return said
}

// askPatiently is ask, with all that is said.
func askPatiently(t *testing.T, args ...string) result {
	t.Helper()
	terminal, err := os.Open(os.DevNull) // a character device, as a terminal is
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, terminal.Close()) })
	var stdout, stderr bytes.Buffer
	code := run(args, terminal, &stdout, &stderr, func() time.Time { return time.Date(2026, time.November, 21, 11, 40, 54, 10732824, time.UTC) })
	return result{code, stdout.String(), stderr.String()}
}

func TestReadsTheClusterAsItReadsADump(t *testing.T) {
	t.Parallel()
	at, _ := deleted(t)
	for _, args := range []string{
		"deployment/web --replicas 25",
		"deployment/web",
		"rs/web-5d9c7b6f4d --replicas 25 -o json",
		"rs/web-5d9c7b6f4d --replicas 25 --explain -o wide",
		"rc/legacy --replicas 0",
		"rc --replicas 0 -o svg",
		"web --replicas 20 -n fleet-1-3645",
		"-l app=web",
		"deploy -l app=web --replicas 0 -o name",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			words := append(strings.Fields(args), "--at", at)
			want := try("", append(words, "-f", fleet, "-f", shop)...)
			require.Equal(t, exitOK, want.code, want.stderr)
			assert.Equal(t, want, ask(t, words...))
			assert.Equal(t, want, ask(t, append(words, "--kubeconfig=mine", "--request-timeout=5s")...))
		})
	}
}

func TestTheInstantIsNow(t *testing.T) {
	t.Parallel()
	assert.Contains(t, ask(t, "rs/web-5d9c7b6f4d").stdout, "ReplicaSet fleet-1-3645/web-5d9c7b6f4d at 2026-11-21T11:40:54.010732824Z\n")
}

func TestSaysInALineWhatToDoAboutACluster(t *testing.T) {
	t.Parallel()
	for context, want := range map[string]string{
		"nope":    "Error in configuration: context was not found for specified context: nope: 'kubectl config get-contexts' lists them",
		"none":    "The connection to the server localhost:8080 was refused - did you specify the right host or port?: name another cluster with --context, or read a saved dump with -f",
		"far":     "Unable to connect to the server: dial tcp: lookup api.example on 10.0.0.10:53: no such host: name another cluster with --context, or read a saved dump with -f",
		"slow":    "Unable to connect to the server: net/http: request canceled (Client.Timeout exceeded while awaiting headers): give it longer with --request-timeout, or read a saved dump with -f",
		"late":    "context deadline exceeded: give it longer with --request-timeout, or read a saved dump with -f",
		"guest":   `Error from server (Forbidden): pods is forbidden: User "guest" cannot list resource "pods" in API group "" in the namespace "shop": you need the right to list these: ask 'kubectl auth can-i --list', or have somebody save a dump and read it with -f`,
		"expired": "You must be logged in to the server (Unauthorized): log in again, or name another cluster with --context",
		"old":     `the server doesn't have a resource type "deployments": name another cluster with --context: this one has no such resource`,
		"odd":     "something else: try it by hand: kubectl get deployments.apps,replicasets.apps,pods --output=json --request-timeout=30s --context=odd --namespace=shop",
		"mute":    "exit status 1: try it by hand: kubectl get deployments.apps,replicasets.apps,pods --output=json --request-timeout=30s --context=mute --namespace=shop",
	} {
		t.Run(context, func(t *testing.T) {
			t.Parallel()
			got := ask(t, "web", "-n", "shop", "--context", context)
			assert.Equal(t, result{exitCluster, "", "error: cannot read the cluster: " + want + "\n"}, got)
		})
	}
}

func TestSaysWhatIsNotInTheCluster(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"rs/api":              "no ReplicaSet api in the namespace of the context (-n names another), which holds rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c",
		"rs":                  "more than one can be meant, name one of these: rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c",
		"legacy":              "no Deployment, ReplicaSet or ReplicationController legacy in the namespace of the context (-n names another), which holds deployment/web, rs/web-5d9c7b6f4d, rs/web-7c8d4f5b9c",
		"deploy/web -nowhere": "no Deployment, ReplicaSet or ReplicationController in namespace nowhere of the cluster, which holds nothing",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(strings.ReplaceAll(args, "-nowhere", "-n nowhere"))
			assert.Equal(t, result{exitError, "", "error: " + want + "\n"}, ask(t, words...))
		})
	}
}

func TestNeedsAKubectl(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	assert.Equal(t, result{exitCluster, "", "error: no kubectl on PATH to read the cluster with: name a saved dump with -f, or pipe one in\n"}, ask(t, "web"))
}

func TestWhereItReads(t *testing.T) {
	t.Parallel()
	t.Run("a dash needs something piped in", func(t *testing.T) {
		t.Parallel()
		got := ask(t, "-f", "-")
		assert.Equal(t, exitUsage, got.code)
		assert.Contains(t, got.stderr, "error: nothing to read: pipe the output of 'kubectl get deployments,rs,pods -o json' in, or leave -f - out to read the cluster\n")
	})
	t.Run("an empty pipe is no leave to read the cluster", func(t *testing.T) {
		t.Parallel()
		got := try("", "deployment/web")
		assert.Equal(t, exitError, got.code)
		assert.Contains(t, got.stderr, "error: standard input is empty")
	})
	t.Run("with a context it is", func(t *testing.T) {
		t.Parallel()
		got := try("", "deployment/web", "--context=prod", "--replicas=25", "-o=name")
		assert.Equal(t, exitOK, got.code, got.stderr)
		assert.Equal(t, ask(t, "deployment/web", "--replicas=25", "-o=name", "--at=2026-11-21T12:00:00Z"), got)
	})
	t.Run("a pipe that breaks is told", func(t *testing.T) {
		t.Parallel()
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitError, run([]string{"rs/web", "--context=prod"}, iotest.ErrReader(errors.New("gone")), &stdout, &stderr, time.Now))
		assert.Equal(t, "error: standard input: gone\n", stderr.String())
	})
	t.Run("a file makes standard input no matter", func(t *testing.T) {
		t.Parallel()
		got := try("garbage", "-f", fleet, "-f", shop, "deployment/web", "-o=name")
		assert.Equal(t, exitOK, got.code, got.stderr)
	})
}

func TestTellsThatItWaitsForStandardInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		input, output := io.Pipe()
		go func() {
			time.Sleep(patience + time.Second)
			_, _ = output.Write([]byte(web))
			_ = output.Close()
		}()
		var stdout, stderr bytes.Buffer
		assert.Equal(t, exitOK, run([]string{"-o=name"}, input, &stdout, &stderr, time.Now))
		assert.Equal(t, "pod/web-o\n", stdout.String())
		assert.Equal(t, "note: waiting for standard input; to read the cluster instead, say </dev/null\n", stderr.String())
	})
}

func TestTellsThatItWaitsForTheCluster(t *testing.T) {
	t.Parallel()
	got := askPatiently(t, "rs/web-5d9c7b6f4d", "--context=sleepy")
	assert.Equal(t, exitOK, got.code)
	assert.Equal(t, "note: waiting for kubectl; if it wants a login, run it by hand first: "+
		"kubectl get replicasets.apps,pods --output=json --request-timeout=30s --context=sleepy\n", got.stderr)
}

// Every command in the README, in the usage and in the package comment works.
func TestEveryCommandShown(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(readme), "\n### Who would go, and why\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n##")
	_, examples, _ := strings.Cut(usage, "Examples:")
	examples, _, _ = strings.Cut(examples, "What is asked:")
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	doc, _, _ := strings.Cut(string(source), "package main")
	for where, text := range map[string]string{"README": section, "usage": examples, "package comment": doc} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			commands := regexp.MustCompile(`(?m)^(?://\t|    |  )(kubectl .*)$`).FindAllStringSubmatch(text, -1)
			require.NotEmpty(t, commands)
			for _, command := range commands {
				shell := exec.CommandContext(t.Context(), "sh", "-c", command[1])
				shell.Dir = dir
				var stdout, stderr bytes.Buffer
				shell.Stdout, shell.Stderr = &stdout, &stderr
				require.NoError(t, shell.Run(), "%s\n%s", command[1], &stderr)
				if _, file, ok := strings.Cut(command[1], "> "); ok {
					written, err := os.ReadFile(filepath.Join(dir, file))
					require.NoError(t, err)
					stdout.Write(written)
				}
				assert.NotEmpty(t, stdout.String(), command[1])
			}
		})
	}
}

// The rows in the README are those of the fleet.
func TestTheREADMEShowsTheFleet(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	table, err := os.ReadFile("testdata/fleet-a.table.golden")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^    (web-5d9c7b6f4d-.*)$`).FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		assert.Contains(t, string(table), row[1]+"\n")
	}
	explained, err := os.ReadFile("testdata/fleet-a.explain.golden")
	require.NoError(t, err)
	assert.Contains(t, string(explained), "\n40 pods, 25 wanted: delete 15\n")
	assert.Contains(t, string(readme), "![the fleet by node: fifteen of forty pods go, ")
	assert.Contains(t, string(readme), "](docs/scaledown.svg)")
}

func TestExitCodesAreThoseOfTheUsage(t *testing.T) {
	t.Parallel()
	for code, args := range map[int]string{
		exitOK:      "deployment/web",
		exitError:   "deployment/api",
		exitUsage:   "deployment/web --all",
		exitCluster: "deployment/web --context=none",
	} {
		assert.Equal(t, code, ask(t, strings.Fields(args)...).code, args)
		assert.Contains(t, usage, fmt.Sprintf("\n  %d  ", code))
	}
}
