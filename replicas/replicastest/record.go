// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package replicastest

import (
	"fmt"
	"strings"
	"time"
)

// A Rule says which calls fail, and how they fail. The zero Rule makes every call time out.
type Rule struct {
	// Verb, Kind and Name select the calls. An empty field matches every call.
	Verb, Kind, Name string
	// Skip is the number of selected calls that the Rule ignores at first.
	Skip int
	// Times is the number of selected calls that fail after the skipped ones. 0 means all of them.
	Times int
	// Err is the error that the call returns. The default is a timeout.
	Err error
	// Landed makes the calls take effect, so only their responses are lost.
	Landed bool
	// Late is the delay after which a failed call still takes effect. 0 means never. It is ignored if Landed is set.
	Late time.Duration
}

// Fail makes later calls fail according to the rules, which replace all earlier ones, so Fail without arguments removes
// them. The first active rule that selects a call decides, and Fault is not called. A rule is inactive while it skips
// calls and, if its Times is positive, after that number of calls has failed.
func (c *Client[O, C]) Fail(rules ...Rule) {
	c.rules = nil
	for _, r := range rules {
		c.rules = append(c.rules, &programmed{Rule: r})
	}
}

// programmed holds a Rule and the number of calls that it has selected so far.
type programmed struct {
	Rule
	met int
}

func (p *programmed) means(call Call) bool {
	if p.Verb != "" && p.Verb != call.Verb || p.Kind != "" && p.Kind != call.Kind || p.Name != "" && p.Name != call.Name {
		return false
	}
	p.met++
	return p.met > p.Skip && (p.Times <= 0 || p.met <= p.Skip+p.Times)
}

func (p *programmed) fault() Fault {
	err := p.Err
	if err == nil {
		err = timeout()
	}
	if p.Landed {
		return Fault{After: err}
	}
	return Fault{Before: err, Late: p.Late}
}

func (c *Client[O, C]) faultOf(call Call) Fault {
	for _, rule := range c.rules {
		if rule.means(call) {
			return rule.fault()
		}
	}
	if c.Fault == nil {
		return Fault{}
	}
	return c.Fault(call)
}

// A Record is a list of calls, oldest first.
type Record struct{ Calls []Call }

// Record returns a Record to which the Client adds all later calls.
func (c *Client[O, C]) Record() *Record {
	r := &Record{}
	c.records = append(c.records, r)
	return r
}

// Count returns the number of calls with this verb, including those that failed. Count("") counts all calls.
func (r *Record) Count(verb string) (n int) {
	for _, call := range r.calls() {
		if verb == "" || call.Verb == verb {
			n++
		}
	}
	return n
}

// Failed returns the calls that failed.
func (r *Record) Failed() (failed []Call) {
	for _, call := range r.calls() {
		if call.Err != nil {
			failed = append(failed, call)
		}
	}
	return failed
}

// String returns one line for each call.
func (r *Record) String() string {
	var b strings.Builder
	for _, call := range r.calls() {
		fmt.Fprintln(&b, call)
	}
	return b.String()
}

func (r *Record) calls() []Call {
	if r == nil {
		return nil
	}
	return r.Calls
}

// String describes the call and the call's Err, for example "create Pod default/web-x7k2p: the
// request did not complete in time".
func (c Call) String() string {
	text := c.Verb + " " + c.Kind + " " + c.Namespace
	if c.Name != "" {
		text += "/" + c.Name
	}
	if c.Subresource != "" {
		text += "/" + c.Subresource
	}
	if c.DryRun {
		text += " (dry run)"
	}
	if c.Err != nil {
		text += ": " + c.Err.Error()
	}
	return text
}
