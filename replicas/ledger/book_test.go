// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/ledger"
)

type kid = *metav1.PartialObjectMetadata

// kidOf returns the child that a text describes. The text a@5 describes a child with the name a, the UID a and the
// resourceVersion 5. The text b/a@5 describes a child with the UID b and the name a. Without signs at the end of the
// text, the owner controls the child, and the child matches the selector. The sign ? means an orphan, ! means a child
// of another owner, ~ means a child that does not match the selector, and - means a child that is being deleted.
func kidOf(text string) kid {
	is := strings.TrimRight(text, "?!~-")
	signs := text[len(is):]
	name, version, _ := strings.Cut(is, "@")
	uid, name, ok := strings.Cut(name, "/")
	if !ok {
		name = uid
	}
	c := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(uid), Namespace: "shop", Name: name, ResourceVersion: version,
		Labels: map[string]string{"app": "web", "owner": "me", "text": text},
	}}
	switch {
	case strings.Contains(signs, "?"):
		c.Labels["owner"] = ""
	case strings.Contains(signs, "!"):
		c.Labels["owner"] = "other"
	}
	if strings.Contains(signs, "~") {
		c.Labels["app"] = "db"
	}
	if strings.Contains(signs, "-") {
		c.DeletionTimestamp = &metav1.Time{Time: began}
	}
	return c
}

func kidsOf(texts []string) (kids []kid) {
	for _, text := range texts {
		kids = append(kids, kidOf(text))
	}
	return kids
}

var rules = ledger.Rules[kid]{
	Ours:     func(c kid) bool { return c.Labels["owner"] == "me" },
	MayCount: func(c kid) bool { return c.Labels["app"] == "web" && c.Labels["owner"] != "other" },
	Active:   func(c kid) bool { return c.DeletionTimestamp == nil },
}

// uidOf returns the UID that a text describes. The text "/" describes the empty UID.
func uidOf(text string) types.UID { return types.UID(strings.Trim(text, "/")) }

var began = time.Unix(1_000_000, 0)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: name}
}

// A book runs a list of commands on a Ledger. This list is called a story, and each line of the story is a
// command. The text after => is the expected output of the command.
type book struct {
	*ledger.Ledger[kid]
	now   time.Time
	start ledger.Moment            // the start of the current pass
	calls map[string]ledger.Moment // the start of each call, by the name of the call; a later command records the answer
	cache ledger.Snapshot[kid]
}

func play(t *testing.T, story string) {
	t.Helper()
	b := &book{Ledger: &ledger.Ledger[kid]{}, now: began, calls: map[string]ledger.Moment{}}
	b.cache.Selector, b.cache.Rules = labels.SelectorFromSet(labels.Set{"app": "web"}), rules
	for line := range strings.Lines(strings.TrimSpace(story)) {
		command, want, _ := strings.Cut(strings.TrimSpace(line), "=>")
		require.Equal(t, strings.TrimSpace(want), b.do(strings.Fields(command)), "%s, in\n%s", command, story)
	}
}

// began returns the words without the name of a call, and the Moment at which the call began. If the command ends
// with "of" and the name of a call, this call began earlier. Otherwise, the call begins now.
func (b *book) began(words []string) ([]string, ledger.Moment) {
	if n := len(words); n > 2 && words[n-2] == "of" {
		return words[:n-2], b.calls[words[n-1]]
	}
	return words, b.Start()
}

// do runs one command, and returns its output.
func (b *book) do(words []string) string {
	words, args := words[:1], words[1:]
	switch command := words[0]; command {
	case "begin": // a pass begins to read the cache; a later "old" command sets the content of the cache
		b.start = b.Start()
	case "call":
		b.calls[args[0]] = b.Start()
	case "cache", "old": // the arguments are the version and the content of the cache
		if command == "cache" || b.start == 0 {
			b.start = b.Start()
		}
		b.cache.Version, b.cache.Newest, _ = strings.Cut(strings.TrimSuffix(args[0], ":"), "/")
		b.cache.Children = kidsOf(args[1:])
		return b.view()
	case "again":
		return b.view()
	case "selector":
		b.cache.Selector = labels.SelectorFromSet(labels.Set{"app": args[0]})
	case "done":
		b.Done()
	case "wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return err.Error()
		}
		b.now = b.now.Add(d)
	default:
		return b.tell(command, args)
	}
	return ""
}

