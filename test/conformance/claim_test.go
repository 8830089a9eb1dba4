// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/replicakit/replicakit/selector"
)

var replicaSetKind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// answer returns the error with which the API server answers a call, for one kind of answer. nil means success.
func answer(kind, pod string) error {
	pods := schema.GroupResource{Resource: "pods"}
	switch kind {
	case "":
		return nil
	case "NotFound":
		return apierrors.NewNotFound(pods, pod)
	case "Invalid":
		return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod, nil)
	case "Conflict":
		return apierrors.NewConflict(pods, pod, errors.New("the object has been modified"))
	case "Forbidden":
		return apierrors.NewForbidden(pods, pod, errors.New("policy"))
	case "BadRequest":
		return apierrors.NewBadRequest("no")
	case "Timeout":
		return apierrors.NewServerTimeout(pods, "patch", 0)
	case "Throttled":
		return apierrors.NewTooManyRequests("later", 1)
	case "Throttled for two minutes":
		return apierrors.NewTooManyRequests("later", 120)
	case "wrapped NotFound":
		return fmt.Errorf("through a proxy: %w", apierrors.NewNotFound(pods, pod))
	case "wrapped Invalid":
		return fmt.Errorf("through a proxy: %w", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, pod, nil))
	case "lost":
		return &apierrors.UnexpectedObjectError{}
	case "terminating namespace":
		err := apierrors.NewForbidden(pods, pod, errors.New("the namespace is going away"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
		return err
	case "quota":
		return apierrors.NewForbidden(pods, pod, errors.New("exceeded quota: pods"))
	}
	return apierrors.NewGenericServerResponse(http.StatusInternalServerError, "patch", pods, pod, kind, 0, true)
}

var kindsOfAnswer = []string{"", "", "", "", "NotFound", "Invalid", "Conflict", "Forbidden", "BadRequest", "Timeout", "Throttled", "wrapped NotFound", "wrapped Invalid", "lost", "internal"}

// calls records the requests of one side to the API server.
type calls struct {
	answers map[string]string // the kinds of answers, by pod

	mu      sync.Mutex
	patches []string // "pod: type body", in the order of the calls
	gets    int      // how many reads of the owner
}

func (c *calls) patch(pod string, kind types.PatchType, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patches = append(c.patches, fmt.Sprintf("%s: %s %s", pod, kind, data))
	return answer(c.answers[pod], pod)
}

// theirPods is the pod control that Kubernetes' code uses.
type theirPods struct {
	controller.PodControlInterface
	*calls
}

func (c theirPods) PatchPod(_ context.Context, _, name string, data []byte) error {
	return c.patch(name, types.StrategicMergePatchType, data)
}

// ourPatch is the function Patch of our Claimer.
func (c *calls) ourPatch(_ context.Context, pod *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	return pod, c.patch(pod.Name, patch.Type, patch.Data)
}

// A claim contains an owner and the pods that the owner may claim, in the field Family. It also contains the
// answers of the API server.
type claim struct {
	Family     family
	Except     []string // the pods for which the filter is false
	Finalizers []string
	Answers    map[string]string // the answers to patches, by pod
	Fresh      string            // the result of a live read of the owner
}

func (c claim) filter(p *corev1.Pod) bool { return !slices.Contains(c.Except, p.Name) }

func (g *gen) claim() claim {
	c := claim{Family: g.family(), Answers: map[string]string{}, Fresh: "the owner"}
	for _, p := range c.Family.Pods {
		if g.in(6) {
			c.Except = append(c.Except, p.Name)
		}
	}
	if g.in(3) {
		c.Finalizers = []string{"b/b", "a/a"}
	}
	if g.in(4) {
		c.Fresh = pick(g, "an owner being deleted", "another owner", "NotFound", "Forbidden", "internal")
	}
	if g.in(2) {
		for _, p := range c.Family.Pods {
			c.Answers[p.Name] = pick(g, kindsOfAnswer...)
		}
	}
	return c
}

