// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authorization/path"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/replicakit/replicakit/expectations"
	"github.com/replicakit/replicakit/podrank"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/clientgo"
)

// options holds the values of the flags.
type options struct {
	kubeconfig, master string
	qps                float32
	burst              int

	namespaces    []string // empty means all
	controllers   []string
	enabled       []controller    // the controllers that --controllers selects
	workers       map[string]*int // number of workers, by name of the controller
	burstReplicas int
	featureGates  map[string]string
	costs         bool // whether deletion costs are compared; parsed from featureGates
	// scaleDownOrder is the order in the syntax of podrank.ParseOrder.
	scaleDownOrder string

	expectationsTimeout time.Duration
	podFailureBackOff   bool
	statusDelay         time.Duration

	metricsAddress    string   // "0" means none
	openPaths         []string // paths that any client may get
	certFile, keyFile string
	profiling         bool

	allowOthers bool // whether other controllers may serve the same kinds

	version bool // whether to print the version and exit
	logging *logsapi.LoggingConfiguration

	elect         bool
	leaseDuration time.Duration
	renewDeadline time.Duration
	retryPeriod   time.Duration
	resourceLock  string
	lease         types.NamespacedName
}

// defaults returns the defaults of Kubernetes (Z2, Z3), but without a fixed rate of API calls. The
// lease has its own name, because kube-controller-manager keeps running and holds its own lease.
func defaults() options {
	return options{
		burst:         30,
		controllers:   []string{"*"},
		workers:       map[string]*int{},
		burstReplicas: replicas.DefaultBurstReplicas,
		costs:         true, scaleDownOrder: kubernetesOrder,

		expectationsTimeout: expectations.DefaultTimeout,
		podFailureBackOff:   true,

		metricsAddress: "127.0.0.1:8443",
		openPaths:      []string{"/healthz", "/readyz", "/livez"},
		logging:        logsapi.NewLoggingConfiguration(),
		elect:          true,
		leaseDuration:  15 * time.Second,
		renewDeadline:  10 * time.Second,
		retryPeriod:    2 * time.Second,
		resourceLock:   "leases",
		lease:          types.NamespacedName{Namespace: "kube-system", Name: "replicakit-controller"},
	}
}

// parse reads the flags. It reports all invalid values in one error, with one line for each. The
// text of --help is written to stdout.
func parse(args []string, stdout io.Writer) (options, error) {
	opts := defaults()
	fs := opts.flagSet()
	fs.Usage = func() {
		_, _ = fmt.Fprintf(stdout, usage, strings.Join(namesOf(controllers()), ",-"), fs.FlagUsages())
	}
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("arguments that are not flags: %q", fs.Args())
	}
	opts.fillIn()
	return opts, opts.validate()
}

const usage = `Usage:
  replicakit-controller [flags]

Runs the ReplicaSets and ReplicationControllers of a cluster, in place of kube-controller-manager.
First start kube-controller-manager without its two controllers, because two controllers create each pod twice:

  kube-controller-manager --controllers=*,-%s ...

Flags:
%s`

