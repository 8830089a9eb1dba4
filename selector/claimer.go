// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/joined"
	"github.com/replicakit/replicakit/internal/object"
)

// A Claimer claims objects for one owner. Claim plans with Plan and makes the calls. T is any API
// object, such as *corev1.Pod, *unstructured.Unstructured, the type of a custom resource, or
// metav1.Object itself for a mixed list.
//
// Make a new Claimer for each pass, since Owner and the answer of CanAdopt are valid for one pass
// only. A Claimer has no state of its own and may be copied.
type Claimer[T metav1.Object] struct {
	// Owner is the object that claims. It is not changed. Required.
	Owner metav1.Object
	// Kind is the kind of the owner, for the owner references in the objects.
	// Required by Claim. An empty group is the core group.
	Kind schema.GroupVersionKind

	// Active reports whether an object counts. The others are left alone and are in no list. Nil
	// means that all objects count. As in Kubernetes, the controllers of pods skip pods that are
	// finished or being deleted.
	Active func(T) bool
	// Selector says which labels the owner's objects have. If it is nil, Filter
	// alone decides. A selector that is empty or can match nothing is an error.
	Selector labels.Selector
	// Filter says which of the objects that Selector matches belong to the owner. It is called only
	// for objects that Selector matches. Nil means all of them. Named, All and None are such
	// filters.
	//
	// As in Kubernetes, if the owner has an object for which Filter is false, the object is
	// released. To leave it alone instead, let Keep return true for it.
	Filter func(T) bool
	// Keep says which of the owner's objects are left alone, neither claimed nor released, if they
	// do not match. Nil means none.
	Keep func(T) bool

	// Finalizers are added to adopted objects and removed from released ones.
	Finalizers []string
	// Labels are set on adopted objects, and replace labels that have other values. Released
	// objects keep them. An orphan that Selector does not match with them is not adopted, which is
	// an error. Nil means that no label is set.
	Labels map[string]string
	// PatchType is types.StrategicMergePatchType or types.MergePatchType, which custom resources
	// need. "" means strategic.
	PatchType types.PatchType

	// CanAdopt is called once, before the first adoption of a Claim. If it returns an error,
	// nothing is adopted. The function CanAdopt makes such a function. Nil means that the owner may
	// adopt.
	CanAdopt func(context.Context) error
	// Patch sends a patch to an object. It returns the object as the API server answered, or nil if
	// the answer is not known. Errors must keep their type, so if you wrap them, use %w. Required
	// by Claim.
	Patch func(ctx context.Context, obj T, patch Patch) (T, error)
	// Run calls call for each index from 0 to n-1 and returns when all calls have ended. If it
	// leaves calls out, it returns the reason. Nil means that the calls are made one after the
	// other in the order of the list, until ctx is done. With slowstart, 16 at a time:
	//
	//	Run: func(ctx context.Context, n int, call func(context.Context, int) error) error {
	//		return slowstart.Run(ctx, n, slowstart.Options{InitialBatchSize: n, MaxParallel: 16}, call).Err
	//	}
	//
	// call returns an error if it is still not known whether the object belongs to the owner. If
	// Run makes calls in parallel, Patch must be safe for concurrent use.
	Run func(ctx context.Context, n int, call func(ctx context.Context, i int) error) error
}

