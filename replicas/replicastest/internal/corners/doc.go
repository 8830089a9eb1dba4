// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corners plays scenarios with every single fault, one at a time, after the model of Sieve
// (OSDI 2022). A scenario is played once to learn which calls it makes and which events it causes.
// It is then played once more for each of these faults:
//
//   - a crash before, and one after, each write;
//   - each event missed until the next list; the watch broken from each event on, or hanging for
//     minutes, and in a variant resuming at one event a second;
//   - each pass made on the view of k events ago;
//   - each answer lost after the call took effect, in each possible way, and once together with the
//     look that follows; each request sent again below the controller, or taking effect after its
//     caller stopped waiting; each created pod taken away by a webhook;
//   - each write made by a controller that was paused before it, while another controller worked;
//   - each call refused once, in each way that a server has.
//
// Each play must end in the same state as the undisturbed one, with the same counts, owners and
// status. Names may differ. The invariants hold on the way.
package corners
