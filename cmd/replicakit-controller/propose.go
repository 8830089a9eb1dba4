// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/replicakit/replicakit/cmd/replicakit-controller/internal/shard"
)

// proposeCommand is what the program is called with to propose ranges.
const proposeCommand = "shard-ranges"

// propose prints --shard-ranges with equal shares of the pods that there are, and
// what falls to each range.
func propose(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	opts := defaults()
	fs := pflag.NewFlagSet(proposeCommand, pflag.ContinueOnError)
	n := fs.IntP("ranges", "n", 2, "how many ranges")
	opts.addServerFlags(fs)
	fs.Usage = func() {
		_, _ = fmt.Fprintf(stdout, "Propose --shard-ranges with equal shares of the pods, from the namespaces as they are.\n\nUsage:\n  replicakit-controller %s [flags]\n\nFlags:\n%s", proposeCommand, fs.FlagUsages())
	}
	err := fs.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("arguments that are no flags: %q", fs.Args())
	case err == nil && *n < 1:
		err = fmt.Errorf("--ranges=%d: must be a positive number", *n)
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "%v\nSee 'replicakit-controller %s --help'.\n", err, proposeCommand)
		return exitUsage
	}
	if err := proposeFor(ctx, opts, *n, stdout, stderr); err != nil {
		_, _ = fmt.Fprintf(stderr, "replicakit-controller %s: %v\n", proposeCommand, err)
		return exitError
	}
	return exitOK
}

func proposeFor(ctx context.Context, opts options, n int, stdout, stderr io.Writer) error {
	opts.fillIn()
	config, err := loadConfig(opts)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	weights, err := podsByNamespace(ctx, client)
	if err != nil {
		return err
	}
	ranges, err := shard.Propose(weights, n)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "--shard-ranges=%v\n", ranges); err != nil {
		return err
	}
	return printShares(stderr, ranges, weights)
}

// podsByNamespace counts, page by page, and keeps nothing but the numbers. A
// namespace itself weighs as much as a pod.
func podsByNamespace(ctx context.Context, client metadata.Interface) (map[string]int, error) {
	weights := map[string]int{}
	count := func(resource string, namespaceOf func(metav1.Object) string) error {
		list := client.Resource(corev1.SchemeGroupVersion.WithResource(resource))
		pages := pager.New(pager.SimplePageFunc(func(opts metav1.ListOptions) (runtime.Object, error) { return list.List(ctx, opts) }))
		err := pages.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
			object, ok := item.(metav1.Object)
			if !ok {
				return fmt.Errorf("a %T has no namespace", item)
			}
			weights[namespaceOf(object)]++
			return nil
		})
		if err != nil {
			return fmt.Errorf("listing %s: %w", resource, err)
		}
		return nil
	}
	return weights, errors.Join(count("namespaces", metav1.Object.GetName), count("pods", metav1.Object.GetNamespace))
}

func printShares(out io.Writer, ranges shard.Ranges, weights map[string]int) error {
	namespaces, pods := make([]int, len(ranges)), make([]int, len(ranges))
	for namespace, weight := range weights {
		i := ranges.Of(namespace)
		namespaces[i]++
		pods[i] += weight - 1
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "SHARD\tRANGE\tNAMESPACES\tPODS")
	for i, r := range ranges {
		_, _ = fmt.Fprintf(table, "%d\t%v\t%d\t%d\n", i, r, namespaces[i], pods[i])
	}
	return table.Flush()
}
