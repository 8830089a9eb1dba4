// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package svg draws what the pictures of this repository are made of.
package svg

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// A Canvas collects the elements of an SVG. Coordinates are pixels from the upper
// left corner.
type Canvas struct{ bytes.Buffer }

// Escaped is text of any kind, as XML: what XML has no characters for becomes
// U+FFFD.
func Escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

// Text writes a line that stands on y.
func (c *Canvas) Text(x, y int, class, text string) {
	fmt.Fprintf(&c.Buffer, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, Escaped(text))
}

// Box draws a rectangle with round corners. Its tip, if it has one, is shown by a
// viewer that is pointed at it.
func (c *Canvas) Box(x, y, width, height, radius int, class, tip string) {
	fmt.Fprintf(&c.Buffer, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\" class=\"%s\"%s\n", x, y, width, height, radius, class, closing("rect", tip))
}

// Dot draws a circle, with a tip like that of Box.
func (c *Canvas) Dot(x, y, radius int, class, tip string) {
	fmt.Fprintf(&c.Buffer, "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" class=\"%s\"%s\n", x, y, radius, class, closing("circle", tip))
}

// closing ends an element that may have a tip.
func closing(element, tip string) string {
	if tip == "" {
		return "/>"
	}
	return "><title>" + Escaped(tip) + "</title></" + element + ">"
}

// Document returns the whole SVG, of what was drawn. Besides the base classes
// (title, head, soft, small, paper, card) there are those of light, and of dark for
// dark surroundings. What is unknown to a viewer, such as surroundings, leaves the
// light ones.
func (c *Canvas) Document(width, height int, title, light, dark string) string {
	style := lightBase + light + "@media (prefers-color-scheme:dark){" + darkBase + dark + "}\n"
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
<style>%s</style>
<rect width="%d" height="%d" class="paper"/>
%s</svg>
`, width, height, width, height, Escaped(title), style, width, height, c)
}

const (
	lightBase = `
text{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#1f2328}
.title{font-size:20px;font-weight:600}
.head{font-size:15px;font-weight:600}
.soft{fill:#59636e}
.small{font-size:11px;fill:#59636e}
.paper{fill:#fff}
.card{fill:#f6f8fa;stroke:#d1d9e0}
`
	darkBase = `
text{fill:#e6edf3}
.soft,.small{fill:#9198a1}
.paper{fill:#0d1117}
.card{fill:#151b23;stroke:#3d444d}
`
)
