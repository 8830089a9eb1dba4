// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	ctx      context.Context //nolint:containedctx // it ends with the watch, and its cause ends all reads
	cancel   context.CancelCauseFunc
	detach   func() bool   // from the process
	wake     chan struct{} // has room for one

	mu     sync.Mutex
	queue  []event
	sent   []event // for a replay
	rest   []byte  // of the event that the client reads
	lag    time.Duration
	held   time.Time
	begins []Rule // whose faults begin after the initial events; nil once they have begun
}

// An event is one event of a watch, or the error after the last one.
type event struct {
	data []byte
	err  error
	due  time.Time
}

// open lets the client read the watch until the process is stopped. The rules begin after the initial events, if there
// are any.
func (s *stream) open(hasInitialEvents bool, begins []Rule) {
	s.detach = context.AfterFunc(s.process.ctx, func() { s.cancel(errBroken) })
	s.faults.locked(func() { s.process.watches[s] = struct{}{} })
	if s.begins = begins; !hasInitialEvents {
		s.change(s.start)
	}
	go s.pump()
}

// start begins the faults that wait for the end of the initial events.
func (s *stream) start() {
	for _, r := range s.begins {
		s.apply(r)
	}
	s.begins = nil
}

func (s *stream) pump() {
	body := bufio.NewReader(s.body)
	for {
		data, err := body.ReadBytes('\n')
		s.change(func() {
			due := time.Now().Add(s.lag)
			if s.queue = append(s.queue, event{data: data, due: due}); err != nil {
				s.queue = append(s.queue, event{err: err, due: due})
			}
		})
		if err != nil {
			return
		}
		var e metav1.WatchEvent
		_ = json.Unmarshal(data, &e)
		s.faults.locked(func() { s.faults.saw(metaOf(e.Object.Raw)) })
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
	s.queue, s.held = []event{{err: io.EOF}}, time.Time{}
	if status != 0 {
		last := fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", statusOf(status))
		s.queue = append([]event{{data: last}}, s.queue...)
	}
}

func (s *stream) Close() error {
	s.detach()
	s.cancel(http.ErrBodyReadAfterClose)
	s.faults.locked(func() { delete(s.process.watches, s) })
	return s.body.Close()
}

func (s *stream) Read(data []byte) (int, error) {
	for s.ctx.Err() == nil {
		s.mu.Lock()
		wait := s.advance()
		n := copy(data, s.rest)
		s.rest = s.rest[n:]
		s.mu.Unlock()
		if n > 0 || len(data) == 0 {
			return n, nil
		}
		select {
		case <-s.wake:
		case <-time.After(wait):
		case <-s.ctx.Done():
		}
	}
	return 0, context.Cause(s.ctx)
}

// advance makes the next event that is due the one that the client reads. It returns the time until it should be called
// again if there is none.
func (s *stream) advance() (wait time.Duration) {
	if len(s.rest) > 0 {
		return 0
	}
	if len(s.queue) == 0 {
		return forEver
	}
	next := s.queue[0]
	if wait := time.Until(later(next.due, s.held)); wait > 0 {
		return wait
	}
	s.queue, s.rest = s.queue[1:], next.data
	switch {
	case next.err != nil:
		s.cancel(next.err)
	case bytes.Contains(next.data, []byte(metav1.InitialEventsAnnotationKey)):
		s.start()
	default:
		s.sent = append(s.sent, next)
	}
	return 0
}
