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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/replicakit/replicakit/podrank"
)

// options holds the values of the flags and arguments on the command line.
type options struct {
	genericiooptions.IOStreams

	now     func() time.Time
	cluster *genericclioptions.ConfigFlags
	format  *genericclioptions.PrintFlags
	files   genericclioptions.FileNameFlags

	kind     *kind  // nil means any kind
	name     string // "" means any name
	labels   string
	selector labels.Selector // parsed from labels; nil means any labels
	all      bool            // whether all namespaces are read
	watch    bool
	limit    time.Duration // timeout for all reads together; 0 means no timeout

	replicas int32
	steps    []int32 // from --steps or --replicas; nil means the owner's spec.replicas (with --compare, spec.replicas in the later dump)
	instant  string
	at       time.Time     // parsed from instant; by default the current time, or the time of the first dump if --compare is set
	within   time.Duration // the scaling happens at most this long after the time options.at

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

const examples = `  # Which pods go if web is scaled to 25?
  kubectl scaledown deployment/web --replicas 25

  # The order of all pods, and what decided between each pod and the next
  kubectl scaledown deployment/web --explain -o wide

  # Why does this pod go or stay? What if the pod had deletion cost -10?
  kubectl scaledown deployment/web --replicas 25 --pod web-5d9c7b6f4d-jb62l
  kubectl scaledown deployment/web --replicas 25 --cost web-5d9c7b6f4d-jb62l=-10

  # Why are no pods created or deleted?
  kubectl scaledown rs/web-5d9c7b6f4d --why-not

  # Answer for three steps, for all namespaces, or again after each change
  kubectl scaledown rs/web-5d9c7b6f4d --steps 35,30,25
  kubectl scaledown deployments -A --replicas 1
  kubectl scaledown deployment/web --replicas 25 --watch

  # Save the objects in a file, and ask later about the time at which they were saved
  kubectl get deployments,rs,pods,nodes,pdb -o json > fleet.json
  kubectl scaledown -f fleet.json deployment/web --replicas 25 --at 2026-11-21T11:40:54Z

  # Which of the pods that were expected to go have gone?
  kubectl scaledown -f fleet.json deployment/web --compare after.json`

const long = `Show which pods would go if you scaled down, in which order, and why.
The command only reads. It scales nothing and deletes nothing.

KIND is deployment, rs or rc. KIND, NAME or both may be left out if only one object matches.

A pod is called certain only if it can be known that the pod goes. Pods that do not differ are a tie.
kube-controller-manager deletes them in the order of its cache, and replicakit-controller by UID. Ages
are compared by their power of two. If two ages have the same power of two, or may have it at some time
during --within, the UIDs decide instead. The pods are then a tie if the UIDs contradict the ages.

A dump does not contain its own time. Without --at, the answer is for now, and a note says how old the dump
seems. No pod is certain if the dump lacks UIDs, creation times or statuses.

During a rollout the answer is about one step only, because the next steps depend on which pods become ready.
So --steps is refused for a Deployment during a rollout, unless the rollout is paused.

The exit code is 0 if there is an answer, and 1 after an error.`

// help is the template of the help. It begins with the usage.
const help = `Usage:
  {{.UseLine}}

{{.Long}}

Examples:
{{.Example}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}
`

func newCommand(streams genericiooptions.IOStreams, now func() time.Time) *cobra.Command {
	o := &options{
		IOStreams: streams, now: now, format: genericclioptions.NewPrintFlags(""), cluster: genericclioptions.NewConfigFlags(true),
		files: genericclioptions.FileNameFlags{
			Usage: "file with a dump of the whole namespace, which is read instead of the cluster", Filenames: &[]string{}, Recursive: new(bool),
		},
	}
	*o.cluster.Timeout = "30s"
	o.cluster.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.Timeout = 0 // o.limit is the timeout for all requests together
		c.QPS = -1    // no rate limit, because the plugin sends only a few list requests
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
	cmd.SetHelpTemplate(help)
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return hinted(plainly(meantFlag(cmd.Flags(), err))) })
	o.addFlags(cmd)
	return cmd
}

func hinted(err error) error { return fmt.Errorf("%w\nSee 'kubectl scaledown --help' for usage", err) }

func (o *options) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.Int32Var(&o.replicas, "replicas", 0, "number of replicas to scale to (default: the object's spec.replicas)")
	f.Int32SliceVar(&o.steps, "steps", nil, "numbers of replicas to scale to, one after the other, such as 40,30,20. During a rollout the Deployment must be paused")
	f.BoolVar(&o.explain, "explain", false, "show all pods in order, instead of only those that go")
	f.StringVar(&o.pod, "pod", "", "show why this pod goes or stays, and what would change that")
	f.BoolVar(&o.whyNot, "why-not", false, "show what may keep the controller from creating or deleting pods")
	f.StringToInt64Var(&o.cost, "cost", nil, "answer as if this pod had this deletion cost, as POD=N")
	f.StringSliceVar(&o.cordon, "cordon", nil, "answer as if this node were cordoned; see --order")
	f.StringSliceVar(&o.order, "order", nil, "answer for replicakit-controller with this order. These criteria are compared after unassigned, phase and readiness, and before the rest of Kubernetes' order: "+strings.Join(podrank.OrderWords(), ", "))
	f.StringSliceVar(&o.after, "compare", nil, "file with a dump that was made after the scaling. Show which of the predicted pods are gone")
	f.StringVar(&o.instant, "at", "", "answer for this instant, such as 2026-11-21T11:40:54Z. All pods must exist then (default: now)")
	f.DurationVar(&o.within, "within", time.Minute, "maximum time until you scale. If the order by age may change during that time, the answer is not certain (default with --at: 0)")
	f.BoolVar(&o.allowTies, "allow-ties", false, "with -o name, also print pods that are only one possible choice in a tie")
	f.BoolVar(&o.allowIncomplete, "allow-incomplete", false, "answer even if pods seem to be missing in the input")
	f.StringVarP(&o.labels, "selector", "l", "", "show the objects with these labels, such as app=web")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "show the objects in all namespaces")
	f.BoolVarP(&o.watch, "watch", "w", false, "show a new answer after each change")
	f.BoolVar(&o.noHeaders, "no-headers", false, "print tables without headers")
	o.files.AddFlags(f)
	o.format.AddFlags(cmd)
	f.Lookup("output").Usage = "Output format. One of: (" + strings.Join(o.formats(), ", ") + ")."
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(o.formats(), cobra.ShellCompDirectiveNoFileComp))
	o.cluster.AddFlags(f)
	f.Lookup("request-timeout").Usage = "How long all reads together may take, such as 5s or 2m. 0 means no limit."
}

