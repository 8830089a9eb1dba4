// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// Scenarios of a controller that talks to the server through a proxy, which loses
// answers, holds watches back or refuses patches.

// troubled are the scenarios with a proxy.
func troubled() []scenario {
	found := []scenario{}
	for _, rates := range []struct {
		suffix, title string
		args          []string
	}{{}, {"-slow", ", at 20 calls a second", defaultRates}} {
		found = append(found, lossScenario("lost-none"+rates.suffix, "all answers come"+rates.title, trouble{}, rates.args))
		for _, kind := range []struct {
			name, title string
			fault       fault
		}{
			{"cut", "cut off", cut},
			{"504", "504", replace(http.StatusGatewayTimeout, 0)},
			{"500", "500", replace(http.StatusInternalServerError, 0)},
			{"429", "429, Retry-After 1 s", replace(http.StatusTooManyRequests, 1)},
		} {
			for _, percent := range []int{10, 30} {
				name := fmt.Sprintf("lost-%s-%d%s", kind.name, percent, rates.suffix)
				title := fmt.Sprintf("%d %% of the answers are %s%s", percent, kind.title, rates.title)
				found = append(found, lossScenario(name, title, trouble{fault: kind.fault, share: float64(percent) / 100}, rates.args))
			}
		}
	}
	for _, code := range []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity} {
		found = append(found, scenario{
			name: fmt.Sprintf("refuse-%d", code), title: refuseTitle(code), trouble: &trouble{refuse: code},
			prepare: prepareOrphans, run: runRefuse,
		})
	}
	return append(found,
		scenario{name: "hang", title: hangTitle, trouble: &trouble{}, prepare: prepareScale, run: runHang, expires: true},
		scenario{name: "expire", title: expireTitle, trouble: &trouble{}, run: runExpire, expires: true})
}

func lossScenario(name, title string, t trouble, args []string) scenario {
	return scenario{name: name, trouble: &t, args: args, prepare: prepareOrphans, run: runLoss, title: func(s size) string {
		return fmt.Sprintf("one ReplicaSet adopts %d pods, creates %d and deletes all: %s", s.orphans(), s.pods/2-s.orphans(), title)
	}}
}

// orphans returns how many pods there are before the set that selects them.
func (s size) orphans() int { return s.pods / 20 }

func prepareOrphans(ctx context.Context, b *bed) (err error) {
	rs := replicaSet(web, 0)
	b.pods, err = b.createPods(ctx, b.size.orphans(), false, func(int) *appsv1.ReplicaSet { return rs })
	return err
}

// runLoss waits each time until the controller has been content for a while:
// there may be too many pods before.
func runLoss(ctx context.Context, b *bed) error {
	wanted := b.size.pods / 2
	b.proxy.armed.Store(true)
	b.view.begin()
	if err := b.create(ctx, replicaSet(web, wanted)); err != nil {
		return err
	}
	if err := b.noteCalm(ctx, "up", wanted); err != nil {
		return err
	}
	b.began = time.Now()
	if err := b.scale(ctx, web, 0); err != nil {
		return err
	}
	if err := b.noteCalm(ctx, "down", 0); err != nil {
		return err
	}
	b.notePods("")
	b.note("answers lost", number, float64(b.proxy.lost.Load()))
	return nil
}

// noteCalm waits until nothing happens any more, and notes what happened last.
func (b *bed) noteCalm(ctx context.Context, direction string, pods int) error {
	if err := b.calm(ctx, b.has(pods)); err != nil {
		return err
	}
	b.note(direction+": the last change", wall, max(b.view.history().last.Sub(b.began).Seconds(), 0)) // 0: nothing was left to do
	return nil
}

// calm returns when all has been well for three seconds in which no controller
// made a call.
func (b *bed) calm(ctx context.Context, well func(counts) bool) error {
	for calm := 0; calm < 3; {
		if err := b.view.until(ctx, "peace", well); err != nil {
			return err
		}
		if err := b.quiet(ctx); err != nil {
			return err
		}
		if calm++; !well(b.view.counts()) {
			calm = 0
		}
	}
	return nil
}

// notePods notes how many pods there were since begin.
func (b *bed) notePods(when string) {
	h := b.view.history()
	b.note(when+"pods that ever existed", number, float64(h.ever))
	b.note(when+"pods at once, at most", number, float64(h.most))
}

// hung returns how many pods there are at first, and at most.
func (s size) hung() (from, to int) { return s.pods / 100, s.pods / 25 }

func hangTitle(s size) string {
	from, to := s.hung()
	return fmt.Sprintf("one ReplicaSet, %d → %d → %d pods; the watch of pods hangs each time until the expectations have expired", from, to, to/2)
}

