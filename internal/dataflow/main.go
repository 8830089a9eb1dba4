// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dataflow prints docs/dataflow.svg, the picture of the README: what a
// controller does with an event, and which package answers which question.
//
//	go run ./internal/dataflow > docs/dataflow.svg
package main

import (
	"fmt"

	"github.com/replicakit/replicakit/internal/svg"
)

const (
	width  = 960
	height = 456
	title  = "From watch events to a plan, and from the plan to calls"
)

// A box is a step, with the name of its package if one answers its question.
type box struct {
	x, y, width, height int
	class               string
	name                string
	lines               []string
}

var boxes = []box{
	{28, 20, 904, 318, "card", "", nil},
	{394, 104, 352, 112, "pure", "", nil},
	{44, 136, 152, 68, "yours", "work queue", []string{"one pass for an owner", "at a time"}},
	{224, 136, 152, 68, "step", "facts", []string{"the owner, its children,", "what is pending, now"}},
	{404, 136, 152, 68, "key", "replicas.Manage", []string{"selector: what is mine?", "podrank: who goes first?"}},
	{584, 136, 152, 68, "step", "plan", []string{"adopt, release, create,", "delete, or wait"}},
	{764, 136, 152, 68, "step", "slowstart", []string{"how fast do I dare?"}},
	{44, 250, 152, 68, "step", "expectations", []string{"what have I started", "but not yet seen?"}},
	{224, 250, 152, 68, "yours", "cache", []string{"what the watches", "have shown so far"}},
	{804, 250, 112, 68, "step", "status", []string{"what do I report?"}},
	{28, 388, 904, 40, "yours", "", nil},
}

// An arrow is a path, and what stands beside it.
type arrow struct {
	path  string
	x, y  int
	label string
}

var arrows = []arrow{
	{"M120 388V322", 128, 362, "events settle it, wake owners"},
	{"M330 388V322", 338, 362, "watch"},
	{"M120 250V208", 128, 233, "wake"},
	{"M196 270H210V186H220", 0, 0, ""},
	{"M300 250V208", 308, 233, "list"},
	{"M196 162H220", 0, 0, ""},
	{"M376 170H400", 0, 0, ""},
	{"M556 170H580", 0, 0, ""},
	{"M736 170H760", 0, 0, ""},
	{"M480 388V208", 488, 262, "a live list, if the view"},
	{"", 488, 278, "is known to be old"},
	{"M660 136V86H120V132", 204, 80, "requeue, if no event will wake"},
	{"M784 204V384", 640, 362, "patch, create, delete"},
	{"M860 204V246", 0, 0, ""},
	{"M860 318V384", 868, 362, "write"},
}

const (
	light = `.key{fill:#ddf4ff;stroke:#0969da}
.step{fill:#fff;stroke:#afb8c1}
.yours{fill:#fff;stroke:#afb8c1;stroke-dasharray:5 4}
.pure{fill:none;stroke:#0969da;stroke-dasharray:2 3}
.name{font:600 13px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
.arrow{fill:none;stroke:#59636e;stroke-width:1.5;marker-end:url(#tip)}
#tip path{fill:#59636e}
`
	dark = `.key{fill:#0c2d4f;stroke:#4493f8}
.step,.yours{fill:#0d1117;stroke:#656c76}
.pure{stroke:#4493f8}
.arrow{stroke:#9198a1}
#tip path{fill:#9198a1}
`
	tip = `<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8Z"/></marker></defs>
`
)

func draw() string {
	var c svg.Canvas
	c.WriteString(tip)
	for _, b := range boxes {
		c.Box(b.x, b.y, b.width, b.height, 8, b.class, "")
		c.Text(b.x+8, b.y+22, "name", b.name)
		for i, line := range b.lines {
			c.Text(b.x+8, b.y+41+16*i, "small", line)
		}
	}
	for _, a := range arrows {
		fmt.Fprintf(&c.Buffer, "<path d=\"%s\" class=\"arrow\"/>\n", a.path)
		c.Text(a.x, a.y, "small", a.label)
	}
	c.Text(44, 48, "head", "replicas/controller: all of this, for any kind, over any client")
	c.Text(404, 124, "small", "replicas: facts in, plan out; calls nothing")
	c.Text(44, 413, "name", "API server")
	c.Text(28, 446, "small", "Dashed: not of this library. The modules replicas/controllerruntime and replicas/clientgo bring queue, cache and client.")
	return c.Document(width, height, title, light, dark)
}

func main() { fmt.Print(draw()) }
