// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// A defect is a mistake that somebody could make.
type defect struct {
	name   string
	breaks string // the failure that it causes
	why    string // no net notices it; "" if one does
	edits  []edit
}

// An edit replaces text that occurs exactly once in a file.
type edit struct{ file, was, is string }

// load reads the defects, in the order of their names.
func load(dir string) ([]defect, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil {
		return nil, err
	}
	var all []defect
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		d, err := parse(strings.TrimSuffix(filepath.Base(file), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: there are no defects", dir)
	}
	return all, nil
}

const (
	fileMark   = "--- "
	placeMark  = "@@"
	unnoticed  = "Not noticed: "
	paragraphs = "\n\n"
)

func parse(name, text string) (defect, error) {
	head, rest, found := strings.Cut(text, "\n"+fileMark)
	if !found {
		return defect{}, fmt.Errorf("no line begins with %q", fileMark)
	}
	d := defect{name: name}
	for i, paragraph := range strings.Split(strings.TrimSpace(head), paragraphs) {
		paragraph = strings.Join(strings.Fields(paragraph), " ")
		why, isWhy := strings.CutPrefix(paragraph, unnoticed)
		switch {
		case i == 0 && paragraph != "" && !isWhy:
			d.breaks = paragraph
		case i == 1 && isWhy:
			d.why = why
		default:
			return defect{}, fmt.Errorf("one sentence says what breaks, and maybe one paragraph %q, not %q", unnoticed, paragraph)
		}
	}
	for part := range strings.SplitSeq(rest, "\n"+fileMark) {
		file, places, _ := strings.Cut(part, "\n")
		for place := range strings.SplitSeq(places, "\n"+placeMark+"\n") {
			e, err := parseEdit(file, place)
			if err != nil {
				return defect{}, fmt.Errorf("%s: %w", file, err)
			}
			d.edits = append(d.edits, e)
		}
	}
	return d, nil
}

func parseEdit(file, place string) (edit, error) {
	var was, is strings.Builder
	for line := range strings.Lines(strings.TrimRight(place, "\n") + "\n") {
		sign, code := line[:1], line[1:]
		switch sign {
		case "\n":
			was.WriteString(line)
			is.WriteString(line)
		case " ":
			was.WriteString(code)
			is.WriteString(code)
		case "-":
			was.WriteString(code)
		case "+":
			is.WriteString(code)
		default:
			return edit{}, fmt.Errorf("line %q begins with none of plus, minus and blank", line)
		}
	}
	if was.Len() == 0 || was.String() == is.String() {
		return edit{}, errors.New("nothing is replaced")
	}
	return edit{file, was.String(), is.String()}, nil
}

// dir is where the defect is planted.
func (d defect) dir() string { return path.Dir(d.edits[0].file) }

// apply returns the files below root as the defect makes them, by their names.
func (d defect) apply(root string) (map[string][]byte, error) {
	changed := map[string][]byte{}
	for _, e := range d.edits {
		source, again := changed[e.file]
		if !again {
			var err error
			if source, err = os.ReadFile(filepath.Join(root, filepath.FromSlash(e.file))); err != nil {
				return nil, err
			}
		}
		if n := strings.Count("\n"+string(source), "\n"+e.was); n != 1 {
			return nil, fmt.Errorf("%s: %s must have this exactly once, and has it %d times:\n%s", d.name, e.file, n, e.was)
		}
		changed[e.file] = []byte(strings.Replace("\n"+string(source), "\n"+e.was, "\n"+e.is, 1)[1:])
	}
	return changed, nil
}
