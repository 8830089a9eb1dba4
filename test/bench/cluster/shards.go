// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
)

// Scenarios of managers that share the work by namespace. Kubernetes' cannot.

// tenants are how many namespaces the sets are in.
const tenants = 40

func tenant(i int) string { return fmt.Sprintf("tenant-%02d", i%tenants) }

// sharers is a scenario of so many managers. whole: the server leaves out what is
// not in the range of each.
func sharers(managers int, name string, serverSide bool) scenario {
	sc := scenario{
		name: name, own: true, prepare: prepareSharers,
		title: func(s size) string {
			title := fmt.Sprintf("%s ReplicaSets of %d pods in %d namespaces, created at once; managers that share them: %d", grouped(s.sets), s.perSet, tenants, managers)
			if serverSide {
				title += ", and the server sends each its share only"
			}
			return title
		},
		args: slices.Clone(shortLease),
		play: playSharers(managers, measureSharers),
	}
	if managers > 1 {
		sc.args = append(sc.args, "--shard-ranges="+equalShares(managers))
	}
	if serverSide {
		sc.args = append(sc.args, "--sharded-list-and-watch")
		sc.server = map[string]string{"feature-gates": "ShardedListAndWatch=true"}
	}
	return sc
}

// pausedSharers is the scenario of two managers, one of which is stopped for longer
// than its lease lasts.
func pausedSharers() scenario {
	sc := sharers(2, "share-pause", false)
	sc.title = func(s size) string {
		return fmt.Sprintf("%d ReplicaSets of %s pods, each in a namespace of its own, which two managers share; on the way one is paused, the other takes over, then the first goes on", tenants, grouped(s.perTenant()))
	}
	sc.play = playSharers(2, pauseSharer)
	return sc
}

// perTenant is how many pods there are in each namespace if each has one set.
func (s size) perTenant() int { return s.sets * s.perSet / tenants }

// equalShares are ranges with the same number of tenants each.
func equalShares(n int) string {
	hashes := make([]string, tenants)
	for i := range hashes {
		hashes[i] = "0x" + sharding.HashField(tenant(i))
	}
	slices.Sort(hashes)
	cuts := []string{"0x0"}
	for i := 1; i < n; i++ {
		cuts = append(cuts, hashes[i*tenants/n])
	}
	cuts = append(cuts, "0x10000000000000000")
	ranges := make([]string, n)
	for i := range ranges {
		ranges[i] = cuts[i] + "-" + cuts[i+1]
	}
	return strings.Join(ranges, ",")
}

// prepareSharers also looks at all namespaces from now on.
func prepareSharers(ctx context.Context, b *bed) (err error) {
	for i := range tenants {
		_, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant(i)}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	b.everywhere, err = watch(ctx, b.client, metav1.NamespaceAll)
	return err
}

// playSharers has managers share the ranges, and stops them after the play.
func playSharers(managers int, play func(context.Context, *bed, []*controller) error) func(context.Context, *bed, starter) error {
	return func(ctx context.Context, b *bed, start starter) (err error) {
		programs := make([]*controller, managers)
		for i := range programs {
			if programs[i], err = start(); err != nil {
				return err
			}
			defer func() { err = programs[i].stop(ctx, err) }()
		}
		if err := b.readySharers(ctx, programs); err != nil {
			return err
		}
		return play(ctx, b, programs)
	}
}

// readySharers waits until all are at work, and warms them up.
func (b *bed) readySharers(ctx context.Context, programs []*controller) error {
	for _, c := range programs {
		if err := c.says(ctx, `Starting controller" name="replicaset"`); err != nil {
			return err
		}
	}
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	return b.quiet(ctx)
}

func measureSharers(ctx context.Context, b *bed, programs []*controller) error {
	before, err := usages(ctx, programs)
	if err != nil {
		return err
	}
	if err := b.measure(ctx, runSharers); err != nil {
		return err
	}
	after, err := usages(ctx, programs)
	if err != nil {
		return err
	}
	total, busiest, largest, memories := 0.0, 0.0, 0.0, 0.0
	for i := range programs {
		used := after[i].cpu - before[i].cpu
		total, busiest = total+used, max(busiest, used)
		largest, memories = max(largest, after[i].peak), memories+after[i].peak
	}
	b.note("CPU of all managers", cpu, total)
	b.note("CPU of the busiest", cpu, busiest)
	b.note("peak memory of the largest", memory, largest)
	b.note("peak memory of all", memory, memories)
	if len(programs) == 1 {
		return nil
	}
	return b.loseOne(ctx, programs[0])
}

