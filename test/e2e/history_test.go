// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A history records everything that happens to the pods of a namespace. An informer of the test itself reports the
// changes.
type history struct {
	mu    sync.Mutex
	pods  map[types.UID]*corev1.Pod            // the pods that exist
	owned map[types.UID]map[types.UID]struct{} // for each owner, all pods that the owner ever had
	now   map[types.UID]int                    // for each owner, the current number of active pods
	peak  map[types.UID]int                    // for each owner, the largest number of active pods at once
}

func newHistory() *history {
	return &history{
		pods:  map[types.UID]*corev1.Pod{},
		owned: map[types.UID]map[types.UID]struct{}{},
		now:   map[types.UID]int{},
		peak:  map[types.UID]int{},
	}
}

func (h *history) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.exists(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { h.exists(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			h.gone(obj.(*corev1.Pod))
		},
	}
}

func (h *history) exists(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(h.pods[pod.UID], -1)
	h.pods[pod.UID] = pod
	h.count(pod, +1)
}

func (h *history) gone(pod *corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.count(h.pods[pod.UID], -1)
	delete(h.pods, pod.UID)
}

func (h *history) count(pod *corev1.Pod, by int) {
	owner := ownerOf(pod)
	if owner == "" {
		return
	}
	if h.owned[owner] == nil {
		h.owned[owner] = map[types.UID]struct{}{}
	}
	h.owned[owner][pod.UID] = struct{}{}
	if active(pod) {
		h.now[owner] += by
		h.peak[owner] = max(h.peak[owner], h.now[owner])
	}
}

// find returns the existing pods for which wanted returns true, sorted by name.
func (h *history) find(wanted func(*corev1.Pod) bool) []*corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := slices.DeleteFunc(slices.Collect(maps.Values(h.pods)), func(p *corev1.Pod) bool { return !wanted(p) })
	slices.SortFunc(found, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// versions returns the resourceVersion of each pod by its name.
func (h *history) versions() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	versions := map[string]string{}
	for _, pod := range h.pods {
		versions[pod.Name] = pod.ResourceVersion
	}
	return versions
}

// everOwned returns how many different pods the owner has had in total.
func (h *history) everOwned(owner metav1.Object) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.owned[owner.GetUID()])
}

// mostAtOnce returns the largest number of active pods that the owner had at once.
func (h *history) mostAtOnce(owner types.UID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.peak[owner]
}

// ownerOf returns the UID of the pod's controller. If the pod has no controller, the result is "".
func ownerOf(pod *corev1.Pod) types.UID {
	if pod == nil {
		return ""
	}
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil {
		return ""
	}
	return ref.UID
}

func active(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func names(pods []*corev1.Pod) []string {
	names := make([]string, len(pods))
	for i, pod := range pods {
		names[i] = pod.Name
	}
	return names
}

func uids(pods []*corev1.Pod) []types.UID {
	uids := make([]types.UID, len(pods))
	for i, pod := range pods {
		uids[i] = pod.UID
	}
	return uids
}
