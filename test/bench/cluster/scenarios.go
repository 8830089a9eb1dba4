// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// A scenario is a task for a controller.
type scenario struct {
	name    string
	title   func(size) string
	prepare func(context.Context, *bed) error // before any program works; nil: nothing
	run     func(context.Context, *bed) error // gives a controller its work and waits until it is done

	args []string                                   // of the programs, in addition to the common ones
	slow bool                                       // the rates of calls are the programs' own
	play func(context.Context, *bed, starter) error // in place of run: starts and stops programs by itself

	fault fault // of answers, by a proxy before the server; nil: no proxy
}

var scenarios = []scenario{
	{name: "scale", title: scaleTitle, prepare: prepareScale, run: runScale},
	{name: "adopt", title: adoptTitle, prepare: prepareAdopt, run: runAdopt},
	{name: "many", title: manyTitle, run: runMany},
	{name: "hold", title: holdTitle, prepare: prepareHold, run: runHold},
	{name: "pool", title: poolTitle("default flags"), prepare: preparePool, run: runPool, slow: true},
	{name: "pool-5000", title: poolTitle("5,000 calls a second for both"), prepare: preparePool, run: runPool},
	{name: "pause", title: pauseTitle, prepare: preparePause, play: playPause, args: shortLease},
	{name: "start", title: startTitle, prepare: prepareStart, play: playStart},
	{name: "first-quiet", title: firstTitle("nothing else happens"), prepare: prepareFirst, play: playFirst(false)},
	{name: "first-busy", title: firstTitle("100 pods of another one change each second"), prepare: prepareFirst, play: playFirst(true)},
	{name: "lost-cut", title: lossTitle("cut off"), prepare: prepareOrphans, run: runLoss, fault: cut},
	{name: "lost-429", title: lossTitle("429, Retry-After 1 s"), prepare: prepareOrphans, run: runLoss, fault: tooMany},
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// size has the numbers of objects.
type size struct {
	pods   int // of one set
	sets   int // small ones
	perSet int // pods of a small one
	held   int // sets with this many pods
	rate   int // changes a second
	length time.Duration

	crowd    int // sets that exist when a controller starts
	perCrowd int // pods of each
}

var full = size{pods: 1000, sets: 2000, perSet: 5, held: 10, rate: 100, length: time.Minute, crowd: 2000, perCrowd: 75}

func (s size) tenth() size {
	s.pods, s.sets, s.length = s.pods/10, s.sets/10, s.length/10
	s.crowd, s.perCrowd = s.crowd/10, s.perCrowd/10
	return s
}
