// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"hash/fnv"
	"path"
	"slices"
	"strings"
	"time"
)

// A Fault is an effect on a call, or on watches.
type Fault string

const (
	// LoseAnswer sends the call. Instead of the answer, the client gets a broken connection.
	LoseAnswer Fault = "answer lost"
	// LandLate breaks the connection at once. The server receives the call after the delay.
	LandLate Fault = "lands late"
	// Refuse does not send the call. The client gets the rule's status, with a Retry-After of the delay. If
	// the status is 0, the client gets a broken connection.
	Refuse Fault = "refused"
	// OldList answers a list of the server's cache with the state before the delay, or with the oldest state that the
	// Faults has seen. It spoils only lists with resourceVersion 0, because a server answers all others with
	// newer states. An informer that wants a watch with initial events is told to list.
	OldList Fault = "old list"
	// StopProcess ends the process at this call; see Faults.Run. The call reaches the server after the delay,
	// when the next process may have begun.
	StopProcess Fault = "process stopped"
	// WatchLate delays each event of the watches by the delay.
	WatchLate Fault = "watch late"
	// WatchHang holds all events of the watches back until the delay has passed, or for ever if the
	// delay is 0.
	WatchHang Fault = "watch hangs"
	// WatchReplay sends all former events of the watches again after the delay.
	WatchReplay Fault = "watch replayed"
	// WatchEnd ends the watches after the delay: with an event of type ERROR that contains the rule's
	// status, such as 410, or without such an event if the status is 0.
	WatchEnd Fault = "watch ended"
)

// A Rule says which calls meet which fault. Empty fields mean any call that the fault can spoil: writes for
// LoseAnswer and LandLate, lists for OldList, and each call for Refuse and StopProcess.
//
// The four faults of watches begin with a watch if the verb is watch or empty. If this watch sends initial
// events, the fault begins after them. With any other verb, the fault begins when a call with this verb is
// sent, and spoils all watches of the same resource that are open then. A call may start several faults of watches,
// and meets at most one other fault, which is that of the first rule that applies.
type Rule struct {
	Verb     string // such as create, update, patch, delete, get, list or watch
	Resource string // such as pods or pods/status
	Name     string // of the object, or a pattern of path.Match; a list and a watch have no name
	Process  int    // 1 for the first process of Run; 0 for each

	Skip  int     // number of calls that pass before the first fault
	Times int     // highest number of faults; 0 means no limit
	Share float64 // the probability of the fault, drawn from the seed for each call; 0 means always

	Fault  Fault
	Delay  time.Duration
	Status int // for Refuse and WatchEnd
}

var (
	verbs   = []string{"create", "update", "patch", "delete", "deletecollection", "get", "list", "watch"}
	writes  = verbs[:5]
	watches = verbs[7:]
	spoiled = map[Fault][]string{LoseAnswer: writes, LandLate: writes, Refuse: verbs, OldList: verbs[6:7], StopProcess: verbs, WatchLate: watches, WatchHang: watches, WatchReplay: watches, WatchEnd: watches}
)

func (r Rule) spoilsWatches() bool { return strings.HasPrefix(string(r.Fault), "watch ") }

func (r Rule) check() error {
	_, badName := path.Match(r.Name, "")
	switch {
	case spoiled[r.Fault] == nil:
		return fmt.Errorf("there is no fault %q", r.Fault)
	case r.Verb != "" && !slices.Contains(verbs, r.Verb):
		return fmt.Errorf("there is no verb %q", r.Verb)
	case r.Verb != "" && !r.spoilsWatches() && !slices.Contains(spoiled[r.Fault], r.Verb):
		return fmt.Errorf("the fault %q cannot spoil the verb %s", r.Fault, r.Verb)
	case badName != nil:
		return fmt.Errorf("the name %q is no pattern", r.Name)
	case r.Skip < 0 || r.Times < 0 || r.Process < 0 || r.Delay < 0:
		return fmt.Errorf("a number or the delay is negative")
	case !(r.Share >= 0 && r.Share <= 1):
		return fmt.Errorf("the share %v is not between 0 and 1", r.Share)
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		return fmt.Errorf("the status %d is no error", r.Status)
	}
	return nil
}

