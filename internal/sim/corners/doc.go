// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corners tests a controller with one fault at a time, as Sieve does (OSDI 2022). The test
// first plays each scenario without a fault, to learn which calls the controller makes and which
// events arrive. The test then plays the scenario once more for each of these faults:
//
//   - The process crashes before or after a call. Reads of single objects are left out.
//   - The watch loses an event, and the objects are listed again some time later.
//   - The watch breaks at an event.
//   - The watch hangs at an event for minutes. In one variant, the watch then resumes with one event
//     per second.
//   - A pass sees the cache in the state that it had several events earlier.
//   - A call takes effect, but its answer is lost. There is one play for each possible error. In one
//     variant, the read after the call also fails.
//   - The client itself retries a request, or a request takes effect after its caller has stopped
//     waiting, or a webhook relabels the created pod so that the pod does not match its owner.
//   - The controller is paused before a write while another controller works.
//   - The server refuses a call once. There is one play for each possible error.
//
// Each play must end in the same state as the play without a fault, with the same counts, owners and
// status. The names of pods may differ. The rules of package invariant must hold at every step.
package corners
