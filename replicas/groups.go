// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// InvalidGroups is the RefusedError.Reason if Groups or GroupOf cannot be used.
const InvalidGroups = "InvalidGroups"

// A Group is a part of the children with its own number. The zero Group is refused, because it has no name.
type Group[T metav1.Object] struct {
	// Name is what Spec.GroupOf returns for the children of the group. It is required, and is used once.
	Name string
	// BaseName is the part before the "-" in the names of new children, with at most 57 characters. If it is empty, it
	// is the owner's name, "-" and Name, and a long owner's name is shortened. The last "-" of a name ends its base, so
	// the name of a creation without an answer shows its group. So the Spec is refused if two groups have the same
	// base, or if names in the slots of another group have it, and also if a base is too long or no legal object name.
	// With Slots, BaseName is ignored.
	BaseName string
	// Replicas, Slots, New, MaxUnavailable, MaxSurge and MaxDeletions mean what they mean in a Spec, but New is
	// required. It must return children for which GroupOf returns Name.
	Replicas                 int32
	Slots                    func(i int) string
	New                      func(name string) (T, error)
	MaxUnavailable, MaxSurge *intstr.IntOrString
	MaxDeletions             *int
	// Paused means that no child of the group is created, changed or deleted. A group that wants none has Replicas 0.
	Paused bool
}

// A GroupScale is the part of a Scale that one group needs.
type GroupScale[T metav1.Object] struct {
	Name  string
	Scale Scale[T]
}

// maxBase is the maximum length of a base, which with "-" and 5 characters is the name of a child.
const maxBase = maxNamePrefix - 1

// A part is what is planned on its own: one group, or all children of an owner without groups.
type part[T metav1.Object] struct {
	*Spec[T]
	wanted slots[T]
	owned  []T // the active children, each of them once
	ended  []T // those to discard
	marked []T
}

// parts returns the part of each group in Groups, without its children.
func (s *Spec[T]) parts(objs []T) ([]part[T], error) {
	if s.GroupOf == nil {
		wanted, err := s.wanted(objs)
		return []part[T]{{Spec: s, wanted: wanted}}, err
	}
	parts, groupOfSlot, groupOfBase := make([]part[T], len(s.Groups)), map[string]string{}, map[string]string{}
	for i, g := range s.Groups {
		spec := s.forGroup(g)
		parts[i].Spec = &spec
		if g.Slots == nil {
			groupOfBase[parts[i].BaseName] = g.Name
		}
	}
	for i := range parts {
		p := &parts[i]
		var err error
		if p.wanted, err = p.Spec.wanted(objs); err != nil {
			return nil, err
		}
		for _, slot := range slices.Concat(p.wanted.free, sets.List(p.wanted.held)) {
			if other, twice := groupOfSlot[slot]; twice {
				return nil, p.refuse(InvalidGroups, "slot %q is one of group %q too", slot, other)
			}
			// The creation of slot web-0 had no answer. A group whose random names begin with "web-" would send it again.
			base := baseOf(slot)
			if p.SlotOf != nil {
				base = slot
			}
			if other, shared := groupOfBase[base]; shared {
				return nil, p.refuse(InvalidGroups, "slot %q begins with the base name of group %q", slot, other)
			}
			groupOfSlot[slot] = p.group
		}
	}
	return parts, nil
}

// forGroup returns the Spec of a group.
func (s *Spec[T]) forGroup(g Group[T]) Spec[T] {
	spec := *s
	spec.Groups, spec.group = nil, g.Name
	spec.Replicas, spec.Paused, spec.New = g.Replicas, s.Paused || g.Paused, g.New
	spec.MaxUnavailable, spec.MaxSurge, spec.MaxDeletions = g.MaxUnavailable, g.MaxSurge, g.MaxDeletions
	if g.Slots == nil {
		spec.BaseName = g.BaseName
		if g.BaseName == "" {
			owner := s.Owner.GetName()
			owner = strings.TrimRight(owner[:min(len(owner), max(maxBase-1-len(g.Name), 0))], "-.")
			spec.BaseName = owner + "-" + g.Name
		}
	}
	spec.Facts.Undecided = filter(s.Facts.Undecided, func(c T) bool { return s.GroupOf(c) == g.Name })
	switch spec.Slots = g.Slots; {
	case g.Slots == nil:
		spec.SlotOf = nil
		// "web-gpu-big-x1" begins with "web-gpu-" too, but it is a child of the group gpu-big.
		spec.Facts.CreationsInFlight = filter(s.Facts.CreationsInFlight, func(name string) bool { return baseOf(name) == spec.BaseName })
	case s.SlotOf == nil:
		spec.Facts.CreationsInFlight = nil // the server has at most one object with the name of a slot
	}
	return spec
}

