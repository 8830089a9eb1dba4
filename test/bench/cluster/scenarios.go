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
	prepare func(context.Context, *bed) error // runs before any program starts; may be nil
	run     func(context.Context, *bed) error // gives a controller its work and waits until the work is done

	args []string                                   // additional flags of both programs
	slow bool                                       // both programs run with their default rate limits
	play func(context.Context, *bed, starter) error // if set, called instead of run; must start and stop the programs itself

	fault fault // how a proxy changes responses of the API server; nil means no proxy
}

var scenarios = []scenario{
	{name: "scale", title: scaleTitle, prepare: prepareScale, run: runScale},
	{name: "adopt", title: adoptTitle, prepare: prepareAdopt, run: runAdopt},
	{name: "many", title: manyTitle, run: runMany},
	{name: "life", title: lifeTitle, play: playLife, slow: true},
	{name: "hold", title: holdTitle, prepare: prepareHold, run: runHold},
	{name: "pool", title: poolTitle("default flags"), prepare: preparePool, run: runPool, slow: true},
	{name: "pool-5000", title: poolTitle("5,000 calls a second for both"), prepare: preparePool, run: runPool},
	{name: "pause", title: pauseTitle, prepare: preparePause, play: playPause, args: shortLease},
	{name: "start", title: startTitle, prepare: prepareStart, play: playStart},
	{name: "first-quiet", title: firstTitle("nothing else happens"), prepare: prepareFirst, play: playFirst(false)},
	{name: "first-busy", title: firstTitle("100 pods of another one change each second"), prepare: prepareFirst, play: playFirst(true)},
	{name: "churn-50", title: churn{20, 1, false}.title, prepare: churn{20, 1, false}.prepare, run: churn{20, 1, false}.run},
	{name: "churn-500", title: churn{2, 10, false}.title, prepare: churn{2, 10, false}.prepare, run: churn{2, 10, false}.run},
	{name: "churn-starting", title: churn{2, 10, true}.title, prepare: churn{2, 10, true}.prepare, run: churn{2, 10, true}.run},
	{name: "lost-cut", title: lossTitle("cut off"), prepare: prepareOrphans, run: runLoss, fault: cut},
	{name: "lost-429", title: lossTitle("429, Retry-After 1 s"), prepare: prepareOrphans, run: runLoss, fault: tooMany},
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// size holds the numbers of objects in the scenarios.
type size struct {
	pods   int // pods of one large set
	sets   int // small sets
	perSet int // pods of each small set
	held   int // large ReplicaSets in the scenario named "hold"
	rate   int // changes a second
	length time.Duration

	idle time.Duration // how long nothing happens in the scenario named "life"

	crowd    int // number of ReplicaSets that exist when a controller starts
	perCrowd int // number of pods of each of these ReplicaSets
}

var full = size{pods: 1000, sets: 2000, perSet: 5, held: 10, rate: 100, length: time.Minute, idle: 10 * time.Minute, crowd: 2000, perCrowd: 75}

func (s size) tenth() size {
	s.pods, s.sets, s.length, s.idle = s.pods/10, s.sets/10, s.length/10, s.idle/10
	s.crowd, s.perCrowd = s.crowd/10, s.perCrowd/10
	return s
}
