// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wellFormed reads an SVG to its end and returns its elements by name.
func wellFormed(t require.TestingT, svg string) map[string][]xml.StartElement {
	elements := map[string][]xml.StartElement{}
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return elements
		}
		require.NoError(t, err)
		if start, ok := token.(xml.StartElement); ok {
			elements[start.Name.Local] = append(elements[start.Name.Local], start)
		}
	}
}

func attribute(t *testing.T, element xml.StartElement, name string) int {
	t.Helper()
	for _, a := range element.Attr {
		if a.Name.Local == name {
			n, err := strconv.Atoi(a.Value)
			require.NoError(t, err)
			return n
		}
	}
	return 0
}

// crowd is a ReplicaSet of n pods whose names, spread over nodes, are made by two
// functions.
func crowd(n int, pod, node func(int) string) string {
	documents := strings.Split(web, "---")
	input := strings.NewReplacer("replicas: 1", fmt.Sprintf("replicas: %d", n), "replicas: 2", fmt.Sprintf("replicas: %d", n)).Replace(documents[0])
	for i := range n {
		input += "---" + strings.NewReplacer("web-a", strconv.Quote(pod(i)), "uid: a", fmt.Sprintf("uid: a%d", i), "node-1", strconv.Quote(node(i))).Replace(documents[1])
	}
	return input
}

func TestPicturesKeepWithinThePaper(t *testing.T) {
	t.Parallel()
	short := func(i int) string { return fmt.Sprintf("web-%05d", i) }
	long := func(i int) string { return fmt.Sprintf("%s-%d", strings.Repeat("long-", 40), i) }
	nodes := func(n int) func(int) string { return func(i int) string { return fmt.Sprintf("node-%d", i%n) } }
	hosts := func(i int) string { return fmt.Sprintf("ip-10-0-0-%d.eu-central-1.compute.internal", i%7) }
	for name, input := range map[string]string{
		"one pod":               crowd(1, short, nodes(1)),
		"500 pods on one node":  crowd(500, short, nodes(1)),
		"500 pods on 40 nodes":  crowd(500, short, nodes(40)),
		"199 pods on one node":  crowd(199, short, nodes(1)),
		"long names":            crowd(30, long, nodes(4)),
		"long names everywhere": crowd(30, long, func(i int) string { return long(i % 5) }),
		"hosts with a domain":   crowd(30, short, hosts),
		"no pods":               crowd(0, short, nodes(1)),
		"a rollout":             shopRollout,
	} {
		for _, args := range [][]string{{"--replicas=1", "--explain"}, {"--replicas=0"}} {
			t.Run(name+strings.Join(args, " "), func(t *testing.T) {
				t.Parallel()
				got := try(input, append(args, "-o=svg")...)
				require.Equal(t, 0, got.code, got.stderr)
				elements := wellFormed(t, got.stdout)
				height := attribute(t, elements["svg"][0], "height")
				for _, box := range elements["rect"] {
					assert.LessOrEqual(t, attribute(t, box, "x")+attribute(t, box, "width"), pictureWidth)
					assert.LessOrEqual(t, attribute(t, box, "y")+attribute(t, box, "height"), height)
				}
				for _, line := range elements["text"] {
					assert.Less(t, attribute(t, line, "y"), height)
				}
			})
		}
	}
}

// A picture of 5,000 pods is a few screens high.
func TestPicturesOfManyPodsStayReadable(t *testing.T) {
	t.Parallel()
	for nodes, want := range map[int]int{1: 1000, 50: 1500, 500: 4000} {
		objs := randomFleet(rand.New(rand.NewPCG(1, 1)), 5000)
		for i, p := range objs.pods {
			p.Spec.NodeName = fmt.Sprintf("node-%d", i%nodes)
		}
		answers, err := (&options{at: noon}).decide(objs, ofReplicaSet(objs.replicaSets[0]), []int32{4000})
		require.NoError(t, err)
		var out bytes.Buffer
		printPicture(&out, answers[0], true)
		elements := wellFormed(t, out.String())
		assert.Less(t, attribute(t, elements["svg"][0], "height"), want, "%d nodes", nodes)
		assert.Greater(t, len(elements["rect"]), 5000)
	}
}

func TestPicturesShowEachPodOnce(t *testing.T) {
	t.Parallel()
	at, gone := deleted(t)
	svg := try("", "rs/web-5d9c7b6f4d", "-f", fleet, "--replicas=25", "--at="+at, "-o=svg").stdout
	goes := regexp.MustCompile(`<title>(\S+) goes as number \d+: `).FindAllStringSubmatch(svg, -1)
	var names []string
	for _, match := range goes {
		names = append(names, match[1])
	}
	assert.ElementsMatch(t, gone, names)
	assert.Len(t, regexp.MustCompile(`<title>\S+ stays</title>`).FindAllString(svg, -1), 25)
	assert.Len(t, regexp.MustCompile(`<circle .*<title>web-7c8d4f5b9c-`).FindAllString(svg, -1), 8, "pods of the sibling on the same nodes")
}

func TestPicturesEscapeWhatTheyShow(t *testing.T) {
	t.Parallel()
	bad := func(int) string { return `<script>"&'` + "\x00" + `</script>` }
	got := try(strings.ReplaceAll(crowd(2, bad, bad), `\x00`, `\0`), "--replicas=0", "--explain", "-o=svg")
	require.Equal(t, 0, got.code, got.stderr)
	assert.Empty(t, wellFormed(t, got.stdout)["script"])
	assert.Contains(t, got.stdout, "&lt;script&gt;&#34;&amp;&#39;\ufffd")
}

func TestClip(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "node-1", clip("node-1", 60, 100))
	assert.Equal(t, "no…-1", clip("node--1", 50, 100))
	assert.Equal(t, "é…é", clip("ééééé", 1, 100))
	assert.Equal(t, []string{"one two", "three", "fourteen"}, wrapped("one two three fourteen", 8))
}
