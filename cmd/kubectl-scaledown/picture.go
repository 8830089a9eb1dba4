// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/internal/svg"
)

// Sizes in pixels; letter, fixed and small are the widths of letters in tenths of one.
const (
	pictureWidth = 960
	margin       = 28
	inner        = pictureWidth - 2*margin
	padding      = 8
	chipHeight   = 20
	rowHeight    = 22
	letter       = 72
	fixed        = 67
	small        = 62

	many = 200 // pods of a set from which on they are small squares without names
)

// A picture is the fleet by node: who goes, in which order, and why.
type picture struct {
	svg.Canvas

	y int // how far it reaches down
}

// A view is a decision as it is drawn.
type view struct {
	*decision

	nodes   []*node
	columns int // nodes side by side
	gap     int // between them
	head    int // height of a node without pods
	width   int // of a pod
	height  int
	space   int // between pods
	letters int // of the longest label
}

// A node is where pods are; its pods are places in the order.
type node struct {
	name   string
	pods   []int
	others []*corev1.Pod
}

func printPicture(out *bytes.Buffer, a answer, explain bool) {
	p := picture{y: 46}
	title := fmt.Sprintf("%s: %s", a.owner.GetName(), number(int(a.replicas), "replica"))
	if a.from != a.replicas {
		title = fmt.Sprintf("%s: from %d to %s", a.owner.GetName(), a.from, number(int(a.replicas), "replica"))
	}
	p.Text(margin, p.y, "title", clip(title, inner, 120))
	p.line(24, "soft", fmt.Sprintf("%s at %s", a.owner, a.window.from.UTC().Format(time.RFC3339)))
	for _, line := range wrapped(a.summary(), inner*10/letter) {
		p.line(20, "soft", line)
	}
	p.legend(&a)
	for i := range a.sets {
		p.draw(newView(&a.sets[i]), a.owner.kind == deploymentKind, explain)
	}
	p.y += margin
	out.WriteString(p.Document(pictureWidth, p.y, title, lightStyle(), darkStyle))
}

// line writes a line of text below what there is.
func (p *picture) line(down int, class, text string) {
	p.y += down
	p.Text(margin, p.y, class, clip(text, inner, letter))
}

// legend says what the signs mean that there are.
func (p *picture) legend(a *answer) {
	p.y += 32
	x := margin
	sign := func(is bool, class, number, text string) {
		if is {
			p.Box(x, p.y-14, 28, chipHeight, 5, class, "")
			p.Text(x+padding, p.y, "goes rank", number)
			p.Text(x+36, p.y, "small", text)
			x += 56 + len(text)*6
		}
	}
	sign(true, "going", "1", "goes, first of all")
	sign(slices.ContainsFunc(a.sets, func(d decision) bool { return d.tie != nil }), "going tied", "?", "may go: a tie")
	sign(true, "stays", "", "stays")
	sign(true, "stays unready", "", "not ready")
	if slices.ContainsFunc(a.sets, func(d decision) bool { return len(d.related) > len(d.order) }) {
		p.Dot(x+3, p.y-4, 3, "other", "")
		p.Text(x+14, p.y, "small", "pod of another ReplicaSet of the Deployment, which counts on its node")
	}
	p.y += 8
}