// live returns the result of a live read of the owner.
func (c claim) live(calls *calls) (*appsv1.ReplicaSet, error) {
	calls.gets++
	fresh := &appsv1.ReplicaSet{ObjectMeta: *c.Family.Owner.DeepCopy()}
	switch c.Fresh {
	case "the owner", "": // shrinking can clear the field
	case "an owner being deleted":
		fresh.DeletionTimestamp = new(metav1.NewTime(start))
	case "another owner":
		fresh.UID = "another"
	default:
		return nil, answer(c.Fresh, c.Family.Owner.Name)
	}
	return fresh, nil
}

func TestClaim(t *testing.T) {
	t.Parallel()
	t.Run("C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C13 C14 C20 C21 C24 the same pods are kept and the same patches sent", func(t *testing.T) {
		t.Parallel()
		comparison[family]{
			cases: 100_000, of: "lists of up to 12 pods",
			input:  (*gen).family,
			differ: func(c family, _ *tally) string { return differOnClaims(c) },
		}.run(t)
	})
	t.Run("C11 C12 C13 C15 C16 C17 C18 C19 Y8 whatever the API server answers, the same pods are kept, the same patches sent and the same claims fail", func(t *testing.T) {
		t.Parallel()
		comparison[claim]{
			cases: 50_000, of: "lists of up to 12 pods",
			input:  (*gen).claim,
			differ: differOnAnswers,
			names:  []string{invalidAdoption, oneRefusal},
		}.run(t)
	})
}

// differOnClaims compares the plan of our Claimer with the calls that Kubernetes makes.
func differOnClaims(c family) string {
	theirs := &calls{}
	kept, err := controller.NewPodControllerRefManager(theirPods{calls: theirs}, c.Owner, c.selector(), replicaSetKind, nil).
		ClaimPods(context.Background(), c.Pods)
	if err != nil {
		return fmt.Sprintf("Kubernetes: %v", err)
	}
	claimer := selector.Claimer[*corev1.Pod]{Owner: c.Owner, Kind: replicaSetKind, Selector: c.selector()}
	claims, err := claimer.Plan(c.Pods)
	if err != nil {
		return fmt.Sprintf("ours: %v", err)
	}
	ours := &calls{}
	for _, p := range claims.Adopt {
		patch, err := claimer.AdoptPatch(p)
		if err != nil {
			return fmt.Sprintf("ours: %v", err)
		}
		_ = ours.patch(p.Name, patch.Type, patch.Data)
	}
	for _, p := range claims.Release {
		patch, err := claimer.ReleasePatch(p)
		if err != nil {
			return fmt.Sprintf("ours: %v", err)
		}
		_ = ours.patch(p.Name, patch.Type, patch.Data)
	}
	if n := len(claims.Owned) + len(claims.Adopt) + len(claims.Release) + len(claims.Ignored); n != len(c.Pods) {
		return fmt.Sprintf("ours: %d verdicts on %d pods", n, len(c.Pods))
	}
	return cmpSets("kept", names(kept), names(slices.Concat(claims.Owned, claims.Adopt))) +
		cmpSets("patches", theirs.patches, ours.patches)
}

// cmpSets compares two lists and ignores their order.
func cmpSets(what string, theirs, ours []string) string {
	theirs, ours = slices.Sorted(slices.Values(theirs)), slices.Sorted(slices.Values(ours))
	if slices.Equal(theirs, ours) {
		return ""
	}
	return fmt.Sprintf("%s: Kubernetes: %v\nours: %v\n", what, strings.Join(theirs, "\n  "), strings.Join(ours, "\n  "))
}

const (
	invalidAdoption = "C15: an adoption that is Invalid is no error"
	oneRefusal      = "C18: where nothing may be adopted there is one error, not one a pod"
)