func (o *options) flagSet() *pflag.FlagSet {
	fs := pflag.NewFlagSet("replicakit-controller", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-")) // so that --concurrent_rc_syncs works
	})
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "file with the address and the credentials of the API server; empty means the service account of the pod")
	fs.StringVar(&o.master, "master", o.master, "address of the API server; overrides the kubeconfig's")
	fs.Float32Var(&o.qps, "kube-api-qps", o.qps, "maximum number of API calls per second for each controller; 0 means as many as the API server answers without getting slow")
	fs.IntVar(&o.burst, "kube-api-burst", o.burst, "maximum burst of API calls above --kube-api-qps for each controller; 0 means the default")
	fs.Var((*namespaceList)(&o.namespaces), "namespace", "namespaces to serve, separated by commas, each with its own workers and queues. Without this flag, all namespaces are served")
	fs.StringSliceVar(&o.controllers, "controllers", o.controllers, "controllers to run, of "+strings.Join(controllerNames(), ", ")+`; "*" means all, "-NAME" leaves one out`)
	for _, c := range controllers() {
		o.workers[c.name] = fs.Int(c.workersFlag, clientgo.DefaultWorkers, "number of "+c.kind+"s that are processed at the same time; 0 means the default")
	}
	fs.IntVar(&o.burstReplicas, "burst-replicas", o.burstReplicas, "maximum number of pods that one pass creates or deletes; 0 means the default")
	fs.BoolVar(&o.allowOthers, "allow-other-controllers", o.allowOthers, "skip the check for other controllers of the same kinds, such as kube-controller-manager, at the start and later. Two controllers that serve the same objects create each pod twice")
	fs.BoolVar(&o.podFailureBackOff, "pod-failure-backoff", o.podFailureBackOff, "replace slowly the pods that fail, or that someone else deletes, soon after they were created. The delay is 10 s, doubles to 5 minutes, and is shorter if only a part of the pods created together has failed. A new generation of the owner ends the delay. If false, such pods are replaced at once, as Kubernetes does")
	fs.DurationVar(&o.statusDelay, "status-delay", o.statusDelay, "maximum delay for changes of pods that can affect only the owner's status. Several changes during the delay cause only one write. 0 means no delay")
	fs.DurationVar(&o.expectationsTimeout, "expectations-timeout", o.expectationsTimeout, "maximum time until the watch shows a creation or a deletion. After that time, the controller lists the pods from the API server. 0 means the default")
	fs.StringToStringVar(&o.featureGates, "feature-gates", nil, podDeletionCost+"=true|false: whether the annotation "+corev1.PodDeletionCost+" decides which pods go first; true is the default")
	fs.StringVar(&o.scaleDownOrder, "scale-down-order", o.scaleDownOrder, "which pods go first, as a list of words separated by commas, of "+strings.Join(podrank.OrderWords(), ", ")+". They are compared after unassigned, phase and readiness, and before the rest of Kubernetes' order. The annotation "+podrank.OrderAnnotation+" overrides the flag for one ReplicaSet or ReplicationController")
	fs.StringVar(&o.metricsAddress, "metrics-bind-address", o.metricsAddress, "host:port of /metrics, /livez, /healthz and /readyz, which are served over TLS; 0 turns them off. A client needs the right to get the path")
	fs.StringSliceVar(&o.openPaths, "authorization-always-allow-paths", o.openPaths, "paths that any client may get. A path that ends in * matches all paths that begin with the part before it")
	fs.BoolVar(&o.profiling, "profiling", o.profiling, "serve /debug/pprof at the address of the metrics, for clients with the right to get that path")
	fs.StringVar(&o.certFile, "tls-cert-file", o.certFile, "certificate of the metrics; empty means a self-signed one")
	fs.StringVar(&o.keyFile, "tls-private-key-file", o.keyFile, "key of the certificate")
	o.addElectionFlags(fs)
	o.addLogFlags(fs)
	fs.BoolVar(&o.version, "version", o.version, "print the version and exit")
	return fs
}

// addLogFlags adds Kubernetes' log flags, except the alpha flags.
func (o *options) addLogFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	logsapi.AddFlags(o.logging, all)
	for _, name := range []string{"logging-format", logsapi.LogFlushFreqFlagName, "v", "vmodule"} {
		fs.AddFlag(all.Lookup(name))
	}
}

func (o *options) addElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.elect, "leader-elect", o.elect, "work only while this manager holds the lease, so that only one of several managers works")
	fs.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", o.leaseDuration, "time after which another manager takes over a lease that the leader has not renewed")
	fs.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", o.renewDeadline, "how long the leader tries to renew the lease before it exits. After this time without a renewal, it makes no writes")
	fs.DurationVar(&o.retryPeriod, "leader-elect-retry-period", o.retryPeriod, "time between two attempts to get or renew the lease")
	fs.StringVar(&o.resourceLock, "leader-elect-resource-lock", o.resourceLock, "kind of the lock, which must be leases")
	fs.StringVar(&o.lease.Name, "leader-elect-resource-name", o.lease.Name, "name of the lease")
	fs.StringVar(&o.lease.Namespace, "leader-elect-resource-namespace", o.lease.Namespace, "namespace of the lease")
}

// fillIn replaces 0 with the default for each flag whose help says that 0 means the default. It
// also sorts the namespaces and removes duplicates.
func (o *options) fillIn() {
	d := defaults()
	o.burst = cmp.Or(o.burst, d.burst)
	o.burstReplicas = cmp.Or(o.burstReplicas, d.burstReplicas)
	o.expectationsTimeout = cmp.Or(o.expectationsTimeout, d.expectationsTimeout)
	slices.Sort(o.namespaces)
	o.namespaces = slices.Compact(o.namespaces)
	for _, workers := range o.workers {
		*workers = cmp.Or(*workers, clientgo.DefaultWorkers)
	}
}