// Claimed says what happened to each object. Every object that counts is in exactly one list, in
// the order of the input.
type Claimed[T metav1.Object] struct {
	// Owned are objects that the owner had before and that match. Adopted are new
	// objects of the owner, as the API server answered.
	Owned, Adopted []T
	// Released no longer belong to the owner. Objects are here too if the API
	// server answered that they are gone (404) or that another object has the name
	// now (422).
	Released []T
	// Ignored are all others; see Claims.
	Ignored []T

	// Refused are orphans that the API server does not let the owner adopt (422, Invalid). Another
	// owner was faster, another object has the name now, or a policy forbids it. Trying again is
	// useless until something changes. Orphans are here too if the server accepted the patch, but
	// answered with an object that another owner controls.
	Refused []Failure[T]
	// AdoptionPending are orphans that may belong to the owner now, or soon. The call failed with
	// an error other than NotFound and Invalid, or had no answer. Or it was not made, because
	// CanAdopt returned an error or Run left it out. Orphans are here too if the server accepted
	// the patch, but answered with an object that no owner controls, because a webhook removes
	// owner references.
	AdoptionPending []Failure[T]
	// Gone are orphans that no longer exist (404, NotFound).
	Gone []Failure[T]
	// NotReleased no longer match, but still belong to the owner as far as is known. Their release
	// failed or was not tried.
	NotReleased []Failure[T]
	// CanAdoptErr is the error of CanAdopt. If it is set, nothing was adopted.
	CanAdoptErr error
}

// A Failure is an object and the error of its call, as Patch returned it. If the owner does not
// control the object in the answer, the error says that.
type Failure[T any] struct {
	Object T
	Err    error
}

// Ours returns the objects that belong to the owner and match: Owned, then
// Adopted, in a new slice.
func (c Claimed[T]) Ours() []T { return slices.Concat(c.Owned, c.Adopted) }

// Claim plans as Plan does, and then makes the calls as Apply does. A failed call does not stop the
// others.
//
// Claimed says what was done, even if there is an error. The error joins the errors of
// AdoptionPending and NotReleased, each with the object's name. It is nil if there are none. If
// CanAdopt fails, its error is joined once, in place of those of AdoptionPending. Refused and Gone
// are answers, not errors. If the Claimer or an object is invalid, no call is made and Claimed is
// empty.
func (c Claimer[T]) Claim(ctx context.Context, objs []T) (Claimed[T], error) {
	if err := c.check(ctx); err != nil {
		return Claimed[T]{}, err
	}
	claims, err := c.Plan(objs)
	if err != nil {
		return Claimed[T]{}, err
	}
	return c.Apply(ctx, claims)
}

// Apply makes the calls of claims, first adoptions and then releases. You may reorder or shorten
// the lists of claims before. The result shares the lists Owned and Ignored with claims.
func (c Claimer[T]) Apply(ctx context.Context, claims Claims[T]) (Claimed[T], error) {
	if err := c.check(ctx); err != nil {
		return Claimed[T]{}, err
	}
	claimed := Claimed[T]{Owned: claims.Owned, Ignored: claims.Ignored}
	adoptErr := c.adopt(ctx, claims.Adopt, &claimed)
	releaseErr := c.release(ctx, claims.Release, &claimed)
	return claimed, errors.Join(adoptErr, releaseErr)
}

func (c Claimer[T]) adopt(ctx context.Context, orphans []T, claimed *Claimed[T]) error {
	if len(orphans) == 0 {
		return nil
	}
	if c.CanAdopt != nil {
		claimed.CanAdoptErr = c.CanAdopt(ctx)
	}
	if err := claimed.CanAdoptErr; err != nil {
		claimed.AdoptionPending = failures(orphans, err)
		return c.failure("can't adopt %d objects: %w", len(orphans), err)
	}
	adopted, errs := c.send(ctx, orphans, patches.adopt)
	owner := object.OwnerOf(c.Owner, c.Kind.GroupKind())
	for i, err := range errs {
		switch failure := (Failure[T]{orphans[i], err}); {
		case err == nil && any(adopted[i]) != any(orphans[i]) && !owner.Controls(adopted[i]):
			failure.Err = fmt.Errorf("the answer is not controlled by %s %q", c.Kind.Kind, object.Name(c.Owner))
			if metav1.GetControllerOfNoCopy(adopted[i]) == nil {
				claimed.AdoptionPending = append(claimed.AdoptionPending, failure)
			} else {
				claimed.Refused = append(claimed.Refused, failure)
			}
		case err == nil:
			claimed.Adopted = append(claimed.Adopted, adopted[i])
		case !decided(err):
			claimed.AdoptionPending = append(claimed.AdoptionPending, failure)
		case apierrors.IsNotFound(err):
			claimed.Gone = append(claimed.Gone, failure)
		default:
			claimed.Refused = append(claimed.Refused, failure)
		}
	}
	return c.join("adopting", claimed.AdoptionPending)
}