// differOnAnswers compares the calls of the two sides, the pods that they keep, and their errors. Each side gets
// the active pods that Kubernetes' index has for the owner. These are the pods of the owner and the orphans in the
// owner's namespace.
func differOnAnswers(c claim, named *tally) string {
	if c.Family.Owner.Namespace == "" {
		c.Family.Owner = c.Family.Owner.DeepCopy()
		c.Family.Owner.Namespace = "a" // ReplicaSets are namespaced
	}
	rs := &appsv1.ReplicaSet{ObjectMeta: *c.Family.Owner}
	pods := controller.FilterActivePods(logr.Discard(), indexed(rs, c.Family.Pods))

	theirs := &calls{answers: c.Answers}
	kept, theirErr := controller.NewPodControllerRefManager(theirPods{calls: theirs}, rs, c.Family.selector(), replicaSetKind,
		controller.RecheckDeletionTimestamp(func(context.Context) (metav1.Object, error) {
			fresh, err := c.live(theirs)
			if err == nil && fresh.UID != rs.UID {
				return nil, fmt.Errorf("is gone: got uid %v, wanted %v", fresh.UID, rs.UID)
			}
			return fresh, err
		}), c.Finalizers...).ClaimPods(quiet(context.Background()), pods, c.filter)

	ours := &calls{answers: c.Answers}
	claimed, ourErr := selector.Claimer[*corev1.Pod]{
		Owner: rs, Kind: replicaSetKind, Selector: c.Family.selector(), Filter: c.filter, Finalizers: c.Finalizers,
		CanAdopt: selector.CanAdopt(func(context.Context) (metav1.Object, error) { return c.live(ours) }, rs),
		Patch:    ours.ourPatch,
	}.Claim(context.Background(), pods)

	theirFailed, refused := failures(theirErr)
	ourFailed, _ := failures(ourErr)
	for _, f := range claimed.Refused {
		if !apierrors.IsInvalid(answer(c.Answers[f.Object.Name], f.Object.Name)) {
			return fmt.Sprintf("ours: %s is refused", f.Object.Name)
		}
		named.add(invalidAdoption)
		refusal, _ := failures(f.Err)
		ourFailed = append(ourFailed, refusal...)
	}
	if refused > 1 {
		named.add(oneRefusal)
	}
	if refused > 0 != (claimed.CanAdoptErr != nil) {
		return fmt.Sprintf("Kubernetes: %v, ours: %v", theirErr, ourErr)
	}
	return cmpSets("kept", names(kept), names(claimed.Ours())) +
		cmpSets("patches", theirs.patches, ours.patches) +
		cmpSets("failures", theirFailed, ourFailed) +
		cmpInts("live reads of the owner", theirs.gets, ours.gets) +
		cmpInts("pods in all", len(pods), len(claimed.Ours())+len(claimed.Released)+len(claimed.Ignored)+
			len(claimed.Refused)+len(claimed.AdoptionPending)+len(claimed.Gone)+len(claimed.NotReleased))
}

func cmpInts(what string, theirs, ours int) string {
	if theirs == ours {
		return ""
	}
	return fmt.Sprintf("%s: Kubernetes: %d, ours: %d\n", what, theirs, ours)
}

// failures returns the errors of the API server that err contains, and how many adoptions were not tried.
func failures(err error) (failed []string, refused int) {
	var walk func(err error)
	walk = func(err error) {
		switch e := err.(type) { //nolint:errorlint // it looks at every level
		case nil:
		case interface{ Unwrap() []error }:
			for _, e := range e.Unwrap() {
				walk(e)
			}
		case interface{ Errors() []error }:
			for _, e := range e.Errors() {
				walk(e)
			}
		case apierrors.APIStatus:
			failed = append(failed, err.Error())
		case *apierrors.UnexpectedObjectError:
			failed = append(failed, err.Error())
		default:
			if strings.Contains(err.Error(), "can't adopt") || strings.Contains(err.Error(), "can't recheck") {
				refused++
				return
			}
			walk(errors.Unwrap(err))
		}
	}
	walk(err)
	return failed, refused
}

// indexed returns the pods that Kubernetes' index has for an owner. These are the pods of the owner and the
// orphans in the owner's namespace.
func indexed(rs *appsv1.ReplicaSet, pods []*corev1.Pod) []*corev1.Pod {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{controller.PodControllerIndex: func(obj any) ([]string, error) {
		p := obj.(*corev1.Pod)
		return []string{controller.PodControllerIndexKey(p.Namespace, metav1.GetControllerOf(p))}, nil
	}})
	for _, p := range pods {
		if err := index.Add(p); err != nil {
			panic(err)
		}
	}
	found, err := controller.FilterPodsByOwner(index, &rs.ObjectMeta, "ReplicaSet", true)
	if err != nil {
		panic(err)
	}
	return found
}
