// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/ledger"
)

// A world consists of a server, a cache and a controller with a Ledger. It is so small that a test can try every
// sequence of actions.
type world struct {
	model
	now time.Time

	kids   map[types.UID]kid // the children on the server
	last   int               // the newest version on the server
	names  int               // the number of names that the controller has chosen
	uids   int
	events []event   // the events that the cache has not received yet
	late   []request // the requests that may still take effect
	past   *world    // the older state to which the cache can go back; only the fields kids and last are set

	cache  map[types.UID]kid
	read   int  // the version of the cache
	viewed int  // the version of the cache at the start of the last pass
	newest int  // the newest version that the cache has received since the last restart
	broken bool // whether the watch has ended, so that the cache must be filled again

	known  *ledger.Ledger[kid]
	looked bool // false after a restart, until the controller has made a live list

	// The next fields record what the controller can know. The map world.unseen contains the existing children that
	// the controller could not notice yet. The map world.lied contains the existing children whose deletion was
	// answered with NotFound, until a live list shows them. The map world.gone contains the children that the controller knows to be
	// gone, or knows not to count as replicas. The map world.killed contains the children that the current process
	// has deleted, with or without an answer.
	unseen, lied, killed map[types.UID]bool
	gone                 map[types.UID]int // each value is the version at which the child is known to be gone
	adopts               bool              // whether there are or were orphans

	pass struct {
		seen   map[types.UID]bool // the children that the plan counts
		gone   map[types.UID]int  // a copy of the map world.gone, made at the time of the plan
		landed map[types.UID]bool // the children that late requests have created since the plan
	}
	choose func(n int) int
	did    string
	err    error
}

// An event is a change that the watch reports to the cache.
type event struct {
	kid  kid
	gone bool
	at   int
}

// A request is a call that was sent and may take effect later.
type request struct {
	name string    // the name in a creation; "" for a deletion
	id   types.UID // the UID in a deletion; "" for a creation
	// version is the resourceVersion in the precondition of a deletion, or "" if there is none.
	version string
	most    int // the largest number of wanted children since the request was sent
	former  bool
}

func (w *world) clone() *world {
	c := *w
	c.kids, c.cache = maps.Clone(w.kids), maps.Clone(w.cache)
	c.unseen, c.lied, c.gone, c.killed = maps.Clone(w.unseen), maps.Clone(w.lied), maps.Clone(w.gone), maps.Clone(w.killed)
	c.events, c.late = slices.Clone(w.events), slices.Clone(w.late)
	c.known = w.known.Clone()
	c.pass.seen, c.pass.gone, c.pass.landed = nil, nil, nil
	return &c
}

// describe returns a text that identifies the state of the world. If two worlds have the same text, explore visits
// only one of them.
func (w *world) describe() string {
	var b strings.Builder
	fmt.Fprint(&b, w.model, w.last, w.names, w.uids, w.read, w.viewed, w.newest, w.broken, w.looked, w.adopts, w.late)
	for _, kids := range []map[types.UID]kid{w.kids, w.cache} {
		for _, id := range slices.Sorted(maps.Keys(kids)) {
			b.WriteString(describeKid(kids[id]))
		}
		b.WriteByte('|')
	}
	for _, e := range w.events {
		fmt.Fprint(&b, describeKid(e.kid), e.gone, e.at, " ")
	}
	for _, ids := range []map[types.UID]bool{w.unseen, w.lied, w.killed} {
		b.WriteByte('|')
		for _, id := range slices.Sorted(maps.Keys(ids)) {
			b.WriteString(string(id))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.gone)) {
		fmt.Fprint(&b, id, w.gone[id])
	}
	if w.past != nil {
		fmt.Fprint(&b, w.past.last)
		for _, id := range slices.Sorted(maps.Keys(w.past.kids)) {
			b.WriteString(describeKid(w.past.kids[id]))
		}
	}
	b.WriteString(w.known.Knows(w.now))
	return b.String()
}

func describeKid(c kid) string {
	return string(c.UID) + "/" + c.Name + "@" + c.ResourceVersion + c.Labels["owner"] + c.Labels["app"] + " "
}

func (w *world) note(format string, args ...any) { w.did += " " + fmt.Sprintf(format, args...) }

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func numbered(version int) string {
	if version == 0 {
		return ""
	}
	return strconv.Itoa(version)
}

