// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A GateChange is what became of a gate of an owner.
type GateChange struct {
	Gate
	// Ended says that it stops nothing any more. Otherwise it has lasted for a second, or
	// will, or has another error than when it was told last.
	Ended bool
}

// Log returns the change as a message, and as keys and values, for a structured log: reason,
// why, since, and stops, object, until and err, if they are not empty.
func (c GateChange) Log() (message string, values []any) {
	if message = "Held back"; c.Ended {
		message = "No longer held back"
	}
	values = []any{"reason", c.Reason.String(), "why", c.Reason.Sentence()}
	if c.Stops != 0 {
		values = append(values, "stops", c.Stops.String())
	}
	if c.Object != "" {
		values = append(values, "object", c.Object)
	}
	values = append(values, "since", c.Since)
	if !c.Until.IsZero() && !c.Ended {
		values = append(values, "until", c.Until)
	}
	if c.Err != nil {
		values = append(values, "err", c.Err.Error())
	}
	return message, values
}

// gateIsTold is how long a gate must last before a log tells of it.
const gateIsTold = time.Second

// A gateBook keeps the gates that owners have met last. The zero value is ready to use.
type gateBook struct {
	of     map[types.NamespacedName][]Gate
	lasted durations // of those that have ended
}

// note takes the gates of a pass that came so far. Those of later steps stay as they were.
func (b *gateBook) note(owner types.NamespacedName, is []Gate, came step, now time.Time) (changes []GateChange) {
	var stand []Gate
	for i := range is {
		g := is[i]
		was := find(b.of[owner], g.Reason, g.Object)
		g.told = was != nil && was.told
		changed := g.told && (withoutNames(g.Err) != withoutNames(was.Err) || g.Stops != was.Stops)
		if !g.told && g.lasts(now) || changed {
			g.told = true
			changes = append(changes, GateChange{Gate: g})
		}
		stand = append(stand, g)
	}
	for _, was := range b.of[owner] {
		switch {
		case find(is, was.Reason, was.Object) != nil:
		case was.Reason.row().step > came:
			stand = append(stand, was)
		default:
			b.lasted.add(now.Sub(was.Since))
			if was.told {
				changes = append(changes, GateChange{Gate: was, Ended: true})
			}
		}
	}
	if len(stand) == 0 {
		delete(b.of, owner)
		return changes
	}
	if b.of == nil {
		b.of = map[types.NamespacedName][]Gate{}
	}
	b.of[owner] = stand
	return changes
}

// lasts reports whether a gate is worth telling of: because it has lasted for a second, or
// because nothing but somebody's doing, or a hold of a second, ends it.
func (g *Gate) lasts(now time.Time) bool {
	return now.Sub(g.Since) >= gateIsTold || g.Reason.row().lasts || g.Reason.row().first > 0 && g.Until.Sub(g.Since) >= gateIsTold
}

func (b *gateBook) samples() []Sample {
	var owners [reasons]int
	for _, gates := range b.of {
		for r := range owners {
			owners[r] += one(slices.ContainsFunc(gates, func(g Gate) bool { return g.Reason == Reason(r) }))
		}
	}
	samples := []Sample{b.lasted.sample("gate_duration_seconds", "Time that something held an owner back.")}
	for r := Reason(1); r < reasons; r++ {
		samples = append(samples, Sample{
			Name: "gated_owners", Help: "Owners that something holds back, by the reason.", Type: Gauge, Reason: r.String(), Value: float64(owners[r]),
		})
	}
	return samples
}
