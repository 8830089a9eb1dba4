// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package readyourwrites_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

var draw = flag.Bool("draw", false, "draw docs/why.svg anew")

const picture = "../../../docs/why.svg"

// A runner is a controller of the ReplicaSet default/a. Its cache is filled before the method lead is called. The
// controller then serves the ReplicaSet until ctx ends.
type runner interface{ lead(ctx context.Context) }

// A lane is one of the four controllers that the picture compares.
type lane struct {
	name  string
	start func(t *testing.T, config *rest.Config) runner
}

var lanes = []lane{
	{"list and create", looping(false, newLoop)},
	{"with read-your-writes", looping(true, newLoop)},
	{"Kubernetes' controller", newKubernetes},
	{"replicakit", looping(true, newAdapter)},
}

// looping returns a function that makes runners. Each runner waits 300 ms after each pass, even if the pass has
// failed.
func looping(readYourWrites bool, newProcess func(*testing.T, cluster.Cluster) process) func(*testing.T, *rest.Config) runner {
	return func(t *testing.T, config *rest.Config) runner {
		t.Helper()
		return passes{newProcess(t, newCluster(t, config, readYourWrites))}
	}
}

type passes struct{ process }

func (p passes) lead(ctx context.Context) {
	key := client.ObjectKey{Namespace: namespace, Name: "a"}
	for ctx.Err() == nil {
		var rs appsv1.ReplicaSet
		if p.cache.Get(ctx, key, &rs) == nil {
			once, cancel := context.WithTimeout(ctx, 2*time.Second) // with read-your-writes, a read may wait forever
			_, _ = p.pass(once, key, int(*rs.Spec.Replicas))
			cancel()
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// kubernetesRunner is Kubernetes' own ReplicaSet controller.
type kubernetesRunner struct {
	*replicaset.ReplicaSetController
}

func (r kubernetesRunner) lead(ctx context.Context) { r.Run(ctx, 1) }

func newKubernetes(t *testing.T, config *rest.Config) runner {
	t.Helper()
	ctx := klog.NewContext(t.Context(), logr.Discard())
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace))
	rs := replicaset.NewReplicaSetController(ctx, factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods(), c, replicaset.BurstReplicas)
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return kubernetesRunner{rs}
}

// A point holds the number of living pods and the number of wanted pods. The value of point.at is a time since
// the start of the story. Both numbers are valid from this time until the time of the next point.
type point struct {
	at             time.Duration
	living, wanted int
}

// length is the duration of the story that each lane plays.
const length = 40 * time.Second

// play runs two processes of the lane, a leader and a standby, through a story of 40 seconds. The story is the
// same for each lane. play returns how the number of pods changed.
func (l lane) play(t *testing.T) (points []point) {
	t.Helper()
	s, config := serve(t)
	var mu sync.Mutex
	began := time.Now()
	note := func() {
		p := point{time.Since(began), s.count("a"), s.wants("a")}
		mu.Lock()
		defer mu.Unlock()
		points = append(points, p)
	}
	s.changedPods = note
	w := &world{T: t, server: s}
	first, standby := l.start(t, config), l.start(t, config)
	began = time.Now()
	leading, endTerm := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { first.lead(leading) })
	at := func(d time.Duration) { time.Sleep(time.Until(began.Add(d))) }

	at(time.Second) // the watch is two seconds late
	w.hold()
	w.scale("a", 3)
	at(3 * time.Second)
	w.goOn()

	at(8 * time.Second) // an answer is lost
	w.loseOne()
	w.scale("a", 5)

	at(14 * time.Second) // another leader begins with an old cache
	w.hold()
	w.scale("a", 8)
	at(15 * time.Second)
	endTerm()
	running.Wait()
	last, end := context.WithCancel(t.Context())
	running.Go(func() { standby.lead(last) })
	at(20 * time.Second)
	w.goOn()

	at(26 * time.Second) // the watch hangs, and an answer is lost
	w.hold()
	w.loseOne()
	w.scale("a", 4)
	at(34 * time.Second)
	w.goOn()

	at(length)
	end()
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	return points
}

// childSeconds returns the surplus and the missing pods, multiplied by the seconds for which they lasted. For
// example, two surplus pods for three seconds add 6 to tooMany.
func childSeconds(points []point) (tooMany, tooFew float64) {
	for i, p := range points {
		until := length
		if i+1 < len(points) {
			until = points[i+1].at
		}
		lasted := (until - p.at).Seconds()
		tooMany += lasted * float64(max(p.living-p.wanted, 0))
		tooFew += lasted * float64(max(p.wanted-p.living, 0))
	}
	return tooMany, tooFew
}

