// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// recordingFormat is that of a Recording as JSON. It changes if an older reader would
// misunderstand a newer recording, or a newer reader an older one.
const recordingFormat = "replicakit.recording/2"

// A Recording is one pass as data: what was known before it, what the cache had, the calls
// and their answers. It tells later why a pass did what it did, and Replay plays it again.
// Options.Record hands them out; json.Marshal and json.Unmarshal write and read them.
//
// A Recording shares its objects with the cache until it is written, so they must not be
// changed. It may be read by several goroutines at once.
type Recording struct {
	// Owner is the owner's name, Kind its kind and ChildKind that of the children.
	Owner           types.NamespacedName
	Kind, ChildKind schema.GroupVersionKind
	// Began is when the pass began, and Took how long it took.
	Began time.Time
	Took  time.Duration
	// Desired is how many children were wanted. Believed are the names of the children
	// that counted, as the cache and the ledger together had them, before any call
	// created or deleted one. Both are zero if the pass made no plan.
	Desired  int32
	Believed []string
	// Calls are the calls to the server in the order in which they were answered.
	Calls []Call
	// RequeueAfter and Err are what the pass returned. Err is "" if that was no error.
	RequeueAfter time.Duration
	Err          string

	settings recordedSettings
	known    recordedMemory
	cache    recordedCache
	// random are the numbers that the names of new children were made from.
	random []int
	// events are those that told the ledger something while the pass was under way.
	events []recordedEvent
	// interrupted says that the context of the pass ended.
	interrupted bool
}

// Changes reports whether the pass sent a creation, deletion, adoption or release.
func (r Recording) Changes() bool {
	return slices.ContainsFunc(r.Calls, func(c Call) bool { return c.Verb == verbCreate || c.Verb == verbDelete || c.Verb == verbPatch })
}

// String tells the pass in a few lines: what was wanted and believed, and each call.
func (r Recording) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s: %d wanted, %d believed", r.Began.UTC().Format(time.RFC3339Nano), r.Kind.Kind, r.Owner, r.Desired, len(r.Believed))
	if len(r.Believed) > 0 {
		fmt.Fprintf(&text, " (%s)", strings.Join(r.Believed, " "))
	}
	for _, c := range r.Calls {
		fmt.Fprintf(&text, "\n  %s", c)
	}
	if r.Err != "" {
		fmt.Fprintf(&text, "\n  it returned: %s", r.Err)
	}
	return text.String()
}

// A Call is one call to the server, and what it was answered.
type Call struct {
	// Verb is the name of the method of Client or Versioner.
	Verb string
	// Namespace and Name are those of the object. For a list, Name is the selector.
	Namespace, Name string
	// Ended is when the answer came.
	Ended time.Time
	// Err is the error, "" if there was none.
	Err string

	sent, answer data
	failure      *recordedError
}

// String tells the call in one line, such as
//
//	Delete shop/web-7 {"preconditions":{"uid":"..."}}: not found
func (c Call) String() string {
	text := c.asked()
	if c.Err != "" {
		return text + ": " + c.Err
	}
	return text
}

// asked is the call without its answer. Of objects that were sent it has the name alone.
func (c Call) asked() string {
	text := c.Verb
	if c.Name != "" || c.Namespace != "" {
		text += " " + strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")
	}
	if c.Verb == verbDelete || c.Verb == verbPatch {
		if sent, err := json.Marshal(c.sent); err == nil {
			text += " " + string(sent)
		}
	}
	return text
}

const (
	verbCreate, verbDelete, verbPatch, verbGet, verbList = "Create", "Delete", "Patch", "Get", "List"
	verbGetOwner, verbUpdateStatus                       = "GetOwner", "UpdateStatus"
	verbServerOwnersVersion, verbServerChildrenVersion   = "ServerOwnersVersion", "ServerChildrenVersion"
)

// data is a value, or its JSON. The zero value is null.
type data struct {
	is   any
	text json.RawMessage
}

func (d data) MarshalJSON() ([]byte, error) {
	if d.text != nil {
		return d.text, nil
	}
	return json.Marshal(d.is)
}

func (d *data) UnmarshalJSON(text []byte) error {
	*d = data{text: append(json.RawMessage{}, text...)}
	return nil
}

func (d data) isNull() bool { return d.is == nil && d.text == nil }

