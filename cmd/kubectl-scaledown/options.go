// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/replicakit/replicakit/podrank"
)

// options are what the command line asks for.
type options struct {
	genericiooptions.IOStreams

	now     func() time.Time
	cluster *genericclioptions.ConfigFlags
	format  *genericclioptions.PrintFlags
	files   genericclioptions.FileNameFlags

	kind     *kind  // nil: any
	name     string // "": the only one
	labels   string
	selector labels.Selector // labels; nil: any
	all      bool            // every namespace
	watch    bool
	limit    time.Duration // for all reads; 0: none

	replicas int32
	steps    []int32 // --steps, or --replicas; nil: its spec.replicas
	instant  string
	at       time.Time     // instant; zero: when the input was read
	within   time.Duration // how long after at you may scale

	explain         bool
	whyNot          bool
	pod             string
	cost            map[string]int64
	cordon          []string
	order           []string
	after           []string
	noHeaders       bool
	allowTies       bool
	allowIncomplete bool
}

const examples = `  # Who goes when web is scaled to 25?
  kubectl scaledown deployment/web --replicas 25

  # The whole order, down to the last pod, and what decided between each two
  kubectl scaledown deployment/web --explain -o wide

  # Why does this pod stay, or go? What if its deletion cost were -10?
  kubectl scaledown deployment/web --replicas 25 --pod web-5d9c7b6f4d-jb62l
  kubectl scaledown deployment/web --replicas 25 --cost web-5d9c7b6f4d-jb62l=-10

  # Why are no pods created or deleted?
  kubectl scaledown rs/web-5d9c7b6f4d --why-not

  # Scaled down in three steps; in every namespace; again at each change
  kubectl scaledown rs/web-5d9c7b6f4d --steps 35,30,25
  kubectl scaledown deployments -A --replicas 1
  kubectl scaledown deployment/web --replicas 25 --watch

  # Save what is there now; ask later, as it was decided then
  kubectl get deployments,rs,pods,nodes,pdb -o json > fleet.json
  kubectl scaledown -f fleet.json deployment/web --replicas 25 --at 2026-11-21T11:40:54Z

  # A post-mortem: which pods went, of those that were to go?
  kubectl scaledown -f fleet.json deployment/web --compare after.json`

const long = `Show which pods would go if you scaled down, in which order, and why.
It reads only: nothing is scaled, nothing is deleted.

KIND is deployment, rs or rc. KIND, NAME or both may be left out if only one can be meant.

A pod is named as certain only if it can be known. Pods that are alike are a tie: kube-controller-manager
takes them by the order of its cache, and replicakit-controller by UID. Pods whose ages are equal up to a
power of two, or become so --within the time until you scale, are a tie if their UIDs say otherwise.

During a rollout the answer is about one step. What the rollout does next depends on which pods become ready,
so --steps of a Deployment are refused then, unless its rollout is paused.

The exit code is 0 for an answer and 1 if there is none.`

func newCommand(streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	o := &options{
		IOStreams: streams, now: now, format: genericclioptions.NewPrintFlags(""), cluster: genericclioptions.NewConfigFlags(true),
		files: genericclioptions.FileNameFlags{
			Usage: "a dump of the whole namespace to read instead of the cluster", Filenames: &[]string{}, Recursive: new(bool),
		},
	}
	*o.cluster.Timeout = "30s"
	o.cluster.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.Timeout = 0 // one deadline is for all requests
		c.QPS = -1    // a few lists, which the server itself limits
		c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
		return c
	}
	cmd := &cobra.Command{
		Use:           "kubectl-scaledown [KIND/NAME | KIND NAME]",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl scaledown"},
		Short:         "Show which pods would go if you scaled down, in which order, and why",
		Long:          long,
		Example:       examples,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(cmd.Flags(), args); err != nil {
				return hinted(err)
			}
			return o.run(cmd.Context())
		},
		ValidArgsFunction: o.completions,
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return hinted(meantFlag(cmd.Flags(), err)) })
	o.addFlags(cmd)
	return cmd
}

