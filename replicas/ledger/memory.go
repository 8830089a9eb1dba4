// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/replicakit/replicakit/internal/object"
)

// Clone returns a Ledger that knows the same, and shares nothing with l except the objects
// that it was told: for a record of what was known.
func (l *Ledger[C]) Clone() *Ledger[C] {
	l.mu.Lock()
	defer l.mu.Unlock()
	clone := &Ledger[C]{
		Patience: l.Patience, moment: l.moment, viewed: l.viewed, names: slices.Clone(l.names), owner: l.owner,
		strays: slices.Clone(l.strays), list: l.list, selector: l.selector, read: l.read, distrusted: l.distrusted,
		passed: l.passed, hides: l.hides,
		cached: l.cached, known: maps.Clone(l.known),
	}
	if l.children != nil {
		clone.children = make(map[types.UID]*entry[C], len(l.children))
	}
	for id, e := range l.children {
		copied := *e
		clone.children[id] = &copied
	}
	for i := range clone.names {
		clone.names[i].settled = maps.Clone(clone.names[i].settled)
	}
	clone.list.children = maps.Clone(l.list.children)
	return clone
}

// The fields of a Ledger as JSON has them.
type (
	memory[C metav1.Object] struct {
		Patience   time.Duration                `json:"patience,omitempty"`
		Moment     Moment                       `json:"moment,omitempty"`
		Viewed     Moment                       `json:"viewed,omitempty"`
		Children   map[types.UID]entryMemory[C] `json:"children,omitempty"`
		Names      []nameMemory                 `json:"names,omitempty"`
		Strays     []C                          `json:"strays,omitempty"`
		List       *barMemory                   `json:"list,omitempty"`
		Selector   *string                      `json:"selector,omitempty"`
		Read       string                       `json:"read,omitempty"`
		Passed     *waitMemory                  `json:"passed,omitempty"`
		Distrusted bool                         `json:"distrusted,omitempty"`
		Hides      bool                         `json:"hides,omitempty"`
	}
	entryMemory[C metav1.Object] struct {
		Word    *wordMemory[C] `json:"word,omitempty"`
		Gone    Moment         `json:"gone,omitempty"`
		Since   time.Time      `json:"since,omitzero"`
		Shown   Moment         `json:"shown,omitempty"`
		Doubted time.Time      `json:"doubted,omitzero"`
		Carried string         `json:"carried,omitempty"`
	}
	wordMemory[C metav1.Object] struct {
		There   bool   `json:"there,omitempty"`
		Child   C      `json:"child,omitempty"`
		Version string `json:"version,omitempty"`
		At      Moment `json:"at"`
	}
	nameMemory struct {
		Namespace string      `json:"namespace,omitempty"`
		Name      string      `json:"name"`
		Sent      time.Time   `json:"sent"`
		Bearer    Bearer      `json:"bearer,omitempty"`
		Open      int         `json:"open"`
		Settled   []types.UID `json:"settled,omitempty"`
		Look      *waitMemory `json:"look,omitempty"`
	}
	barMemory struct {
		Version  string      `json:"version"`
		Children []types.UID `json:"children,omitempty"`
		Start    Moment      `json:"start"`
		Since    time.Time   `json:"since"`
	}
	waitMemory struct {
		Since time.Time     `json:"since"`
		Lasts time.Duration `json:"lasts"`
	}
)

// MarshalJSON writes what is known, except the owner itself, whose type a Ledger does not know.
func (l *Ledger[C]) MarshalJSON() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := memory[C]{
		Patience: l.Patience, Moment: l.moment, Viewed: l.viewed, Strays: l.strays, Read: l.read,
		Passed: l.passed.remember(), Distrusted: l.distrusted, Hides: l.hides,
	}
	if len(l.children) > 0 {
		m.Children = make(map[types.UID]entryMemory[C], len(l.children))
	}
	for id, e := range l.children {
		m.Children[id] = entryMemory[C]{
			e.fact.word.remember(), e.fact.gone,
			e.since, e.shown, e.doubt.sent, e.doubt.version,
		}
	}
	for _, n := range l.names {
		m.Names = append(m.Names, nameMemory{n.Namespace, n.Name, n.Sent, n.Bearer, n.open, sets.List(n.settled), n.look.remember()})
	}
	if b := l.list; b.version != "" {
		m.List = &barMemory{b.version, sets.List(b.children), b.start, b.since}
	}
	if !object.IsNil(l.selector) {
		selector := l.selector.String()
		m.Selector = &selector
	}
	return json.Marshal(m)
}