func (b *book) tell(command string, args []string) string {
	switch command {
	case "told":
		args, start := b.began(args)
		return errText(b.Observe(start, kidOf(args[0]), b.now))
	case "created":
		args, start := b.began(args)
		return errText(b.Created(start, kidOf(args[0]), b.now))
	case "deleted":
		b.Deleted(uidOf(args[0]), b.now)
	case "gone":
		args, start := b.began(args)
		b.ObserveDeleted(start, uidOf(args[0]), b.now)
	case "left":
		b.ObserveLeaving(uidOf(args[0]))
	case "list":
		args, start := b.began(args)
		return errText(b.Listed(start, ledger.List[kid]{Items: kidsOf(args[1:]), Version: strings.TrimSuffix(args[0], ":")}, b.cache, b.now))
	case "back": // an event shows that the cache went back
		b.CacheRegressed()
	case "forget":
		b.Forget()
	case "doubt":
		id, version, _ := strings.Cut(args[0], "@")
		b.CallUnanswered(uidOf(id), ledger.Delete, version, b.now)
	case "sure":
		b.CallAnswered(types.UID(args[0]))
	case "sending":
		b.CreateSent(named(args[0]), b.now)
	case "refused":
		b.CreateRejected(named(args[0]))
	case "bears":
		c := kidOf(args[0])
		is, ours := rules.Holder(c)
		b.NameHeld(named(c.Name), c.UID, is, ours)
	case "none":
		b.NameFree(named(args[0]))
	case "looked": // a name was read; the second argument is the duration of the read
		took := time.Duration(0)
		if len(args) > 1 {
			took, _ = time.ParseDuration(args[1])
		}
		b.NameChecked(named(args[0]), b.now.Add(-took), b.now)
	case "landed": // a live list was recorded, and its list call began at b.now
		b.ExpireCalls(b.now)
	default:
		return b.show(command)
	}
	return ""
}

func (b *book) show(command string) string {
	switch command {
	case "again?":
		return b.RequeueAfter(b.now).String()
	case "waits?":
		return b.Waits(b.now).String()
	case "awaited?":
		creations, deletions := b.Awaited()
		return fmt.Sprint(creations, deletions)
	case "split?": // split the children in the cache
		stay, come, leave := b.Split(b.cache.Children)
		return fmt.Sprint(texts(stay), texts(come), texts(leave))
	case "unanswered?":
		return b.CallsExpireIn(b.now).String()
	case "doubts?":
		sent := b.UnansweredCalls()
		var all []string
		for _, id := range slices.Sorted(maps.Keys(sent)) {
			all = append(all, fmt.Sprint(id, " ", b.now.Sub(sent[id])))
		}
		return strings.Join(all, ", ")
	case "names?":
		return b.names(b.Names())
	case "open?":
		return b.names(b.Open())
	case "holds?":
		return b.Holds()
	}
	return "no such command: " + command
}

func (b *book) names(names []ledger.Name) string {
	bearers := []string{"nobody", "replica", "leaver", "stranger"}
	var all []string
	for _, n := range names {
		text := fmt.Sprintf("%s %s, next look %v", n.Name, bearers[n.Holder], max(n.NextCheck(b.now), 0))
		if n.IsTaken() {
			text += ", taken"
		}
		if n.IsExpired(b.now) {
			text += ", landed"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}

func (b *book) view() string {
	v, err := b.View(b.start, b.cache, b.now)
	if err != nil {
		return err.Error()
	}
	words := texts(v.Children)
	if v.Waits > 0 {
		words = append(words, "WAITS")
	}
	if v.Stale {
		words = append(words, "OLD")
	}
	if v.Unmet {
		words = append(words, "UNMET")
	}
	return strings.Join(words, " ")
}

func texts(kids []kid) []string {
	words := []string{}
	for _, c := range kids {
		words = append(words, c.Labels["text"])
	}
	return words
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func playAll(t *testing.T, stories [][2]string) {
	t.Helper()
	for _, s := range stories {
		t.Run(s[0], func(t *testing.T) {
			t.Parallel()
			play(t, s[1])
		})
	}
}
