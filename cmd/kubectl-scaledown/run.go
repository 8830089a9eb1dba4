// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// fresh is the maximum age of a dump that needs no note. If the dump has nodes, it has a time of the
// last five minutes, because each kubelet reports that often.
const fresh = 10 * time.Minute

// run reads the input and prints the answers. With --watch, it prints the answers again whenever
// they change.
func (o *options) run(ctx context.Context) error {
	last := ""
	for {
		objs, answers, err := o.answers(ctx)
		if err != nil {
			return err
		}
		if now := signature(answers); now != last {
			last = now
			if err := o.print(objs, answers); err != nil {
				return err
			}
		}
		if !o.watch {
			return nil
		}
		if err := o.changed(ctx, objs); err != nil {
			return err
		}
		select {
		case <-time.After(time.Second): // wait, because changes often arrive in groups
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answers reads the input and returns the objects and the answers. If pods of a cluster seem to be
// missing, it reads the cluster again a few times, because the status of an owner may be out of
// date. A single deadline covers all reads.
func (o *options) answers(ctx context.Context) (*objects, []answer, error) {
	if o.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, o.limit, fmt.Errorf("no answer within %s: set a longer --request-timeout", o.limit))
		defer cancel()
	}
	for tries := 1; ; tries++ {
		objs, err := o.read(ctx, *o.files.Filenames)
		if err != nil {
			return nil, nil, err
		}
		if len(o.after) > 0 {
			if objs.after, err = o.read(ctx, o.after); err != nil {
				return nil, nil, err
			}
		}
		answers, err := o.answersFrom(objs)
		if err != nil {
			return nil, nil, err
		}
		if o.whyNot { // --why-not reports missing pods in its output
			return objs, answers, nil
		}
		var missing []error
		for _, a := range answers {
			missing = append(missing, a.incomplete())
		}
		err = errors.Join(missing...)
		if err == nil || o.allowIncomplete {
			if err != nil {
				objs.notes = append(objs.notes, err.Error())
			}
			return objs, answers, nil
		}
		if !o.live() || tries == 5 {
			return nil, nil, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, nil, err
		}
	}
}

func (o *options) answersFrom(objs *objects) ([]answer, error) {
	if o.instant == "" {
		o.at = o.now() // taken after the read, because the read may take long
		if len(o.after) > 0 {
			o.at = objs.newest
		} else if age := o.at.Sub(objs.newest); !o.live() && !objs.newest.IsZero() && age > fresh {
			objs.notes = append(objs.notes, fmt.Sprintf("the input seems to be %s old, because nothing in it is newer than %s. The answer is for now, as if nothing had changed since. If the input was saved at another time, give that time with --at",
				duration.HumanDuration(age), objs.newest.UTC().Format(time.RFC3339)))
		}
	}
	if err := o.ask(objs); err != nil {
		return nil, err
	}
	slices.SortFunc(objs.pods, byUID) // the plans keep this order, and must not depend on the order in the dump
	owners, err := objs.find(o)
	if err != nil {
		return nil, err
	}
	if format := *o.format.OutputFormat; len(owners) > 1 && (format == "name" || o.pod != "" || objs.after != nil) {
		return nil, fmt.Errorf("-o name, --pod and --compare need exactly one object: name one of these: %s", listed(owners, ""))
	}
	var answers []answer
	for _, w := range owners {
		steps := o.steps
		if objs.after != nil && steps == nil {
			if steps, err = wantedAfter(objs.after, w); err != nil {
				return nil, err
			}
		}
		each, err := o.decide(objs, w, steps)
		if err != nil {
			return nil, err
		}
		answers = append(answers, each...)
	}
	if o.instant == "" {
		return answers, nil
	}
	return answers, o.existed(answers)
}

// existed returns an error if an answer contains a pod that was created after the time of --at. If
// a pod is newer than the time of --at, the input was read after that time. Pods that existed at
// the time of --at may then be missing from the input.
func (o *options) existed(answers []answer) error {
	for _, a := range answers {
		for _, d := range a.sets {
			for _, v := range d.order {
				if made := v.Object.CreationTimestamp; made.After(o.at) {
					return fmt.Errorf("--at %s: pod %s of %s did not exist then: it was created at %s", o.instant, v.Object.Name, d.owner, made.UTC().Format(time.RFC3339))
				}
			}
		}
	}
	return nil
}

// signature returns a string that changes when the answers change, but not when the pods only get
// older.
func signature(answers []answer) string {
	var text bytes.Buffer
	for _, a := range answers {
		fmt.Fprintln(&text, a.owner, a.summary())
		for _, d := range a.sets {
			fmt.Fprintln(&text, d.owner, d.verdict(), d.tie)
			for _, v := range d.plan.Scale.Delete {
				fmt.Fprintln(&text, v.Object.UID)
			}
		}
	}
	return text.String()
}

// print writes the whole output, or nothing if there is an error.
func (o *options) print(objs *objects, answers []answer) error {
	var out bytes.Buffer
	var err error
	switch format := *o.format.OutputFormat; {
	case o.whyNot:
		o.printWhyNot(&out, objs, answers)
	case objs.after != nil && format == "":
		answers[0].printComparison(&out, objs.after)
	case format == "name":
		err = o.printNames(&out, answers)
	case (format == "" || format == "wide") && *o.format.TemplatePrinterFlags.TemplateArgument == "":
		err = o.printTables(&out, objs, answers)
	default:
		err = o.printObjects(&out, objs, answers)
	}
	if err != nil {
		return err
	}
	for _, a := range answers {
		objs.notes = append(objs.notes, a.notes()...)
	}
	if out.Len() == 0 {
		objs.notes = append(objs.notes, answers[0].summary())
	}
	for _, note := range slices.Compact(objs.notes) {
		say(o.ErrOut, "note: %s\n", note)
	}
	_, err = out.WriteTo(o.Out)
	return err
}

// colours returns true if the output is a terminal and the variable NO_COLOR is empty.
func (o *options) colours() bool {
	file, ok := o.Out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
}

// printNames writes the names of the pods to delete, in deletion order and in the format of kubectl
// -o name.
func (o *options) printNames(out *bytes.Buffer, answers []answer) error {
	for _, a := range answers {
		for _, d := range a.sets {
			if d.tie != nil && !o.allowTies {
				return fmt.Errorf("%s: %d of the %s to delete are chosen from %d pods, but it is not known which (--allow-ties prints one choice): %s",
					d.owner, d.tie.goes, number(d.victims(), "pod"), d.tie.to-d.tie.from, d.tie.cause)
			}
			for _, victim := range d.plan.Scale.Delete[d.gone:] {
				fmt.Fprintf(out, "pod/%s\n", victim.Object.Name)
			}
		}
	}
	return nil
}

// printObjects writes the answers with kubectl's printers, for example for -o json.
func (o *options) printObjects(out *bytes.Buffer, objs *objects, answers []answer) error {
	printer, err := o.format.ToPrinter()
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}}
	for _, a := range answers {
		object, err := a.object(objs, o)
		if err != nil {
			return err
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&object)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: fields})
	}
	if len(list.Items) == 1 && !o.all {
		return printer.PrintObj(&list.Items[0], out)
	}
	return printer.PrintObj(list, out)
}

// wantedAfter returns the owner's spec.replicas in a later dump.
func wantedAfter(after *objects, w owner) ([]int32, error) {
	for _, later := range after.owners() {
		if later.kind == w.kind && later.GetNamespace() == w.GetNamespace() && later.GetName() == w.GetName() && later.replicas != nil {
			return []int32{*later.replicas}, nil
		}
	}
	return nil, fmt.Errorf("--compare: no %s with spec.replicas in the later dump: give --replicas", w)
}
