package main

import (
	"context"
	"net/http"
	"time"
)

// A scenario is what a controller has to do.
type scenario struct {
	name    string
	title   func(size) string
	prepare func(context.Context, *bed) error // before anybody is at work; nil: nothing
	run     func(context.Context, *bed) error // gives a controller its work and waits until it is done
	floor   func(context.Context, *bed) error // does the work itself; nil: nothing to compare with

	args []string                                   // of the programs, beside the common ones
	play func(context.Context, *bed, starter) error // in place of run: starts and stops programs by itself

	proxied bool // the controller talks to a proxy
	fault   fault
}

var scenarios = []scenario{
	{name: "scale", title: scaleTitle, prepare: prepareScale, run: runScale, floor: floorScale},
	{name: "adopt", title: adoptTitle, prepare: prepareAdopt, run: runAdopt, floor: floorAdopt},
	{name: "many", title: manyTitle, run: runMany, floor: floorMany},
	{name: "hold", title: holdTitle, prepare: prepareHold, run: runHold},
	{name: "shrink", title: shrinkTitle, prepare: prepareShrink, run: runShrink, args: defaultRates},
	{name: "pause", title: pauseTitle, prepare: preparePause, play: playPause, args: shortLease},
	{name: "proxy", title: lossTitle("all answers come"), prepare: prepareScale, run: runLoss, proxied: true},
	{name: "cut", title: lossTitle("every tenth answer is cut off"), prepare: prepareScale, run: runLoss, proxied: true, fault: cut},
	{name: "504", title: lossTitle("every tenth answer is 504"), prepare: prepareScale, run: runLoss, proxied: true, fault: refuse(http.StatusGatewayTimeout, 0)},
	{name: "429", title: lossTitle("every tenth answer is 429, Retry-After 1 s"), prepare: prepareScale, run: runLoss, proxied: true, fault: refuse(http.StatusTooManyRequests, 1)},
}

// usual are the scenarios where every answer comes.
var usual = []string{"scale", "adopt", "many", "hold", "shrink", "pause"}

func (s scenario) has(sd side) bool { return sd.command != nil || s.floor != nil }

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// size is how much of everything there is.
type size struct {
	pods   int // of one set
	sets   int // small ones
	perSet int // pods of a small one
	held   int // sets of so many pods
	rate   int // changes a second
	length time.Duration
}

var full = size{pods: 1000, sets: 2000, perSet: 5, held: 10, rate: 100, length: time.Minute}

func (s size) tenth() size {
	s.pods, s.sets, s.length = s.pods/10, s.sets/10, s.length/10
	return s
}
