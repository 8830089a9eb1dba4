//go:build !race

package conformance_test

// share is one case in how many is run.
const share = 1