// made returns a new object for a child, with a new version. Existing objects are never modified.
func (w *world) made(id types.UID, name, owner, app string) kid {
	w.last++
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: id, Namespace: "shop", Name: name, ResourceVersion: numbered(w.last),
		Labels: map[string]string{"owner": owner, "app": app},
	}}
}

// counts reports whether a child counts as a replica of the owner.
func counts(c kid) bool { return rules.Ours(c) && rules.MayCount(c) }

func (w *world) named(name string) (c kid, there bool) {
	for _, c := range w.kids {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// add creates a child on the server. If a child with the same name exists, add returns the existing child, and
// fresh is false.
func (w *world) add(name, owner string) (c kid, fresh bool) {
	if c, there := w.named(name); there {
		return c, false
	}
	w.uids++
	c = w.made(uid(w.uids), name, owner, "web")
	w.put(c)
	return c, true
}

func uid(n int) types.UID { return types.UID(fmt.Sprintf("u%02d", n)) }

func (w *world) put(c kid) {
	w.kids[c.UID] = c
	w.events = append(w.events, event{kid: c, at: w.last})
}

// change sets the labels of a child. The child gets a new version even if its labels stay the same.
func (w *world) change(id types.UID, owner, app string) kid {
	c := w.made(id, w.kids[id].Name, owner, app)
	w.put(c)
	return c
}

func (w *world) remove(id types.UID) {
	w.last++
	w.events = append(w.events, event{kid: w.kids[id], gone: true, at: w.last})
	delete(w.kids, id)
	delete(w.unseen, id)
}

// land lets the first late request take effect.
func (w *world) land() {
	r := w.late[0]
	w.late = w.late[1:]
	if r.name == "" {
		if c, there := w.kids[r.id]; there && (r.version == "" || r.version == c.ResourceVersion) {
			w.killed[r.id] = w.killed[r.id] || !r.former
			w.remove(r.id)
		}
		return
	}
	c, fresh := w.add(r.name, "me")
	if !fresh {
		return
	}
	if w.pass.landed != nil {
		w.pass.landed[c.UID] = true
	}
	if r.former {
		w.unseen[c.UID] = true
		return
	}
	if n := w.mustKnow(nil); n > r.most && !w.adopts {
		w.fail("a creation landed late, and now there are %d children, though at most %d were wanted since", n, r.most)
	}
}

// mustKnow returns the number of existing children that count as replicas and that the controller can know. The
// children in the parameter do not count.
func (w *world) mustKnow(except map[types.UID]bool) (n int) {
	for id, c := range w.kids {
		if counts(c) && !w.unseen[id] && !w.lied[id] && !except[id] {
			n++
		}
	}
	return n
}

// deliver gives the cache the next event.
func (w *world) deliver() {
	e := w.events[0]
	w.events = w.events[1:]
	w.read, w.newest = e.at, max(w.newest, e.at)
	delete(w.unseen, e.kid.UID)
	if id := e.kid.UID; e.gone || !counts(e.kid) {
		w.gone[id] = max(w.gone[id], e.at)
	} else if e.at > w.gone[id] {
		delete(w.gone, id)
	}
	if !e.gone {
		w.cache[e.kid.UID] = e.kid
		return
	}
	delete(w.cache, e.kid.UID)
	w.known.ObserveLeaving(e.kid.UID)
}

// relist fills the cache again from the server. If a child was created and deleted in the meantime, no event
// reports this child.
func (w *world) relist() {
	for _, id := range slices.Sorted(maps.Keys(w.cache)) {
		if _, there := w.kids[id]; !there {
			w.known.ObserveLeaving(id)
		}
	}
	for _, c := range w.kids {
		version, _ := strconv.Atoi(c.ResourceVersion)
		w.newest = max(w.newest, version)
	}
	for n := 1; n <= w.uids; n++ {
		_, had := w.cache[uid(n)]
		_, there := w.kids[uid(n)]
		if w.tells || had || there { // otherwise the controller cannot notice that the child was created and deleted
			w.saw(uid(n))
		}
	}
	w.cache, w.events, w.read, w.broken = maps.Clone(w.kids), nil, w.last, false
}

// saw records that the controller has seen the current state of a child.
func (w *world) saw(id types.UID) {
	delete(w.unseen, id)
	if c, there := w.kids[id]; there && counts(c) {
		delete(w.gone, id)
	} else {
		w.gone[id] = w.last
	}
}

// sawAll records that the controller has seen the current state of all children.
func (w *world) sawAll() {
	for n := 1; n <= w.uids; n++ {
		w.saw(uid(n))
	}
}

// An action is one thing that may happen in a state.
type action struct {
	name string
	do   func(*world)
}

// actions returns all actions that may happen in the current state.
func (w *world) actions() (all []action) {
	all = append(all, action{"a pass", (*world).aPass})
	all = append(all, w.others()...)
	if w.scales > 0 {
		for _, want := range []int{w.want - 1, w.want + 1} {
			if want >= 0 && want <= 3 {
				all = append(all, action{fmt.Sprint("scale to ", want), func(w *world) { w.scales--; w.scale(want) }})
			}
		}
	}
	if w.jumps > 0 {
		all = append(all, action{"more than Patience", func(w *world) { w.jumps--; w.now = w.now.Add(patience + time.Second) }},
			action{"more than Landing", func(w *world) { w.jumps--; w.late, w.now = nil, w.now.Add(ledger.MaxRequestAge+time.Second) }})
	}
	if w.restarts > 0 {
		all = append(all, action{"another term", func(w *world) { w.restarts--; w.restart() }})
	}
	if w.backs > 0 && w.past == nil {
		all = append(all, action{"a server falls behind", func(w *world) { w.past = &world{kids: maps.Clone(w.kids), last: w.last} }})
	}
	if w.backs > 0 && w.past != nil && w.past.last < w.viewed { // the cache goes back only if the older state is older than the cache at the start of the last pass
		all = append(all, action{"the cache goes back", func(w *world) { w.backs--; w.goBack() }})
	}
	return all
}

// others returns the actions of the watch, of late requests and of users. These actions may also happen during a pass.
func (w *world) others() (all []action) {
	if len(w.events) > 0 && !w.broken {
		all = append(all, action{"an event", (*world).deliver})
	}
	if len(w.events) > 0 || w.broken {
		all = append(all, action{"the cache is filled anew", (*world).relist})
	}
	if len(w.late) > 0 {
		all = append(all, action{"a request lands", (*world).land})
	}
	if w.users == 0 {
		return all
	}
	for _, id := range slices.Sorted(maps.Keys(w.kids)) {
		all = append(all, action{"a user deletes " + string(id), func(w *world) { w.users--; w.remove(id) }})
		c := w.kids[id]
		if !counts(c) {
			continue
		}
		all = append(all,
			action{"a user orphans " + string(id), func(w *world) { w.users--; w.adopts = true; w.change(id, "", "web") }},
			action{"a user relabels " + string(id), func(w *world) { w.users--; w.change(id, "me", "db") }},
			action{"a user touches " + string(id), func(w *world) { w.users--; w.change(id, "me", "web") }})
	}
	return all
}

func (w *world) scale(want int) {
	w.want = want
	for i := range w.late {
		w.late[i].most = max(w.late[i].most, want)
	}
}

// restart starts a new process with an empty Ledger. The cache keeps its content.
func (w *world) restart() {
	w.known, w.looked = &ledger.Ledger[kid]{Patience: patience}, false
	w.newest = 0
	clear(w.lied)
	clear(w.killed)
	for i := range w.late {
		w.late[i].former = true
	}
	w.sawAll() // the new process makes a live list before it changes anything, so it can know all children
}

// goBack fills the cache with the older state in w.past. If the cache does not report its version, goBack calls
// CacheRegressed, as a controller does when an event shows an older version of a child than before.
func (w *world) goBack() {
	for _, id := range slices.Sorted(maps.Keys(w.cache)) {
		if _, there := w.past.kids[id]; !there {
			w.known.ObserveLeaving(id)
		}
	}
	if !w.tells {
		w.known.CacheRegressed()
	}
	w.cache, w.events, w.read, w.broken = maps.Clone(w.past.kids), nil, w.past.last, true
}

// crossing is called while a call is in progress. It may perform one action of the watch, of a late request or of
// a user. The possible actions are the result of w.others.
func (w *world) crossing() {
	if w.crossings == 0 {
		return
	}
	others := w.others()
	if n := w.choose(1 + len(others)); n > 0 {
		w.crossings--
		w.note("(meanwhile %s)", others[n-1].name)
		others[n-1].do(w)
	}
}

// fault chooses one of n outcomes of a call. The outcome 0 means that the call succeeds.
func (w *world) fault(n int) int {
	if w.faults == 0 {
		return 0
	}
	outcome := w.choose(n)
	if outcome > 0 {
		w.faults--
	}
	return outcome
}
