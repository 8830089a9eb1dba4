// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faults shows whether an operator keeps its number of children while calls and watches fail. The
// operator may be any program, and the server is a real one, for example that of envtest.
//
// A Faults wraps the operator's transport and spoils calls and watches by rules. A Judge watches the
// server with a client of its own, and reports each moment at which there were too many or too few children:
//
//	f := &faults.Faults{Seed: seed, Rules: faults.Minute(seed, "workerpools", "workers")}
//	config.Wrap(f.Wrap)
//	judge := &faults.Judge{Client: client, Server: host, Faults: f, Namespace: "default", Owner: pools, Child: workers}
//	err := judge.Begin(ctx)
//	// Run the operator with f.Run, and change the owners. Call judge.Settled after each change.
//	report, err := judge.End(ctx)
//
// For a program in another process or language, put an httputil.ReverseProxy with a wrapped transport between the
// program and the server.
//
// Answers and events are the server's own. For example, an old list is the server's list of an earlier version, and
// only lists that may come from the server's cache are old. The server is asked for JSON, also if the client would
// accept another encoding.
//
// The package works through net/http and imports no client. It is for tests.
package faults
