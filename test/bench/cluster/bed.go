package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/internal/controlplane"
)

// namespace is where everything happens.
const namespace = "bench"

// parallel is how many calls the bench makes at once. More do not get a server
// further.
const parallel = 128

// A bed is a control plane that has nothing else to do, and a watch on it.
type bed struct {
	size   size
	client *clientset.Clientset
	view   *view
	began  time.Time
	sample sample

	proxy *proxy // that the controller talks to; nil: none

	// What was prepared.
	sets []*appsv1.ReplicaSet
	pods []*corev1.Pod
}

// measure has one side do one scenario, on a control plane of its own. What was
// started is stopped; logs are kept where something went wrong.
func measure(ctx context.Context, opts options, sc scenario, sd side) (got sample, err error) {
	dir, err := os.MkdirTemp("", "replicakit-bench-")
	if err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(opts.binaries, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(nil)
		if err = errors.Join(err, plane.Stop()); err == nil {
			err = os.RemoveAll(dir)
		}
	}()
	b, err := newBed(ctx, plane.Config, opts.size)
	if err != nil {
		return nil, err
	}
	if err := b.prepare(ctx, sc); err != nil {
		return nil, err
	}
	if sd.command == nil {
		return b.measureFloor(ctx, sc)
	}
	kubeconfig := plane.Kubeconfig
	if sc.proxied {
		if b.proxy, err = startProxy(plane.Config, sc.fault); err != nil {
			return nil, err
		}
		defer b.proxy.stop()
		if kubeconfig, err = b.proxy.kubeconfig(); err != nil {
			return nil, err
		}
	}
	c, err := sd.start(ctx, opts, dir, kubeconfig)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Stop() }() // kube-controller-manager ends with its own ideas of success
	go func() {
		<-c.Ended()
		cancel(c.Err())
	}()
	return b.measureController(ctx, sc, c)
}

func newBed(ctx context.Context, config *rest.Config, size size) (*bed, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.Dial = (&net.Dialer{}).DialContext
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	_, err = client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	v, err := watch(ctx, client)
	return &bed{size: size, client: client, view: v}, err
}

// prepare also sees to it that nobody else is at work.
func (b *bed) prepare(ctx context.Context, sc scenario) error {
	if err := b.create(ctx, replicaSet(warmUp, warmUpPods)); err != nil {
		return err
	}
	if sc.prepare != nil {
		if err := sc.prepare(ctx, b); err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	if c := b.view.counts(); c.pods != len(b.pods) || c.replicas != 0 {
		return fmt.Errorf("some controller is at work already: %+v", c)
	}
	return nil
}

// measureController measures a program from when it has seen everything and has
// done a little work, until it makes no calls any more.
func (b *bed) measureController(ctx context.Context, sc scenario, c *controller) (sample, error) {
	if err := b.warmUp(ctx); err != nil {
		return nil, err
	}
	if err := b.quiet(ctx); err != nil {
		return nil, err
	}
	before, err := c.usage(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.measure(ctx, sc.run); err != nil {
		return nil, err
	}
	after, err := c.usage(ctx)
	if err != nil {
		return nil, err
	}
	b.note("controller's CPU", cpu, after.cpu-before.cpu)
	b.note("controller's peak memory", memory, after.peak)
	b.note("syncs", number, after.syncs-before.syncs)
	return b.sample, nil
}

func (b *bed) measureFloor(ctx context.Context, sc scenario) (sample, error) {
	if err := b.warmUpFloor(ctx); err != nil {
		return nil, err
	}
	err := b.measure(ctx, sc.floor)
	return b.sample, err
}

// measure takes the server's figures before and after.
func (b *bed) measure(ctx context.Context, work func(context.Context, *bed) error) error {
	before, err := b.tally(ctx)
	if err != nil {
		return err
	}
	b.began = time.Now()
	if err := work(ctx, b); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	if err := b.quiet(ctx); err != nil {
		return err
	}
	after, err := b.tally(ctx)
	if err != nil {
		return err
	}
	done := after.since(before)
	for _, kind := range kinds {
		b.note(kind, number, done.calls[kind])
	}
	b.note("calls refused", number, done.refused)
	b.note("API server's CPU", cpu, done.cpu)
	return nil
}

// note adds a figure to the sample.
func (b *bed) note(measure string, unit unit, value float64) {
	b.sample = append(b.sample, figure{measure, unit, value})
}

// reach waits for what must come, and notes how long after b.began it came.
func (b *bed) reach(ctx context.Context, what string, come func(counts) bool) error {
	if err := b.view.until(ctx, what, come); err != nil {
		return err
	}
	b.note(what, wall, time.Since(b.began).Seconds())
	return nil
}

// tally asks the server.
func (b *bed) tally(ctx context.Context) (tally, error) {
	text, err := b.client.RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").DoRaw(ctx)
	if err != nil {
		return tally{}, err
	}
	return readTally(bytes.NewReader(text))
}

// quiet waits until a second has passed without a call of a controller.
func (b *bed) quiet(ctx context.Context) error {
	last, err := b.tally(ctx)
	for err == nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
		var now tally
		if now, err = b.tally(ctx); maps.Equal(now.calls, last.calls) {
			break
		}
		last = now
	}
	return err
}

// each makes n calls, many at once, and returns the first error.
func each(ctx context.Context, n int, call func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var clients sync.WaitGroup
	for range parallel {
		clients.Go(func() {
			for i := range next {
				if err := call(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	clients.Wait()
	return context.Cause(ctx)
}
