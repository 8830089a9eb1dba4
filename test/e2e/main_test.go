// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

// shared is the cluster for all tests that do not start a cluster of their own.
var shared *cluster

func TestMain(m *testing.M) {
	if os.Getenv(childNamespace) != "" {
		os.Exit(runChild())
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctrllog.SetLogger(logr.Discard())
	defer stopAll()
	stopAllWhenInterrupted()
	flag.Parse()
	controlplane.BeforeTimeout(stopAll)
	var err error
	if shared, err = startCluster(20 * time.Second); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	if err := startControllerManager(shared.kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// started contains the functions that stop the programs that the tests have started.
var started struct {
	sync.Mutex
	stops []func()
}

// stopAtExit registers the function stop, which is called when all tests are done. A test can call the returned
// function to stop the program earlier.
func stopAtExit(stop func()) (now func()) {
	stop = sync.OnceFunc(stop)
	started.Lock()
	defer started.Unlock()
	started.stops = append(started.stops, stop)
	return stop
}

// stopAll stops all programs that the tests have started. The program that was started last is stopped first.
func stopAll() {
	started.Lock()
	defer started.Unlock()
	for _, stop := range slices.Backward(started.stops) {
		stop()
	}
}

func stopAllWhenInterrupted() {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		stopAll()
		os.Exit(130)
	}()
}

// A cluster is an etcd and a kube-apiserver on free ports of 127.0.0.1.
type cluster struct {
	env        *envtest.Environment
	config     *rest.Config
	client     kubernetes.Interface
	dir        string
	kubeconfig string
	stop       func()
}

// startCluster starts a cluster. If a program of the cluster does not stop within stopTimeout, it is killed.
func startCluster(stopTimeout time.Duration) (*cluster, error) {
	binaries, err := controlplane.Binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "replicakit-e2e-")
	if err != nil {
		return nil, err
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory:    binaries,
		ControlPlaneStartTimeout: 5 * time.Minute,
		ControlPlaneStopTimeout:  stopTimeout,
	}
	// If envtest makes these directories, it deletes them when a program stops. The tests make the directories, so
	// the programs can be restarted.
	env.ControlPlane.Etcd = &envtest.Etcd{DataDir: filepath.Join(dir, "etcd")}
	env.ControlPlane.GetAPIServer().CertDir = filepath.Join(dir, "apiserver")
	for _, dir := range []string{env.ControlPlane.Etcd.DataDir, env.ControlPlane.GetAPIServer().CertDir} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, err
		}
	}
	c := &cluster{env: env, dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	c.stop = stopAtExit(c.kill)
	if err := c.start(); err != nil {
		c.stop()
		return nil, fmt.Errorf("starting the control plane from %s: %w", binaries, err)
	}
	return c, nil
}

func (c *cluster) start() (err error) {
	if c.config, err = c.env.Start(); err != nil {
		return err
	}
	c.config.QPS = -1 // no rate limit in the client
	c.config.WarningHandler = rest.NoWarnings{}
	c.config.ContentType = "application/vnd.kubernetes.protobuf"
	c.config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.client, err = kubernetes.NewForConfig(c.config); err != nil {
		return err
	}
	return os.WriteFile(c.kubeconfig, c.env.KubeConfig, 0o600)
}

func (c *cluster) kill() {
	_ = c.env.Stop() // an error means that a program had to be killed
	if url := c.env.ControlPlane.Etcd.URL; url != nil {
		awaitRefusal(context.Background(), url.Host)
	}
	_ = os.RemoveAll(c.dir)
}

// restartAPIServer stops the server, which ends all connections, and starts the server again at the same address.
func (c *cluster) restartAPIServer(ctx context.Context) error {
	server := c.env.ControlPlane.GetAPIServer()
	_ = server.Stop() // an error means that the server had to be killed
	awaitRefusal(ctx, net.JoinHostPort(server.Address, server.Port))
	return server.Start()
}

// takeBackup copies etcd's data to a directory.
func (c *cluster) takeBackup(ctx context.Context, dir string) error {
	return c.withoutStore(ctx, func(store string) error { return os.CopyFS(dir, os.DirFS(store)) })
}

// restoreBackup replaces etcd's data with the backup. etcd's revision also goes back to that of the backup.
func (c *cluster) restoreBackup(ctx context.Context, dir string) error {
	return c.withoutStore(ctx, func(store string) error {
		return errors.Join(os.RemoveAll(store), os.CopyFS(store, os.DirFS(dir)), os.Chmod(store, 0o700))
	})
}

// withoutStore stops the API server and etcd, calls do with the directory of etcd's data, and starts both programs
// again.
func (c *cluster) withoutStore(ctx context.Context, do func(store string) error) error {
	server, etcd := c.env.ControlPlane.GetAPIServer(), c.env.ControlPlane.Etcd
	_ = server.Stop() // an error means that the server had to be killed
	awaitRefusal(ctx, net.JoinHostPort(server.Address, server.Port))
	_ = etcd.Stop()
	awaitRefusal(ctx, etcd.URL.Host)
	return errors.Join(do(etcd.DataDir), etcd.Start(), server.Start())
}

// awaitRefusal waits until no program listens at the address, or until ctx ends.
func awaitRefusal(ctx context.Context, address string) {
	for dialer := (net.Dialer{}); ctx.Err() == nil; {
		connection, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			return
		}
		_ = connection.Close()
	}
}

// startControllerManager starts Kubernetes' own kube-controller-manager. It runs only the controllers that the
// tests need in addition to ours.
func startControllerManager(kubeconfig string) error {
	binaries, err := controlplane.Binaries()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(filepath.Dir(kubeconfig), "kube-controller-manager.log"))
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(binaries, "kube-controller-manager"),
		"--kubeconfig="+kubeconfig,
		"--controllers=namespace-controller,garbage-collector-controller,resourcequota-controller",
		"--leader-elect=false",
		"--kube-api-qps=5000", "--kube-api-burst=5000",
		"--bind-address=127.0.0.1", "--secure-port=0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return errors.Join(err, log.Close())
	}
	var stopped atomic.Bool
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		err := errors.Join(cmd.Wait(), log.Close())
		if !stopped.Load() {
			fmt.Fprintf(os.Stderr, "e2e: kube-controller-manager ended: %v\n%s\n", err, tail(log.Name()))
		}
	}()
	stopAtExit(func() {
		stopped.Store(true)
		_ = cmd.Process.Kill()
		<-exited
	})
	return nil
}

// tail returns the end of a file.
func tail(name string) []byte {
	const length = 4 << 10
	text, _ := os.ReadFile(name)
	return text[max(0, len(text)-length):]
}

// If these environment variables are set, the test binary runs only the controllers of a namespace, and no tests.
const (
	childNamespace  = "REPLICAKIT_E2E_NAMESPACE"
	childKubeconfig = "REPLICAKIT_E2E_KUBECONFIG"
)

// runChild runs the controllers until the process is killed or its parent ends.
func runChild() int {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv(childKubeconfig))
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	config.QPS = -1
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	run, err := newControllers(ctx, config, os.Getenv(childNamespace), settings{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // returns when the parent ends
		cancel()
	}()
	run.start(ctx)
	run.wait()
	return 0
}

// child starts the controllers of the namespace in a process of their own.
func child(t *testing.T, kubeconfig, namespace string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childNamespace+"="+namespace, childKubeconfig+"="+kubeconfig)
	var log syncBuffer
	cmd.Stderr = &log
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log("the log of the child ends:\n" + log.tail())
		}
	})
	return cmd
}