func (w word[C]) remember() *wordMemory[C] {
	if w.at == 0 {
		return nil
	}
	return &wordMemory[C]{w.there, w.child, w.version, w.at}
}

func (w wait) remember() *waitMemory {
	if w == (wait{}) {
		return nil
	}
	return &waitMemory{w.since, w.lasts}
}

// UnmarshalJSON makes l know what MarshalJSON wrote. It is an error if a child has no UID or
// is another one than its fact is about, or if a name is none. Then l does not change.
func (l *Ledger[C]) UnmarshalJSON(data []byte) error {
	var m memory[C]
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	children := make(map[types.UID]*entry[C], len(m.Children))
	for id, e := range m.Children {
		known, err := e.recall(id)
		if err != nil {
			return fmt.Errorf("ledger: children[%s]: %w", id, err)
		}
		children[id] = known
	}
	names := make([]Name, 0, len(m.Names))
	for i, n := range m.Names {
		if err := n.check(); err != nil {
			return fmt.Errorf("ledger: names[%d]: %w", i, err)
		}
		names = append(names, Name{
			NamespacedName: types.NamespacedName{Namespace: n.Namespace, Name: n.Name}, Sent: n.Sent, Bearer: n.Bearer,
			open: n.Open, settled: sets.New(n.Settled...), look: n.Look.recall(),
		})
	}
	if i := object.IndexNil(m.Strays); i >= 0 {
		return fmt.Errorf("ledger: strays[%d] is null", i)
	}
	var selector labels.Selector
	if m.Selector != nil {
		var err error
		if selector, err = labels.Parse(*m.Selector); err != nil {
			return fmt.Errorf("ledger: selector: %w", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Patience, l.moment, l.viewed, l.cached, l.known = m.Patience, m.Moment, m.Viewed, nil, nil
	l.children, l.names, l.owner, l.strays, l.selector = children, names, Owner{}, m.Strays, selector
	l.read, l.passed, l.distrusted = m.Read, m.Passed.recall(), m.Distrusted
	l.hides, l.list = m.Hides, bar{}
	if b := m.List; b != nil {
		l.list = bar{b.Version, sets.New(b.Children...), b.Start, b.Since}
	}
	return nil
}

func (m entryMemory[C]) recall(id types.UID) (*entry[C], error) {
	if id == "" {
		return nil, errors.New("a fact about a child without a UID")
	}
	e := &entry[C]{since: m.Since, shown: m.Shown, doubt: doubt{m.Carried, m.Doubted}}
	if e.fact.gone = m.Gone; m.Word == nil {
		return e, nil
	}
	w := word[C]{m.Word.There, m.Word.Child, m.Word.Version, m.Word.At}
	switch {
	case w.at == 0:
		return nil, errors.New("a word of no moment")
	case w.there && object.IsNil(w.child):
		return nil, errors.New("it is there, and the child is null")
	case w.there && idOf(w.child) != id:
		return nil, fmt.Errorf("the child is %q, another one", idOf(w.child))
	}
	e.fact.word = w
	return e, nil
}

func (m nameMemory) check() error {
	switch {
	case m.Name == "":
		return errors.New("it is empty")
	case m.Bearer > Stranger:
		return fmt.Errorf("%q has the bearer %d, which is none", m.Name, m.Bearer)
	case m.Open <= 0:
		return fmt.Errorf("%q is open %d times", m.Name, m.Open)
	}
	return nil
}

func (m *waitMemory) recall() wait {
	if m == nil {
		return wait{}
	}
	return wait{m.Since, m.Lasts}
}
