package replicas

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/slowstart"
	"github.com/replicakit/replicakit/status"
)

// podsResource is what writes of pods are recorded under.
var podsResource = schema.GroupResource{Resource: "pods"}

// claim adopts and releases what the plan says and fills in the pods that are
// really owned. After an error the claims that succeeded stand (C13).
func (p *pass) claim(ctx context.Context, pods []*corev1.Pod) error {
	claims, err := p.spec.claims(pods)
	if err != nil {
		return err
	}
	claimer := p.claimer()
	terminating, err := claimer.Plan(status.FilterTerminatingPods(pods))
	if err != nil {
		return err
	}
	if p.Owners == nil {
		claims.Adopt = nil
	}
	claimed, err := claimer.Apply(ctx, claims)
	p.result.Adopted, p.result.Released = claimed.Adopted, claimed.Released
	p.setAside(claimed.Refused)
	p.failedClaims(claimed.Undecided)
	p.failedClaims(claimed.NotReleased)
	p.result.Active = slices.Concat(claims.Owned, status.FilterActivePods(claimed.Adopted))
	p.result.Terminating = terminating.Owned
	p.result.Observed = true
	return err
}

// claimer makes the calls, all at once, after one live look at the owner.
func (p *pass) claimer() selector.Claimer[*corev1.Pod] {
	owner, claimer := p.spec.Owner, p.spec.claimer()
	claimer.Patch = p.patch
	claimer.CanAdopt = selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) {
		return p.Owners.GetOwner(ctx, owner.GetNamespace(), owner.GetName())
	}, owner)
	claimer.Run = func(ctx context.Context, n int, call func(context.Context, int) error) error {
		return summarize(slowstart.Run(ctx, n, p.all(n), call))
	}
	return claimer
}

// patch sends a patch and records it as a write of our own.
func (p *pass) patch(ctx context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	patched, err := p.Pods.PatchPod(ctx, pod, patch)
	if err == nil && patched != nil {
		p.wrotePod(patched.ResourceVersion)
	}
	return patched, err
}

// setAside leaves the pods that may not be adopted to a later pass.
func (p *pass) setAside(refused []selector.Failure[*corev1.Pod]) {
	for _, f := range refused {
		p.result.SetAside = append(p.result.SetAside, f.Object)
		p.comeBack(setAsideWait)
	}
}

func (p *pass) failedClaims(failed []selector.Failure[*corev1.Pod]) {
	p.result.Failed += len(failed)
	for _, f := range failed {
		p.retryAfter = max(p.retryAfter, serverDelay([]error{f.Err}))
	}
}
