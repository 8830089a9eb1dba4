// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corners takes scenarios through every single fault there is, one at a
// time, after the model of Sieve (OSDI 2022): a scenario is played once to learn
// which calls it makes and which events it brings, then once more for each of
//
//   - a crash before, and one after, each write;
//   - each event missed until the next list; the watch broken from each event on,
//     or hanging for minutes, also to go on one event a second;
//   - each pass made on the view of k events ago;
//   - each answer lost after the call took effect, in each way that there is, and once
//     together with the look that follows; each
//     request sent again below the controller, or taking effect when nobody waits
//     for it any more; each pod that is created taken away by a webhook;
//   - each write made by a controller that was paused before it, while another one
//     worked;
//   - each call refused once, in each way that a server has.
//
// All of them must end in the state in which the undisturbed play ends: the same
// counts, owners and status, if not the same names. The invariants hold on the
// way.
package corners
