// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package corners tests a controller with one fault at a time, as Sieve does (OSDI 2022). The test
// first plays each scenario without a fault, to learn which calls the controller makes and which
// events arrive. The test then plays the scenario once more for each of these faults:
//
//   - The process crashes before or after a call. Reads of single objects are left out.
//   - An event is missed until the next list. Or the watch breaks at an event, or hangs there for
//     minutes. In a variant, the watch then resumes at one event a second.
//   - A pass uses the cache as it was some events earlier.
//   - The answer to a call is lost after the call took effect, with each possible error. In a
//     variant, the read after the call also fails.
//   - The client sends a request again on its own, or a request takes effect after its caller
//     stopped waiting. Or a webhook relabels the created pod, so that the owner loses it.
//   - The controller is paused before a write while another controller works.
//   - The server refuses a call once, with each possible error.
//
// Each play must end in the same state as the one without a fault, with the same counts, owners and
// status. Names may differ. The rules of package invariant hold at every step.
package corners