func usages(ctx context.Context, programs []*controller) ([]usage, error) {
	used := make([]usage, len(programs))
	for i, c := range programs {
		var err error
		if used[i], err = c.usage(ctx); err != nil {
			return nil, err
		}
	}
	return used, nil
}

func runSharers(ctx context.Context, b *bed) error {
	err := each(ctx, b.size.sets, func(ctx context.Context, i int) error {
		return b.createIn(ctx, tenant(i), fmt.Sprintf("%s-%04d", web, i), b.size.perSet)
	})
	if err != nil {
		return err
	}
	pods := b.size.sets * b.size.perSet
	if err := b.reachEverywhere(ctx, "all pods exist", func(c counts) bool { return c.pods == pods }); err != nil {
		return err
	}
	return b.reachEverywhere(ctx, "all statuses say so", func(c counts) bool { return c.replicas == pods && c.settled == b.size.sets })
}

// loseOne kills a manager: the others take over what it had.
func (b *bed) loseOne(ctx context.Context, lost *controller) error {
	lost.mayEnd.Store(true)
	before := b.everywhere.counts()
	b.began = time.Now()
	if err := lost.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	for i := range tenants {
		if err := b.createIn(ctx, tenant(i), "after", b.size.perSet); err != nil {
			return err
		}
	}
	return b.reachEverywhere(ctx, "one was killed: a set more in each namespace has its pods", func(c counts) bool { return c.pods == before.pods+tenants*b.size.perSet })
}

// pauseSharer stops one of two managers in the middle of its work until the other has
// done all of it.
func pauseSharer(ctx context.Context, b *bed, programs []*controller) error {
	b.everywhere.begin()
	for i := range tenants {
		if err := b.createIn(ctx, tenant(i), web, b.size.perTenant()); err != nil {
			return err
		}
	}
	pods := tenants * b.size.perTenant()
	if err := b.everywhere.until(ctx, "some pods", func(c counts) bool { return c.pods >= 2*pods/5 }); err != nil {
		return err
	}
	paused, other := programs[0], programs[1]
	if err := b.takeOver(ctx, paused, other, pods); err != nil {
		return err
	}
	if err := b.goOn(ctx, paused); err != nil {
		return err
	}
	has := func(c counts) bool { return c.pods == pods && c.replicas == pods && c.settled == tenants }
	if err := b.everywhere.until(ctx, "the wanted number", has); err != nil {
		return err
	}
	past := b.everywhere.history()
	b.note("pods at once, at most", number, float64(past.most))
	b.note("pods that ever existed", number, float64(past.ever))
	return nil
}

// takeOver stops a manager, and waits until the other one has done all that is wanted.
func (b *bed) takeOver(ctx context.Context, paused, other *controller, pods int) error {
	theirs, err := paused.serves()
	if err != nil {
		return err
	}
	b.began = time.Now()
	if err := paused.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := other.says(ctx, theirs); err != nil {
		return err
	}
	b.note("one is paused: the other serves its range", wall, time.Since(b.began).Seconds())
	return b.reachEverywhere(ctx, "one is paused: all pods exist", func(c counts) bool { return c.pods >= pods })
}

// goOn lets a paused manager go on, which has lost its range: it must end by itself.
// Whatever is written meanwhile is its own, or comes of it.
func (b *bed) goOn(ctx context.Context, paused *controller) error {
	if err := b.quiet(ctx); err != nil {
		return err
	}
	before, err := b.tally(ctx)
	if err != nil {
		return err
	}
	if err := paused.endsAfterPause(ctx); err != nil {
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	after, err := b.tally(ctx)
	if err != nil {
		return err
	}
	b.note("it goes on: writes", finding, after.since(before).writes())
	return nil
}

// serving begins the line of the log in which a manager says which range it serves.
const serving = `Serving a range of namespaces" shard=`

// serves returns that line's beginning with the first range that the manager serves.
func (c *controller) serves() (string, error) {
	log, err := os.ReadFile(c.Log())
	if err != nil {
		return "", err
	}
	_, line, found := strings.Cut(string(log), serving)
	if !found {
		return "", fmt.Errorf("no range is served, says %s", c.Log())
	}
	index, _, _ := strings.Cut(line, " ")
	return serving + index, nil
}

func (b *bed) createIn(ctx context.Context, namespace, name string, replicas int) error {
	_, err := b.client.AppsV1().ReplicaSets(namespace).Create(ctx, replicaSet(name, replicas), metav1.CreateOptions{})
	return err
}

func (b *bed) reachEverywhere(ctx context.Context, what string, come func(counts) bool) error {
	if err := b.everywhere.until(ctx, what, come); err != nil {
		return err
	}
	b.note(what, wall, time.Since(b.began).Seconds())
	return nil
}
