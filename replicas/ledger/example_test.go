// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/ledger"
	"github.com/replicakit/replicakit/status"
)

// This loop creates missing pods and deletes surplus pods. Each pass makes a plan from the view of the ledger, and
// records the result of each call in the ledger. So the loop knows its own writes before the cache shows them. The
// example does not adopt or release pods, and writes no status.
func Example() {
	wanted := int32(2)
	web := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}}
	web.Spec.Replicas = &wanted
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	web.Spec.Template.Labels = web.Spec.Selector.MatchLabels
	l := &controller{owner: web, api: &cluster{losesAnswers: true}}

	fmt.Println(l.pass()) // creates two pods, but gets no responses
	l.api.losesAnswers = false
	fmt.Println(l.pass()) // sends both names again, and finds the two pods
	fmt.Println(l.pass()) // has nothing to do, although the cache shows no pod yet
	wanted = 1
	fmt.Println(l.pass()) // deletes one of the two pods
	l.api.fillCache()
	fmt.Println(l.pass()) // the cache shows all facts, so the ledger drops them
	// Output:
	// 0 cached, 0 believed: create 2 <nil>
	// 0 cached, 0 believed: create 2 <nil>
	// 0 cached, 2 believed: nothing to do <nil>
	// 0 cached, 2 believed: delete 1: shop/web-1 (UID web-1 < web-2) <nil>
	// 1 cached, 1 believed: nothing to do <nil>
}

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// A controller holds the state that is kept between two passes.
type controller struct {
	known ledger.Ledger[*corev1.Pod]
	owner *appsv1.ReplicaSet
	api   *cluster
	names int
}

func (l *controller) pass() (what string, err error) {
	now := time.Now()
	start := l.known.Start() // call Start BEFORE the cache is read
	defer l.known.Done()
	cache := ledger.Snapshot[*corev1.Pod]{Version: l.api.cachedVersion, Children: l.api.cached}
	cache.Rules = ledger.RulesOf(l.owner, kind.GroupKind(), labels.SelectorFromSet(l.owner.Spec.Template.Labels), status.IsPodActive)
	view, err := l.known.View(start, cache, now)
	if err != nil {
		return "", err
	}
	plan, err := l.plan(view)
	if view.Unmet || view.Stale && !plan.IsZero() { // the view may be wrong, so list the pods live
		began := l.known.Start()
		if err := l.known.Listed(began, l.api.list(), cache, now); err != nil {
			return "", err
		}
		if view, err = l.known.View(start, cache, now); err == nil {
			plan, err = l.plan(view)
		}
	}
	if err != nil {
		return "", err
	}
	for i, name := range plan.Scale.Names {
		pod, err := plan.Scale.New(i)
		if err != nil {
			return "", err
		}
		began, sent := l.known.Start(), types.NamespacedName{Namespace: pod.Namespace, Name: name}
		l.known.CreateSent(sent, now)
		if pod, err = l.api.create(pod); err != nil {
			continue // the creation may still take effect, so the next pass sends the same name again
		}
		l.known.NameHeld(sent, pod.UID, ledger.Replica, true)
		if err := l.known.Observe(began, pod, now); err != nil {
			return "", err
		}
	}
	for _, victim := range plan.Scale.Delete {
		began, uid := l.known.Start(), victim.Object.UID
		if err := l.api.delete(uid); err != nil {
			l.known.CallUnanswered(uid, ledger.Delete, "", now) // the deletion may still take effect, so later plans delete this pod before others
			continue
		}
		l.known.ObserveDeleted(began, uid, now)
		l.known.CallAnswered(uid)
	}
	return fmt.Sprintf("%d cached, %d believed: %v", len(cache.Children), len(view.Children), plan), nil
}

// plan makes a plan from a view and the calls in flight.
func (l *controller) plan(view ledger.View[*corev1.Pod]) (replicas.PodPlan, error) {
	spec, err := replicas.ReplicaSetSpec(l.owner)
	if err != nil {
		return replicas.PodPlan{}, err
	}
	facts := &spec.Facts
	calls := l.known.InFlight()
	facts.CreationsInFlight, facts.Taken, facts.DeletionsInFlight = calls.Creations, calls.Taken, calls.Deletions
	facts.Now, facts.Names = time.Now(), func(prefix string) string {
		l.names++
		return prefix + strconv.Itoa(l.names)
	}
	return replicas.Manage(view.Children, spec)
}

// A cluster consists of an API server and a cache that lags behind the server.
type cluster struct {
	pods, cached  []*corev1.Pod
	version       int
	cachedVersion string
	losesAnswers  bool
}

// create creates a pod. If a pod with the same name exists, create returns the existing pod. With a real API
// server, the creation fails with AlreadyExists, and a read then returns the existing pod.
func (c *cluster) create(pod *corev1.Pod) (*corev1.Pod, error) {
	if i := slices.IndexFunc(c.pods, func(p *corev1.Pod) bool { return p.Name == pod.Name }); i >= 0 {
		return c.pods[i], nil
	}
	c.version++
	pod.UID, pod.ResourceVersion = types.UID(pod.Name), strconv.Itoa(c.version)
	c.pods = append(c.pods, pod)
	if c.losesAnswers {
		return nil, errors.New("timeout")
	}
	return pod, nil
}

func (c *cluster) delete(uid types.UID) error {
	c.version++
	c.pods = slices.DeleteFunc(slices.Clone(c.pods), func(p *corev1.Pod) bool { return p.UID == uid })
	if c.losesAnswers {
		return errors.New("timeout")
	}
	return nil
}

func (c *cluster) list() ledger.List[*corev1.Pod] {
	return ledger.List[*corev1.Pod]{Items: c.pods, Version: strconv.Itoa(c.version)}
}

func (c *cluster) fillCache() { c.cached, c.cachedVersion = c.pods, strconv.Itoa(c.version) }