// baseOf returns the part of a name before its last "-".
func baseOf(name string) string { return name[:max(strings.LastIndexByte(name, '-'), 0)] }

// assign gives each part its children, and adds a part for each group that is no longer listed.
func (s *Spec[T]) assign(parts []part[T], owned, ended, marked []T) []part[T] {
	if s.GroupOf == nil {
		parts[0].owned, parts[0].ended, parts[0].marked = owned, ended, marked
		return parts
	}
	at, listed := map[string]int{}, len(parts)
	for i := range parts {
		at[parts[i].group] = i
	}
	add := func(children []T, field func(p *part[T]) *[]T) {
		for _, c := range children {
			name := s.GroupOf(c)
			i, ok := at[name]
			switch {
			case !ok && name == "" && !s.Draining():
				// The Kind has got groups, and this child is older than the label that GroupOf reads.
				continue
			case !ok:
				// Its template may be gone with it, so there is nothing that its children could be changed to.
				spec := s.forGroup(Group[T]{Name: name})
				spec.Update = nil
				i, parts = len(parts), append(parts, part[T]{Spec: &spec})
				at[name] = i
			}
			list := field(&parts[i])
			*list = append(*list, c)
		}
	}
	add(owned, func(p *part[T]) *[]T { return &p.owned })
	add(ended, func(p *part[T]) *[]T { return &p.ended })
	add(marked, func(p *part[T]) *[]T { return &p.marked })
	slices.SortFunc(parts[listed:], func(a, b part[T]) int { return cmp.Compare(a.group, b.group) })
	return parts
}

// scaleParts joins the Scales of all parts.
func (s *Spec[T]) scaleParts(parts []part[T], objs []T) (joined Scale[T], blocked Blocked, err error) {
	if s.GroupOf == nil {
		return parts[0].scale(objs)
	}
	related := onceOnly(s.Facts.Related, true)
	blocked = s.blocked() // also if there are no groups
	for i := range parts {
		p := &parts[i]
		p.Facts.Related = related
		scale, why, err := p.scale(objs)
		if err != nil {
			return Scale[T]{}, Blocked{}, err
		}
		if why.Reason == ViewIsStale { // the view is that of all groups
			blocked = why
		}
		joined.add(scale, p.group)
	}
	if blocked.Reason != "" {
		blank := Scale[T]{Outdated: joined.Outdated}
		for _, g := range joined.Groups {
			blank.Groups = append(blank.Groups, GroupScale[T]{Name: g.Name, Scale: Scale[T]{Outdated: g.Scale.Outdated}})
		}
		return blank, blocked, nil
	}
	return joined, Blocked{}, nil
}

// onceOnly returns a function that calls f only once, or f itself if it is not called often.
func onceOnly[T any](f func() []T, often bool) func() []T {
	if f == nil || !often {
		return f
	}
	asked, result := false, []T(nil)
	return func() []T {
		if !asked {
			asked, result = true, f()
		}
		return result
	}
}

// add adds the Scale of a group.
func (s *Scale[T]) add(part Scale[T], group string) {
	s.Create += part.Create
	s.Names = append(s.Names, part.Names...)
	s.Update, s.Delete, s.Discard = append(s.Update, part.Update...), append(s.Delete, part.Delete...), append(s.Discard, part.Discard...)
	s.Doubled = append(s.Doubled, part.Doubled...)
	s.Outdated, s.Deferred, s.Kept, s.MustStay = s.Outdated+part.Outdated, s.Deferred+part.Deferred, s.Kept+part.Kept, s.MustStay+part.MustStay
	s.Groups = append(s.Groups, GroupScale[T]{Name: group, Scale: part})
	if part.maker == nil {
		return
	}
	if s.maker == nil {
		s.maker = &maker[T]{owner: part.maker.owner, kind: part.maker.kind, groups: map[string]*maker[T]{}}
	}
	for _, name := range part.Names {
		s.maker.groups[name] = part.maker
	}
}

// Group returns the name of the group of the child that New(i) returns. It is "" without Spec.Groups, and if i is not
// between 0 and Create-1.
func (s Scale[T]) Group(i int) string {
	if s.maker == nil || i < 0 || i >= s.Create {
		return ""
	}
	return s.maker.forName(nameAt(s.Names, i)).group
}

// forName returns the maker of the group to which a name belongs.
func (m *maker[T]) forName(name string) *maker[T] {
	if maker := m.groups[name]; maker != nil {
		return maker
	}
	return m
}

