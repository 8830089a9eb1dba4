// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package specs runs Kubernetes' end-to-end specs of package apps and of the API machinery. The specs are in the
// module cache.
package specs_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	e2enode "k8s.io/kubernetes/test/e2e/framework/node"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init" // after each spec, waits until all nodes are ready
	_ "k8s.io/kubernetes/test/utils/ktesting/format"   // prints the objects in messages as YAML
)

var _ = ginkgo.SynchronizedBeforeSuite(waitForNodes, func(context.Context) {
	framework.TestContext.IPFamily = "ipv4"
})

func waitForNodes(ctx context.Context) {
	client, err := framework.LoadClientset()
	framework.ExpectNoError(err)
	framework.ExpectNoError(e2enode.WaitForAllNodesSchedulable(ctx, client, framework.NewTimeoutContext().NodeSchedulable))
	nodes, err := e2enode.GetReadySchedulableNodes(ctx, client)
	framework.ExpectNoError(err)
	framework.TestContext.CloudConfig.NumNodes = len(nodes.Items)
}

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestSpecs(t *testing.T) {
	t.Parallel()
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "Kubernetes' end-to-end specs", suite, reporter)
}