func hinted(err error) error { return fmt.Errorf("%w\nSee 'kubectl scaledown --help' for usage", err) }

func (o *options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.Int32Var(&o.replicas, "replicas", 0, "how many are wanted (default: its spec.replicas)")
	f.Int32SliceVar(&o.steps, "steps", nil, "how many are wanted, one after the other, such as 40,30,20; during a rollout only if it is paused")
	f.BoolVar(&o.explain, "explain", false, "the whole order, not only those that go")
	f.StringVar(&o.pod, "pod", "", "why this pod goes or stays, and what would change it")
	f.BoolVar(&o.whyNot, "why-not", false, "what can be seen from outside that may keep its controller from creating or deleting pods")
	f.StringToInt64Var(&o.cost, "cost", nil, "what if this pod had this deletion cost, as POD=N")
	f.StringSliceVar(&o.cordon, "cordon", nil, "what if this node were cordoned; see --order")
	f.StringSliceVar(&o.order, "order", nil, "what replicakit-controller compares after unassigned, phase and readiness, before the rest of Kubernetes' order: "+strings.Join(podrank.OrderWords(), ", "))
	f.StringSliceVar(&o.after, "compare", nil, "a dump from after the scaling: which pods went, of those that were named from --filename?")
	f.StringVar(&o.instant, "at", "", "decide at this instant, such as 2026-11-21T11:40:54Z, when all pods must exist (default: now)")
	f.DurationVar(&o.within, "within", time.Minute, "how soon you scale: what ages decide otherwise by then is not certain (default with --at: 0)")
	f.BoolVar(&o.allowTies, "allow-ties", false, "with -o name: print pods too that are only one choice among pods that are alike")
	f.BoolVar(&o.allowIncomplete, "allow-incomplete", false, "answer although pods seem to be missing in the input")
	f.StringVarP(&o.labels, "selector", "l", "", "those with these labels, such as app=web")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "those of every namespace")
	f.BoolVarP(&o.watch, "watch", "w", false, "answer again when something has changed")
	f.BoolVar(&o.noHeaders, "no-headers", false, "tables without their headers")
	o.files.AddFlags(f)
	o.format.AddFlags(cmd)
	f.Lookup("output").Usage = "Output format. One of: (" + strings.Join(o.formats(), ", ") + ")."
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
	o.cluster.AddFlags(f)
	f.Lookup("request-timeout").Usage = "How long everything that is read may take, such as 5s or 2m. 0 is without end."
}

// formats are the values of --output, of kubectl and of this command.
func (o *options) formats() []string {
	return append([]string{"wide"}, o.format.AllowedFormats()...)
}

// complete reads what the flags alone do not, and refuses what does not fit together.
func (o *options) complete(flags *pflag.FlagSet, args []string) (err error) {
	if flags.Changed("replicas") {
		if o.steps != nil {
			return errors.New("--replicas and --steps: give one of them")
		}
		o.steps = []int32{o.replicas}
	}
	for i, n := range o.steps {
		if n < 0 {
			return fmt.Errorf("%d replicas: must not be negative", n)
		}
		if i > 0 && n >= o.steps[i-1] {
			return fmt.Errorf("--steps %d,%d: must go down", o.steps[i-1], n)
		}
	}
	for name, cost := range o.cost {
		if cost < math.MinInt32 || cost > math.MaxInt32 {
			return fmt.Errorf("--cost %s=%d: must be a number of 32 bits", name, cost)
		}
	}
	if err := o.completeTimes(flags); err != nil {
		return err
	}
	if flags.Changed("selector") {
		if o.selector, err = labels.Parse(o.labels); err != nil || o.selector.Empty() {
			return fmt.Errorf("--selector %q: must name labels, such as app=web", o.labels)
		}
	}
	if err := o.setTarget(args); err != nil {
		return err
	}
	return o.refuse()
}

