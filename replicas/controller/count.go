// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/status"
)

// count counts the children as they are by now, if it is known how far the cache has
// come: with what this pass and earlier ones created, and without what they deleted,
// whether the cache shows it or not (T1). Otherwise it counts them as the cache has
// them, but for those that turned out to exist no more: later passes know that too.
//
// What vanishes counts nowhere: counted when its deletion was accepted as gone, it
// would come back as terminating for the moment that the cache shows it so.
func (p *pass[O, C]) count() status.Counts {
	known, terminates := p.snapshot.Version != "", p.Terminating
	if known {
		terminates = slices.DeleteFunc(slices.Clone(terminates), vanishes)
	}
	stay, come, leave := p.state.known.Split(p.Active)
	if !known {
		p.counted = append(slices.Clip(stay), leave...)
		return p.tally(append(slices.Clip(p.counted), terminates...))
	}
	p.counted = append(append(slices.Clip(stay), come...), p.Created...)
	var terminating int32
	for _, c := range leave {
		switch {
		case !lingers(c):
		case p.staysActive(c):
			p.counted = append(p.counted, c)
		default:
			terminating++
		}
	}
	counts := p.tally(append(slices.Clip(p.counted), terminates...))
	counts.Terminating += terminating
	return counts
}

// tally counts the children by the Kind's rules, and pods as the status of a ReplicaSet
// does.
func (p *pass[O, C]) tally(children []C) status.Counts {
	pods, arePods := any(children).([]*corev1.Pod)
	if !arePods {
		return status.Count(children, p.rules)
	}
	var template map[string]string
	if p.spec.Template != nil {
		template = p.spec.Template.Labels
	}
	if is := p.spec.Rules; is.Active == nil && is.Ready == nil && is.Discard == nil { // nearly always: looks at the conditions once
		return status.CountPods(pods, template, p.spec.MinReadySeconds, p.Now)
	}
	rules, _ := any(p.rules).(status.Rules[*corev1.Pod])
	labels := object.ListLabels(template)
	rules.FullyLabeled = func(c *corev1.Pod) bool { return labels.In(c.Labels) }
	rules.Available = func(c *corev1.Pod) bool { return status.IsPodAvailable(c, p.spec.MinReadySeconds, p.Now) }
	return status.Count(pods, rules)
}

// staysActive reports whether a child is a replica by the Kind's own rules even while
// it is being deleted. By those that replicas has, none is.
func (p *pass[O, C]) staysActive(c C) bool {
	if p.spec.Rules.Active == nil {
		return false
	}
	deleted, ok := c.DeepCopyObject().(C)
	if !ok {
		return false
	}
	deleted.SetDeletionTimestamp(&metav1.Time{Time: p.Now})
	return p.rules.Active(deleted)
}
