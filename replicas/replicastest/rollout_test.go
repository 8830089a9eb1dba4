// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/replicastest"
)

// A rollout is a workshop that replaces all workers if the pool's image changes. Each creation and deletion of a
// worker is checked by the method changed.
type rollout struct {
	*workshop
	unavailable, surge int
	wanted             []int // every desired number so far, because a call may be late and the cached owner may be old
	images             []string
	fewest, most       int // the fewest available workers after a deletion, and the most workers after a creation
	made               int
	broken             error
}

// newRollout returns a rollout with a pool of n workers. All workers have been created.
func newRollout(t *testing.T, seed uint64, n int32, startUp time.Duration, unavailable, surge *intstr.IntOrString, change func(s *workers)) *rollout {
	t.Helper()
	kind := pools()
	inner := kind.Spec
	kind.Spec = func(p *pool) (workers, error) {
		s, err := inner(p)
		s.MaxUnavailable, s.MaxSurge = unavailable, surge
		s.Rules.MustGo = func(w *worker) bool { return w.Spec.Image != p.Spec.Image }
		if change != nil {
			change(&s)
		}
		return s, err
	}
	cluster, err := replicastest.NewCluster(kind, replicastest.Options{Seed: seed, Timing: replicastest.Timing{StartUp: startUp}})
	require.NoError(t, err)
	cluster.Ready = func(w *worker) { w.Status.Ready = w.Spec.Image != "broken" }
	r := &rollout{workshop: &workshop{Cluster: cluster, controller: cluster.NewController()}, wanted: []int{int(n)}, images: []string{"one"}}
	if unavailable != nil && unavailable.Type == intstr.Int {
		r.unavailable = unavailable.IntValue()
	}
	if surge != nil && surge.Type == intstr.Int {
		r.surge = surge.IntValue()
	}
	r.world = &replicastest.World{Clock: cluster.Clock, Parts: []replicastest.Part{cluster, r.controller}}
	p := &pool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}}
	p.Spec.Replicas, p.Spec.Image = n, "one"
	_, err = cluster.CreateOwner(t.Context(), p)
	require.NoError(t, err)
	r.world.Run(time.Hour)
	require.Len(t, r.names(), int(n))
	r.fewest = int(n)
	cluster.Changed = r.changed
	return r
}

