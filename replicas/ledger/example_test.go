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

// A loop that creates pods and deletes those that are too many. It plans from what the
// ledger believes, and tells the ledger what each call has shown. So no event is needed to
// know its own writes. Adoption, release and the status are left out.
func Example() {
	wanted := int32(2)
	web := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}}
	web.Spec.Replicas = &wanted
	web.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	web.Spec.Template.Labels = web.Spec.Selector.MatchLabels
	l := &controller{owner: web, api: &cluster{losesAnswers: true}}

	fmt.Println(l.pass()) // creates two pods, and is not answered
	l.api.losesAnswers = false
	fmt.Println(l.pass()) // sends both names again, and so finds the pods
	fmt.Println(l.pass()) // has nothing to do, though the cache shows no pod yet
	wanted = 1
	fmt.Println(l.pass()) // deletes one of them
	l.api.fillCache()
	fmt.Println(l.pass()) // the cache shows it all, so the ledger forgets it
	// Output:
	// 0 cached, 0 believed: create 2 <nil>
	// 0 cached, 0 believed: create 2 <nil>
	// 0 cached, 2 believed: nothing to do <nil>
	// 0 cached, 2 believed: delete 1: shop/web-1 (UID web-1 < web-2) <nil>
	// 1 cached, 1 believed: nothing to do <nil>
}

var kind = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")

// A controller is all that is kept between two passes.
type controller struct {
	known ledger.Ledger[*corev1.Pod]
	owner *appsv1.ReplicaSet
	api   *cluster
	names int
}

func (l *controller) pass() (what string, err error) {
	now := time.Now()
	start := l.known.Start() // BEFORE the cache is read
	defer l.known.Done()
	cache := ledger.Snapshot[*corev1.Pod]{Version: l.api.cachedVersion, Children: l.api.cached}
	cache.Rules = ledger.RulesOf(l.owner, kind.GroupKind(), labels.SelectorFromSet(l.owner.Spec.Template.Labels), status.IsPodActive)
	view, err := l.known.View(start, cache, now)
	if err != nil {
		return "", err
	}
	plan, err := l.plan(view)
	if view.Unmet || view.Stale && !plan.IsZero() { // only the server knows
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
		l.known.Sending(sent, now)
		if pod, err = l.api.create(pod); err != nil {
			continue // it may take effect yet, so the next pass sends the same name again
		}
		l.known.Bears(sent, pod.UID, ledger.Replica, true)
		if err := l.known.Told(began, pod, now); err != nil {
			return "", err
		}
	}
	for _, victim := range plan.Scale.Delete {
		began, uid := l.known.Start(), victim.Object.UID
		if err := l.api.delete(uid); err != nil {
			l.known.Doubt(uid, "", now) // it may take effect yet, so it is the next one to go
			continue
		}
		l.known.Gone(began, uid, now)
		l.known.Sure(uid)
	}
	return fmt.Sprintf("%d cached, %d believed: %v", len(cache.Children), len(view.Children), plan), nil
}

// plan plans from a view, and with what is in flight.
func (l *controller) plan(view ledger.View[*corev1.Pod]) (replicas.PodPlan, error) {
	spec, err := replicas.ReplicaSetSpec(l.owner)
	if err != nil {
		return replicas.PodPlan{}, err
	}
	spec.Now = time.Now()
	spec.Names = func(prefix string) string {
		l.names++
		return prefix + strconv.Itoa(l.names)
	}
	is := l.known.InFlight()
	spec.CreationsInFlight, spec.DeletionsInFlight, spec.Taken = is.Creations, is.Deletions, is.Taken
	return replicas.Manage(view.Children, spec)
}

// A cluster is an API server, and a cache that is behind it.
type cluster struct {
	pods, cached  []*corev1.Pod
	version       int
	cachedVersion string
	losesAnswers  bool
}

// create makes a pod. If its name was sent before, it returns the pod that has the name, as
// a read does after AlreadyExists.
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
