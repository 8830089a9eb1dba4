package replicastest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/replicakit/replicakit/internal/pod"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
)

// quotaName is the name of every namespace's quota.
const quotaName = "pods"

// SetQuota lets at most limit pods exist in a namespace that are not finished.
func (c *Cluster) SetQuota(namespace string, limit int) { c.quota[namespace] = limit }

// Pods returns the pods of a namespace as they really are, by name.
func (c *Cluster) Pods(namespace string) []*corev1.Pod { return clone(c.pods.rows.in(namespace)) }

// ListPods reads the pods of a namespace that the selector matches, by name.
func (c *Cluster) ListPods(ctx context.Context, namespace string, matching labels.Selector) (controller.List[*corev1.Pod], error) {
	if err := ctx.Err(); err != nil {
		return controller.List[*corev1.Pod]{}, err
	}
	items := slices.DeleteFunc(c.Pods(namespace), func(p *corev1.Pod) bool {
		return !matching.Matches(labels.Set(p.Labels))
	})
	return controller.List[*corev1.Pod]{Items: items, ResourceVersion: strconv.FormatUint(c.version, 10)}, nil
}

// CreatePod stores a new pod; the scheduler will find it. A name is generated only
// for a pod without one.
func (c *Cluster) CreatePod(ctx context.Context, namespace string, p *corev1.Pod) (*corev1.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := c.checkNamespace(podResource, namespace, p.Name); err != nil {
		return nil, err
	}
	p = p.DeepCopy()
	p.Namespace = namespace
	p.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if p.Spec.TerminationGracePeriodSeconds == nil {
		grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	if p.Name == "" && p.GenerateName != "" {
		p.Name = c.newName(namespace, p.GenerateName)
	}
	if c.Mutate != nil {
		c.Mutate(p)
	}
	if err := c.admit("create", p); err != nil {
		return nil, err
	}
	if err := c.checkQuota(p); err != nil {
		return nil, err
	}
	created, err := c.pods.create(p)
	if err == nil {
		c.schedule(created)
		c.seekOwners(created)
	}
	return copied(created, err)
}

func (c *Cluster) admit(verb string, p *corev1.Pod) error {
	if c.Webhook == nil {
		return nil
	}
	return c.Webhook(verb, p)
}

func (c *Cluster) checkQuota(p *corev1.Pod) error {
	limit, limited := c.quota[p.Namespace]
	if !limited {
		return nil
	}
	used := 0
	for _, other := range c.pods.rows.in(p.Namespace) {
		if !pod.IsFinished(other) {
			used++
		}
	}
	if used < limit {
		return nil
	}
	return apierrors.NewForbidden(podResource, p.Name, fmt.Errorf(
		"exceeded quota: %s, requested: pods=1, used: pods=%d, limited: pods=%d", quotaName, used, limit))
}

// GetPod reads a pod.
func (c *Cluster) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return copied(c.readPod(ctx, namespace, name))
}

func (c *Cluster) readPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.pods.get(namespace, name)
}

// EditPod changes a pod, its status included.
func (c *Cluster) EditPod(ctx context.Context, namespace, name string, change func(*corev1.Pod)) (*corev1.Pod, error) {
	old, err := c.readPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return copied(c.updatePod(old, change))
}

func (c *Cluster) updatePod(old *corev1.Pod, change func(*corev1.Pod)) (*corev1.Pod, error) {
	p, err := c.pods.update(old, change)
	if err == nil {
		c.seekOwners(p)
	}
	return p, err
}

// PatchPod applies an adopt or release patch to the pod of that namespace and
// name. With DryRun all is checked, webhooks are asked, and nothing is stored.
func (c *Cluster) PatchPod(ctx context.Context, namespace, name string, patch selector.Patch, opts metav1.PatchOptions) (*corev1.Pod, error) {
	old, err := c.readPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	change, err := parsePatch(patch)
	if err != nil {
		return nil, err
	}
	if err := c.admit("patch", old); err != nil {
		return nil, err
	}
	if len(opts.DryRun) > 0 {
		p := old.DeepCopy()
		change.apply(p)
		return copied(p, c.pods.validate(p, old))
	}
	return copied(c.updatePod(old, change.apply))
}

// DeletePod starts the deletion of a pod. It returns the resourceVersion that
// the pod has then, or "" where it is gone at once. A pod without a node, and one
// that is finished, has no grace period.
func (c *Cluster) DeletePod(ctx context.Context, namespace, name string, opts metav1.DeleteOptions) (string, error) {
	old, err := c.readPod(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if err := checkPreconditions(podResource, old, opts.Preconditions); err != nil {
		return "", err
	}
	if err := c.admit("delete", old); err != nil {
		return "", err
	}
	if isPending(old, opts) {
		return old.ResourceVersion, nil
	}
	p := c.deletePod(old, opts)
	if isFinished(p) {
		return "", nil
	}
	return p.ResourceVersion, nil
}

// deletePod starts the deletion of a pod; the kubelet ends it.
func (c *Cluster) deletePod(old *corev1.Pod, opts metav1.DeleteOptions) *corev1.Pod {
	grace := gracePeriod(old, opts)
	p := c.pods.delete(old, grace)
	if !isFinished(p) {
		c.after(grace, kill, p)
	}
	return p
}

// isPending reports whether the deletion is under way already and opts ask for no
// shorter grace period.
func isPending(p *corev1.Pod, opts metav1.DeleteOptions) bool {
	current, want := p.DeletionGracePeriodSeconds, opts.GracePeriodSeconds
	return current != nil && (want == nil || *want >= *current)
}

func gracePeriod(p *corev1.Pod, opts metav1.DeleteOptions) time.Duration {
	seconds := *p.Spec.TerminationGracePeriodSeconds
	if opts.GracePeriodSeconds != nil {
		seconds = *opts.GracePeriodSeconds
	}
	if p.Spec.NodeName == "" || pod.IsFinished(p) {
		seconds = 0
	}
	return time.Duration(seconds) * time.Second
}