func runHang(ctx context.Context, b *bed) error {
	from, to := b.size.hung()
	if err := b.scale(ctx, web, from); err != nil {
		return err
	}
	if err := b.calm(ctx, b.has(from)); err != nil {
		return err
	}
	for _, step := range []struct {
		direction string
		wanted    int
		hangs     time.Duration
	}{{"up: ", to, b.forgotten()}, {"down: ", to / 2, b.expired()}} {
		b.view.begin()
		b.proxy.watches.close()
		if err := b.scale(ctx, web, step.wanted); err != nil {
			return err
		}
		err := b.view.until(ctx, "the wanted number", func(c counts) bool { return c.pods == step.wanted })
		if err != nil {
			return err
		}
		if err := b.touchFor(ctx, step.hangs); err != nil {
			return err
		}
		b.proxy.watches.open()
		b.began = time.Now()
		if err := b.noteCalm(ctx, step.direction+"after the watch goes on", step.wanted); err != nil {
			return err
		}
		b.notePods(step.direction)
		b.note(step.direction+"pods at once, at least", number, float64(b.view.history().least))
	}
	return nil
}

// expired is when nobody waits any more for deletions that the watch does not show,
// and forgotten the same for creations: both programs also know the versions of
// what they created, and wait twice as long for those.
func (b *bed) expired() time.Duration { return b.expiry*11/10 + 10*time.Second }

func (b *bed) forgotten() time.Duration { return b.expiry*2 + 30*time.Second }

// touchFor has the controller look at the set, again and again.
func (b *bed) touchFor(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end); {
		if err := b.touch(ctx, web); err != nil {
			return err
		}
		if err := sleep(ctx, 2*time.Second); err != nil {
			return err
		}
	}
	return nil
}

func expireTitle(s size) string {
	return fmt.Sprintf("%s ReplicaSets of 1 pod, created while the watch of pods hangs until all expectations have expired; then one more", grouped(s.owners()))
}

// owners returns how many sets expire.
func (s size) owners() int { return s.sets * 5 }

func runExpire(ctx context.Context, b *bed) error {
	owners := b.size.owners()
	b.proxy.watches.close()
	b.view.begin()
	if err := b.createSets(ctx, owners, 1); err != nil {
		return err
	}
	if err := b.view.until(ctx, "a pod each", func(c counts) bool { return c.pods >= owners }); err != nil {
		return err
	}
	before, err := b.tally(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, b.forgotten()); err != nil {
		return err
	}
	err = each(ctx, owners, func(ctx context.Context, i int) error { return b.touch(ctx, b.sets[i].Name) })
	if err != nil {
		return err
	}
	if err := b.oneMore(ctx, owners); err != nil {
		return err
	}
	owners++
	if err := sleep(ctx, time.Minute); err != nil { // for each, and for what comes of it
		return err
	}
	b.began = time.Now()
	b.proxy.watches.open()
	well := func(c counts) bool { return c.pods == owners && c.replicas == owners && c.settled == owners }
	if err := b.reach(ctx, "all is as wanted after the watch goes on", well); err != nil {
		return err
	}
	after, err := b.tally(ctx)
	if err != nil {
		return err
	}
	b.note("API server's CPU from the first pods on", cpu, after.cpu-before.cpu)
	b.note("LIST pods at once, at most", number, float64(b.proxy.lists.atMost()))
	b.notePods("")
	return nil
}

// oneMore finds out for how long a set that has nothing to do with the others waits for
// its pod.
func (b *bed) oneMore(ctx context.Context, others int) error {
	b.began = time.Now()
	if err := b.create(ctx, replicaSet("late", 1)); err != nil {
		return err
	}
	return b.reach(ctx, "one set more meanwhile: its pod exists", func(c counts) bool { return c.pods > others })
}

func refuseTitle(code int) func(size) string {
	return func(s size) string {
		return fmt.Sprintf("one ReplicaSet of %d pods, of which there are %d that it may not adopt: %d", s.pods/2, s.orphans(), code)
	}
}

func runRefuse(ctx context.Context, b *bed) error {
	b.proxy.armed.Store(true)
	b.view.begin()
	if err := b.create(ctx, replicaSet(web, b.size.pods/2)); err != nil {
		return err
	}
	for range 5 {
		if err := b.quiet(ctx); err != nil {
			return err
		}
	}
	refused := b.view.counts()
	b.note("pods that it has, the others refused", number, float64(refused.owned))
	b.note("pods in all then", number, float64(refused.pods))
	b.proxy.armed.Store(false)
	b.began = time.Now()
	well := func(c counts) bool {
		return c.owned == b.size.pods/2 && b.has(c.owned)(c)
	}
	return b.reach(ctx, "all is as wanted after they may be adopted", well)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
