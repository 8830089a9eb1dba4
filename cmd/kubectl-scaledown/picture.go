// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/internal/svg"
)

// Sizes in a picture, in pixels; glyph is the width of a fixed-width letter, and
// letter, prose and small about that of others, in
// tenths.
const (
	pictureWidth = 960
	margin       = 28
	inner        = pictureWidth - 2*margin
	gap          = 12
	small        = 62
	padding      = 8
	chipHeight   = 20
	chipGap      = 4
	dotRadius    = 3
	rowHeight    = 20
	glyph        = 67
	letter       = 72
	prose        = 65
)

// A picture is the fleet by node: who goes, in which order, and why.
type picture struct {
	svg.Canvas

	y int // how far it reaches down
}

func printPicture(out *bytes.Buffer, a answer, explain bool) {
	var p picture
	title := a.heading()
	p.y = 46
	p.Text(margin, p.y, "title", title)
	p.y += 24
	p.Text(margin, p.y, "soft", clip(fmt.Sprintf("%s at %s", a.owner, a.window.from.UTC().Format(time.RFC3339)), inner, letter))
	for _, line := range wrapped(a.summary(), inner*10/prose) {
		p.y += 20
		p.Text(margin, p.y, "soft", line)
	}
	p.legend(slices.ContainsFunc(a.sets, func(d decision) bool { return d.related != nil }))
	for _, d := range a.sets {
		p.draw(newView(d), a, explain)
	}
	p.y += margin
	out.WriteString(p.Document(pictureWidth, p.y, title, lightStyle(), darkStyle))
}

// heading says in a few words what is asked.
func (a *answer) heading() string {
	if a.from == a.replicas {
		return clip(fmt.Sprintf("%s: %s", a.owner.GetName(), number(int(a.replicas), "replica")), inner, 120)
	}
	return clip(fmt.Sprintf("%s: from %d to %s", a.owner.GetName(), a.from, number(int(a.replicas), "replica")), inner, 120)
}

// legend says what the signs mean, that of related pods if there may be some.
func (p *picture) legend(related bool) {
	p.y += 32
	x := margin
	say := func(text string) {
		p.Text(x, p.y, "small", text)
		x += len(text)*6 + 20
	}
	p.Box(x, p.y-14, 28, chipHeight, 5, "going", "")
	p.Text(x+padding, p.y, "goes rank", "1")
	x += 36
	say("goes, first of all")
	p.Box(x, p.y-14, 28, chipHeight, 5, "stays", "")
	x += 36
	say("stays")
	p.Box(x, p.y-14, 28, chipHeight, 5, "stays unready", "")
	x += 36
	say("not ready")
	if related {
		p.Dot(x+dotRadius, p.y-4, dotRadius, "other", "")
		x += 14
		say("pod of another ReplicaSet of the Deployment, which counts on its node")
	}
	p.y += 8
}

// draw draws the nodes, the reasons and, if asked for, the whole order.
func (p *picture) draw(v *view, a answer, explain bool) {
	p.y += 18
	if a.owner.kind == deploymentKind {
		p.y += 18
		p.Text(margin, p.y, "head", clip(fmt.Sprintf("%s: from %d to %d", v.owner.GetName(), *v.owner.replicas, v.replicas), inner, 85))
		p.y += 20
		p.Text(margin, p.y, "soft", clip(v.verdict(), inner, letter))
		p.y += 12
	}
	columns := v.columns()
	for row := range slices.Chunk(v.nodes, columns) {
		height := 0
		for _, n := range row {
			height = max(height, v.height(n, columns))
		}
		for i, n := range row {
			p.card(v, n, margin+i*(cardWidth(columns)+gap), columns, height)
		}
		p.y += height + gap
	}
	p.reasons(v)
	if explain {
		p.wholeOrder(v)
	}
}

