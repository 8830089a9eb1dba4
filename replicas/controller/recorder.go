// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/selector"
)

// A recorder stands between a pass and what it asks, and notes the answers.
type recorder[O, C Object] struct {
	Client[O, C]
	Cache[O, C]
	now func() time.Time

	mu     sync.Mutex // several calls are made at once
	is     Recording
	events eventLog
}

// note notes a call and its answer.
func (r *recorder[O, C]) note(c Call, err error) {
	c.Ended, c.failure = r.now(), recordError(err)
	if err != nil {
		c.Err, c.answer = err.Error(), data{}
	}
	r.events.answered()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.is.Calls = append(r.is.Calls, c)
}

// callTo begins the record of a call about an object.
func callTo(verb string, obj metav1.Object, sent any) Call {
	return Call{Verb: verb, Namespace: obj.GetNamespace(), Name: obj.GetName(), sent: data{is: sent}}
}

func (r *recorder[O, C]) Create(ctx context.Context, child C) (C, error) {
	call := callTo(verbCreate, child, child.DeepCopyObject()) // the client may change it
	created, err := r.Client.Create(ctx, child)
	call.answer = data{is: created}
	r.note(call, err)
	return created, err
}

func (r *recorder[O, C]) Delete(ctx context.Context, child C, opts metav1.DeleteOptions) (string, error) {
	left, err := r.Client.Delete(ctx, child, opts)
	call := callTo(verbDelete, child, opts)
	call.answer = data{is: left}
	r.note(call, err)
	return left, err
}

// sentPatch is a patch as a Recording has it.
type sentPatch struct {
	Type types.PatchType `json:"type"`
	Data string          `json:"data"`
	// DryRun says that the server was only asked.
	DryRun bool `json:"dryRun,omitempty"`
}

func (r *recorder[O, C]) Patch(ctx context.Context, child C, patch selector.Patch, opts metav1.PatchOptions) (C, error) {
	patched, err := r.Client.Patch(ctx, child, patch, opts)
	call := callTo(verbPatch, child, sentPatch{patch.Type, string(patch.Data), len(opts.DryRun) > 0})
	call.answer = data{is: patched}
	r.note(call, err)
	return patched, err
}

func (r *recorder[O, C]) Get(ctx context.Context, namespace, name string) (C, error) {
	child, err := r.Client.Get(ctx, namespace, name)
	r.note(Call{Verb: verbGet, Namespace: namespace, Name: name, answer: data{is: child}}, err)
	return child, err
}

func (r *recorder[O, C]) GetOwner(ctx context.Context, namespace, name string) (O, error) {
	owner, err := r.Client.GetOwner(ctx, namespace, name)
	r.note(Call{Verb: verbGetOwner, Namespace: namespace, Name: name, answer: data{is: owner}}, err)
	return owner, err
}

func (r *recorder[O, C]) UpdateStatus(ctx context.Context, owner O) (O, error) {
	written, err := r.Client.UpdateStatus(ctx, owner)
	call := callTo(verbUpdateStatus, owner, owner)
	call.answer = data{is: written}
	r.note(call, err)
	return written, err
}

// A versionRecorder is a recorder of a Client that is a Versioner.
type versionRecorder[O, C Object] struct {
	*recorder[O, C]
	versioner Versioner
}

func (r versionRecorder[O, C]) ServerOwnersVersion(ctx context.Context, namespace string) (string, error) {
	version, err := r.versioner.ServerOwnersVersion(ctx, namespace)
	r.note(Call{Verb: verbServerOwnersVersion, Namespace: namespace, answer: data{is: version}}, err)
	return version, err
}

func (r versionRecorder[O, C]) ServerChildrenVersion(ctx context.Context, namespace string) (string, error) {
	version, err := r.versioner.ServerChildrenVersion(ctx, namespace)
	r.note(Call{Verb: verbServerChildrenVersion, Namespace: namespace, answer: data{is: version}}, err)
	return version, err
}

// The reads of the cache are those of the pass alone, one after the other.

func (r *recorder[O, C]) Owner(ctx context.Context, name types.NamespacedName) (O, error) {
	owner, err := r.Cache.Owner(ctx, name)
	r.is.cache.Owner = data{is: owner}
	return owner, err
}

func (r *recorder[O, C]) Children(ctx context.Context, owner O) ([]C, error) {
	children, err := r.Cache.Children(ctx, owner)
	r.is.cache.Children = append(r.is.cache.Children, recordRead(children, err))
	r.events.answered()
	return children, err
}

func (r *recorder[O, C]) Related(ctx context.Context, owner O) ([]C, error) {
	related, err := r.Cache.Related(ctx, owner)
	r.is.cache.Related = append(r.is.cache.Related, recordRead(related, err))
	r.events.answered()
	return related, err
}

func (r *recorder[O, C]) ChildrenVersion() string {
	r.is.cache.Version = r.Cache.ChildrenVersion()
	return r.is.cache.Version
}

func recordRead[C Object](children []C, err error) recordedRead {
	if err != nil {
		return recordedRead{Error: recordError(err)}
	}
	return recordedRead{Children: data{is: slices.Clone(children)}} // the slice is the cache's
}
