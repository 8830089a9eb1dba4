// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command planted shows what the simulation notices. It plants one defect after the
// other into the library, and runs for each of them the random stories, the corners, the
// explorer and the tests of the package, until one of them notices it:
//
//	go run ./internal/planted -resume .cache/planted.jsonl test/README.md
//
// The defects are the files of testdata. Each one is a mistake that somebody could make,
// with a sentence that says the failure it causes:
//
//	A full quota holds nothing, so a refused creation is sent again and again.
//
//	--- replicas/controller/createhold.go
//	-	if slices.ContainsFunc(errs, quotaIsFull) {
//	+	if false && slices.ContainsFunc(errs, quotaIsFull) {
//
// Lines that begin with a minus are replaced by those that begin with a plus, and
// lines that begin with a blank stand beside them. The old text must occur exactly once
// in the file, so an edit of other lines does not invalidate the defect. A line "@@"
// separates two places of one file. The sources stay as they are, because go builds with
// -overlay. One build has all defects, because a defect changes functions and nothing
// else: each function stands there once more for each of its defects, and an environment
// variable chooses one of them.
//
// A defect that the simulation cannot notice has a paragraph that begins with "Not
// noticed:" and says why. The command fails if a defect without this paragraph is not
// noticed, and if a defect with this paragraph is noticed. The tests of the package do
// not count. Defects in a module that no net runs are in the table too.
//
// The table is written into a page, between the marks that the page has for it. With
// -run only some of the defects are planted, and with -nets only some of the nets are run.
// With -resume the results are kept in a file, and those of the same commit are taken
// from there. With -check no net is run: it only says whether the defects compile.
package main