// formats returns the values that --output accepts. These are "wide" and the formats of kubectl.
func (o *options) formats() []string {
	return append([]string{"wide"}, o.format.AllowedFormats()...)
}

// complete parses the flags that pflag stores as strings. It returns an error if a value is invalid
// or if flags contradict each other.
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
	if o.order != nil {
		if _, err := o.parseOrder(func(string) *corev1.Node { return nil }); err != nil {
			return err
		}
	}
	if err := o.completeNames(); err != nil {
		return err
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

// completeNames removes the kinds from the names of pods and nodes. kubectl prints names such as
// pod/web-1 with -o name.
func (o *options) completeNames() (err error) {
	if o.pod, err = bare("--pod", o.pod, "pod", "pods", "po"); err != nil {
		return err
	}
	costs := map[string]int64{}
	for word, cost := range o.cost {
		name, err := bare("--cost", word, "pod", "pods", "po")
		if err != nil {
			return err
		}
		costs[name] = cost
	}
	o.cost = costs
	for i := range o.cordon {
		if o.cordon[i], err = bare("--cordon", o.cordon[i], "node", "nodes", "no"); err != nil {
			return err
		}
	}
	return nil
}

// bare returns NAME for a word of the form NAME or KIND/NAME.
func bare(flag, word string, kinds ...string) (string, error) {
	kind, name, parted := strings.Cut(word, "/")
	if !parted {
		return word, nil
	}
	if !slices.Contains(kinds, strings.ToLower(kind)) || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s %q: must be a name, or %s/NAME", flag, word, kinds[0])
	}
	return name, nil
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
		return errors.New("--compare: --filename must give a dump from before the scaling")
	case o.whyNot && (o.all || format != "" || o.watch || len(o.after) > 0 || o.explain || o.pod != "" || o.steps != nil):
		return errors.New("--why-not describes an owner as it is: leave out -A, -o, -w, --compare, --explain, --pod, --replicas and --steps")
	case o.format.OutputFormat != nil && format != "" && format != "wide" && format != "name":
		if _, err := o.format.ToPrinter(); err != nil {
			return fmt.Errorf("%w (and wide)", err)
		}
	}
	return nil
}

// several returns true if the options may select more than one owner.
func (o *options) several() bool { return o.all || o.selector != nil }

// live returns true if the input is read from the cluster, and false if it is read from files.
func (o *options) live() bool { return len(*o.files.Filenames) == 0 }

// setTarget sets the kind and the name from the arguments that are not flags. The arguments may be
// KIND/NAME, KIND NAME, KIND or NAME. If there are none, setTarget does nothing.
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

// completions returns the kinds or names that the shell suggests as completions of a word.
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

// meantFlag appends suggestions of similar flags to the error for an unknown flag.
func meantFlag(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || len(unknown.GetSpecifiedName()) < 2 {
		return err
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("%w%s", err, didYouMean(unknown.GetSpecifiedName(), names, "--"))
}

// accepted says in words what the flags of a type accept.
var accepted = map[string]string{
	"int32":         "a whole number from 0 to 2147483647",
	"int32Slice":    "whole numbers from 0 to 2147483647, such as 40,30,20",
	"stringToInt64": "POD=N, with a whole number N",
	"bool":          "true or false",
	"duration":      "a duration such as 90s or 5m",
}

// plainly replaces the error of a parser, which names functions of Go, with words.
func plainly(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) || accepted[invalid.GetFlag().Value.Type()] == "" {
		return err
	}
	return fmt.Errorf("--%s %q: must be %s", invalid.GetFlag().Name, invalid.GetValue(), accepted[invalid.GetFlag().Value.Type()])
}

// didYouMean compares a misspelled word with the valid words, and returns a question that suggests
// similar words. If no valid word is similar, didYouMean returns an empty string.
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

// similarTo returns at most three valid words that are similar to a misspelled word. To find them,
// it calls cobra's function that suggests commands.
func similarTo(word string, others []string) []string {
	cmd := &cobra.Command{SuggestionsMinimumDistance: 2}
	slices.Sort(others)
	for _, other := range slices.Compact(others) {
		cmd.AddCommand(&cobra.Command{Use: other, Run: func(*cobra.Command, []string) {}})
	}
	found := cmd.SuggestionsFor(word)
	return found[:min(3, len(found))]
}
