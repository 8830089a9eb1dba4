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
// custom resource. If the objects have several types, T is metav1.Object.
//
// Make a new Claimer for each pass, because Owner and the result of CanAdopt are valid for only one
// pass. A Claimer has no state of its own and may be copied.
type Claimer[T metav1.Object] struct {
	// Owner is the object that claims other objects. Owner is required and is not changed.
	Owner metav1.Object
	// Kind is the owner's kind. It is written to the owner references of adopted objects. Claim
	// requires Kind. An empty group means the core group.
	Kind schema.GroupVersionKind

	// Active reports whether an object is active. Objects that are not active are skipped, and are
	// not in any list of the result. If Active is nil, all objects are active. For pods, Active
	// should return false if a pod is finished or being deleted, because Kubernetes' controllers
	// skip these pods.
	Active func(T) bool
	// Selector matches the labels of the owner's objects. If Selector is nil, only Filter decides
	// which objects match. If Selector is empty or cannot match any object, Plan and Claim return
	// an error.
	Selector labels.Selector
	// Filter reports whether an object meets the owner's other requirements. It is called only for
	// objects that Selector matches. If Filter is nil, there are no other requirements. Named, All
	// and None are ready-made filters.
	//
	// If Filter returns false for an object of the owner, the object is released, as in Kubernetes.
	// To prevent this release, let Keep return true for the object.
	Filter func(T) bool
	// Keep decides about objects that belong to the owner but do not match. If Keep returns true,
	// the object is not released. A nil Keep has the same effect as a function that always returns
	// false.
	Keep func(T) bool

	// Finalizers are added to adopted objects and removed from released objects.
	Finalizers []string
	// Labels are set on adopted objects, and overwrite existing values of the same labels. Released
	// objects keep these labels. If Selector would not match an orphan after the labels are set,
	// the orphan is not adopted, and Claim returns an error. If Labels is nil, no labels are set.
	Labels map[string]string
	// PatchType is types.StrategicMergePatchType or types.MergePatchType. Custom resources need
	// types.MergePatchType. An empty string means types.StrategicMergePatchType.
	PatchType types.PatchType

	// CanAdopt is called at most once in each Claim, before the first adoption. If CanAdopt returns
	// an error, nothing is adopted. The function CanAdopt of this package returns a function for
	// this field. If CanAdopt is nil, the owner may adopt objects.
	CanAdopt func(context.Context) error
	// Patch sends a patch of an object to the API server. It returns the object in the response, or
	// nil if this object is not known. Return the errors of your client unchanged, or wrap them
	// with %w. Claim requires Patch.
	Patch func(ctx context.Context, obj T, patch Patch) (T, error)
	// Run makes the calls from call(ctx, 0) to call(ctx, n-1), and returns after all of them have
	// ended. If Run skips calls, it returns the reason as an error. If Run is nil, the calls are
	// made one after the other in the order of the list, until ctx is done. For example, Run can
	// use package slowstart to make 16 calls at a time:
	//
	//	Run: func(ctx context.Context, n int, call func(context.Context, int) error) error {
	//		return slowstart.Run(ctx, n, slowstart.Options{InitialBatchSize: n, MaxParallel: 16}, call).Err
	//	}
	//
	// If the outcome of a patch is not final, call(ctx, i) returns an error. An error NotFound or
	// Invalid is a final outcome, so call(ctx, i) then returns nil. If Run makes calls in parallel,
	// Patch must be safe for concurrent use.
	Run func(ctx context.Context, n int, call func(ctx context.Context, i int) error) error
}

// Claimed contains the outcome for each object. Every active object is in exactly one list, and
// each list is in the order of the input.
type Claimed[T metav1.Object] struct {
	// Owned contains the matching objects that already belonged to the owner. Adopted contains the
	// objects that the owner has adopted. These are the objects that Patch returned, or the objects
	// of the input if Patch returned nil.
	Owned, Adopted []T
	// Released contains the objects that no longer belong to the owner. It also contains objects
	// that no longer exist (404, NotFound), and objects whose names now belong to other objects
	// (422, Invalid).
	Released []T
	// Ignored contains all other objects; see Claims.Ignored.
	Ignored []T

	// Refused contains the orphans whose adoption the API server refused (422, Invalid). Possible
	// reasons are that another owner has adopted the orphan, that another object now has the
	// orphan's name, or that a policy forbids the adoption. A retry will fail until something
	// changes. Refused also contains orphans for which the server accepted the patch, but returned
	// an object that another owner controls.
	Refused []Failure[T]
	// AdoptionPending contains the orphans that may already belong to the owner or may be adopted
	// later. Their patches failed with an error other than NotFound and Invalid, had no response,
	// or were not sent. Patches are not sent if CanAdopt returns an error or Run skips the call.
	// AdoptionPending also contains orphans for which the server accepted the patch, but returned
	// an object without a controller. This can happen if a webhook removes owner references.
	AdoptionPending []Failure[T]
	// Gone contains the orphans that no longer exist (404, NotFound).
	Gone []Failure[T]
	// NotReleased contains the objects that should be released, but whose release failed or was not
	// tried. They probably still belong to the owner.
	NotReleased []Failure[T]
	// CanAdoptErr is the error that CanAdopt returned. If CanAdoptErr is not nil, nothing was
	// adopted.
	CanAdoptErr error
}

// A Failure is an object with the error of its call. If Patch returned an error, Err is this error.
// If Patch returned an object that the owner does not control, Err describes this problem.
type Failure[T any] struct {
	Object T
	Err    error
}

// Ours returns the matching objects that belong to the owner. The result is a new slice that
// contains Owned, followed by Adopted.
func (c Claimed[T]) Ours() []T { return slices.Concat(c.Owned, c.Adopted) }

// Claim calls Plan, and then calls Apply with the result. If a call to the API server fails, the
// other calls are still made, unless Run skips them.
//
// Claimed is valid even if Claim returns an error. The error joins the errors of AdoptionPending
// and NotReleased, each with the name of its object. If both lists are empty, the error is nil. If
// CanAdopt returns an error, the error of Claim contains the error of CanAdopt only once, and not
// once for each object in AdoptionPending. Objects in Refused and Gone do not cause an error,
// because the response of the API server is final. If the Claimer is invalid or an object is nil,
// no calls are made and Claimed is empty.
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

// Apply adopts the objects in claims.Adopt, and then releases the objects in claims.Release. Before
// you call Apply, you may reorder or shorten the lists of claims. The result contains the slices
// claims.Owned and claims.Ignored themselves, not copies.
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

// decided reports whether the outcome of a patch is final. The outcome is final if the patch was
// accepted (C8), if the object no longer exists (C15, C16), or if the API server refuses the patch
// as invalid (C22). If the patch was not tried, decided returns false.
func decided(err error) bool {
	return err == nil || !errors.Is(err, errNotTried) && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err))
}

var errNotTried = errors.New("not tried")

// send makes one Patch call for each object. It returns the patched objects, and an error for each
// object that was not patched.
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
		_ = call(ctx, i) // send has stored the error
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

// join returns an error that joins the given failures, each with the name of its object.
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

// failure returns an error whose message contains the kind and name of the owner.
func (c Claimer[T]) failure(format string, args ...any) error {
	return fmt.Errorf("selector: %s %q: %w", c.Kind.Kind, object.Name(c.Owner), fmt.Errorf(format, args...))
}

// check returns an error if the Claimer or ctx is invalid.
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