func (o *options) completeTimes(flags *pflag.FlagSet) (err error) {
	if o.instant != "" {
		if o.at, err = time.Parse(time.RFC3339, o.instant); err != nil || o.at.IsZero() {
			return fmt.Errorf("--at %q: must be an instant such as 2026-11-21T11:40:54Z", o.instant)
		}
		if !flags.Changed("within") {
			o.within = 0
		}
	}
	if o.within < 0 {
		return fmt.Errorf("--within %s: must not be negative", o.within)
	}
	if o.limit, err = clientcmd.ParseTimeout(*o.cluster.Timeout); err == nil && o.limit < 0 {
		err = fmt.Errorf("--request-timeout %s: must not be negative", o.limit)
	}
	return err
}

func (o *options) refuse() error {
	format := *o.format.OutputFormat
	switch {
	case o.selector != nil && o.name != "":
		return fmt.Errorf("%q and --selector: give a name or labels, not both", o.name)
	case o.all && o.name != "":
		return fmt.Errorf("a resource cannot be retrieved by name across all namespaces: %q and --all-namespaces", o.name)
	case o.explain && format == "name":
		return errors.New("-o name lists the pods that go, never those that stay: leave --explain out")
	case o.watch && !o.live():
		return errors.New("--watch: a dump does not change")
	case len(o.after) > 0 && o.live():
		return errors.New("--compare: say with --filename what was there before")
	case o.whyNot && (o.all || format != "" || o.watch || len(o.after) > 0 || o.explain || o.pod != "" || o.steps != nil):
		return errors.New("--why-not is text about an owner as it is: leave out -A, -o, -w, --compare, --explain, --pod, --replicas and --steps")
	case o.format.OutputFormat != nil && format != "" && format != "wide" && format != "name":
		if _, err := o.format.ToPrinter(); err != nil {
			return fmt.Errorf("%w (and wide)", err)
		}
	}
	return nil
}

// several reports whether there may be more than one owner.
func (o *options) several() bool { return o.all || o.selector != nil }

// live reports whether the cluster is read, not files.
func (o *options) live() bool { return len(*o.files.Filenames) == 0 }

// setTarget reads the words that are not flags: KIND/NAME, KIND NAME, KIND, NAME or none.
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
			return fmt.Errorf("%q has no name: say KIND/NAME", words[0])
		}
	case 2:
		kind, name = words[0], words[1]
	default:
		return fmt.Errorf("one name at most: %q", words)
	}
	if kind == "" && name == "" || strings.HasPrefix(words[0], "/") || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not KIND/NAME", strings.Join(words, " "))
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

// completions returns names that complete a word.
func (o *options) completions(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	kind, _, named := strings.Cut(word, "/")
	prefix := kind + "/"
	if len(args) == 1 {
		kind, prefix, named = args[0], "", true
	}
	if o.kind = kindOf(kind); !named || o.kind == nil {
		return []string{"deployment/", "rs/", "rc/"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	objs, err := o.readCluster(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError | cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, owner := range filter(objs.owners(), o.means) {
		names = append(names, prefix+owner.GetName())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// meantFlag adds similar flags to the error for an unknown flag.
func meantFlag(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean(unknown.GetSpecifiedName(), names, "--"))
}

// didYouMean asks whether a word should be one of the others.
func didYouMean(word string, others []string, prefix string) string {
	found := similarTo(word, others)
	for i := range found {
		found[i] = prefix + found[i]
	}
	return question(found)
}

func question(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", strings.Join(words, ", "))
}

// similarTo returns up to three others that are similar to a word, as cobra finds them for
// commands.
func similarTo(word string, others []string) []string {
	cmd := &cobra.Command{SuggestionsMinimumDistance: 2}
	slices.Sort(others)
	for _, other := range slices.Compact(others) {
		cmd.AddCommand(&cobra.Command{Use: other, Run: func(*cobra.Command, []string) {}})
	}
	found := cmd.SuggestionsFor(word)
	return found[:min(3, len(found))]
}
