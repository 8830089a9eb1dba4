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

// A Claimer claims objects for one owner. The method Claim calls Plan and then makes the API calls.
// T is the type of the objects, such as *corev1.Pod, *unstructured.Unstructured or the type of a
// custom resource. For a list of objects of several types, T is metav1.Object.
//
// Make a new Claimer for each pass, because Owner and the answer of CanAdopt are valid for one pass
// only. A Claimer has no state of its own and may be copied.
type Claimer[T metav1.Object] struct {
	// Owner is the object that claims other objects. Owner is required and is not changed.
	Owner metav1.Object
	// Kind is the kind of the owner, for the owner references in the objects. Claim requires Kind.
	// An empty group is the core group.
	Kind schema.GroupVersionKind

	// Active reports whether an object counts. Objects that do not count are left alone and are in
	// no list. Nil means that all objects count. For pods, Active should be false if a pod is
	// finished or being deleted, because Kubernetes' controllers skip such pods.
	Active func(T) bool
	// Selector matches the labels of the owner's objects. If Selector is nil, Filter alone decides.
	// If Selector is empty or can match nothing, Plan and Claim return an error.
	Selector labels.Selector
	// Filter reports whether an object that Selector matches belongs to the owner. Filter is called
	// only for objects that Selector matches. Nil means that all of these objects belong to the
	// owner. Named, All and None are ready-made filters.
	//
	// If the owner has an object for which Filter is false, the object is released, as in
	// Kubernetes. To keep such an object, let Keep return true for the object.
	Filter func(T) bool
	// Keep reports whether an object of the owner that does not match is left alone instead of
	// being released. Nil means that all such objects are released.
	Keep func(T) bool

	// Finalizers are added to adopted objects and removed from released objects.
	Finalizers []string
	// Labels are set on adopted objects, and replace other values of the same labels. Released
	// objects keep the Labels. If Selector does not match an orphan with the Labels, the orphan is
	// not adopted, and Claim returns an error. Nil means that no label is set.
	Labels map[string]string
	// PatchType is types.StrategicMergePatchType or types.MergePatchType. Custom resources need
	// types.MergePatchType. "" means types.StrategicMergePatchType.
	PatchType types.PatchType

	// CanAdopt is called once in a Claim, before the first adoption. If CanAdopt returns an error,
	// nothing is adopted. The function CanAdopt of this package makes such a function. Nil means
	// that the owner may adopt.
	CanAdopt func(context.Context) error
	// Patch sends a patch of an object to the API server. Patch returns the object as the API
	// server answered, or nil if the answer is not known. Errors must keep their type, so if you
	// wrap an error, use %w. Claim requires Patch.
	Patch func(ctx context.Context, obj T, patch Patch) (T, error)
	// Run calls the function call for each index from 0 to n-1, and returns when all calls have
	// ended. If Run skips calls, it returns the reason. Nil means that the calls are made one after
	// the other in the order of the list, until ctx is done. With package slowstart, you can make
	// 16 calls at a time:
	//
	//	Run: func(ctx context.Context, n int, call func(context.Context, int) error) error {
	//		return slowstart.Run(ctx, n, slowstart.Options{InitialBatchSize: n, MaxParallel: 16}, call).Err
	//	}
	//
	// The function call returns an error if it is still not known whether the object belongs to the
	// owner. If Run makes calls in parallel, Patch must be safe for concurrent use.
	Run func(ctx context.Context, n int, call func(ctx context.Context, i int) error) error
}

// Claimed says what happened to each object. Every object that counts is in exactly one list, and
// each list is in the order of the input.
type Claimed[T metav1.Object] struct {
	// Owned are objects that match and that the owner had before. Adopted are objects that the
	// owner has adopted, as the API server answered.
	Owned, Adopted []T
	// Released are objects that no longer belong to the owner. An object is also in Released if the
	// API server answered that the object is gone (404), or that another object now has its name
	// (422).
	Released []T
	// Ignored are all other objects. Claims.Ignored describes them.
	Ignored []T

	// Refused are orphans that the API server does not let the owner adopt (422, Invalid). Another
	// owner was faster, another object now has the name, or a policy forbids the adoption. Another
	// attempt is useless until something changes. An orphan is also in Refused if the server
	// accepted the patch, but answered with an object that another owner controls.
	Refused []Failure[T]
	// AdoptionPending are orphans that may belong to the owner now or soon. Either the call failed
	// with an error other than NotFound and Invalid, or the call had no answer. Or the call was not
	// made, because CanAdopt returned an error or Run skipped the call. An orphan is also in
	// AdoptionPending if the server accepted the patch, but answered with an object that has no
	// controller. A webhook that removes owner references can cause such an answer.
	AdoptionPending []Failure[T]
	// Gone are orphans that no longer exist (404, NotFound).
	Gone []Failure[T]
	// NotReleased are objects that no longer match, but that still belong to the owner as far as is
	// known. The release of these objects failed or was not tried.
	NotReleased []Failure[T]
	// CanAdoptErr is the error of CanAdopt. If CanAdoptErr is not nil, nothing was adopted.
	CanAdoptErr error
}

// A Failure is an object and the error of its call, as Patch returned the error. If Patch returned
// an object that the owner does not control, the error says that.
type Failure[T any] struct {
	Object T
	Err    error
}

// Ours returns the objects that match and belong to the owner. The result is a new slice of Owned
// and then Adopted.
func (c Claimed[T]) Ours() []T { return slices.Concat(c.Owned, c.Adopted) }

// Claim plans as Plan does, and then makes the calls as Apply does. A failed call does not stop the
// others.
//
// Claimed says what was done, even if Claim returns an error. The error joins the errors of
// AdoptionPending and NotReleased, each with the object's name. If both lists are empty, the error
// is nil. If CanAdopt fails, its error is joined only once, in place of the errors of
// AdoptionPending. Objects in Refused and Gone cause no error, because the API server gave a final
// answer. If the Claimer or an object is invalid, no call is made and Claimed is empty.
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

// Apply makes the calls of claims, first adoptions and then releases. Before you call Apply, you
// may reorder or shorten the lists of claims. The result shares the lists Owned and Ignored with
// claims.
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

// decided reports whether the answer to a patch will stay the same. The answer stays the same if
// the patch was accepted (C8), if there is nothing to patch (C15, C16), or if the patch is not
// possible (C22). A patch that was not tried has no answer.
func decided(err error) bool {
	return err == nil || !errors.Is(err, errNotTried) && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err))
}

var errNotTried = errors.New("not tried")

// send sends the patch of each object. The results are the objects as they are now, and an error
// for each object that was not patched.
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
		_ = call(ctx, i) // send remembers the error
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

// failure returns an error that names the owner.
func (c Claimer[T]) failure(format string, args ...any) error {
	return fmt.Errorf("selector: %s %q: %w", c.Kind.Kind, object.Name(c.Owner), fmt.Errorf(format, args...))
}

// check returns an error if the Claimer cannot make any call.
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
