package replicas

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
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
	for _, list := range [][]*corev1.Pod{claims.Owned, claims.Adopt, claims.Release} {
		if len(list) > 0 && list[0].UID == "" { // in the order of UIDs
			return p.spec.failure("pod %q has no UID", object.Name(list[0]))
		}
	}
	adoptErr := p.adopt(ctx, claims.Adopt)
	releaseErr := p.release(ctx, claims.Release)
	p.result.Active = slices.Concat(claims.Owned, status.FilterActivePods(p.result.Adopted))
	p.result.Terminating = status.FilterClaimedPods(p.spec.Owner, p.spec.Selector, status.FilterTerminatingPods(pods))
	p.result.Observed = true
	return errors.Join(adoptErr, releaseErr)
}

// adopt patches the orphans, all at once, after one live look at the owner.
func (p *pass) adopt(ctx context.Context, orphans []*corev1.Pod) error {
	if len(orphans) == 0 || p.Owners == nil {
		return nil
	}
	owner := p.spec.Owner
	canAdopt := selector.CanAdopt(func(ctx context.Context) (metav1.Object, error) {
		return p.Owners.GetOwner(ctx, owner.GetNamespace(), owner.GetName())
	}, owner)
	if err := canAdopt(ctx); err != nil {
		p.result.Failed += len(orphans)
		p.retryAfter = max(p.retryAfter, serverDelay([]error{err}))
		return p.spec.failure("can't adopt %d pods: %w", len(orphans), err)
	}
	patched, verdicts, err := p.patch(ctx, orphans, func(pod *corev1.Pod) (selector.Patch, error) {
		return selector.AdoptPatch(owner, p.spec.Kind, pod.UID)
	})
	for i, orphan := range orphans {
		switch verdicts[i] {
		case patchOK:
			p.result.Adopted = append(p.result.Adopted, patched[i])
		case patchInvalid:
			p.result.SetAside = append(p.result.SetAside, orphan)
			p.comeBack(setAsideWait)
		}
	}
	if err != nil {
		return p.spec.failure("adopting pods: %w", err)
	}
	return nil
}

// release patches the pods that no longer match. One that is gone, or whose name
// another pod has now, is as good as released (C16).
func (p *pass) release(ctx context.Context, pods []*corev1.Pod) error {
	_, verdicts, err := p.patch(ctx, pods, func(pod *corev1.Pod) (selector.Patch, error) {
		return selector.ReleasePatch(p.spec.Owner.GetUID(), pod.UID)
	})
	for i, pod := range pods {
		if verdicts[i] != patchFailed {
			p.result.Released = append(p.result.Released, pod)
		}
	}
	if err != nil {
		return p.spec.failure("releasing pods: %w", err)
	}
	return nil
}

// verdict is what became of a patch.
type verdict uint8

const (
	patchFailed  verdict = iota // or never sent
	patchOK                     // the pod is as it was to be
	patchGone                   // 404: there is no such pod
	patchInvalid                // 422: another pod, another owner, or a policy
)

// patch sends a patch to each pod, all at once. The pods it returns are the
// server's; the error joins those of the calls that failed.
func (p *pass) patch(ctx context.Context, pods []*corev1.Pod, patchFor func(*corev1.Pod) (selector.Patch, error)) ([]*corev1.Pod, []verdict, error) {
	patched, verdicts, errs := make([]*corev1.Pod, len(pods)), make([]verdict, len(pods)), make([]error, len(pods))
	run := slowstart.Run(ctx, len(pods), p.all(len(pods)), func(ctx context.Context, i int) error {
		patch, err := patchFor(pods[i])
		if err == nil {
			patched[i], err = p.Pods.PatchPod(ctx, pods[i], patch)
		}
		verdicts[i], errs[i] = judge(err)
		if verdicts[i] == patchOK {
			patched[i] = p.wrotePatch(pods[i], patched[i])
		}
		return errs[i]
	})
	p.result.Failed += len(run.Failed)
	p.retryAfter = max(p.retryAfter, serverDelay(errs))
	return patched, verdicts, run.Err
}

// judge tells what a patch's error means: only the call's own error decides.
func judge(err error) (verdict, error) {
	switch {
	case err == nil:
		return patchOK, nil
	case apierrors.IsNotFound(err):
		return patchGone, nil
	case apierrors.IsInvalid(err):
		return patchInvalid, nil
	}
	return patchFailed, err
}

// wrotePatch records the write and returns the newest known form of the pod.
func (p *pass) wrotePatch(before, after *corev1.Pod) *corev1.Pod {
	if after == nil {
		return before
	}
	p.wrotePod(after.ResourceVersion)
	return after
}
