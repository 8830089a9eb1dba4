//go:build race

package conformance_test

// share is one case in how many is run: the race detector takes ten times as
// long.
const share = 10
