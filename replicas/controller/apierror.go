// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
)

// namespaceIsGoing reports whether a create failed because its namespace is
// being deleted, or is gone already.
func namespaceIsGoing(err error) bool {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return true
	}
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == "namespaces"
}

// quotaIsFull reports whether a create was refused by a resource quota, which
// the API server tells in words only.
func quotaIsFull(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// isFinal reports whether a creation that failed did not take effect, and will not.
func isFinal(err error) bool {
	return !errors.Is(err, ErrResent) && (isRefusal(err) || apierrors.IsAlreadyExists(err) || namespaceIsGoing(err))
}

// explained adds the remedy to an error about a child that the server's words do not have.
func (p *pass[O, C]) explained(err error, child C) error {
	owner, kind := object.Name(p.Owner), p.kind.Owner
	switch {
	case err == nil:
		return nil
	case needsFinalizers(err):
		return fmt.Errorf("%w (%s %q: the right to update %s/finalizers in the group %q is missing, which blockOwnerDeletion of the children needs on this server)", err, kind.Kind, owner, p.ownerResource.Resource, kind.Group)
	case child.GetNamespace() == "" && p.kind.ClusterScoped && hasNoNamespace(err):
		return apierrors.NewBadRequest(fmt.Sprintf("%s %q is in no namespace, and its %s are in namespaces: New must give each of them one: %v", kind.Kind, owner, p.childResource.Resource, err))
	}
	return err
}

// needsFinalizers reports whether the admission plugin OwnerReferencesPermissionEnforcement refused
// a reference, which it tells in words only.
func needsFinalizers(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot set blockOwnerDeletion")
}

// hasNoNamespace reports whether a create without a namespace failed because of that, and made
// nothing. Clients refuse it, or the server has no such path.
func hasNoNamespace(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) || strings.Contains(err.Error(), "an empty namespace may not be set")
}

// MaxServerDelay is how long a server can hold an owner at most by a Retry-After.
const MaxServerDelay = 5 * time.Minute

// serverDelay is the longest Retry-After among the errors, 0 if none has one, and
// never more than MaxServerDelay.
func serverDelay(errs []error) time.Duration {
	longest := 0
	for _, err := range errs {
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			longest = max(longest, seconds)
		}
	}
	return time.Duration(min(longest, int(MaxServerDelay/time.Second))) * time.Second
}

// isRefusal reports whether a call had no effect, and will have none.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsMethodNotSupported(err)
}

func asRefused(err error) (e *replicas.RefusedError, ok bool) {
	return e, errors.As(err, &e) && e != nil
}

func isRefused(err error) bool {
	if err == nil { // nearly always: without an allocation
		return false
	}
	_, refused := asRefused(err)
	return refused
}

// onlyRefused reports whether a spec that is refused is all that went wrong.
func onlyRefused(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it goes through the tree itself
	case *replicas.RefusedError:
		return true
	case interface{ Unwrap() error }:
		return onlyRefused(e.Unwrap())
	case interface{ Unwrap() []error }:
		errs := e.Unwrap()
		return len(errs) > 0 && !slices.ContainsFunc(errs, func(err error) bool { return !onlyRefused(err) })
	}
	return false
}

// joinErrors is errors.Join, but leaves a single error as it is.
func joinErrors(a, b error) error {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return errors.Join(a, b)
}
