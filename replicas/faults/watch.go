// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forEver is the end of a fault without an end.
const forEver = 100 * 365 * 24 * time.Hour

// A stream is the body of a watch. It reads the server's events at once, as a client that does not hang would, and
// gives them to the client as the faults allow.
type stream struct {
	faults   *Faults
	process  *process
	resource string
	body     io.ReadCloser
	cancel   context.CancelFunc
	wake     chan struct{} // has room for one

	mu     sync.Mutex
	queue  []event
	sent   []event // for a replay
	rest   []byte  // of the event that the client reads
	lag    time.Duration
	held   time.Time
	ended  error  // ends all reads
	begins []Rule // whose faults begin after the initial events; nil once they have begun
}

// An event is one event of a watch. It is the last one if it has an error.
type event struct {
	data []byte
	err  error
	due  time.Time
}

// watch replaces the body of the answer to a watch by a stream.
func (f *Faults) watch(p *process, c *Call, resp *http.Response, cancel context.CancelFunc, hasInitialEvents bool, begins []Rule) error {
	s := &stream{faults: f, process: p, resource: c.Resource, body: resp.Body, cancel: cancel, wake: make(chan struct{}, 1)}
	if hasInitialEvents {
		s.begins, begins = begins, nil
	}
	for _, r := range begins {
		s.begin(r)
	}
	resp.Body = s
	f.locked(func() { p.watches[s] = struct{}{} })
	if p.ctx.Err() != nil {
		_ = s.Close()
		return errBroken
	}
	go s.pump()
	return nil
}

func (s *stream) pump() {
	body := bufio.NewReader(s.body)
	for {
		data, err := body.ReadBytes('\n')
		s.change(func() {
			s.queue = append(s.queue, event{data, err, time.Now().Add(s.lag)})
		})
		var e watchEvent
		_ = json.Unmarshal(data, &e)
		s.faults.locked(func() { s.faults.saw(metaOf(e.Object)) })
		if err != nil {
			return
		}
	}
}

// change changes the state of the stream, and wakes its reader.
func (s *stream) change(do func()) {
	s.mu.Lock()
	do()
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *stream) begin(r Rule) { s.change(func() { s.apply(r) }) }

// apply begins a fault of the watch.
func (s *stream) apply(r Rule) {
	switch r.Fault {
	case WatchLate:
		s.lag = r.Delay
	case WatchHang:
		if s.held = time.Now().Add(r.Delay); r.Delay == 0 {
			s.held = time.Now().Add(forEver)
		}
	case WatchReplay:
		time.AfterFunc(r.Delay, func() { s.change(func() { s.queue = append(slices.Clone(s.sent), s.queue...) }) })
	case WatchEnd:
		time.AfterFunc(r.Delay, func() { s.change(func() { s.end(r.Status) }) })
	}
}

// end drops what the client has not read. The client must list or watch again.
func (s *stream) end(status int) {
	last := event{err: io.EOF}
	if status != 0 {
		last.data = append(encoded(watchEvent{"ERROR", encoded(statusOf(status))}), '\n')
	}
	s.queue, s.held = []event{last}, time.Time{}
}

// fail ends the watch with an error.
func (s *stream) fail(err error) {
	s.change(func() { s.ended = err })
	s.cancel()
}

func (s *stream) Close() error {
	s.fail(http.ErrBodyReadAfterClose)
	s.faults.locked(func() { delete(s.process.watches, s) })
	return s.body.Close()
}

func (s *stream) Read(data []byte) (int, error) {
	for len(data) > 0 {
		s.mu.Lock()
		wait := s.advance()
		n, err := copy(data, s.rest), s.ended
		s.rest = s.rest[n:]
		s.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
	return 0, nil
}

// advance makes the next event that is due the one that the client reads. If there is none, it returns the time until
// it should be called again.
func (s *stream) advance() (wait time.Duration) {
	if len(s.rest) > 0 || s.ended != nil {
		return 0
	}
	if len(s.queue) == 0 {
		return forEver
	}
	next := s.queue[0]
	if wait := time.Until(later(next.due, s.held)); wait > 0 {
		return wait
	}
	s.queue, s.rest, s.ended = s.queue[1:], next.data, next.err
	if bytes.Contains(next.data, []byte(metav1.InitialEventsAnnotationKey)) {
		for _, r := range s.begins {
			s.apply(r)
		}
		s.begins = nil
	} else if next.err == nil {
		s.sent = append(s.sent, next)
	}
	return 0
}