func (c Claimer[T]) release(ctx context.Context, objs []T, claimed *Claimed[T]) error {
	if len(objs) == 0 {
		return nil
	}
	_, errs := c.send(ctx, objs, patches.release)
	for i, err := range errs {
		if decided(err) {
			claimed.Released = append(claimed.Released, objs[i])
		} else {
			claimed.NotReleased = append(claimed.NotReleased, Failure[T]{objs[i], err})
		}
	}
	return c.join("releasing", claimed.NotReleased)
}

// decided reports whether a patch's answer will stay the same. The patch was accepted (C8), there
// is nothing to patch (C15, C16), or it is not possible (C22). A patch that was not tried has no
// answer.
func decided(err error) bool {
	return err == nil || !errors.Is(err, errNotTried) && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err))
}

var errNotTried = errors.New("not tried")

// send sends each object its patch. It returns the objects as they are now, and
// an error for each that was not patched.
func (c Claimer[T]) send(ctx context.Context, objs []T, patchFor func(patches, metav1.Object) (Patch, error)) ([]T, []error) {
	answers, errs := make([]T, len(objs)), slices.Repeat([]error{errNotTried}, len(objs))
	run := c.Run
	if run == nil {
		run = oneByOne
	}
	isNil, of := object.NilOf[T](), c.patches()
	reason := run(ctx, len(objs), func(ctx context.Context, i int) error {
		if i < 0 || i >= len(objs) {
			return c.failure("Run called for index %d of %d", i, len(objs))
		}
		patch, err := patchFor(of, objs[i])
		if err == nil {
			answers[i], err = c.Patch(ctx, objs[i], patch)
		}
		if errs[i] = err; err == nil && isNil(answers[i]) {
			answers[i] = objs[i]
		}
		if decided(err) {
			return nil
		}
		return err
	})
	for i, err := range errs {
		if err == errNotTried { //nolint:errorlint // no other is meant
			errs[i] = notTried(ctx, reason)
		}
	}
	return answers, errs
}

func notTried(ctx context.Context, reason error) error {
	if reason = cmp.Or(reason, context.Cause(ctx)); reason != nil {
		return fmt.Errorf("%w: %w", errNotTried, reason)
	}
	return errNotTried
}

func oneByOne(ctx context.Context, n int, call func(context.Context, int) error) error {
	for i := range n {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_ = call(ctx, i) // send keeps the error
	}
	return nil
}

func failures[T any](objs []T, err error) []Failure[T] {
	failed := make([]Failure[T], len(objs))
	for i, obj := range objs {
		failed[i] = Failure[T]{obj, err}
	}
	return failed
}

// join returns an error that names each object that failed.
func (c Claimer[T]) join(doing string, failed []Failure[T]) error {
	errs := make([]error, len(failed))
	isNil := object.NilOf[T]()
	for i, f := range failed {
		if isNil(f.Object) {
			errs[i] = c.failure("%s nil: %w", doing, f.Err)
		} else {
			errs[i] = c.failure("%s %q: %w", doing, object.Name(f.Object), f.Err)
		}
	}
	return joined.Errors(errs)
}

// failure is an error that names the owner.
func (c Claimer[T]) failure(format string, args ...any) error {
	return fmt.Errorf("selector: %s %q: %w", c.Kind.Kind, object.Name(c.Owner), fmt.Errorf(format, args...))
}

// check returns an error if no call can be made with the Claimer.
func (c Claimer[T]) check(ctx context.Context) error {
	if err := c.patches().check(); err != nil {
		return err
	}
	switch {
	case ctx == nil:
		return c.failure("context is nil")
	case c.Patch == nil:
		return c.failure("Claimer has no Patch")
	}
	return nil
}