// as returns the value of d, which is null or of type T.
func as[T any](d data) (value T, err error) {
	if d.text != nil {
		return value, json.Unmarshal(d.text, &value)
	}
	value, _ = d.is.(T)
	return value, nil
}

// The parts of a Recording that Replay reads.
type (
	recordedSettings struct {
		MaxParallel         int           `json:"maxParallel"`
		ExpectationsTimeout time.Duration `json:"expectationsTimeout"`
		BackOffFailed       bool          `json:"backOffFailed,omitempty"`
		Versioner           bool          `json:"versioner,omitempty"` // the Client was one
	}
	recordedCache struct {
		Owner   data   `json:"owner"`
		Version string `json:"version,omitempty"`
		Newest  string `json:"newest,omitempty"`
		// One for each time that they were read.
		Children []recordedRead `json:"children,omitempty"`
		Related  []recordedRead `json:"related,omitempty"`
	}
	// recordedMemory is what was known before the pass.
	recordedMemory struct {
		// Is is false if the owner was new to the Controller.
		Is           bool   `json:"is,omitempty"`
		Ledger       data   `json:"ledger,omitzero"`
		OwnerIs      data   `json:"ownerIs,omitzero"`
		OwnerGone    bool   `json:"ownerGone,omitempty"`
		OwnerVersion string `json:"ownerVersion,omitempty"`

		Generation   int64                   `json:"generation,omitempty"`
		Owner        hold                    `json:"ownerHold,omitzero"`
		Active       int                     `json:"active,omitempty"`
		ChildLeft    hold                    `json:"childLeft,omitzero"`
		Holds        holds                   `json:"holds,omitempty"`
		Round        round                   `json:"round,omitzero"`
		Behind       bool                    `json:"behind,omitempty"`
		Aside        map[types.UID]*aside    `json:"aside,omitempty"`
		StatusSent   data                    `json:"statusSent,omitzero"`
		StatusStored data                    `json:"statusStored,omitzero"`
		Ready        map[types.UID]time.Time `json:"ready,omitempty"`

		Pending    recordedPending `json:"pending,omitzero"`
		Distrusted bool            `json:"distrusted,omitempty"`
		EventsCame bool            `json:"eventsCame,omitempty"`

		TermBegan time.Time `json:"termBegan,omitzero"`
		TermAsked time.Time `json:"termAsked,omitzero"` // for the version of the children
		// TermVersions are by the verb that asks for them, each as it was known after the
		// pass had asked.
		TermVersions map[string]string `json:"termVersions,omitempty"`
		LookedInTerm bool              `json:"lookedInTerm,omitempty"`
		OwnerInTerm  bool              `json:"ownerInTerm,omitempty"`

		StatusCounts bool  `json:"statusCounts,omitempty"`
		Stripped     bool  `json:"stripped,omitempty"`
		Compared     int64 `json:"compared,omitempty"`
	}
	// recordedPending is what was expected, and how long the pass had to wait for it still: 0
	// if that had expired.
	recordedPending struct {
		Creating  []string      `json:"creating,omitempty"`
		Deleting  []types.UID   `json:"deleting,omitempty"`
		Creations int           `json:"creations,omitempty"`
		Deletions int           `json:"deletions,omitempty"`
		Remaining time.Duration `json:"remaining,omitempty"`
	}
	// recordedError is an error with what the Controller asks of it.
	recordedError struct {
		Text   string         `json:"text"`
		Status *metav1.Status `json:"status,omitempty"`
		Resent bool           `json:"resent,omitempty"`
		Held   time.Duration  `json:"held,omitempty"`
	}
)

func recordError(err error) *recordedError {
	if err == nil {
		return nil
	}
	e := &recordedError{Text: err.Error(), Resent: errors.Is(err, ErrResent)}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		is := status.Status()
		e.Status = &is
	}
	var held heldError
	if errors.As(err, &held) {
		e.Held = held.wait
	}
	return e
}

// err returns an error that the Controller cannot tell from the recorded one.
func (e *recordedError) err() error {
	if e == nil {
		return nil
	}
	again := &replayedError{text: e.Text}
	if e.Status != nil {
		again.is = append(again.is, &apierrors.StatusError{ErrStatus: *e.Status})
	}
	if e.Resent {
		again.is = append(again.is, ErrResent)
	}
	if e.Held > 0 {
		again.is = append(again.is, heldError{wait: e.Held})
	}
	return again
}