func (r *rollout) available() (n int) {
	for _, w := range r.Children(namespace) {
		if w.Status.Ready && w.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// unseen counts the workers that are no longer ready, although the controller's cache still shows them as ready.
// Workers that are being deleted are not counted.
func (r *rollout) unseen() (n int) {
	for _, shown := range r.controller.View.ChildWatch.In(namespace) {
		is, err := r.GetChild(context.Background(), namespace, shown.Name)
		if err == nil && is.UID == shown.UID && shown.Status.Ready && !is.Status.Ready && is.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// changed checks that the creation or deletion of a worker keeps the limits of the rollout.
func (r *rollout) changed(before, after metav1.Object) {
	was, _ := before.(*worker)
	is, _ := after.(*worker)
	switch {
	case was == nil && is == nil:
	case was == nil:
		r.made++
		n := len(r.Children(namespace))
		r.most = max(r.most, n)
		if limit := slices.Max(r.wanted) + r.surge; n > limit {
			r.fails("%d workers, and at most %d may be there", n, limit)
		}
	case was.DeletionTimestamp == nil && (is == nil || is.DeletionTimestamp != nil) && was.Status.Ready:
		r.fewest = min(r.fewest, r.available())
		if least := slices.Min(r.wanted) - r.unavailable; r.available()+r.unseen() < least {
			r.fails("%d workers are available after %s was deleted, and %d must be", r.available(), was.Name, least)
		}
		fallthrough
	case was.DeletionTimestamp == nil && (is == nil || is.DeletionTimestamp != nil):
		isNew := was.Spec.Image == r.images[len(r.images)-1]
		if isNew && len(r.wanted) == 1 && len(r.images) < 3 {
			// The number is as before and the image has changed at most once, so no worker with the latest one had to
			// go.
			r.fails("%s was made in vain", was.Name)
		}
	}
}

func (r *rollout) fails(format string, args ...any) {
	if r.broken == nil {
		r.broken = fmt.Errorf("%s: "+format, append([]any{r.Clock.Now().Format(time.TimeOnly)}, args...)...)
	}
}

func (r *rollout) roll(t *testing.T, image string) {
	t.Helper()
	r.images = append(r.images, image)
	_, err := r.EditOwner(t.Context(), namespace, "p", func(p *pool) { p.Spec.Image = image })
	require.NoError(t, err)
}

// ends checks that no limit was broken, and that there are exactly n workers. All of these workers must be
// available and have the latest image.
func (r *rollout) ends(t *testing.T, n int) {
	t.Helper()
	require.NoError(t, r.broken)
	all := r.Children(namespace)
	assert.Len(t, all, n)
	for _, w := range all {
		assert.Equal(t, r.images[len(r.images)-1], w.Spec.Image)
	}
	assert.Equal(t, n, r.available())
}

func number(n int) *intstr.IntOrString {
	value := intstr.FromInt32(int32(n))
	return &value
}

func percent(text string) *intstr.IntOrString {
	value := intstr.FromString(text)
	return &value
}

// A rollout with a simple Spec keeps the limits MaxUnavailable and MaxSurge (k0smotron 1481, lws 779). For
// example, two of three workers stay available and form a quorum.
func TestRollouts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		n                  int32
		unavailable, surge *intstr.IntOrString
		change             func(s *workers)
		fewest, most, made int
	}{
		"two of three are a quorum":            {n: 3, unavailable: number(1), fewest: 2, most: 3, made: 3},
		"one, and none may be unavailable":     {n: 1, surge: number(1), fewest: 1, most: 2, made: 1},
		"ten by two, with three more":          {n: 10, unavailable: number(2), surge: number(3), fewest: 8, most: 13, made: 10},
		"percentages as a Deployment has them": {n: 10, unavailable: percent("25%"), surge: percent("25%"), fewest: 8, most: 13, made: 10},
		"percentages that are rounded to zero": {n: 3, unavailable: percent("10%"), fewest: 2, most: 3, made: 3},
		"all at once":                          {n: 5, unavailable: number(5), fewest: 0, most: 5, made: 5},
		"with slots, one after the other":      {n: 4, unavailable: number(1), change: func(s *workers) { s.Slots = replicas.Ordinals("p") }, fewest: 3, most: 4, made: 4},
		"with a time that they must be ready":  {n: 4, unavailable: number(1), change: func(s *workers) { s.MinReadySeconds = 600 }, fewest: 3, most: 4, made: 4},
		"with a burst of one":                  {n: 4, unavailable: number(2), surge: number(1), change: func(s *workers) { s.BurstReplicas = 1 }, fewest: 2, most: 5, made: 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, 1, tt.n, 5*time.Minute, tt.unavailable, tt.surge, tt.change)
			r.unavailable, r.surge = int(tt.n)-tt.fewest, tt.most-int(tt.n)
			r.most = len(r.names())
			r.roll(t, "two")
			r.world.Run(6 * time.Hour)
			r.ends(t, int(tt.n))
			assert.Equal(t, []int{tt.fewest, tt.most, tt.made}, []int{r.fewest, r.most, r.made}, "fewest, most, made")
		})
	}
}

// One of two workers is unready when a rollout begins. It is replaced first (lws 488 and 567). The new image is broken,
// so one old worker stays available, and a rollout to the next image succeeds.
func TestARolloutOfWhatIsBroken(t *testing.T) {
	t.Parallel()
	r := newRollout(t, 1, 2, time.Minute, number(1), nil, nil)
	r.edit(t, r.names()[0], func(w *worker) { w.Status.Ready = false })
	r.roll(t, "two")
	r.world.Run(time.Hour)
	r.ends(t, 2)
	assert.GreaterOrEqual(t, r.fewest, 1)
	r.roll(t, "broken")
	r.world.Run(time.Hour)
	require.NoError(t, r.broken)
	assert.Equal(t, 1, r.available(), "the other one waits")
	r.roll(t, "three")
	r.world.Run(time.Hour)
	r.ends(t, 2)
}

