package replicastest

import (
	"fmt"
	"strings"
	"time"
)

// A Rule programs the failure of calls. The zero Rule lets every call time out.
type Rule struct {
	// Verb, Kind and Name say which calls are meant; what is "" is any.
	Verb, Kind, Name string
	// Skip is how many of them are answered first.
	Skip int
	// Times is how many fail then; 0: all of them.
	Times int
	// With is how they fail: Timeout if it is left out. Err, if it is not nil, is
	// the error instead.
	With Failure
	Err  error
	// Landed lets the calls have their effect: only the answer is lost.
	Landed bool
	// Late, if it is above 0, is how long after the call it takes effect, when
	// nobody waits for it. It is not for Landed.
	Late time.Duration
}

// Fail lets calls fail from now on. If several rules mean a call, the first that was
// given decides, as long as it has some left. Fault is not asked about such a call.
func (c *ClientOf[O, C]) Fail(rules ...Rule) {
	for _, r := range rules {
		c.rules = append(c.rules, &programmed{Rule: r})
	}
}

// Heal ends what Fail began.
func (c *ClientOf[O, C]) Heal() { c.rules = nil }

// programmed is a Rule, and how many calls it has met.
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

func (p *programmed) fault(call Call) Fault {
	err := p.Err
	if err == nil {
		err = p.With.Of(call)
	}
	if p.Landed {
		return Fault{After: err}
	}
	return Fault{Before: err, Late: p.Late}
}

// faultOf is what goes wrong with a request.
func (c *ClientOf[O, C]) faultOf(call Call) Fault {
	for _, rule := range c.rules {
		if rule.means(call) {
			return rule.fault(call)
		}
	}
	if c.Fault == nil {
		return Fault{}
	}
	return c.Fault(call)
}

// A Record is a list of calls in their order.
type Record struct{ Calls []Answered }

// An Answered is a call with what came back; nil: it succeeded.
type Answered struct {
	Call
	Err error
}

// Record returns a record of the calls from now on.
func (c *ClientOf[O, C]) Record() *Record {
	r := &Record{}
	c.records = append(c.records, r)
	return r
}

// Count returns how many calls of a verb there were, failed or not; of "", all.
func (r *Record) Count(verb string) (n int) {
	for _, call := range r.calls() {
		if verb == "" || call.Verb == verb {
			n++
		}
	}
	return n
}

// Failed returns the calls that failed.
func (r *Record) Failed() (failed []Answered) {
	for _, call := range r.calls() {
		if call.Err != nil {
			failed = append(failed, call)
		}
	}
	return failed
}

// String returns a line for each call.
func (r *Record) String() string {
	var b strings.Builder
	for _, call := range r.calls() {
		fmt.Fprintln(&b, call)
	}
	return b.String()
}

func (r *Record) calls() []Answered {
	if r == nil {
		return nil
	}
	return r.Calls
}

// String returns the call, and the error if there was one:
// "create Pod default/web-x7k2p: the request did not complete in time".
func (a Answered) String() string {
	if a.Err == nil {
		return a.Call.String()
	}
	return a.Call.String() + ": " + a.Err.Error()
}

// String returns the call as "create Pod default/web-x7k2p".
func (c Call) String() string {
	text := c.Verb + " " + c.Kind + " " + c.Namespace
	if c.Name != "" {
		text += "/" + c.Name
	}
	if c.DryRun {
		text += " (dry run)"
	}
	return text
}
