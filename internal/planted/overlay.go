// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// chosen is the environment variable that says which defect is planted.
const chosen = "REPLICAKIT_PLANTED"

// chooser is a file of each package that has defects.
const chooser = "package %s\n\nimport \"os\"\n\nvar plantedDefect = os.Getenv(%q)\n"

// makeOverlay puts all defects together into copies of the sources in dir, so that
// one build has them all. Each function that a defect changes stands there once more as
// the defect makes it, and the original calls that one if the defect is chosen. It
// returns the file for go's -overlay that shows the copies in their places below root.
func makeOverlay(root, dir string, defects []defect) (overlay string, err error) {
	sources, shown := map[string]*source{}, map[string]string{}
	for _, d := range defects {
		changed, err := d.apply(root)
		if err != nil {
			return "", err
		}
		for name, text := range changed {
			if sources[name] == nil {
				if sources[name], err = readSource(root, name); err != nil {
					return "", err
				}
			}
			if err := sources[name].add(d, text); err != nil {
				return "", fmt.Errorf("%s: %s: %w", d.name, name, err)
			}
		}
	}
	for name, s := range sources {
		if shown[name], err = s.planted(); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		shown[path.Join(path.Dir(name), "planted_defect.go")] = fmt.Sprintf(chooser, s.file.Name.Name, chosen)
	}
	return show(root, dir, shown)
}

// show writes texts into dir, and a file for -overlay with their places below root.
func show(root, dir string, texts map[string]string) (overlay string, err error) {
	replace := map[string]string{}
	for name, text := range texts {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = copied
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, content, 0o600)
}

// A source is a file, and its functions as defects make them.
type source struct {
	text      []byte
	file      *ast.File
	functions []function
	others    []byte // what is in no function
	variants  map[string][]variant
}

// A function is a declaration, and where its name and its body begin and it ends.
type function struct {
	*ast.FuncDecl
	from, name, body, to int
}

// A variant is a function as a defect makes it, under a name of its own.
type variant struct{ defect, name, text string }

func readSource(root, name string) (*source, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	return parseSource(text)
}

func parseSource(text []byte) (*source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s, last := &source{text: text, file: file, variants: map[string][]variant{}}, 0
	at := func(p token.Pos) int { return fset.File(p).Offset(p) }
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok {
			f := function{f, at(f.Pos()), at(f.Name.Pos()), at(f.Body.Pos()), at(f.End())}
			s.functions = append(s.functions, f)
			s.others, last = append(s.others, text[last:f.from]...), f.to
		}
	}
	s.others = append(s.others, text[last:]...)
	return s, nil
}

// key is the name of a function, with the type that it is a method of.
func (f function) key() string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return types.ExprString(f.Recv.List[0].Type) + "." + f.Name.Name
}

// add adds the functions that a defect changes.
func (s *source) add(d defect, text []byte) error {
	changed, err := parseSource(text)
	if err != nil {
		return err
	}
	if !bytes.Equal(changed.others, s.others) || len(changed.functions) != len(s.functions) {
		return fmt.Errorf("a defect changes functions, and nothing else")
	}
	for i, f := range changed.functions {
		is, was := string(text[f.from:f.to]), s.functions[i]
		if f.key() != was.key() {
			return fmt.Errorf("%s is renamed to %s", was.key(), f.key())
		}
		if is == string(s.text[was.from:was.to]) {
			continue
		}
		name := f.Name.Name + "_" + strings.ReplaceAll(d.name, "-", "_")
		is = string(text[f.from:f.name]) + name + string(text[f.name+len(f.Name.Name):f.to])
		s.variants[f.key()] = append(s.variants[f.key()], variant{d.name, name, is})
	}
	return nil
}

// planted is the file with all that was added.
func (s *source) planted() (string, error) {
	var b, variants strings.Builder
	last := 0
	for _, f := range s.functions {
		all := s.variants[f.key()]
		if len(all) == 0 {
			continue
		}
		b.Write(s.text[last : f.body+1])
		last = f.body + 1
		b.WriteString("\n\tswitch plantedDefect {\n")
		for _, v := range all {
			call, err := f.call(v.name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "\tcase %q:\n%s", v.defect, call)
			fmt.Fprintf(&variants, "\n%s\n", v.text)
		}
		b.WriteString("\t}\n")
	}
	b.Write(s.text[last:])
	return b.String() + variants.String(), nil
}

// call calls the variant of a function with the arguments that the function has, and
// returns what it returns.
func (f function) call(variant string) (string, error) {
	if f.Recv != nil {
		names := namesOf(f.Recv)
		if len(names) != 1 {
			return "", fmt.Errorf("%s: its receiver has no name", f.key())
		}
		variant = names[0] + "." + variant
	}
	if generic := namesOf(f.Type.TypeParams); len(generic) > 0 {
		variant += "[" + strings.Join(generic, ", ") + "]"
	}
	arguments := namesOf(f.Type.Params)
	if len(arguments) != f.Type.Params.NumFields() {
		return "", fmt.Errorf("%s: a parameter has no name", f.key())
	}
	call := variant + "(" + strings.Join(arguments, ", ") + ")\n"
	if f.Type.Results == nil {
		return "\t\t" + call + "\t\treturn\n", nil
	}
	return "\t\treturn " + call, nil
}

// namesOf are the names of parameters, as they are handed on.
func namesOf(list *ast.FieldList) (names []string) {
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		_, variadic := field.Type.(*ast.Ellipsis)
		for _, name := range field.Names {
			if variadic {
				names = append(names, name.Name+"...")
			} else {
				names = append(names, name.Name)
			}
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "_" })
}