// The limits of a rollout contradict each other. The controller sends one event, and creates and deletes nothing.
func TestRolloutsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, tt := range map[string]struct {
		unavailable, surge *intstr.IntOrString
		change             func(s *workers)
	}{
		"maxUnavailable and maxSurge are 0, and 3 children must be replaced": {unavailable: number(0), surge: number(0)},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r := newRollout(t, 1, 3, time.Minute, tt.unavailable, tt.surge, tt.change)
			calls := r.controller.Client.Record()
			r.roll(t, "two")
			r.world.Run(10 * time.Hour)
			assert.Empty(t, calls.Count("create")+calls.Count("delete"))
			told := 0
			for _, e := range r.Events {
				if e.Reason == replicas.InvalidRollout {
					assert.Contains(t, e.Message, text)
					told++
				}
			}
			assert.Equal(t, 1, told)
		})
	}
}

// During a rollout, faults occur, and users change the image and the desired number. The controller's deletions
// never leave too few workers available. There are never too many workers, and the rollout ends.
func TestRolloutsWithFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(rolloutStories) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			n := 1 + random.IntN(8)
			unavailable := random.IntN(n + 1)
			surge := random.IntN(4)
			if unavailable+surge == 0 {
				surge = 1
			}
			var change func(s *workers)
			if random.IntN(4) == 0 {
				unavailable, surge = max(unavailable, 1), 0
				change = func(s *workers) { s.Slots = replicas.Ordinals("p") }
			}
			r := newRollout(t, seed, int32(n), time.Duration(1+random.IntN(120))*time.Second, number(unavailable), number(surge), change)
			r.controller.RememberWrites = random.IntN(2) == 0
			r.roll(t, "two")
			for range 12 {
				r.goesWrong(t, random)
				r.world.Run(time.Duration(random.IntN(200)) * time.Second)
				if r.broken != nil {
					break
				}
			}
			r.controller.Client.Fail()
			r.controller.View.ChildWatch.Lag, r.controller.View.OwnerWatch.Lag = 0, 0
			r.controller.View.ChildWatch.Relist()
			r.controller.View.OwnerWatch.Relist()
			r.SetQuota(namespace, 1000)
			r.roll(t, "last")
			r.world.Run(24 * time.Hour)
			r.ends(t, r.wanted[len(r.wanted)-1])
		})
	}
}

// rolloutStories is the number of seeds that TestRolloutsWithFaults uses.
const rolloutStories = 150

func (r *rollout) goesWrong(t *testing.T, random *rand.Rand) {
	t.Helper()
	lost := replicastest.Lost()[random.IntN(len(replicastest.Lost()))]
	client, view := r.controller.Client, r.controller.View
	switch random.IntN(11) {
	case 0:
		r.roll(t, fmt.Sprint("image ", random.IntN(3)))
	case 1:
		n := 1 + random.IntN(8)
		r.wanted = append(r.wanted, n)
		r.want(t, int32(n))
	case 2:
		client.Fail(replicastest.Rule{Verb: "create", Times: 1 + random.IntN(3), Err: lost, Landed: random.IntN(2) == 0})
	case 3:
		client.Fail(replicastest.Rule{Verb: "delete", Times: 1 + random.IntN(3), Err: lost, Landed: random.IntN(2) == 0})
	case 4:
		client.Fail(replicastest.Rule{Verb: "delete", Times: 1, Late: time.Duration(1+random.IntN(200)) * time.Second, Err: lost})
	case 5:
		view.ChildWatch.Lag = time.Duration(random.IntN(5000)) * time.Millisecond
	case 6:
		view.OwnerWatch.Lag = time.Duration(random.IntN(5000)) * time.Millisecond
	case 7:
		view.ChildWatch.Hang()
	case 8:
		view.ChildWatch.Relist()
	case 9:
		r.SetQuota(namespace, 1+random.IntN(8))
	default:
		if all := r.Children(namespace); len(all) > 0 {
			name := all[random.IntN(len(all))].Name
			_, _ = r.EditChild(t.Context(), namespace, name, func(w *worker) { w.Status.Ready = false })
		}
	}
}
