// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/replicakit/replicakit/internal/object"
)

// A maker builds the new children of one plan.
type maker[T metav1.Object] struct {
	owner    metav1.Object
	prefix   string // of the names that the API server chooses
	kind     schema.GroupVersionKind
	selector labels.Selector
	template *corev1.PodTemplateSpec
	make     func(name string) (T, error) // Spec.New; if nil, children are built from the template
	err      error                        // the reason why no child can be built, or nil
	slotOf   func(T) string               // Spec.SlotOf
	group    string                       // the group of the children, and what reports it; groupOf is nil without groups
	groupOf  func(T) string
	groups   map[string]*maker[T] // the makers of all groups, by the names of the children
}

func (s *Spec[T]) maker() *maker[T] {
	return &maker[T]{
		owner: s.Owner, prefix: generateName(s.base()), kind: s.Kind, selector: s.Selector, template: s.Template, make: s.New,
		err: s.checkCreate(), slotOf: s.SlotOf, group: s.group, groupOf: s.GroupOf,
	}
}

func (m *maker[T]) failure(i int, format string, args ...any) error {
	return failure(m.owner, m.kind, "new child %d: %w", i, fmt.Errorf(format, args...))
}

func (m *maker[T]) child(i int, names []string) (T, error) {
	if m.err != nil {
		return *new(T), m.err
	}
	child, err := m.bare(nameAt(names, i))
	if err != nil {
		return *new(T), m.failure(i, "%w", err)
	}
	if err := m.check(child); err != nil {
		return *new(T), m.failure(i, "%w", err)
	}
	if name, own := nameAt(names, i), child.GetName(); name != "" && own != "" && own != name {
		return *new(T), m.failure(i, "New named it %q, and its name must be %q: New must leave the name empty or take the one that it is given, and return another object each time", own, name)
	}
	child.SetNamespace(m.namespace(child))
	if err := m.setController(child); err != nil {
		return *new(T), m.failure(i, "%w", err)
	}
	m.setName(child, nameAt(names, i))
	if name := child.GetName(); m.slotOf != nil && m.slotOf(child) != SlotIn(name) {
		return *new(T), m.failure(i, "SlotOf returns %q for it, and its slot is %q", m.slotOf(child), SlotIn(name))
	}
	return child, nil
}

// nameAt returns the name of child number i, or "" if the API server chooses the name.
func nameAt(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return ""
}

// bare returns a new child from Spec.New or the template; name is "" if the API server chooses it.
func (m *maker[T]) bare(name string) (T, error) {
	if m.make != nil {
		return m.make(name)
	}
	pod, err := podFromTemplate(m.template, m.owner, m.kind, m.prefix)
	child, _ := any(pod).(T)
	return child, err
}

// check returns an error if a new child would not count as one of the owner's children.
func (m *maker[T]) check(child T) error {
	if object.IsNil(child) {
		return errors.New("New returned nil")
	}
	if child.GetUID() != "" || child.GetResourceVersion() != "" {
		// New returns one object for all children, and the answer to the first creation was decoded into it.
		return fmt.Errorf("New returned %q, which was created already: it must return another object each time", object.Name(child))
	}
	if !m.selector.Matches(labels.Set(child.GetLabels())) {
		// It would not count, so each plan would create another one, for ever.
		return fmt.Errorf("its labels %q do not match selector %q", labels.Set(child.GetLabels()), m.selector)
	}
	if m.groupOf != nil && m.groupOf(child) != m.group {
		return fmt.Errorf("GroupOf returns %q for it, and it must be of group %q", m.groupOf(child), m.group)
	}
	switch namespace := m.owner.GetNamespace(); {
	case namespace != "" && namespace != m.namespace(child):
		return fmt.Errorf("its namespace is %q, the owner's is %q", child.GetNamespace(), namespace)
	case m.namespace(child) == "" && rulesOfPods[T]() != nil:
		return errors.New("it has no namespace, and neither has its owner: New must set one")
	}
	return nil
}

// namespace returns the namespace of the child, or if it has none, that of the owner.
func (m *maker[T]) namespace(child T) string {
	if namespace := child.GetNamespace(); namespace != "" {
		return namespace
	}
	return m.owner.GetNamespace()
}

// setName fills in the name and the generateName of a new child.
func (m *maker[T]) setName(child T, name string) {
	switch {
	case name != "":
		child.SetName(name)
	case child.GetName() != "" || child.GetGenerateName() != "":
		return
	}
	// A child with a name gets it too, because other tools derive the workload of a child from its generateName.
	child.SetGenerateName(m.prefix)
}

// setController makes the owner the controller of the child, with exactly one reference to it.
func (m *maker[T]) setController(child T) error {
	owner := object.OwnerOf(m.owner, m.kind.GroupKind())
	if ref := metav1.GetControllerOfNoCopy(child); ref != nil && !owner.IsNamed(ref, child) {
		return fmt.Errorf("%s %q controls it", ref.Kind, ref.Name)
	}
	others := slices.DeleteFunc(slices.Clone(child.GetOwnerReferences()), func(ref metav1.OwnerReference) bool {
		return owner.IsNamed(&ref, child)
	})
	child.SetOwnerReferences(append(others, *metav1.NewControllerRef(m.owner, m.kind)))
	return nil
}

// PodFromTemplate returns a new pod for the owner. Its labels, annotations, finalizers and spec are copies of those in
// the template, and everything else in the template's metadata is ignored. The only owner reference is a controller
// reference to the owner. The namespace is empty, and the generateName is the owner's name and "-", or the owner's name
// alone if that is not a legal prefix. The pod shares no memory with the template, so the caller may change it.
//
// The error is a *RefusedError if the template is nil or has no labels. A nil owner is also an error, and so is a kind
// without Version or Kind.
func PodFromTemplate(template *corev1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind) (*corev1.Pod, error) {
	if object.IsNil(owner) {
		return nil, errors.New("replicas: owner is nil")
	}
	return podFromTemplate(template, owner, kind, generateName(owner.GetName()))
}

func podFromTemplate(template *corev1.PodTemplateSpec, owner metav1.Object, kind schema.GroupVersionKind, prefix string) (*corev1.Pod, error) {
	switch {
	case kind.Kind == "" || kind.Version == "":
		return nil, fmt.Errorf("replicas: owner %q: kind %q is incomplete", object.Name(owner), kind)
	case template == nil:
		return nil, refuse(owner, kind, InvalidTemplate, "template is nil")
	case len(template.Labels) == 0:
		return nil, refuse(owner, kind, InvalidTemplate, "template has no labels")
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName:    prefix,
			Labels:          cloneMap(template.Labels),
			Annotations:     cloneMap(template.Annotations),
			Finalizers:      append([]string{}, template.Finalizers...),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		},
		Spec: *template.Spec.DeepCopy(),
	}, nil
}

// cloneMap returns a copy of m that is never nil, so that callers can add entries (P2).
func cloneMap(m map[string]string) map[string]string {
	clone := make(map[string]string, len(m))
	maps.Copy(clone, m)
	return clone
}
