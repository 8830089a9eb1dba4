// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

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

// lightStyle has the colours of pods and reasons; darkStyle what is different in
// dark surroundings.
func lightStyle() string {
	var b strings.Builder
	b.WriteString(`.node{font-size:12px;font-weight:600}
.pod,.goes{font:11px ui-monospace,SFMono-Regular,Menlo,"DejaVu Sans Mono",monospace}
.goes{fill:#fff}
.rank{font-weight:700}
.nowhere{stroke-dasharray:5 4}
.stays{fill:#fff;stroke:#afb8c1}
.unready{stroke-dasharray:3 2}
.other{fill:#afb8c1}
.going{fill:#59636e}
`)
	for _, hue := range hues {
		fmt.Fprintf(&b, ".%s{fill:%s}\n", hue.criterion, hue.colour)
	}
	return b.String()
}

const darkStyle = `.goes{fill:#fff}
.stays{fill:#0d1117;stroke:#656c76}
.other{fill:#656c76}
`
