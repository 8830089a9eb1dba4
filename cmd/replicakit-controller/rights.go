// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

// A right is the permission for one verb on one resource, as in an RBAC rule.
type right struct{ verb, group, resource, subresource string }

func (r right) String() string {
	what := r.resource
	if r.subresource != "" {
		what += "/" + r.subresource
	}
	if r.group != "" {
		what += "." + r.group
	}
	return r.verb + " " + what
}

// rights returns the rights that the controller needs in the namespaces that it serves. The
// manifests also grant three rights that are not always needed. The right to update finalizers is
// needed only if the admission plugin OwnerReferencesPermissionEnforcement is on. The right to get
// namespaces is needed only to report namespaces that do not exist. The right to read nodes is
// needed only for some orders.
func (c controller) rights() []right {
	rights := []right{
		{"create", "", "events", ""},
		{"patch", "", "events", ""},
		{"patch", c.resource.Group, c.resource.Resource, "status"},
	}
	for _, verb := range []string{"get", "list", "watch"} {
		rights = append(rights, right{verb, c.resource.Group, c.resource.Resource, ""})
	}
	for _, verb := range []string{"get", "list", "watch", "create", "delete", "patch"} {
		rights = append(rights, right{verb, "", "pods", ""})
	}
	return rights
}

// A need is a right that the manager needs with its flags.
type need struct {
	user string // who needs the right, for the log
	what *authorizationv1.ResourceAttributes
	// optional is set for the rights to create events and to check who reads the metrics. Without them, the manager works.
	optional bool
}

func (n need) String() string {
	return fmt.Sprintf("%s in %s", right{n.what.Verb, n.what.Group, n.what.Resource, n.what.Subresource}, where(n.what.Namespace))
}

// needs returns the rights that the manager needs with its flags.
func (m *manager) needs() (needs []need) {
	add := func(user string, r right, namespace, name string) {
		needs = append(needs, need{user, attributes(r, namespace, name), r.resource == "events" || user == "metrics"})
	}
	for _, c := range m.controllers {
		for _, r := range c.rights() {
			for _, namespace := range m.opts.watched() {
				add(c.name, r, namespace, "")
			}
		}
		if !m.opts.allowOthers { // the probes; see door.go. RBAC cannot restrict the verb create to one name
			add("the door", right{"create", c.resource.Group, c.resource.Resource, ""}, m.opts.lease.Namespace, "")
			for _, verb := range []string{"get", "delete"} {
				add("the door", right{verb, c.resource.Group, c.resource.Resource, ""}, m.opts.lease.Namespace, m.opts.lease.Name)
			}
		}
	}
	if m.opts.elect {
		const group, leases = "coordination.k8s.io", "leases"
		add("leader election", right{"create", group, leases, ""}, m.opts.lease.Namespace, "")
		add("leader election", right{"get", group, leases, ""}, m.opts.lease.Namespace, m.opts.lease.Name)
		add("leader election", right{"update", group, leases, ""}, m.opts.lease.Namespace, m.opts.lease.Name)
	}
	if m.orders.flag.asksNodes {
		add("--scale-down-order", right{"list", "", "nodes", ""}, "", "")
		add("--scale-down-order", right{"watch", "", "nodes", ""}, "", "")
	}
	if m.opts.metrics() {
		add("metrics", right{"create", "authentication.k8s.io", "tokenreviews", ""}, "", "")
		add("metrics", right{"create", "authorization.k8s.io", "subjectaccessreviews", ""}, "", "")
	}
	return needs
}

const (
	// missingEvery is the interval between two checks of a missing right, and heldEvery of one that the manager has.
	missingEvery = 5 * time.Second
	heldEvery    = time.Minute
)

// watchRights checks the rights until ctx is done, the first time before it returns. A missing right is logged once,
// and stands in /readyz until it is given. The controllers do not wait for each other's rights: each begins to work
// when it has its own.
func (m *manager) watchRights(ctx context.Context) {
	client, err := m.client("rights")
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot check the rights")
		return
	}
	reviews, needs := client.AuthorizationV1().SelfSubjectAccessReviews(), m.needs()
	missing := map[int]func(){} // by the index of the need; the function takes it out of /readyz
	check := func(all bool) {
		for i, n := range needs {
			if _, lacks := missing[i]; all || lacks {
				m.checkRight(ctx, reviews, n, missing, i)
			}
		}
	}
	check(true)
	go func() {
		last := time.Now()
		wait.UntilWithContext(ctx, func(context.Context) {
			all := time.Since(last) >= heldEvery
			if all {
				last = time.Now()
			}
			check(all)
		}, missingEvery)
	}()
}

func (m *manager) checkRight(ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface, n need, missing map[int]func(), i int) {
	logger := klog.FromContext(ctx)
	r := right{n.what.Verb, n.what.Group, n.what.Resource, n.what.Subresource}
	review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: n.what},
	}, metav1.CreateOptions{})
	given, lacked := missing[i]
	switch {
	case err != nil:
		logger.V(2).Info("A right could not be checked", "right", r.String(), "err", err)
	case !review.Status.Allowed && !lacked:
		logger.Error(nil, "A right is missing", "for", n.user, "right", r.String(), "in", where(n.what.Namespace))
		missing[i] = func() {}
		if !n.optional {
			missing[i] = m.waiting.add(fmt.Sprintf("a right is missing: %s, for %s", n, n.user))
		}
	case review.Status.Allowed && lacked:
		logger.Info("A right was given", "for", n.user, "right", r.String(), "in", where(n.what.Namespace))
		given()
		delete(missing, i)
	}
}

func attributes(r right, namespace, name string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Namespace: namespace, Name: name, Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource,
	}
}

func where(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return fmt.Sprintf("namespace %q", namespace)
}
