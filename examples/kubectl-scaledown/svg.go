package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"strings"
)

// A canvas collects the elements of an SVG. Coordinates are pixels from the upper
// left corner.
type canvas struct{ bytes.Buffer }

// escaped is text of any kind, as XML: what XML has no characters for becomes
// U+FFFD.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder takes everything
	return b.String()
}

// text writes a line that stands on y.
func (c *canvas) text(x, y int, class, text string) {
	fmt.Fprintf(&c.Buffer, "<text x=\"%d\" y=\"%d\" class=\"%s\">%s</text>\n", x, y, class, escaped(text))
}

// box draws a rectangle with round corners. Its tip, if it has one, is shown by a
// viewer that is pointed at it.
func (c *canvas) box(x, y, width, height, radius int, class, tip string) {
	fmt.Fprintf(&c.Buffer, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"%d\" class=\"%s\"%s\n", x, y, width, height, radius, class, closing("rect", tip))
}

func (c *canvas) dot(x, y, radius int, class, tip string) {
	fmt.Fprintf(&c.Buffer, "<circle cx=\"%d\" cy=\"%d\" r=\"%d\" class=\"%s\"%s\n", x, y, radius, class, closing("circle", tip))
}

// closing ends an element that may have a tip.
func closing(element, tip string) string {
	if tip == "" {
		return "/>"
	}
	return "><title>" + escaped(tip) + "</title></" + element + ">"
}

// document returns the whole SVG, of what was drawn.
func (c *canvas) document(width, height int, title string) string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
<style>%s</style>
<rect width="%d" height="%d" class="paper"/>
%s</svg>
`, width, height, width, height, escaped(title), style(), width, height, c)
}

// hues tell the criteria apart; white text is legible on each of them, and each
// on white and on black.
var hues = []struct{ criterion, colour string }{
	{"unassigned", "#6f42c1"},
	{"phase", "#0969da"},
	{"not-ready", "#bf3989"},
	{"deletion-cost", "#8a6100"},
	{"colocation", "#bc4c00"},
	{"ready-time", "#0b7a75"},
	{"restarts", "#cf222e"},
	{"sidecar-restarts", "#a11a4a"},
	{"creation-time", "#1f7a36"},
}

// style has the colours for light surroundings and for dark ones. What is unknown
// to a viewer, such as surroundings, leaves the light ones.
func style() string {
	var b strings.Builder
	b.WriteString(`
text{font:13px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#1f2328}
.title{font-size:20px;font-weight:600}
.head{font-size:15px;font-weight:600}
.node{font-size:12px;font-weight:600}
.soft{fill:#59636e}
.small{font-size:11px;fill:#59636e}
.pod,.goes{font:11px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
.goes{fill:#fff}
.rank{font-weight:700}
.paper{fill:#fff}
.card{fill:#f6f8fa;stroke:#d1d9e0}
.nowhere{stroke-dasharray:5 4}
.stays{fill:#fff;stroke:#afb8c1}
.unready{stroke-dasharray:3 2}
.other{fill:#afb8c1}
.going{fill:#59636e}
`)
	for _, hue := range hues {
		fmt.Fprintf(&b, ".%s{fill:%s}\n", hue.criterion, hue.colour)
	}
	b.WriteString(`@media (prefers-color-scheme:dark){
text{fill:#e6edf3}
.soft,.small{fill:#9198a1}
.goes{fill:#fff}
.paper{fill:#0d1117}
.card{fill:#151b23;stroke:#3d444d}
.stays{fill:#0d1117;stroke:#656c76}
.other{fill:#656c76}
}
`)
	return b.String()
}