// matches reports whether a call has the verb, the resource and the name of the rule.
func (r Rule) matches(c *Call) bool {
	isNamed, _ := path.Match(r.Name, c.Name)
	isSpoiled := r.Verb != "" || slices.Contains(spoiled[r.Fault], c.Verb)
	is := func(wanted, actual string) bool { return wanted == "" || wanted == actual }
	return isSpoiled && is(r.Verb, c.Verb) && is(r.Resource, c.Resource) && (r.Name == "" || isNamed) && (r.Process == 0 || r.Process == c.Process)
}

// strikes reports whether the n-th call that matches the rule meets the fault. Before, done calls have met it. The
// result depends on nothing else, so the order of other calls does not matter.
func (r Rule) strikes(seed uint64, number, n, done int) bool {
	if n <= r.Skip || r.Times > 0 && done >= r.Times {
		return false
	}
	return r.Share == 0 || draw(seed, number, n) < r.Share
}

// draw returns a number from 0 to 1 that depends only on its arguments.
func draw(seed uint64, of ...int) float64 {
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, seed, of)
	mixed := hash.Sum64()
	mixed = (mixed ^ mixed>>33) * 0xff51afd7ed558ccd // the last bytes must reach the high bits
	return float64((mixed^mixed>>29)>>11) / (1 << 53)
}

// text says which calls meet which fault, for reports.
func (r Rule) text() string {
	text := strings.Join(strings.Fields(r.Verb+" "+r.Resource+" "+r.Name), " ")
	if r.Process > 0 {
		text += fmt.Sprint(" of process ", r.Process)
	}
	text += ": " + string(r.Fault)
	if r.Status != 0 {
		text += fmt.Sprint(" ", r.Status)
	}
	if r.Delay != 0 {
		text += fmt.Sprint(" ", r.Delay)
	}
	return strings.TrimLeft(text, ": ")
}

// Minute returns the rules of one bad minute for an operator, given the resources of its owners and children, such as
// "workerpools" and "workers". The seeds 0 to 9 give ten kinds of bad minutes. Later seeds give the same kinds, and
// also begin them later.
func Minute(seed uint64, owners, children string) []Rule {
	late := time.Duration(2000+3000*draw(seed, 1)) * time.Millisecond
	nth := 0
	if seed > 9 {
		nth = int(draw(seed, 2) * 3)
	}
	at := func(verb string, f Fault, delay time.Duration) Rule {
		return Rule{Verb: verb, Resource: children, Skip: nth, Times: 1, Fault: f, Delay: delay}
	}
	often := func(verb, resource string, f Fault, status int, retryAfter time.Duration) Rule {
		return Rule{Verb: verb, Resource: resource, Share: 0.5, Times: 4, Fault: f, Status: status, Delay: retryAfter}
	}
	next := func(verb string, f Fault) Rule {
		return Rule{Verb: verb, Resource: children, Process: 2, Times: 1, Fault: f, Delay: late}
	}
	return [][]Rule{
		{at("create", WatchHang, late), at("create", LoseAnswer, 0)},
		{at("delete", WatchHang, late), at("delete", LoseAnswer, 0)},
		{{Resource: children, Fault: WatchLate, Delay: late / 2}},
		{{Resource: owners, Fault: WatchLate, Delay: late / 2}},
		{at("create", StopProcess, 0), next("list", OldList), next("watch", WatchHang)},
		{at("create", WatchHang, late), at("create", StopProcess, 0)},
		{at("create", LandLate, late), at("delete", LandLate, late)},
		{at("create", WatchReplay, late), often("", children, LoseAnswer, 0, 0)},
		{often("create", children, Refuse, 429, time.Second), often("delete", children, Refuse, 500, 0), often("", owners+"/status", Refuse, 409, 0)},
		{at("create", WatchEnd, 0), at("delete", WatchEnd, 0), {Verb: "watch", Resource: children, Skip: 1, Times: 1, Fault: Refuse, Status: 410}, at("create", LoseAnswer, 0)},
	}[seed%10]
}
