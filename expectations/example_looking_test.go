// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package expectations_test

import (
	"fmt"
	"time"

	"github.com/replicakit/replicakit/expectations"
)

// This operator uses no events. Each pass looks in the cache for outstanding creations and deletions. A pod that
// is being deleted counts as a replica until it is gone. Therefore an expected deletion stays in the record after
// the timeout.
func ExampleStore_State_looking() {
	const key, create, remove = "team/web", "create", "remove"
	now := time.Now()
	store := expectations.Store[string]{Timeout: 30 * time.Second, Now: func() time.Time { return now }}
	cache := map[string]bool{"web-0": true}
	exists := func(name string) bool { return cache[name] }
	isGone := func(name string) bool { return !cache[name] } // if a real read fails, return false

	expect := func(action, name string) {
		creation := expectations.Changes{Creating: []string{name}}
		deletion := expectations.Changes{Deleting: expectations.IDs(name)}
		if action == create {
			store.Lower(key, deletion)
			store.Add(key, creation)
		} else {
			store.Lower(key, creation)
			store.Add(key, deletion)
		}
	}
	satisfied := func() bool {
		pending, _ := store.Get(key)
		for _, name := range pending.Creating {
			if exists(name) {
				store.CreationObserved(key, name)
			}
		}
		for _, id := range pending.Deleting {
			if isGone(string(id)) {
				store.DeletionObserved(key, id)
			}
		}
		state, _ := store.State(key)
		if state == expectations.Expired {
			store.Lower(key, expectations.Changes{Creating: pending.Creating})
			state, _ = store.State(key)
		}
		return state == expectations.Satisfied
	}

	expect(create, "web-1") // the cache never shows web-1, because it was deleted at once
	expect(remove, "web-0")
	fmt.Println("at once:", satisfied())
	now = now.Add(time.Minute)
	fmt.Println("web-0 is still there after the timeout:", satisfied())
	delete(cache, "web-0")
	fmt.Println("web-0 is gone:", satisfied())
	cache["web-2"] = true
	expect(create, "web-2")
	fmt.Println("web-2 is there:", satisfied())
	expect(remove, "web-2")
	expect(create, "web-2")
	fmt.Println("web-2 was made again:", satisfied())
	// Output:
	// at once: false
	// web-0 is still there after the timeout: false
	// web-0 is gone: true
	// web-2 is there: true
	// web-2 was made again: true
}
