package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// options are what the command line asks for.
type options struct {
	files     []string // "-" is standard input
	namespace string   // "": any
	name      string   // "": the only one
	replicas  *int32   // nil: what the ReplicaSet itself asks for
	at        time.Time
	output    string
}

// parse understands flags before and after the name, in every form that kubectl
// does: --output name, --output=name, -o name, -o=name, -oname.
func parse(args []string) (options, error) {
	opts := options{output: "table"}
	fs := opts.flagSet()
	rest := unglue(fs, args)
	var words []string
	for {
		if err := fs.Parse(rest); err != nil {
			return options{}, err
		}
		if fs.NArg() == 0 {
			break
		}
		words = append(words, fs.Arg(0))
		rest = fs.Args()[1:]
	}
	if len(opts.files) == 0 {
		opts.files = []string{"-"}
	}
	return opts, opts.setName(words)
}

func (o *options) flagSet() *flag.FlagSet {
	fs := flag.NewFlagSet("kubectl scaledown", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, name := range []string{"f", "filename"} {
		fs.Func(name, "", o.addFile)
	}
	for _, name := range []string{"n", "namespace"} {
		fs.StringVar(&o.namespace, name, "", "")
	}
	for _, name := range []string{"o", "output"} {
		fs.Func(name, "", o.setOutput)
	}
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

func (o *options) addFile(name string) error {
	if name == "" {
		return errors.New("must name a file")
	}
	o.files = append(o.files, name)
	return nil
}

func (o *options) setOutput(format string) error {
	if formats[format] == nil {
		return errors.New("must be table, json or name")
	}
	o.output = format
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

// setName takes the words that are no flags: NAME, rs/NAME, rs NAME or
// NAMESPACE/NAME. None leaves the name open.
func (o *options) setName(words []string) error {
	if len(words) == 2 && isReplicaSet(words[0]) {
		words = words[1:]
	}
	switch len(words) {
	case 0:
		return nil
	case 1:
	default:
		return fmt.Errorf("one name at most: %q", words)
	}
	prefix, name, qualified := strings.Cut(words[0], "/")
	if !qualified {
		prefix, name = "rs", words[0]
	}
	if prefix == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not NAME, rs/NAME or NAMESPACE/NAME", words[0])
	}
	o.name = name
	if isReplicaSet(prefix) {
		return nil
	}
	if o.namespace != "" && o.namespace != prefix {
		return fmt.Errorf("%q is not in namespace %q", words[0], o.namespace)
	}
	o.namespace = prefix
	return nil
}

// isReplicaSet reports whether word is how kubectl users call the resource.
func isReplicaSet(word string) bool {
	resource, _, _ := strings.Cut(strings.ToLower(word), ".")
	return resource == "rs" || resource == "replicaset" || resource == "replicasets"
}

// wantsTerminal reports whether stdin would be read but has nobody to fill it.
func (o *options) wantsTerminal(stdin io.Reader) bool {
	file, ok := stdin.(*os.File)
	if !ok || !slices.Contains(o.files, "-") {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