func (o *options) validate() error {
	errs := []error{o.validateNumbers(), o.validateMetrics(), o.validateLogging()}
	for _, namespace := range o.namespaces {
		err := validateName("namespace", namespace, validation.IsDNS1123Label)
		if namespace == "" {
			err = errors.New("--namespace: must not be empty; to serve all namespaces, leave the flag out")
		}
		errs = append(errs, err)
	}
	var err error
	if o.costs, err = deletionCosts(o.featureGates); err != nil {
		errs = append(errs, err)
	}
	if _, err := podrank.ParseOrder(o.scaleDownOrder, noNode); err != nil {
		errs = append(errs, fmt.Errorf("--scale-down-order: %w", err))
	}
	if o.enabled, err = selectControllers(o.controllers); err != nil {
		errs = append(errs, err)
	}
	if o.elect {
		errs = append(errs, o.validateElection())
	}
	return errors.Join(errs...)
}

// podDeletionCost is the only feature gate of Kubernetes that this program has.
const podDeletionCost = "PodDeletionCost"

// deletionCosts reports whether deletion costs are compared. By default, they are compared, but the
// feature gate can turn this off.
func deletionCosts(gates map[string]string) (costs bool, err error) {
	costs = true
	for name, value := range gates {
		if name != podDeletionCost {
			return false, fmt.Errorf("--feature-gates=%s=%s: the only feature gate is %s", name, value, podDeletionCost)
		}
		if costs, err = strconv.ParseBool(value); err != nil {
			return false, fmt.Errorf("--feature-gates=%s=%s: must be true or false", name, value)
		}
	}
	return costs, nil
}

// noNode always returns nil. It lets podrank.ParseOrder validate an order before any node is known.
func noNode(string) *corev1.Node { return nil }

// validateName returns an error if name is empty, or if the given validation function, such as
// IsDNS1123Label, rejects it.
func validateName(flag, name string, is func(string) []string) error {
	if name == "" {
		return fmt.Errorf("--%s: must not be empty", flag)
	}
	if why := is(name); why != nil {
		return fmt.Errorf("--%s=%q: %s", flag, name, strings.Join(why, "; "))
	}
	return nil
}

func (o *options) validateNumbers() error {
	var errs []error
	check := func(name string, value any, positive bool) {
		if !positive {
			errs = append(errs, fmt.Errorf("--%s=%v: must be a positive number, or 0 for the default", name, value))
		}
	}
	if o.qps < 0 || math.IsNaN(float64(o.qps)) || math.IsInf(float64(o.qps), 0) {
		errs = append(errs, fmt.Errorf("--kube-api-qps=%v: must be a positive number, or 0 for as many as the server answers", o.qps))
	}
	check("kube-api-burst", o.burst, o.burst > 0)
	check("burst-replicas", o.burstReplicas, o.burstReplicas > 0)
	check("expectations-timeout", o.expectationsTimeout, o.expectationsTimeout > 0)
	if o.statusDelay < 0 {
		errs = append(errs, fmt.Errorf("--status-delay=%v: must not be negative", o.statusDelay))
	}
	for _, c := range controllers() {
		workers := *o.workers[c.name]
		check(c.workersFlag, workers, workers > 0)
	}
	return errors.Join(errs...)
}

func (o *options) validateMetrics() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file and --tls-private-key-file: set both or neither")
	}
	if o.certFile != "" && !o.metrics() {
		return fmt.Errorf("--tls-cert-file=%q: requires --metrics-bind-address, which is 0", o.certFile)
	}
	if _, err := path.NewAuthorizer(o.openPaths); err != nil {
		return fmt.Errorf("--authorization-always-allow-paths=%s: %w", strings.Join(o.openPaths, ","), err)
	}
	if o.profiling && !o.metrics() {
		return errors.New("--profiling: requires --metrics-bind-address, which is 0")
	}
	if !o.metrics() {
		return nil
	}
	_, port, err := net.SplitHostPort(o.metricsAddress)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--metrics-bind-address=%q: must be host:port, or 0 for none: %w", o.metricsAddress, err)
	}
	return nil
}

