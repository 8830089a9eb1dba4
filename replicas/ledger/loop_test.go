// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/ledger"
)

const patience = time.Minute

// A loop is one pass of a controller that uses the Ledger as package controller does.
type loop struct {
	*world
	start    ledger.Moment
	snapshot ledger.Snapshot[kid]
	view     ledger.View[kid]
	ours     []kid         // the owner's children that count as replicas
	held     int           // the number of orphans whose adoption has an unknown result
	left     []ledger.Name // the open names that the pass does not send again
}

func (w *world) aPass() {
	l := &loop{world: w}
	defer func() {
		w.known.Done()
		w.pass.seen, w.pass.gone, w.pass.landed = nil, nil, nil
	}()
	if l.look(); w.err != nil {
		return
	}
	orphans, strays := l.sort()
	isToDo := len(l.ours) != w.want || len(orphans)+len(strays) > 0
	if (l.view.Stale || !w.looked) && isToDo || l.view.Unmet {
		if !l.list() {
			return
		}
		orphans, strays = l.sort()
	}
	l.planned()
	for _, c := range strays {
		l.patch(c, "")
	}
	for _, c := range orphans {
		l.patch(c, "me")
	}
	switch missing := w.want - len(l.ours); {
	case missing-l.held > 0:
		l.create(missing - l.held)
		return
	case missing < 0:
		l.deleteSome(-missing)
	}
	l.lookForDue()
}

// look reads the cache.
func (l *loop) look() {
	l.start, l.viewed = l.known.Start(), l.read
	s := &l.snapshot
	s.Rules = rules
	if l.tells {
		s.Version = numbered(l.read)
	} else {
		s.Newest = numbered(l.newest)
	}
	for _, id := range slices.Sorted(maps.Keys(l.cache)) {
		if c := l.cache[id]; c.Labels["owner"] != "other" {
			s.Children = append(s.Children, c)
		}
	}
	l.believe()
}

func (l *loop) believe() {
	var err error
	if l.view, err = l.known.View(l.start, l.snapshot, l.now); err != nil {
		l.fail("%v", err)
	}
}

// sort stores in l.ours the owner's children that count as replicas. It returns the orphans to adopt and the
// strays to release.
func (l *loop) sort() (orphans, strays []kid) {
	l.ours = nil
	for _, c := range l.view.Children {
		switch {
		case counts(c):
			l.ours = append(l.ours, c)
		case rules.Ours(c):
			strays = append(strays, c)
		case rules.MayCount(c):
			orphans = append(orphans, c)
		}
	}
	return orphans, strays
}

// This method is called before the pass carries out its plan. The method stores in l.pass the children that the
// plan counts, and a copy of the map l.gone.
func (l *loop) planned() {
	l.pass.seen, l.pass.gone, l.pass.landed = map[types.UID]bool{}, maps.Clone(l.gone), map[types.UID]bool{}
	for _, c := range l.ours {
		l.pass.seen[c.UID] = true
	}
}

// list lists the children live, and reports whether the call has succeeded.
func (l *loop) list() bool {
	if l.fault(2) > 0 {
		l.note("the list fails")
		return false
	}
	start := l.known.Start()
	l.crossing()
	list, version := []kid{}, l.last
	for _, id := range slices.Sorted(maps.Keys(l.kids)) {
		if c := l.kids[id]; c.Labels["app"] == "web" {
			list = append(list, c)
		}
	}
	seen := l.clone()
	l.crossing()
	if err := l.known.Listed(start, ledger.List[kid]{Items: list, Version: numbered(version)}, l.snapshot, l.now); err != nil {
		l.fail("%v", err)
	}
	seen.sawAll()
	l.unseen, l.gone = seen.unseen, seen.gone
	clear(l.lied)
	l.looked = true
	l.note("list")
	l.believe()
	return true
}

