// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/replicakit/replicakit/internal/object"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
)

// CheckUpdate checks that the Spec.Update of a Kind does what its comment asks, so that MaxUnavailable limits the
// changes of children. Pass a ready child as the server has it while it is what the owner old wants, and an owner
// updated that wants a change of it. CheckUpdate returns an error unless all of this is true:
//
//   - For old, Update returns no change.
//   - For updated, it returns a change that a plan makes and that the server accepts. Before that, the child still
//     counts as available, because unavailable children are changed without a limit.
//   - For the child that the server stores then, Update returns no change. The generation of that child is higher if
//     its spec has changed, and its status is what it was, because the child's own controller has not run yet.
//   - That child no longer counts as available. If the change is Free, it still does.
//   - Update does not modify the child, and returns equal changes for equal children.
//
// A child counts as available if Rules.Available returns true, or Rules.Ready if Rules.Available is nil. Call
// CheckUpdate for each field that the owner can change. As in a Cluster, defaults and webhooks are missing, so a server
// may still undo a change. The arguments are not modified, and a nil one is an error.
func CheckUpdate[O Object[O], C Object[C]](kind controller.Kind[O, C], old, updated O, child C) error {
	switch {
	case kind.Spec == nil:
		return errors.New("replicastest: the kind has no Spec")
	case object.IsNil(old) || object.IsNil(updated):
		return errors.New("replicastest: an owner is nil")
	case object.IsNil(child):
		return errors.New("replicastest: the child is nil")
	}
	if err := checkUpdate(kind, old, updated, child.DeepCopy()); err != nil {
		return fmt.Errorf("replicastest: %s %q: %w", kind.Child.Kind, object.Name(child), err)
	}
	return nil
}

func checkUpdate[O Object[O], C Object[C]](kind controller.Kind[O, C], old, updated O, child C) error {
	before, err := judgeOf(kind, "the old owner", old)
	if err != nil {
		return err
	}
	after, err := judgeOf(kind, "the updated owner", updated)
	if err != nil {
		return err
	}
	if child.GetResourceVersion() == "" { // a server has given it one, and refuses a change without one
		child.SetResourceVersion("1")
	}
	change, err := before.change(child)
	switch {
	case err != nil:
		return err
	case !isZero(change):
		return fmt.Errorf("for the old owner, Update changes %s: pass a child that is as this owner wants it", fieldsOf(change))
	case !before.available(child):
		return fmt.Errorf("for the old owner, %s is false: pass a child that has become ready", before.rule)
	case !after.available(child):
		return fmt.Errorf("for the updated owner, %s is false before the change, and unavailable children are changed without a limit: compare the child's status with the child, not with the owner", after.rule)
	}
	if change, err = after.planned(child); err != nil {
		return err
	}
	changed, err := stored(kind, change)
	if err != nil {
		return err
	}
	again, err := after.change(changed)
	switch {
	case err != nil:
		return err
	case !isZero(again):
		return fmt.Errorf("after the change, Update changes %s again: a patch of the child leaves its status as it is, and one of the subresource %q changes nothing else", fieldsOf(again), "status")
	case change.Free && !after.available(changed):
		return fmt.Errorf("the change of %s is Free, but %s is false after it: do not set Free", fieldsOf(change), after.rule)
	case !change.Free && after.available(changed):
		return fmt.Errorf("%s is still true after the change of %s, although the child's own controller has not seen it, so MaxUnavailable would limit nothing: %s",
			after.rule, fieldsOf(change), advice(child, changed))
	}
	return nil
}

// advice says how a rule can notice that the child's own controller has not seen a change.
func advice[C Object[C]](child, changed C) string {
	if changed.GetGeneration() > child.GetGeneration() {
		return "let it be false while status.observedGeneration is below metadata.generation"
	}
	return "metadata.generation stays the same, so let the child's controller report in its status what it has seen, and compare that"
}

// A judge applies the Spec of one owner to a child.
type judge[C Object[C]] struct {
	name      string // of the owner, for errors
	spec      replicas.Spec[C]
	rule      string // the name of the rule available
	available func(C) bool
}

