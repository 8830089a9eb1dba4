// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/demo/controlplane"
)

//go:embed stages.yaml
var stages []byte

// nodes is the number of nodes in a cluster. No spec needs more nodes.
const nodes = 6

// A cluster is a Kubernetes cluster with kwok in place of the kubelets. Only the programs of the given side
// run controllers for ReplicaSets and ReplicationControllers. All other components are the usual ones.
type cluster struct {
	dir        string // directory of the kubeconfig and the logs
	kubeconfig string
	client     *kubernetes.Clientset

	plane    *controlplane.ControlPlane
	listener net.Listener
	programs []*controlplane.Program
	ended    context.CancelCauseFunc // cancels the context of the cluster with a cause, for example if a program exits
}

// startCluster starts a cluster with the programs of the side. If one of the programs exits, the returned
// context is canceled.
func startCluster(ctx context.Context, binaries, dir string, sd side) (_ context.Context, _ *cluster, err error) {
	c := &cluster{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
	ctx, c.ended = context.WithCancelCause(ctx)
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if err := c.startPlane(ctx, binaries); err != nil {
		return nil, nil, err
	}
	for _, p := range append(beside(c), sd.programs...) {
		if err := c.start(ctx, binaries, p); err != nil {
			return nil, nil, err
		}
	}
	return ctx, c, nil
}

func (c *cluster) startPlane(ctx context.Context, binaries string) (err error) {
	if c.plane, err = controlplane.Start(binaries, map[string]string{"advertise-address": machine.String()}); err != nil {
		return err
	}
	config := rest.CopyConfig(c.plane.Config)
	config.QPS = -1 // no limit
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"kubeconfig": c.plane.Kubeconfig, "ca.crt": config.CAData, "stages.yaml": stages,
	} {
		if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := c.createNodes(ctx); err != nil {
		return err
	}
	var listen net.ListenConfig
	if c.listener, err = listen.Listen(ctx, "tcp", ":"+strconv.Itoa(servedPort)); err != nil {
		return err
	}
	go servePods(c.listener, c.client)
	return nil
}

func (c *cluster) createNodes(ctx context.Context) error {
	for i := range nodes {
		name := fmt.Sprintf("node-%02d", i)
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			}},
			Spec: corev1.NodeSpec{PodCIDR: nodePods(i).String(), PodCIDRs: []string{nodePods(i).String()}},
		}
		if _, err := c.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// A program is the name of a binary and its arguments. The method start adds the argument --kubeconfig.
type program struct {
	name string
	args []string
}

// fast lists the flags that raise the rate limit for the API calls of a program.
var fast = []string{"--kube-api-qps=5000", "--kube-api-burst=5000"}

// beside returns the programs that run in every cluster. This kube-controller-manager does not run the
// controllers of ReplicaSets and ReplicationControllers.
func beside(c *cluster) []program {
	return []program{
		{"kwok", []string{
			"--config=" + filepath.Join(c.dir, "stages.yaml"), "--manage-all-nodes=true",
			"--node-ip=" + machine.String(), "--cidr=" + podNetwork.String(), "--node-lease-duration-seconds=40",
		}},
		{"kube-scheduler", append([]string{"--leader-elect=false", "--secure-port=0"}, fast...)},
		{"kube-controller-manager", append([]string{
			"--controllers=*,-replicaset-controller,-replicationcontroller-controller",
			"--leader-elect=false", "--secure-port=0", "--root-ca-file=" + filepath.Join(c.dir, "ca.crt"),
		}, fast...)},
	}
}

func (c *cluster) start(ctx context.Context, binaries string, p program) error {
	log := filepath.Join(c.dir, fmt.Sprintf("%s-%d.log", p.name, len(c.programs)))
	started, err := controlplane.StartProgram(p.name, log, filepath.Join(binaries, p.name), append(p.args, "--kubeconfig="+c.kubeconfig)...)
	if err != nil {
		return err
	}
	c.programs = append(c.programs, started)
	go func() {
		select {
		case <-started.Ended():
			c.ended(started.Err())
		case <-ctx.Done():
		}
	}()
	return nil
}

// stop stops all programs in the reverse order of their start. It ignores errors, because some programs
// always return an error when they are stopped.
func (c *cluster) stop() {
	c.ended(errors.New("the cluster was stopped"))
	for _, p := range slices.Backward(c.programs) {
		_ = p.Stop()
	}
	if c.listener != nil {
		_ = c.listener.Close()
	}
	if c.plane != nil {
		_ = c.plane.Stop()
	}
}

// podNetwork contains the IP addresses of all pods. Each node has 256 of these addresses.
var podNetwork = netip.MustParsePrefix("10.244.0.0/16")

// machine is the IP address of all programs outside pods. These programs also have the address 127.0.0.1.
var machine = netip.MustParseAddr("10.244.255.254")

// nodePods returns the IP addresses of one node's pods.
func nodePods(node int) netip.Prefix {
	address := podNetwork.Addr().As4()
	address[2] = byte(node)
	return netip.PrefixFrom(netip.AddrFrom4(address), 24)
}