// A groupRoom is the Room of one group.
type groupRoom[T metav1.Object] struct {
	Room[T]
	group string
}

// joinRooms returns the Room of an owner with groups.
func (s *Spec[T]) joinRooms(rooms []groupRoom[T]) Room[T] {
	joined := Room[T]{groups: rooms, groupOf: s.GroupOf}
	for _, r := range rooms {
		joined.Create, joined.Delete, joined.Update = joined.Create+r.Create, joined.Delete+r.Delete, joined.Update+r.Update
	}
	return joined
}

// clampGroups clamps the part of each group to the Room of the group.
func (r *Room[T]) clampGroups(scale Scale[T]) Scale[T] {
	names, deletions, changes := scale.Names, scale.Delete, scale.Update
	scale.Names, scale.Delete, scale.Update = nil, nil, nil
	isNil := object.NilOf[T]()
	for i := range r.groups {
		g, clamped := &r.groups[i], Scale[T]{}
		inGroup := func(c T) bool { return !isNil(c) && r.groupOf(c) == g.group }
		clamped.Names = filter(names, func(name string) bool { return scale.maker != nil && scale.maker.forName(name).group == g.group })
		clamped.Create = len(clamped.Names)
		clamped.Delete = filter(deletions, func(v Deletion[T]) bool { return inGroup(v.Object) })
		clamped.Update = filter(changes, func(c Change[T]) bool { return inGroup(c.Object) })
		clamped = g.Clamp(clamped)
		scale.Names = append(scale.Names, clamped.Names...)
		scale.Delete, scale.Update = append(scale.Delete, clamped.Delete...), append(scale.Update, clamped.Update...)
	}
	scale.Create = len(scale.Names)
	return scale
}

// emptied returns the groups of an owner that wants no children.
func (s *Spec[T]) emptied() (groups []Group[T]) {
	for _, g := range s.Groups {
		groups = append(groups, Group[T]{Name: g.Name, Slots: g.Slots, MaxDeletions: g.MaxDeletions})
	}
	return groups
}

// checkGroups returns an error if the groups cannot be planned.
func (s *Spec[T]) checkGroups() error {
	if s.GroupOf == nil {
		if len(s.Groups) > 0 {
			return s.refuse(InvalidGroups, "groups are set, and GroupOf is nil")
		}
		return nil
	}
	for _, field := range []struct {
		name  string
		isSet bool
	}{
		{"replicas", s.Replicas != 0},
		{"baseName", s.BaseName != ""},
		{"slots", s.Slots != nil},
		{"template", s.Template != nil},
		{"new", s.New != nil},
		{"maxUnavailable", s.MaxUnavailable != nil},
		{"maxSurge", s.MaxSurge != nil},
		{"maxDeletions", s.MaxDeletions != nil},
	} {
		if field.isSet {
			return s.refuse(InvalidGroups, "%s is set beside GroupOf: set it in each Group", field.name)
		}
	}
	bases, seen := map[string]string{}, sets.New[string]()
	for i, g := range s.Groups {
		spec := s.forGroup(g)
		switch err, other := checkName(spec.BaseName), bases[spec.BaseName]; {
		case s.isEnding(): // names that are refused must not keep the children of an owner that was deleted because of them
			spec.BaseName = ""
		case g.Name == "":
			return s.refuse(InvalidGroups, "groups[%d] has no name", i)
		case seen.Has(g.Name):
			return spec.refuse(InvalidGroups, "another group has the same name")
		case g.Slots != nil:
		case err != nil:
			return spec.refuse(InvalidGroups, "base name %q: %w", spec.BaseName, err)
		case len(spec.BaseName) > maxBase:
			return spec.refuse(InvalidGroups, "base name %q has %d characters, which is more than %d", spec.BaseName, len(spec.BaseName), maxBase)
		case other != "":
			return spec.refuse(InvalidGroups, "base name %q is the one of group %q too", spec.BaseName, other)
		case s.Facts.Names == nil:
			return spec.failure("facts.names is nil, and slots is nil: nothing would tell the group of a creation without an answer")
		}
		bases[spec.BaseName] = g.Name
		seen.Insert(g.Name)
		if err := spec.checkScale(); err != nil {
			return err
		}
	}
	return nil
}

// checkMakers returns an error if a group cannot create children.
func (s *Spec[T]) checkMakers() error {
	for _, g := range s.Groups {
		if spec := s.forGroup(g); g.New == nil {
			return spec.refuse(InvalidGroups, "New is nil")
		}
	}
	return nil
}