func judgeOf[O Object[O], C Object[C]](kind controller.Kind[O, C], name string, owner O) (judge[C], error) {
	spec, err := kind.Spec(owner)
	if err != nil {
		return judge[C]{}, fmt.Errorf("the Spec of %s: %w", name, err)
	}
	// The plan is about the change of this one child, so nothing else may hold it back: no pause, no slot, no limit of
	// deletions, and no time, which only a Controller knows.
	spec.Owner, spec.Kind, spec.Paused, spec.MinReadySeconds, spec.BurstReplicas = owner, kind.Owner, false, 0, 0
	spec.Slots, spec.MaxDeletions = nil, nil
	if spec.GroupOf == nil {
		spec.Replicas = 1
	}
	spec.Groups = slices.Clone(spec.Groups)
	for i := range spec.Groups {
		g := &spec.Groups[i]
		g.Replicas, g.Slots, g.Paused, g.MaxDeletions = 1, nil, false, nil
	}
	spec.Rules.ReadyWithin, spec.Facts = 0, replicas.Facts[C]{Now: beginning, Names: func(prefix string) string { return prefix + "a" }}
	j := judge[C]{name, spec, "Rules.Available", spec.Rules.Available}
	if j.available == nil {
		j.rule, j.available = "Rules.Ready", spec.Rules.Complete().Ready
	}
	if j.available == nil {
		return j, fmt.Errorf("for %s, Rules.Ready is nil, so no child is ever ready", name)
	}
	return j, nil
}

// change returns what Update returns for a child.
func (j *judge[C]) change(child C) (replicas.Change[C], error) {
	if j.spec.Update == nil {
		return replicas.Change[C]{}, nil
	}
	is, twin := child.DeepCopy(), child.DeepCopy()
	change, other := j.spec.Update(is), j.spec.Update(twin)
	switch {
	case !same(is, child):
		return change, fmt.Errorf("for %s, Update modifies the child: change a copy", j.name)
	case any(change.To) == any(is):
		return change, fmt.Errorf("for %s, Update returns the child itself: return the zero Change or a changed copy", j.name)
	case !same(change, other):
		return change, fmt.Errorf("for %s, Update returns different changes for equal children", j.name)
	}
	change.Object = child
	return change, nil
}

// planned returns the change that a plan makes.
func (j *judge[C]) planned(child C) (none replicas.Change[C], err error) {
	change, err := j.change(child)
	switch {
	case err != nil:
		return none, err
	case isZero(change):
		return none, fmt.Errorf("for %s, Update returns no change: pass an owner that wants another child", j.name)
	}
	plan, err := replicas.ScaleTo([]C{child}, j.spec)
	switch {
	case err != nil:
		return none, err
	case len(plan.Update) == 0:
		return none, fmt.Errorf("a plan for %s does not make the change of %s (%s): it must not be deleted, Rules.Active must be true, and Rules.MustGo and Rules.MustStay false", j.name, fieldsOf(change), plan)
	}
	return plan.Update[0], nil
}

// stored returns the child as the server stores it after a change.
func stored[O Object[O], C Object[C]](kind controller.Kind[O, C], change replicas.Change[C]) (child C, err error) {
	patch, err := change.Patch()
	if err != nil {
		return child, err
	}
	server := newTable[C](nil, kind.Child)
	server.anywhere = kind.ClusterScoped
	parsed, err := server.parsePatch(patch, change.Object)
	if err == nil {
		child, err = patched(parsed, change.Object)
	}
	if err == nil {
		err = server.prepare(child, change.Object)
	}
	if err != nil {
		return child, fmt.Errorf("the server refuses the change of %s: %w", fieldsOf(change), err)
	}
	// The server gives the changed child a new version, which Update must not take for a difference.
	child.SetResourceVersion(child.GetResourceVersion() + "0")
	return child, nil
}

func isZero[C Object[C]](change replicas.Change[C]) bool {
	return object.IsNil(change.To) || same(change.To, change.Object)
}

// fieldsOf returns the fields of a change with their new values.
func fieldsOf[C Object[C]](change replicas.Change[C]) string {
	fields := map[string]any{}
	patch, err := change.Patch()
	if err == nil {
		err = decode(patch.Data, &fields)
	}
	if err != nil {
		return err.Error()
	}
	if metadata, _ := fields["metadata"].(map[string]any); metadata != nil {
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
	}
	return strings.Join(paths("", fields), ", ")
}

func paths(prefix string, value any) (list []string) {
	fields, ok := value.(map[string]any)
	if !ok {
		text, _ := json.Marshal(value)
		return []string{strings.TrimPrefix(prefix, ".") + "=" + string(text)}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		list = append(list, paths(prefix+"."+name, fields[name])...)
	}
	return list
}
