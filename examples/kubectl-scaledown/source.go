// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A clusterError says that the cluster could not be read, and what to do.
type clusterError struct{ why, todo string }

func (e *clusterError) Error() string { return e.why + ": " + e.todo }

// read reads the only source there is: files, a pipe, or the cluster.
func (o *options) read(stdin io.Reader, stderr io.Writer) (*objects, error) {
	piped := isPiped(stdin)
	switch {
	case slices.Contains(o.files, "-") && !piped:
		return nil, mistake("nothing to read: pipe the output of 'kubectl get deployments,rs,pods -o json' in, or leave -f - out to read the cluster")
	case len(o.files) > 0:
		return readAll(o.files, &waiting{Reader: stdin, stderr: stderr})
	case !piped:
		return o.readCluster(stderr)
	case len(o.cluster) == 0:
		return readAll([]string{"-"}, &waiting{Reader: stdin, stderr: stderr})
	}
	pipe := bufio.NewReader(&waiting{Reader: stdin, stderr: stderr})
	if _, err := pipe.Peek(1); err == nil {
		return nil, mistake("two sources: standard input and the cluster (%s): leave one out", o.cluster[0])
	} else if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return o.readCluster(stderr)
}

// isPiped reports whether somebody may fill stdin: it is no terminal, no
// /dev/null, and not closed.
func isPiped(stdin io.Reader) bool {
	file, ok := stdin.(*os.File)
	if !ok {
		return stdin != nil
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeDevice == 0
}

// patience is how long somebody else may keep the user waiting who is not told.
const patience = 3 * time.Second

// tellIfSlow tells the user what is waited for, if it takes long until done is
// called.
func tellIfSlow(stderr io.Writer, note string) (done func()) {
	told := make(chan struct{})
	timer := time.AfterFunc(patience, func() {
		defer close(told)
		say(stderr, "note: %s\n", note)
	})
	return func() {
		if !timer.Stop() {
			<-told
		}
	}
}

// A waiting is standard input, which may have nobody to fill it.
type waiting struct {
	io.Reader

	stderr io.Writer
	began  bool
}

func (w *waiting) Read(p []byte) (int, error) {
	if !w.began {
		w.began = true
		defer tellIfSlow(w.stderr, "waiting for standard input; to read the cluster instead, say </dev/null")()
	}
	return w.Reader.Read(p)
}

// readCluster has kubectl get all that counts, in one call.
func (o *options) readCluster(stderr io.Writer) (*objects, error) {
	resources := deploymentKind.resources
	if o.kind != nil {
		resources = o.kind.resources
	}
	args := []string{"get", strings.Join(resources, ","), "--output=json", "--request-timeout=" + o.timeout}
	if args = append(args, o.cluster...); o.namespace != "" {
		args = append(args, "--namespace="+o.namespace)
	}
	done := tellIfSlow(stderr, "waiting for kubectl; if it wants a login, run it by hand first: kubectl "+strings.Join(args, " "))
	output, err := kubectl(args)
	done()
	if err != nil {
		return nil, err
	}
	objs := &objects{origin: "the namespace of the context (-n names another)", kinds: map[string]int{}}
	if o.namespace != "" {
		objs.origin = fmt.Sprintf("namespace %s of the cluster", o.namespace)
	}
	return objs, objs.read("the output of kubectl get", bytes.NewReader(output))
}

// kubectl returns what kubectl prints.
func kubectl(args []string) ([]byte, error) {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return nil, &clusterError{"no kubectl on PATH to read the cluster with", "name a saved dump with -f, or pipe one in"}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, failure(lastWord(stderr.String(), err), args)
	}
	return stdout.Bytes(), nil
}

// lastWord returns the line by which kubectl says why it failed: the last one
// that is no log entry.
func lastWord(stderr string, err error) string {
	word := err.Error()
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" && !logEntry.MatchString(line) {
			word = strings.TrimPrefix(line, "error: ")
		}
	}
	return word
}

var logEntry = regexp.MustCompile(`^[IWEF]\d{4} |^Warning: `)

// remedies say what to do about what kubectl says.
var remedies = []struct{ said, todo string }{
	{"(Forbidden)", "you need the right to list these: ask 'kubectl auth can-i --list', or have somebody save a dump and read it with -f"},
	{"(Unauthorized)", "log in again, or name another cluster with --context"},
	{"context was not found", "'kubectl config get-contexts' lists them"},
	{"context \"", "'kubectl config get-contexts' lists them"},
	{"deadline exceeded", "give it longer with --request-timeout, or read a saved dump with -f"},
	{"imeout", "give it longer with --request-timeout, or read a saved dump with -f"},
	{"Unable to connect", "name another cluster with --context, or read a saved dump with -f"},
	{"was refused", "name another cluster with --context, or read a saved dump with -f"},
	{"doesn't have a resource type", "name another cluster with --context: this one has no such resource"},
}

func failure(word string, args []string) error {
	for _, r := range remedies {
		if strings.Contains(word, r.said) {
			return &clusterError{"cannot read the cluster: " + word, r.todo}
		}
	}
	return &clusterError{"cannot read the cluster: " + word, "try it by hand: kubectl " + strings.Join(args, " ")}
}
