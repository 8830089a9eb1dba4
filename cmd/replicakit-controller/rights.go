// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// reportMissingRights asks the server which rights are missing, and logs each missing right once.
// The controllers start anyway. Each controller begins to work when it has its own rights, and does
// not wait for the rights of the other controller.
func (m *manager) reportMissingRights(ctx context.Context) {
	client, err := m.client("rights")
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot check the rights")
		return
	}
	reviews := client.AuthorizationV1().SelfSubjectAccessReviews()
	for _, c := range m.controllers {
		for _, r := range c.rights() {
			for _, namespace := range m.opts.watched() {
				reportIfMissing(ctx, reviews, c.name, attributes(r, namespace, ""))
			}
		}
	}
	if m.orders.flag.asksNodes {
		for _, verb := range []string{"list", "watch"} {
			reportIfMissing(ctx, reviews, "--scale-down-order", attributes(right{verb, "", "nodes", ""}, "", ""))
		}
	}
	if m.opts.metrics() {
		reportIfMissing(ctx, reviews, "metrics", attributes(right{"create", "authentication.k8s.io", "tokenreviews", ""}, "", ""))
		reportIfMissing(ctx, reviews, "metrics", attributes(right{"create", "authorization.k8s.io", "subjectaccessreviews", ""}, "", ""))
	}
	if !m.opts.allowOthers {
		m.reportMissingProbeRights(ctx, reviews)
	}
	if !m.opts.elect {
		return
	}
	lease := func(verb, name string) {
		r := right{verb, "coordination.k8s.io", "leases", ""}
		reportIfMissing(ctx, reviews, "leader election", attributes(r, m.opts.lease.Namespace, name))
	}
	lease("create", "") // RBAC cannot restrict the verb create to one name
	lease("get", m.opts.lease.Name)
	lease("update", m.opts.lease.Name)
}

// reportMissingProbeRights logs the missing rights for probes; see door.go.
func (m *manager) reportMissingProbeRights(ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface) {
	for _, c := range m.controllers {
		reportIfMissing(ctx, reviews, "the door", attributes(right{"delete", c.resource.Group, c.resource.Resource, ""}, m.opts.lease.Namespace, m.opts.lease.Name))
		reportIfMissing(ctx, reviews, "the door", attributes(right{"create", c.resource.Group, c.resource.Resource, ""}, m.opts.lease.Namespace, ""))
	}
}

func attributes(r right, namespace, name string) *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Namespace: namespace, Name: name, Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource,
	}
}

func reportIfMissing(ctx context.Context, reviews authorizationclient.SelfSubjectAccessReviewInterface, user string, what *authorizationv1.ResourceAttributes) {
	logger := klog.FromContext(ctx)
	r := right{what.Verb, what.Group, what.Resource, what.Subresource}
	review, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what},
	}, metav1.CreateOptions{})
	if err != nil {
		logger.V(2).Info("A right could not be checked", "right", r.String(), "err", err)
		return
	}
	if !review.Status.Allowed {
		logger.Error(nil, "A right is missing", "for", user, "right", r.String(), "in", where(what.Namespace))
	}
}

func where(namespace string) string {
	if namespace == "" {
		return "all namespaces"
	}
	return fmt.Sprintf("namespace %q", namespace)
}