// Four controllers meet the same failures for forty seconds. With replicakit, the number of pods is wrong only
// between a change of the wanted number and the calls that follow. For each of the three other controllers, the
// sum of the two results of childSeconds is larger than for replicakit. This command draws docs/why.svg again:
//
//	go test ./servers/readyourwrites -run TestPicture -args -draw
func TestPicture(t *testing.T) {
	t.Parallel()
	ctrl.SetLogger(logr.Discard())
	all := make([][]point, len(lanes))
	var playing sync.WaitGroup
	for i, l := range lanes {
		playing.Go(func() { all[i] = l.play(t) })
	}
	playing.Wait()
	for i, l := range lanes {
		tooMany, tooFew := childSeconds(all[i])
		t.Logf("%s: %.1f too many, %.1f too few", l.name, tooMany, tooFew)
		if l.name == "replicakit" {
			assert.Less(t, tooMany+tooFew, 9.0) // about 2 on an idle machine
			continue
		}
		assert.Greater(t, tooMany+tooFew, 10.0, l.name)
	}
	if *draw {
		var svg strings.Builder
		drawLanes(&svg, all)
		require.NoError(t, os.WriteFile(picture, []byte(svg.String()), 0o644))
	}
}

// drawLanes draws the living pods and the wanted pods of each lane over time.
func drawLanes(out io.Writer, all [][]point) {
	const left, right, width, height, most = 170, 150, 600, 70, 12
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	x := func(d time.Duration) float64 { return left + width*d.Seconds()/length.Seconds() }
	p(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, left+width+right, len(all)*(height+20)+60)
	p(`<title>Pods over time with four controllers in the same bad 40 seconds, and pods that were wanted</title>`)
	p(`<rect width="100%%" height="100%%" fill="white"/>`)
	for _, what := range []struct {
		from, until int
		text        string
	}{{1, 3, "late watch"}, {8, 10, "lost answer"}, {14, 20, "new leader, old cache"}, {26, 34, "hung watch, lost answer"}} {
		from, until := x(time.Duration(what.from)*time.Second), x(time.Duration(what.until)*time.Second)
		p(`<rect x="%.0f" y="30" width="%.0f" height="%d" fill="#f3f3f3"/>`, from, until-from, len(all)*(height+20))
		p(`<text x="%.0f" y="22" font-size="11" fill="#555">%s</text>`, from, what.text)
	}
	p(`<text x="%d" y="22" font-size="11" fill="#555" text-anchor="end">pod-seconds: many / few</text>`, left+width+right-5)
	for i, points := range all {
		bottom := 30 + (i+1)*(height+20) - 10
		y := func(n int) float64 { return float64(bottom) - height*float64(min(n, most))/most }
		tooMany, tooFew := childSeconds(points)
		p(`<text x="8" y="%d">%s</text>`, bottom-height/2, strings.ReplaceAll(lanes[i].name, "'", "&#39;"))
		p(`<text x="%d" y="%d">%.0f / %.0f</text>`, left+width+20, bottom-height/2, tooMany, tooFew)
		for j, pt := range points {
			until := length
			if j+1 < len(points) {
				until = points[j+1].at
			}
			if pt.living != pt.wanted {
				low, high, color := min(pt.living, pt.wanted), max(pt.living, pt.wanted), "#d33"
				if pt.living < pt.wanted {
					color = "#f0b429"
				}
				p(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" opacity="0.6"/>`, x(pt.at), y(high), max(x(until)-x(pt.at), 0.5), y(low)-y(high), color)
			}
		}
		p(`<path d="%s" fill="none" stroke="#999" stroke-dasharray="4 3"/>`, stairs(points, x, y, func(p point) int { return p.wanted }))
		p(`<path d="%s" fill="none" stroke="#1a5fb4" stroke-width="2"/>`, stairs(points, x, y, func(p point) int { return p.living }))
		p(`<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#ccc"/>`, left, bottom, left+width, bottom)
	}
	legend := 30 + len(all)*(height+20) + 18
	p(`<text x="%d" y="%d" font-size="11" fill="#555">blue: living pods. dashed: wanted. red: too many. yellow: too few. 40 seconds; more than %d pods are cut off.</text>`, left, legend, most)
	p(`</svg>`)
}

func stairs(points []point, x func(time.Duration) float64, y func(int) float64, of func(point) int) string {
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", x(0), y(0))
	for _, p := range points {
		fmt.Fprintf(&path, "H%.1fV%.1f", x(max(p.at, 0)), y(of(p)))
	}
	fmt.Fprintf(&path, "H%.1f", x(length))
	return path.String()
}