type replayedError struct {
	text string
	is   []error
}

func (e *replayedError) Error() string   { return e.text }
func (e *replayedError) Unwrap() []error { return e.is }

// recording is a Recording as JSON has it.
type recording struct {
	Format       string                  `json:"format"`
	Namespace    string                  `json:"namespace,omitempty"`
	Name         string                  `json:"name"`
	Kind         schema.GroupVersionKind `json:"kind"`
	ChildKind    schema.GroupVersionKind `json:"childKind"`
	Began        time.Time               `json:"began"`
	Took         time.Duration           `json:"took"`
	Desired      int32                   `json:"desired"`
	Believed     []string                `json:"believed,omitempty"`
	Calls        []recordedCall          `json:"calls,omitempty"`
	RequeueAfter time.Duration           `json:"requeueAfter,omitempty"`
	Err          string                  `json:"error,omitempty"`
	Settings     recordedSettings        `json:"settings"`
	Known        recordedMemory          `json:"known"`
	Cache        recordedCache           `json:"cache"`
	Random       []int                   `json:"random,omitempty"`
	Events       []recordedEvent         `json:"events,omitempty"`
	Interrupted  bool                    `json:"interrupted,omitempty"`
}

type recordedCall struct {
	Verb      string         `json:"verb"`
	Namespace string         `json:"namespace,omitempty"`
	Name      string         `json:"name,omitempty"`
	Sent      data           `json:"sent,omitzero"`
	Answer    data           `json:"answer,omitzero"`
	Error     *recordedError `json:"error,omitempty"`
	Ended     time.Time      `json:"ended"`
}

// MarshalJSON writes a Recording with the name of its format.
func (r Recording) MarshalJSON() ([]byte, error) {
	is := recording{
		recordingFormat, r.Owner.Namespace, r.Owner.Name, r.Kind, r.ChildKind, r.Began, r.Took, r.Desired, r.Believed, nil,
		r.RequeueAfter, r.Err, r.settings, r.known, r.cache, r.random, r.events, r.interrupted,
	}
	for _, c := range r.Calls {
		is.Calls = append(is.Calls, recordedCall{c.Verb, c.Namespace, c.Name, c.sent, c.answer, c.failure, c.Ended})
	}
	return json.Marshal(is)
}

// UnmarshalJSON reads a Recording. It is an error if it has another format.
func (r *Recording) UnmarshalJSON(text []byte) error {
	var format struct{ Format string }
	if err := json.Unmarshal(text, &format); err != nil {
		return fmt.Errorf("controller: a recording: %w", err)
	}
	if format.Format != recordingFormat {
		return fmt.Errorf("controller: a recording of the format %q: this version reads %q", format.Format, recordingFormat)
	}
	var is recording
	if err := json.Unmarshal(text, &is); err != nil {
		return fmt.Errorf("controller: a recording: %w", err)
	}
	*r = Recording{
		types.NamespacedName{Namespace: is.Namespace, Name: is.Name},
		is.Kind, is.ChildKind, is.Began, is.Took, is.Desired, is.Believed,
		nil, is.RequeueAfter, is.Err, is.Settings, is.Known, is.Cache, is.Random, is.Events, is.Interrupted,
	}
	for _, c := range is.Calls {
		call := Call{c.Verb, c.Namespace, c.Name, c.Ended, "", c.Sent, c.Answer, c.Error}
		if c.Error != nil {
			call.Err = c.Error.Text
		}
		r.Calls = append(r.Calls, call)
	}
	return nil
}

// recordedRead is an answer of the cache.
type recordedRead struct {
	Children data           `json:"children,omitzero"`
	Error    *recordedError `json:"error,omitempty"`
}

// An eventLog takes the events that tell the ledger something while a pass is under way.
type eventLog struct {
	mu     sync.Mutex
	asked  int // the answers until now, of the server and of the cache
	events []recordedEvent
}

// A recordedEvent is what an event told after so many answers.
type recordedEvent struct {
	After int `json:"after"`
	// Left is a child that left the cache. "" says that a child went back to an older version.
	Left types.UID `json:"left,omitempty"`
}

// note notes an event; nil takes none.
func (l *eventLog) note(e recordedEvent) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.After = l.asked
	l.events = append(l.events, e)
}

func (l *eventLog) answered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
}
