// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// options are what the command line asks for.
type options struct {
	files     []string        // "-" is standard input; nil: a pipe, or the cluster
	cluster   []string        // flags that tell kubectl which cluster
	timeout   string          // of one request to it
	namespace string          // "": any, or that of the context
	kind      *kind           // nil: any
	name      string          // "": the only one
	selector  labels.Selector // nil: any
	replicas  *int32          // nil: what it itself asks for
	explain   bool
	at        time.Time // zero: now
	output    string
}

// A usageError is a command line that is not understood.
type usageError struct{ error }

func mistake(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// parse understands flags before and after the name, in every form that kubectl
// does: --output name, --output=name, -o name, -o=name, -oname.
func parse(args []string) (options, error) {
	opts := options{output: "table", timeout: "30s"}
	fs := opts.flagSet()
	rest := unglue(fs, args)
	var words []string
	for {
		if err := fs.Parse(rest); errors.Is(err, flag.ErrHelp) {
			return options{}, err
		} else if err != nil {
			return options{}, usageError{errors.New(longFlag.ReplaceAllString(err.Error(), "$1 --$2"))}
		}
		if fs.NArg() == 0 {
			break
		}
		words = append(words, fs.Arg(0))
		rest = fs.Args()[1:]
	}
	if err := opts.setTarget(words); err != nil {
		return options{}, err
	}
	return opts, opts.check()
}

// longFlag is how package flag names a flag of more than one letter, which kubectl
// users write with two dashes.
var longFlag = regexp.MustCompile(`( for| flag| not defined:| an argument:) -([\w-]{2,})`)

func (o *options) flagSet() *flag.FlagSet {
	fs := flag.NewFlagSet("kubectl scaledown", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	both := func(short, long string, set func(string) error) {
		fs.Func(short, "", set)
		fs.Func(long, "", set)
	}
	both("f", "filename", o.addFile)
	both("o", "output", o.setOutput)
	both("l", "selector", o.setSelector)
	both("n", "namespace", func(name string) error { o.namespace = name; return nil })
	for _, name := range []string{"context", "kubeconfig"} {
		fs.Func(name, "", func(value string) error { return o.addCluster(name, value) })
	}
	fs.Func("request-timeout", "", o.setTimeout)
	fs.BoolFunc("explain", "", o.setExplain)
	fs.Func("replicas", "", o.setReplicas)
	fs.Func("at", "", o.setAt)
	return fs
}

// unglue parts a one-letter flag from a value written right behind it.
func unglue(fs *flag.FlagSet, args []string) []string {
	var parted []string
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if len(name) > 1 && arg[0] == '-' && fs.Lookup(name) == nil && fs.Lookup(name[:1]) != nil {
			parted = append(parted, arg[:2], arg[2:])
			continue
		}
		parted = append(parted, arg)
	}
	return parted
}

// check refuses what each flag allows but not both together.
func (o *options) check() error {
	switch {
	case len(o.files) > 0 && len(o.cluster) > 0:
		return mistake("two sources: -f %s and the cluster (%s): leave one out", o.files[0], o.cluster[0])
	case o.selector != nil && o.name != "":
		return mistake("%q and -l: give a name or labels, not both", o.name)
	case o.explain && o.output == "name":
		return mistake("-o name lists the pods that go, never those that stay: leave --explain out")
	}
	return nil
}

func (o *options) addFile(name string) error {
	if name == "" {
		return errors.New("must name a file")
	}
	o.files = append(o.files, name)
	return nil
}

func (o *options) addCluster(name, value string) error {
	if value == "" {
		return errors.New("must not be empty")
	}
	o.cluster = append(o.cluster, "--"+name+"="+value)
	return nil
}

// setTimeout takes what kubectl does: a time, or a number of seconds.
func (o *options) setTimeout(text string) error {
	limit, err := time.ParseDuration(text)
	if seconds, isNumber := strconv.Atoi(text); isNumber == nil {
		limit, err = time.Duration(seconds), nil
	}
	if err != nil || limit < 0 {
		return errors.New("must be a time such as 30s, or 0 for no limit")
	}
	o.timeout = text
	return nil
}

func (o *options) setExplain(text string) (err error) {
	if o.explain, err = strconv.ParseBool(text); err != nil {
		return errors.New("must be true or false")
	}
	return nil
}

func (o *options) setOutput(format string) error {
	if formats[format] == nil {
		return errors.New("must be table, wide, json, name or svg")
	}
	o.output = format
	return nil
}

func (o *options) setSelector(text string) error {
	sel, err := labels.Parse(text)
	if err != nil {
		return err
	}
	if sel.Empty() {
		return errors.New("must name labels, as app=web")
	}
	o.selector = sel
	return nil
}

func (o *options) setReplicas(text string) error {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return errors.New("must be a whole number from 0 to 2147483647")
	}
	replicas := int32(n)
	o.replicas = &replicas
	return nil
}

func (o *options) setAt(text string) error {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || at.IsZero() {
		return errors.New("must be an instant such as 2026-11-21T11:40:54Z")
	}
	o.at = at
	return nil
}

// setTarget takes the words that are no flags: KIND/NAME, KIND NAME, KIND, NAME
// or none.
func (o *options) setTarget(words []string) error {
	var kind, name string
	switch len(words) {
	case 0:
		return nil
	case 1:
		var parted bool
		if kind, name, parted = strings.Cut(words[0], "/"); !parted && kindOf(kind) == nil {
			kind, name = "", words[0]
		} else if parted && name == "" {
			return mistake("%q has no name: say KIND/NAME", words[0])
		}
	case 2:
		kind, name = words[0], words[1]
	default:
		return mistake("one name at most: %q", words)
	}
	if kind == "" && name == "" || strings.HasPrefix(words[0], "/") || strings.Contains(name, "/") {
		return mistake("%q is not KIND/NAME", strings.Join(words, " "))
	}
	o.name = name
	if kind == "" {
		return nil
	}
	if o.kind = kindOf(kind); o.kind == nil {
		return foreign(kind)
	}
	return nil
}