// patch adopts or releases a child.
func (l *loop) patch(c kid, owner string) {
	start := l.known.Start()
	outcome := l.fault(3)
	l.crossing()
	if outcome == 1 {
		l.note("the patch of %s is lost", c.UID)
		l.held += boolInt(owner == "me")
		return
	}
	is, there := l.kids[c.UID]
	switch {
	case !there && outcome == 0:
		l.known.ObserveDeleted(start, c.UID, l.now)
		l.saw(c.UID)
		l.note("%s to patch is gone", c.UID)
		return
	case there && is.Labels["owner"] == c.Labels["owner"]:
		is = l.change(c.UID, owner, is.Labels["app"])
	}
	l.note("patch %s to %q", c.UID, owner)
	if outcome == 2 {
		l.note("(not answered)")
		l.held += boolInt(owner == "me")
		return
	}
	l.crossing()
	l.told(start, is)
	if counts(is) {
		l.ours = append(l.ours, is)
		l.pass.seen[is.UID] = true
		delete(l.pass.gone, is.UID)
	}
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (l *loop) told(start ledger.Moment, c kid) {
	if delete(l.unseen, c.UID); l.kids[c.UID] == c {
		l.saw(c.UID)
	}
	if err := l.known.Observe(start, c, l.now); err != nil {
		l.fail("%v", err)
	}
}

// create creates the missing children. A name is open if the result of the creation with this name is unknown,
// and no replica with this name is known. If no other object has an open name, create sends the creation with
// this name again, but sends no more creations than children are missing. Each open name takes the place of one
// missing child, even if create does not send its creation again. The remaining missing children get new names.
// If a look shows that a child has an open name, create sends nothing, because the next pass may need no child.
func (l *loop) create(missing int) {
	open := l.known.Open()
	var names []string
	for _, n := range open {
		if !n.IsTaken() && len(names) < missing {
			names = append(names, n.Name)
		}
	}
	if l.lookForDue(names...); len(l.known.Open()) != len(open) {
		return // a lost child has turned up
	}
	for range missing - len(open) {
		l.names++
		names = append(names, fmt.Sprintf("n%02d", l.names))
	}
	l.left = slices.DeleteFunc(open, func(n ledger.Name) bool { return slices.Contains(names, n.Name) })
	for _, name := range names {
		l.send(name)
	}
}

// lookForDue reads each name in the Ledger from the server if the next read of this name is due. The names in the
// parameter are not read, because the caller sends the creations with these names again.
func (l *loop) lookForDue(again ...string) {
	for _, n := range l.known.Names() {
		if n.NextCheck(l.now) > 0 || slices.Contains(again, n.Name) {
			continue
		}
		start := l.known.Start()
		if l.fault(2) > 0 {
			l.note("the look for %s fails", n.Name)
			continue
		}
		l.note("look for %s", n.Name)
		l.find(start, n.NamespacedName)
		l.known.NameChecked(n.NamespacedName, l.now, l.now)
	}
}

// find reads a child by its name, and records the result in the Ledger.
func (l *loop) find(start ledger.Moment, name types.NamespacedName) {
	c, there := l.named(name.Name)
	if !there {
		l.known.NameFree(name)
		return
	}
	is, ours := rules.Holder(c)
	if ours {
		l.told(start, c)
	}
	l.known.NameHeld(name, c.UID, is, ours)
}

// send sends a creation.
func (l *loop) send(n string) {
	name, start := named(n), l.known.Start()
	outcome := l.fault(6)
	l.known.CreateSent(name, l.now)
	l.crossing()
	l.note("create %s (%d)", n, outcome)
	switch outcome {
	case 0, 2, 3: // the creation takes effect, unless the name is taken
		c, fresh := l.add(n, "me")
		if fresh {
			l.created()
		}
		l.crossing()
		switch {
		case outcome == 0 && fresh:
			is, ours := rules.Holder(c)
			l.known.NameHeld(name, c.UID, is, ours)
			l.told(start, c)
		case outcome == 0: // the name is taken
			l.known.CreateRejected(name)
			l.find(l.known.Start(), name)
		case outcome == 2: // the creation gets no answer, so the controller reads the name from the server
			l.find(l.known.Start(), name)
		}
	case 1: // the request is lost
		l.find(l.known.Start(), name)
	case 4: // the creation takes effect later
		l.late = append(l.late, request{name: n, most: l.want})
	case 5:
		l.known.CreateRejected(name)
	}
}

// created is called after a creation. It counts the children that the controller can know, and checks that there are
// at most as many as wanted. A child with an open name that the pass does not send again does not count: it can be
// there whether or not the pass creates others.
func (l *loop) created() {
	left := map[types.UID]bool{}
	for _, n := range l.left {
		if c, there := l.named(n.Name); there {
			left[c.UID] = true
		}
	}
	if n := l.mustKnow(left); n > l.want {
		l.fail("%d children after a creation, and %d are wanted", n, l.want)
	}
}

// deleteSome deletes surplus children. Children with an unanswered deletion are deleted first. If there are more
// children with an unanswered deletion than surplus children, nothing is deleted. In this case, deleteSome only reads
// those children whose deletion can no longer take effect.
func (l *loop) deleteSome(tooMany int) {
	sent := l.known.UnansweredCalls()
	isDoubted := func(c kid) bool { return !sent[c.UID].IsZero() }
	doubts := slices.DeleteFunc(slices.Clone(l.ours), func(c kid) bool { return !isDoubted(c) })
	if len(doubts) > tooMany {
		for _, c := range doubts {
			if l.now.Sub(sent[c.UID]) > ledger.MaxRequestAge && !l.lookForDoubted(c) {
				return
			}
		}
		return
	}
	victims := slices.Clone(l.ours)
	slices.SortStableFunc(victims, func(a, b kid) int { return boolInt(isDoubted(b)) - boolInt(isDoubted(a)) })
	for _, c := range victims[:tooMany] {
		if !l.delete(c) {
			return
		}
	}
}

// lookForDoubted reads a child after its unanswered deletion can no longer take effect. The Ledger then forgets the
// deletion. If the read fails, the Ledger keeps the deletion, and the result is false.
func (l *loop) lookForDoubted(c kid) bool {
	start := l.known.Start()
	if l.fault(2) > 0 {
		l.note("the look for %s fails", c.UID)
		return false
	}
	l.note("look for %s", c.UID)
	l.known.CallAnswered(c.UID)
	if _, there := l.kids[c.UID]; !there {
		l.isGone(start, c.UID)
	}
	return true
}

func (l *loop) isGone(start ledger.Moment, id types.UID) {
	l.known.ObserveDeleted(start, id, l.now)
	l.known.CallAnswered(id)
	l.saw(id)
}

// delete deletes a child, and reports whether the pass may delete more children.
func (l *loop) delete(c kid) (goOn bool) {
	l.deleting(c)
	start, version := l.known.Start(), ""
	if l.ready {
		version = c.ResourceVersion
	}
	outcome := l.fault(6)
	l.crossing()
	l.note("delete %s (%d)", c.UID, outcome)
	is, there := l.kids[c.UID]
	isOther := there && version != "" && version != is.ResourceVersion
	switch {
	case outcome == 4:
		l.late = append(l.late, request{id: c.UID, version: version})
		l.known.CallUnanswered(c.UID, ledger.Delete, version, l.now)
		return true
	case outcome == 1:
		l.known.CallUnanswered(c.UID, ledger.Delete, version, l.now)
		return true
	case outcome == 5 && there: // another server answers NotFound
		l.lied[c.UID] = true
		l.known.ObserveDeleted(start, c.UID, l.now)
		l.known.CallAnswered(c.UID)
		return true
	case isOther:
		l.note("(conflict)")
		l.list()
		return false
	case there:
		l.killed[c.UID] = true
		l.remove(c.UID)
	}
	l.crossing()
	if outcome == 3 {
		l.known.CallUnanswered(c.UID, ledger.Delete, version, l.now)
		return true
	}
	l.isGone(start, c.UID)
	return true
}

// deleting is called before a deletion. It checks that enough children will remain, even if all deletions in
// flight of the current process take effect. The plan may count a child that others have removed or changed
// without the controller's knowledge. The check counts this child as a remaining child.
func (l *loop) deleting(victim kid) {
	left := 0
	for id, c := range l.kids {
		isSent := slices.ContainsFunc(l.late, func(r request) bool {
			return r.id == id && !r.former && (r.version == "" || r.version == c.ResourceVersion)
		})
		if counts(c) && id != victim.UID && !isSent {
			left++
		}
	}
	// unknown is the number of children that the plan counts, but that others have removed or changed without the
	// controller's knowledge.
	unknown := 0
	for id := range l.pass.seen {
		if c, there := l.kids[id]; (!there || !counts(c)) && l.pass.gone[id] == 0 && !l.killed[id] {
			unknown++
		}
	}
	if left+unknown < l.want {
		l.fail("%d children are left after the deletion of %s, and %d are gone that nothing has told of; %d are wanted", left, victim.UID, unknown, l.want)
	}
}
