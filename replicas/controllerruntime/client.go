// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controllerruntime

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/selector"
)

// A caller makes the API calls of a controller.Controller. Writes use the cluster's client, and reads bypass the
// cluster's cache. The client resets an object before it decodes a response into it, so fields that the server
// has removed are cleared.
type caller[O, C client.Object] struct {
	writer   client.Client
	live     client.Reader
	owners   objects[O]
	children objects[C]
}

var (
	_ controller.Client[client.Object, client.Object] = caller[client.Object, client.Object]{}
	_ controller.Versioner                            = caller[client.Object, client.Object]{}
)

// NewClient returns a client for a reconcile loop of your own, which writes with writer and reads with live. The
// reader live must use no cache, as the result of a manager's GetAPIReader does not. The scheme of writer must
// know the kinds of owners and children, and the kinds of their lists.
func NewClient[O, C client.Object](writer client.Client, live client.Reader, kind controller.Kind[O, C]) (controller.Client[O, C], error) {
	if isNil(writer) {
		return nil, errors.New("controllerruntime: client is nil")
	}
	if isNil(live) {
		return nil, errors.New("controllerruntime: reader is nil")
	}
	owners, children := objects[O]{writer.Scheme(), kind.Owner}, objects[C]{writer.Scheme(), kind.Child}
	if err := errors.Join(owners.check(), children.check()); err != nil {
		return nil, err
	}
	return caller[O, C]{writer: writer, live: live, owners: owners, children: children}, nil
}

var (
	errNilChild = errors.New("controllerruntime: child is nil")
	errNilOwner = errors.New("controllerruntime: owner is nil")
)

func (c caller[O, C]) Create(ctx context.Context, child C) (C, error) {
	if isNil(child) {
		return child, errNilChild
	}
	return child, controller.NoteResent(ctx, func(ctx context.Context) error { return c.writer.Create(ctx, child) })
}

func (c caller[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) error {
	if isNil(child) {
		return errNilChild
	}
	return c.writer.Delete(ctx, child, &client.DeleteOptions{
		Raw: &opts, GracePeriodSeconds: opts.GracePeriodSeconds, Preconditions: opts.Preconditions,
		PropagationPolicy: opts.PropagationPolicy, DryRun: opts.DryRun,
	})
}

func (c caller[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	if isNil(child) {
		return child, errNilChild
	}
	answer, err := c.children.named(child)
	if err != nil {
		return answer, err
	}
	raw, settings := client.RawPatch(patch.Type, patch.Data), client.PatchOptions{DryRun: opts.DryRun, Force: opts.Force, FieldManager: opts.FieldManager}
	if patch.Subresource != "" {
		return answer, c.writer.SubResource(patch.Subresource).Patch(ctx, answer, raw, &client.SubResourcePatchOptions{PatchOptions: settings})
	}
	return answer, c.writer.Patch(ctx, answer, raw, &settings)
}

func (c caller[O, C]) PatchStatus(ctx context.Context, owner O, patch selector.Patch) (O, error) {
	if isNil(owner) {
		return owner, errNilOwner
	}
	answer, err := c.owners.named(owner)
	if err != nil {
		return answer, err
	}
	return answer, c.writer.Status().Patch(ctx, answer, client.RawPatch(patch.Type, patch.Data))
}

func (c caller[O, C]) Get(ctx context.Context, namespace, name string) (C, error) {
	return c.children.get(ctx, c.live, namespace, name)
}

func (c caller[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	return c.owners.get(ctx, c.live, namespace, name)
}

// pageSize is the maximum number of children in one page of a live list.
const pageSize = 500

// List lists children in pages, which must have one resourceVersion.
func (c caller[O, C]) List(ctx context.Context, namespace string, matching labels.Selector) (ledger.List[C], error) {
	if isNil(matching) { // a nil selector would match every child
		return ledger.List[C]{}, errors.New("controllerruntime: selector is nil")
	}
	opts := client.ListOptions{Namespace: namespace, LabelSelector: matching, Limit: pageSize}
	var all ledger.List[C]
	for {
		items, page, err := c.children.list(ctx, c.live, all.Items, &opts)
		if err != nil {
			return ledger.List[C]{}, err
		}
		version := page.GetResourceVersion()
		// A child could be in no page, and so count as gone, or in two.
		if opts.Continue != "" && version != all.Version {
			return ledger.List[C]{}, fmt.Errorf("controllerruntime: listing %s: a page of version %q follows a page of version %q", c.children.kind.Kind, version, all.Version)
		}
		all = ledger.List[C]{Items: items, Version: version}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return all, nil
		}
	}
}

func (c caller[O, C]) ServerOwnersVersion(ctx context.Context, namespace string) (string, error) {
	return c.owners.version(ctx, c.live, namespace)
}

func (c caller[O, C]) ServerChildrenVersion(ctx context.Context, namespace string) (string, error) {
	return c.children.version(ctx, c.live, namespace)
}
