// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/replicakit/replicakit/internal/pod"
)

// A view is a decision as it is drawn.
type view struct {
	decision

	prefix string // that the names of its pods share, and is left out
	nodes  []*node
	label  int  // letters of the longest label
	domain bool // nodes are told apart by what is behind the first dot of their names, too
}

// A node is where pods are; its pods are places in the order.
type node struct {
	name   string
	pods   []int
	others []*corev1.Pod
}

func newView(d decision) *view {
	v := &view{decision: d, prefix: d.owner.GetName() + "-"}
	byName := map[string]*node{}
	own := map[*corev1.Pod]bool{}
	for i, victim := range d.order {
		name := victim.Object.Spec.NodeName
		if byName[name] == nil {
			byName[name] = &node{name: name}
			v.nodes = append(v.nodes, byName[name])
		}
		byName[name].pods = append(byName[name].pods, i)
		own[victim.Object] = true
		v.label = max(v.label, len([]rune(v.labelOf(i))))
	}
	for _, other := range d.related {
		if n := byName[other.Spec.NodeName]; n != nil && !own[other] && pod.IsActive(other) {
			n.others = append(n.others, other)
		}
	}
	short := map[string]bool{}
	for _, n := range v.nodes {
		v.domain = v.domain || short[v.host(n.name)]
		short[v.host(n.name)] = true
	}
	slices.SortFunc(v.nodes, func(a, b *node) int { // node-2 before node-10
		return cmp.Or(cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	return v
}

// host returns the name of a node without its domain, if that is enough.
func (v *view) host(node string) string {
	if host, _, ok := strings.Cut(node, "."); ok && !v.domain {
		return host
	}
	return node
}

// local returns what is said of a pod with its node as it is called elsewhere in
// the picture.
func (v *view) local(text string, p *corev1.Pod) string {
	if p.Spec.NodeName == "" {
		return text
	}
	return strings.ReplaceAll(text, p.Spec.NodeName, v.host(p.Spec.NodeName))
}

// labelOf returns what stands on the chip of a pod, without its number.
func (v *view) labelOf(i int) string {
	const most = 18
	return clip(strings.TrimPrefix(v.order[i].Object.Name, v.prefix), most, 10)
}

// chip is the width of each pod.
func (v *view) chip() int {
	letters := v.label
	if goes := v.goes(); goes > 0 {
		letters += 1 + len(strconv.Itoa(goes))
	}
	return letters*glyph/10 + 2*5
}

// columns returns how many nodes stand side by side.
func (v *view) columns() int {
	const most, many = 4, 60
	for _, n := range v.nodes {
		if len(n.pods) > many {
			return 1
		}
	}
	for n := min(most, len(v.nodes)); n > 1; n-- {
		if v.perRow(n) >= 2 {
			return n
		}
	}
	return 1
}

// cardWidth returns how wide a node is if so many stand side by side.
func cardWidth(columns int) int { return (inner - (columns-1)*gap) / columns }

func (v *view) perRow(columns int) int {
	return max(1, (cardWidth(columns)-2*padding+chipGap)/(v.chip()+chipGap))
}

func rows(n, perRow int) int { return (n + perRow - 1) / perRow }

func dotsPerRow(columns int) int { return (cardWidth(columns) - 2*padding) / (3 * dotRadius) }

func (v *view) height(n *node, columns int) int {
	return 46 + rows(len(n.pods), v.perRow(columns))*(chipHeight+chipGap) + rows(len(n.others), dotsPerRow(columns))*3*dotRadius + padding - chipGap
}

// tally counts the pods of a node.
func (v *view) tally(n *node) string {
	text, goes := number(len(n.pods), "pod"), 0
	for _, place := range n.pods {
		if place < v.goes() {
			goes++
		}
	}
	switch goes {
	case 0:
	case 1:
		text += ", 1 goes"
	default:
		text += fmt.Sprintf(", %d go", goes)
	}
	if len(n.others) > 0 {
		text += fmt.Sprintf(", %d related", len(n.others))
	}
	return text
}

// A reason is why one pod goes, or several that follow each other.
type reason struct {
	from, to        int
	criterion, text string
}

// mostReasons is how many reasons of one criterion are told one by one.
const mostReasons = 12

// reasons returns why the pods go, in their order, alike ones taken together.
func (v *view) reasons() []reason {
	var list []reason
	told := 0
	for i, victim := range v.plan.Scale.Delete {
		text := v.local(inWords(victim.Victim), victim.Object)
		last := len(list) - 1
		switch {
		case last < 0 || list[last].criterion != victim.Criterion:
			told = 1
			list = append(list, reason{i, i, victim.Criterion, text})
		case list[last].text == text:
			list[last].to = i
		case told < mostReasons:
			told++
			list = append(list, reason{i, i, victim.Criterion, text})
		default:
			list[last].to, list[last].text = i, "other values of "+victim.Criterion
		}
	}
	return list
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