func newView(d *decision) *view {
	v := &view{decision: d}
	byName, own := map[string]*node{}, map[*corev1.Pod]bool{}
	for i, victim := range d.order {
		name := victim.Object.Spec.NodeName
		if byName[name] == nil {
			byName[name] = &node{name: name}
			v.nodes = append(v.nodes, byName[name])
		}
		byName[name].pods = append(byName[name].pods, i)
		own[victim.Object] = true
		v.letters = max(v.letters, len([]rune(v.label(i))))
	}
	for _, other := range d.related {
		if n := byName[other.Spec.NodeName]; n != nil && !own[other] && pod.IsActive(other) {
			n.others = append(n.others, other)
		}
	}
	slices.SortFunc(v.nodes, func(a, b *node) int { // node-2 before node-10
		return cmp.Or(cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	v.columns, v.gap, v.head = 4, 12, 42
	v.width, v.height, v.space = (v.letters+len(strconv.Itoa(d.goes()))+1)*fixed/10+10, chipHeight, 4
	if len(d.order) >= many {
		v.columns, v.gap, v.head = 8, 6, 24
		v.width, v.height, v.space = 6, 6, 2
	}
	for v.columns = max(1, min(v.columns, len(v.nodes))); v.columns > 1 && v.perRow(v.width) < 2; v.columns-- {
	}
	return v
}

// label is what stands on a pod, without its number.
func (v *view) label(i int) string {
	return clip(strings.TrimPrefix(v.order[i].Object.Name, v.owner.GetName()+"-"), 18, 10)
}

// card returns how wide a node is, and perRow how many things of a width it has side by side.
func (v *view) card() int { return (inner - (v.columns-1)*v.gap) / v.columns }

func (v *view) perRow(width int) int { return max(1, (v.card()-2*padding+v.space)/(width+v.space)) }

func rows(n, perRow int) int { return (n + perRow - 1) / perRow }

func (v *view) heightOf(n *node) int {
	return v.head + rows(len(n.pods), v.perRow(v.width))*(v.height+v.space) + rows(len(n.others), v.perRow(9))*9 + padding - v.space
}

// draw draws the nodes, the reasons and, if asked for, the whole order.
func (p *picture) draw(v *view, titled, explain bool) {
	p.y += 18
	if titled {
		p.line(18, "head", fmt.Sprintf("%s: from %d to %d", v.owner.GetName(), v.from, v.replicas))
		p.line(20, "soft", v.verdict())
		p.y += 12
	}
	for row := range slices.Chunk(v.nodes, v.columns) {
		height := 0
		for _, n := range row {
			height = max(height, v.heightOf(n))
		}
		for i, n := range row {
			p.card(v, n, margin+i*(v.card()+v.gap), height)
		}
		p.y += height + v.gap
	}
	p.reasons(v)
	if explain && len(v.order) < many {
		p.wholeOrder(v)
	}
}

// card draws a node.
func (p *picture) card(v *view, n *node, x, height int) {
	class, goes, room := "card", 0, v.card()-2*padding
	if n.name == "" {
		class = "card nowhere"
	}
	p.Box(x, p.y, v.card(), height, 8, class, "")
	host, _, _ := strings.Cut(n.name, ".")
	fmt.Fprintf(&p.Buffer, "<g><title>%s</title>", svg.Escaped(n.name))
	p.Text(x+padding, p.y+18, "node", clip(cmp.Or(host, "not on a node yet"), room, letter))
	p.WriteString("</g>\n")
	for i, place := range n.pods {
		goes += count(place < v.goes())
		perRow := v.perRow(v.width)
		p.chip(v, place, x+padding+i%perRow*(v.width+v.space), p.y+v.head+i/perRow*(v.height+v.space))
	}
	tally := fmt.Sprintf("%s, %d go", number(len(n.pods), "pod"), goes)
	if len(n.others) > 0 {
		tally += fmt.Sprintf(", %d related", len(n.others))
	}
	if len(v.order) < many {
		p.Text(x+padding, p.y+34, "small", clip(tally, room, small))
	}
	below := p.y + v.head + rows(len(n.pods), v.perRow(v.width))*(v.height+v.space)
	for i, other := range n.others {
		p.Dot(x+padding+3+i%v.perRow(9)*9, below+3+i/v.perRow(9)*9, 3, "other", other.Name)
	}
}

// chip draws a pod.
func (p *picture) chip(v *view, place, x, y int) {
	name, class, text, mark := v.order[place].Object.Name, "stays", "stays", ""
	if place < v.goes() {
		gone := v.plan.Scale.Delete[place]
		class, mark = "going "+gone.Criterion, strconv.Itoa(place+1)
		text = fmt.Sprintf("goes as number %s: %s", mark, inWords(gone.Victim))
	} else if !pod.IsReady(v.order[place].Object) {
		class += " unready"
	}
	if !v.certain(place) {
		class, text = class+" tied", "may go: "+v.tie.String()
	}
	p.Box(x, y, v.width, v.height, v.height/4, class, name+" "+text)
	switch {
	case len(v.order) >= many:
	case mark == "":
		p.Text(x+5, y+14, "pod", v.label(place))
	default:
		p.Text(x+5, y+14, "goes rank", mark)
		p.Text(x+5+(len(strconv.Itoa(v.goes()))+1)*fixed/10, y+14, "goes", v.label(place))
	}
}

// reasons draws why pods go, those of one reason that follow each other together.
func (p *picture) reasons(v *view) {
	const most = 40
	reason := func(i int) string {
		gone := v.plan.Scale.Delete[i]
		if len(v.plan.Scale.Delete) > most {
			return gone.Criterion
		}
		return inWords(gone.Victim)
	}
	if v.goes() == 0 {
		return
	}
	p.line(22, "head", "Why these, in this order")
	for from, lines := 0, 0; from < v.goes(); lines++ {
		to := from + 1
		for to < v.goes() && (lines == most || reason(to) == reason(from)) {
			to++
		}
		places, text := strconv.Itoa(from+1), v.label(from)+": "+reason(from)
		if to > from+1 {
			places, text = fmt.Sprintf("%d–%d", from+1, to), number(to-from, "pod")+": "+reason(from)
		}
		if lines == most {
			text = number(to-from, "pod") + " for more reasons, which -o wide has"
		}
		p.Box(margin, p.y+10, 80, chipHeight-2, 5, "going "+v.plan.Scale.Delete[from].Criterion, "")
		p.Text(margin+8, p.y+23, "goes rank", places)
		p.Text(margin+92, p.y+23, "reason", clip(text, inner-92, letter))
		p.y += rowHeight
		from = to
	}
	if v.tie != nil {
		p.line(24, "soft", fmt.Sprintf("%d of %d are a tie: %s.", v.tie.goes, v.tie.to-v.tie.from, v.tie.Reason))
	} else if v.goes() < len(v.order) {
		p.line(24, "soft", fmt.Sprintf("The next one would be %s.", v.order[v.goes()].Object.Name))
	}
}

// wholeOrder lists all pods with what decided between each and the next.
func (p *picture) wholeOrder(v *view) {
	p.line(34, "head", "The whole order, and what decided between each pod and the next")
	for i := range v.order {
		class := "pod"
		if i < v.goes() {
			class = "pod rank"
		}
		p.line(rowHeight-4, class, fmt.Sprintf("%d  %s", i+1, v.label(i)))
		p.Text(margin+(v.letters+8)*fixed/10, p.y, "small", v.because(i))
	}
}

// clip shortens text in the middle to fit in so many pixels, if its letters are
// so many tenths of a pixel wide.
func clip(text string, width, tenths int) string {
	letters, most := []rune(text), max(3, width*10/tenths)
	if len(letters) <= most {
		return text
	}
	front := (most - 1) / 2
	return string(letters[:front]) + "…" + string(letters[len(letters)-(most-1-front):])
}

// wrapped breaks text into lines of so many letters, where it has spaces.
func wrapped(text string, most int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && len(lines[last])+1+len(word) <= most {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}

// lightStyle has the colours of pods and reasons: white text is legible on each of them, and
// each on white and on black. darkStyle has what is different in dark surroundings.
func lightStyle() string {
	const style = `.node{font-size:12px;font-weight:600}
.pod,.goes{font:11px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
.goes{fill:#fff}
.rank{font-weight:700}
.nowhere{stroke-dasharray:5 4}
.stays{fill:#fff;stroke:#afb8c1}
.unready{stroke-dasharray:3 2}
.other{fill:#afb8c1}
.going{fill:#59636e}
`
	hues := strings.Fields("unassigned #6f42c1 phase #0969da not-ready #bf3989 deletion-cost #8a6100 colocation #bc4c00 ready-time #0b7a75 restarts #cf222e sidecar-restarts #a11a4a creation-time #1f7a36")
	var b strings.Builder
	b.WriteString(style)
	for hue := range slices.Chunk(hues, 2) {
		fmt.Fprintf(&b, ".%s{fill:%s}\n", hue[0], hue[1])
	}
	b.WriteString(".going.tied{fill-opacity:.6;stroke:#bf8700;stroke-width:2}\n.stays.tied{stroke:#bf8700;stroke-width:2}\n")
	return b.String()
}

const darkStyle = `.goes{fill:#fff}
.stays{fill:#0d1117;stroke:#656c76}
.other{fill:#656c76}
`