// card draws a node.
func (p *picture) card(v *view, n *node, x, columns, height int) {
	class, name := "card", n.name
	if name == "" {
		class, name = "card nowhere", "not on a node yet"
	}
	width := cardWidth(columns) - 2*padding
	p.Box(x, p.y, cardWidth(columns), height, 8, class, "")
	fmt.Fprintf(&p.Buffer, "<g><title>%s</title>", svg.Escaped(name))
	p.Text(x+padding, p.y+20, "node", clip(v.host(name), width, letter))
	p.WriteString("</g>\n")
	p.Text(x+padding, p.y+36, "small", v.tally(n))
	y, perRow := p.y+46, v.perRow(columns)
	for i, place := range n.pods {
		p.chip(v, place, x+padding+i%perRow*(v.chip()+chipGap), y+i/perRow*(chipHeight+chipGap))
	}
	y += rows(len(n.pods), perRow) * (chipHeight + chipGap)
	for i, other := range n.others {
		perRow := dotsPerRow(columns)
		p.Dot(x+padding+dotRadius+i%perRow*3*dotRadius, y+dotRadius+i/perRow*3*dotRadius, dotRadius, "other", other.Name)
	}
}

// chip draws a pod.
func (p *picture) chip(v *view, place, x, y int) {
	victim := v.order[place]
	if place >= v.goes() {
		class := "stays"
		if !pod.IsReady(victim.Object) {
			class += " unready"
		}
		p.Box(x, y, v.chip(), chipHeight, 5, class, victim.Object.Name+" stays")
		p.Text(x+5, y+14, "pod", v.labelOf(place))
		return
	}
	number, gone := strconv.Itoa(place+1), v.plan.Scale.Delete[place]
	p.Box(x, y, v.chip(), chipHeight, 5, "going "+gone.Criterion, fmt.Sprintf("%s goes as number %s: %s", victim.Object.Name, number, inWords(gone.Victim)))
	p.Text(x+5, y+14, "goes rank", number)
	p.Text(x+5+(len(strconv.Itoa(v.goes()))+1)*glyph/10, y+14, "goes", v.labelOf(place))
}

// reasons draws why each pod goes.
func (p *picture) reasons(v *view) {
	list := v.reasons()
	if len(list) == 0 {
		return
	}
	p.y += 22
	p.Text(margin, p.y, "head", "Why these, in this order")
	p.y += 12
	const columns = 2
	width, perColumn := inner/columns, rows(len(list), columns)
	for i, r := range list {
		x, y := margin+i/perColumn*width, p.y+i%perColumn*(rowHeight+4)
		places, who := strconv.Itoa(r.from+1), v.labelOf(r.from)
		if r.to > r.from {
			places, who = fmt.Sprintf("%d–%d", r.from+1, r.to+1), number(r.to-r.from+1, "pod")
		}
		p.Box(x, y, 66, chipHeight, 5, "going "+r.criterion, "")
		p.Text(x+8, y+14, "goes rank", places)
		p.Text(x+76, y+14, "pod", who)
		offset := 76 + max(9, v.label+2)*glyph/10
		p.Text(x+offset, y+14, "reason", clip(r.text, width-offset-8, letter))
	}
	p.y += perColumn*(rowHeight+4) + 4
	if goes := v.goes(); goes < len(v.order) {
		p.y += 14
		p.Text(margin, p.y, "soft", clip(fmt.Sprintf("The next one would be %s.", v.order[goes].Object.Name), inner, letter))
	}
}

// wholeOrder lists all pods with what decided between each and the next.
func (p *picture) wholeOrder(v *view) {
	p.y += 30
	p.Text(margin, p.y, "head", "The whole order, and what decided between each pod and the next")
	p.y += 10
	const columns = 2
	width, perColumn := inner/columns, rows(len(v.order), columns)
	digits := len(strconv.Itoa(len(v.order)))
	for i := range v.order {
		x, y := margin+i/perColumn*width, p.y+i%perColumn*rowHeight+14
		class := "pod"
		if i < v.goes() {
			class = "pod rank"
		}
		p.Text(x, y, class, fmt.Sprintf("%*d  %s", digits, i+1, v.labelOf(i)))
		offset := (digits + 4 + v.label) * glyph / 10
		p.Text(x+offset, y, "small", clip(v.local(v.because(i), v.order[i].Object), width-offset-8, small))
	}
	p.y += perColumn * rowHeight
}
