// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo starts a real etcd, a real kube-apiserver and the controller of this module. The
// demo creates a ReplicaSet, scales it up and down, and deletes one of its pods. At the end, a watch
// hangs and an answer is lost, and Kubernetes' own controller would create a pod too many. A table lists
// the pods in deletion order, with the reason for each position. The cluster has no scheduler and no
// kubelet. Instead, a loop in the demo binds pods and makes them ready.
//
//	make demo            # goes on until Ctrl-C, for you to play with kubectl
//	make demo ARGS=--once
//
// If the output is not a terminal, the demo prints plain lines. With --bare, only the control plane
// and the loop run.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

type options struct {
	once, bare bool
	controller string
	dir        string
}

func main() {
	// SIGHUP: the window was closed. SIGPIPE: the reader of the output has ended. In both cases the
	// programs that the demo has started would go on without it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	err := run(ctx, os.Args[1:], newScreen(os.Stdout, term.IsTerminal(int(os.Stdout.Fd()))))
	stop()
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, screen *screen) error {
	binaries, err := controlplane.Binaries()
	if err != nil {
		return err
	}
	opts := options{controller: filepath.Join(binaries, "replicakit-controller"), dir: filepath.Join(filepath.Dir(binaries), "demo")}
	fs := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	fs.BoolVar(&opts.once, "once", false, "exit when the story ends")
	fs.BoolVar(&opts.bare, "bare", false, "run only the control plane and the loop that binds pods and makes them ready")
	fs.StringVar(&opts.controller, "controller", opts.controller, "path of the controller's program")
	fs.StringVar(&opts.dir, "dir", opts.dir, "directory for the kubeconfig and the log")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(opts.dir, 0o700); err != nil {
		return err
	}
	return start(ctx, binaries, opts, screen)
}

// start starts all programs, runs the story, and stops the programs at the end.
func start(ctx context.Context, binaries string, opts options, screen *screen) (err error) {
	began := time.Now()
	screen.say("starting etcd and kube-apiserver ...")
	cluster, err := controlplane.Start(binaries, nil)
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(opts.dir, "kubeconfig")
	defer func() {
		screen.say("stopping")
		err = errors.Join(err, cluster.Stop(), os.Remove(kubeconfig))
	}()
	if err := os.WriteFile(kubeconfig, cluster.Kubeconfig, 0o600); err != nil {
		return err
	}
	screen.say("an API server is at %s after %.1fs", cluster.Config.Host, time.Since(began).Seconds())
	client, err := newClient(cluster.Config)
	if err != nil {
		return err
	}
	fleet := newFleet(ctx, client)
	defer fleet.stop()
	kubectl := fmt.Sprintf("%s --kubeconfig %s", short(filepath.Join(binaries, "kubectl")), short(kubeconfig))
	if opts.bare {
		screen.say("a loop binds pods and makes them ready, but no controller creates pods. In another terminal:\n\n    export KUBECONFIG=%s\n\nCtrl-C stops it.", short(kubeconfig))
		<-ctx.Done()
		return nil
	}
	faults := &faults{}
	proxy, err := controlplane.StartProxy(cluster.Config, faults.answer)
	if err != nil {
		return err
	}
	defer proxy.Stop()
	proxied, err := proxy.Kubeconfig()
	if err != nil {
		return err
	}
	own := filepath.Join(opts.dir, "controller.kubeconfig")
	if err := os.WriteFile(own, proxied, 0o600); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(own)) }()
	controller, err := controlplane.StartProgram("the controller", filepath.Join(opts.dir, "controller.log"), opts.controller,
		"--kubeconfig="+own, "--metrics-bind-address=127.0.0.1:0", "-v=2")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, controller.Stop()) }()
	screen.say("the controller is at work; its log is %s\n", short(controller.Log()))
	return play(ctx, opts, &story{screen: screen, fleet: fleet, client: client, controller: controller, faults: faults}, kubectl)
}

// play runs the story. Without --once, it then lets the user change the ReplicaSet until Ctrl-C.
func play(ctx context.Context, opts options, s *story, kubectl string) error {
	defer s.showTable(ctx)()
	if err := s.tell(ctx); err != nil || opts.once {
		return ignoreInterrupt(ctx, err)
	}
	s.screen.say("\nYour turn. Run these in another terminal, and watch the table here:\n")
	for _, args := range []string{"get rs,pods", "scale rs web --replicas=15", "annotate pod POD controller.kubernetes.io/pod-deletion-cost=-1", "scale rs web --replicas=4", "get events"} {
		s.screen.say("    %s %s", kubectl, args)
	}
	s.screen.say("\nCtrl-C stops everything.\n")
	select {
	case <-ctx.Done():
		return nil
	case <-s.controller.Ended():
		return s.controller.Err()
	}
}

func ignoreInterrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// newClient returns a client without a rate limit, because it acts for a scheduler and many
// kubelets.
func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

// short makes a path relative to the working directory. If the relative path is longer, short
// returns the given path.
func short(path string) string {
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	relative, err := filepath.Rel(here, path)
	if err != nil || len(relative) > len(path) {
		return path
	}
	return relative
}