// validateLogging validates the log flags. Its errors contain the names of flags, instead of the
// library's field names.
func (o *options) validateLogging() error {
	var errs []error
	for _, err := range logsapi.Validate(o.logging, nil, nil) {
		flag, ok := map[string]string{"format": "logging-format", "flushFrequency": logsapi.LogFlushFreqFlagName}[err.Field]
		if !ok {
			flag, _, _ = strings.Cut(err.Field, "[")
		}
		errs = append(errs, fmt.Errorf("--%s: %s", flag, err.ErrorBody()))
	}
	return errors.Join(errs...)
}

func (o *options) metrics() bool { return o.metricsAddress != "0" }

// A namespaceList is the value of the flag --namespace. Unlike pflag's lists, it keeps an empty name, so that validate
// refuses it: --namespace=$UNSET would otherwise serve all namespaces.
type namespaceList []string

func (l *namespaceList) Set(text string) error {
	*l = append(*l, strings.Split(text, ",")...)
	return nil
}

func (l *namespaceList) String() string { return strings.Join(*l, ",") }
func (l *namespaceList) Type() string   { return "strings" }

// served says which namespaces the manager serves.
func (o *options) served() string {
	if len(o.namespaces) == 0 {
		return "all namespaces"
	}
	return "namespaces " + strings.Join(o.namespaces, ", ")
}

// watched returns the namespaces to watch. Each namespace has its own watches. The namespace ""
// means all namespaces.
func (o *options) watched() []string {
	if len(o.namespaces) == 0 {
		return []string{corev1.NamespaceAll}
	}
	return o.namespaces
}

// validateElection returns an error for the values that client-go's leader election would reject.
// Its errors contain the names of the flags. The checks round the lease duration down to whole
// seconds, because a lease stores whole seconds.
func (o *options) validateElection() error {
	errs := []error{
		validateName("leader-elect-resource-name", o.lease.Name, validation.IsDNS1123Subdomain),
		validateName("leader-elect-resource-namespace", o.lease.Namespace, validation.IsDNS1123Label),
	}
	lasts := o.leaseDuration.Truncate(time.Second)
	refuse := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(o.resourceLock != "leases", "--leader-elect-resource-lock=%q: must be leases", o.resourceLock)
	refuse(o.leaseDuration < time.Second, "--leader-elect-lease-duration=%v: must be at least one second", o.leaseDuration)
	refuse(lasts <= o.renewDeadline, "--leader-elect-lease-duration=%v: lasts %v in whole seconds, must be more than --leader-elect-renew-deadline=%v", o.leaseDuration, lasts, o.renewDeadline)
	refuse(o.renewDeadline*10 <= o.retryPeriod*12, "--leader-elect-renew-deadline=%v: must be more than 1.2 times --leader-elect-retry-period=%v", o.renewDeadline, o.retryPeriod)
	refuse(o.retryPeriod <= 0, "--leader-elect-retry-period=%v: must be positive", o.retryPeriod)
	return errors.Join(errs...)
}

// selectControllers returns the controllers that a list such as "*,-replicaset" selects. Names and
// aliases are the same as in Kubernetes (Z1).
func selectControllers(list []string) ([]controller, error) {
	var selected []controller
	for _, c := range controllers() {
		in := slices.ContainsFunc(list, c.isCalled)
		out := slices.ContainsFunc(list, func(name string) bool {
			name, found := strings.CutPrefix(name, "-")
			return found && c.isCalled(name)
		})
		if in && out {
			return nil, fmt.Errorf("--controllers=%s: both runs %s and leaves it out", strings.Join(list, ","), c.name)
		}
		if in || (slices.Contains(list, "*") && !out) {
			selected = append(selected, c)
		}
	}
	for _, name := range list {
		if !isKnown(strings.TrimPrefix(name, "-")) && name != "*" {
			return nil, fmt.Errorf("--controllers=%s: %q is not one of %s", strings.Join(list, ","), name, strings.Join(controllerNames(), ", "))
		}
	}
	if selected == nil {
		return nil, fmt.Errorf("--controllers=%s: leaves no controller to run; to leave one out, write *,-NAME", strings.Join(list, ","))
	}
	return selected, nil
}
