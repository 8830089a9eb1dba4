package replicas

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	claimer := p.claimer()
	terminating, err := claimer.Plan(status.FilterTerminatingPods(pods))
	if err != nil {
		return err
	}
	if p.Owners == nil {
		claims.Adopt = nil
	}
	before := claims.Adopt
	claims.Adopt = p.toPatch(before)
	claimed, err := claimer.Apply(ctx, claims)
	p.result.Adopted, p.result.Released = claimed.Adopted, claimed.Released
	p.refusedAdoptions(claimed.Refused)
	if claimed.CanAdoptErr == nil && ctx.Err() == nil {
		p.undecidedAdoptions(claimed.Undecided)
	}
	p.tellSetAside(before)
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

// toPatch returns the orphans that adoption is tried for. One whose adoption
// failed is left alone for a while, as long as neither it nor the owner's
// generation changes: no event makes the answer another one. What is remembered of
// others is dropped.
func (p *pass) toPatch(orphans []*corev1.Pod) []*corev1.Pod {
	p.asideBefore, p.state.setAside = p.state.setAside, nil
	if len(p.asideBefore) == 0 {
		return orphans
	}
	return slices.DeleteFunc(slices.Clone(orphans), func(pod *corev1.Pod) bool {
		still, known := p.knownAside(pod)
		if !known || still.hold.remaining(p.spec.Now, 0) <= 0 {
			return false
		}
		p.setAside(pod, &still)
		p.undecided = p.undecided || still.undecided
		return true
	})
}

// knownAside returns what is remembered of an orphan that has not changed since its
// adoption failed.
func (p *pass) knownAside(pod *corev1.Pod) (was aside, known bool) {
	a := p.asideBefore[object.ID(pod)]
	if a == nil || a.version != pod.ResourceVersion {
		return aside{}, false
	}
	return *a, true
}

func (p *pass) refusedAdoptions(refused []selector.Failure[*corev1.Pod]) {
	for _, f := range refused {
		p.setAside(f.Object, &aside{version: f.Object.ResourceVersion, hold: hold{since: p.now(), wait: setAsideWait}})
	}
}

// undecidedAdoptions leaves the orphans alone for which the server has not decided:
// each time they fail, for twice as long.
func (p *pass) undecidedAdoptions(failed []selector.Failure[*corev1.Pod]) {
	for _, f := range failed {
		a := &aside{version: f.Object.ResourceVersion, undecided: true}
		if was, known := p.knownAside(f.Object); known && was.undecided {
			a.hold = was.hold
		}
		a.hold.double(p.now(), undecidedFirst, undecidedLast)
		a.hold.wait = max(a.hold.wait, serverDelay([]error{f.Err}))
		p.setAside(f.Object, a)
		p.retryAfter = max(p.retryAfter, a.hold.wait)
	}
}

// setAside leaves a pod that may not be adopted to a later pass.
func (p *pass) setAside(pod *corev1.Pod, a *aside) {
	if p.state.setAside == nil {
		p.state.setAside = map[types.UID]*aside{}
	}
	p.state.setAside[object.ID(pod)] = a
	p.comeBack(a.hold.remaining(p.now(), 0))
}

// tellSetAside fills in the orphans that were refused, now or a while ago.
func (p *pass) tellSetAside(orphans []*corev1.Pod) {
	for _, pod := range orphans {
		if a := p.state.setAside[object.ID(pod)]; a != nil && !a.undecided {
			p.result.SetAside = append(p.result.SetAside, pod)
		}
	}
}

func (p *pass) failedClaims(failed []selector.Failure[*corev1.Pod]) {
	p.result.Failed += len(failed)
	for _, f := range failed {
		p.retryAfter = max(p.retryAfter, serverDelay([]error{f.Err}))
	}
}
