// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/podtest"
)

// TestTranscripts plays testdata/*.txt. "== " begins a sub-test with its name, and "#" a comment. Each
// other line is a command. The output of the commands before a line "----" stands below it, up to the next
// empty line. With -update the output is written anew, for a review of the difference:
//
//	go test ./replicas/controller -run TestTranscripts -update
//
// A sub-test begins with the ReplicaSet default/web that wants no pods, and a server and a cache without
// pods. A POD is a name, for example web-a, or a name with attributes, for example web-a:orphan,notready.
// A pod is owned by web, labelled app=web, and has been ready for an hour, unless its attributes say
// otherwise. The method set has the attributes.
//
//	wanted N              the owner wants N pods, in a new generation
//	owner WORD            gone or deleted on the server; lags: the cache keeps it as it is until shown;
//	                      forgotten: it leaves the cache, and returns
//	server POD...         pods are created on the server by others
//	edit POD...           pods change on the server
//	gone POD...           pods end on the server
//	cache [POD...]        the cache shows these pods as the server has them, or all; events come too
//	fail VERB ERROR       calls fail without effect; VERB is create, delete, patch, dry-run, get, list,
//	                      owner (a read), status or cache; ERROR is a name of failures, or busy SECONDS
//	lose VERB ERROR       calls take effect, and then fail; both may go on with "of NAME", "after N"
//	                      (calls that are let through before) and "times N" (calls that fail)
//	heal [VERB...]        calls of these verbs no longer fail, or none do
//	webhook ATTRIBUTE...  created pods are changed
//	parallel N            Options.MaxParallel, 1 at first
//	wait DURATION         time passes
//	pass                  makes a pass, and prints it as Pass.String does
//	passes for D every D  makes passes, and prints those with calls
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			parts := strings.Split(string(text), "\n== ")
			for i, part := range parts[1:] {
				name, body, _ := strings.Cut(part, "\n")
				t.Run(name, func(t *testing.T) { //nolint:paralleltest // the file is written when all have run
					played := name + "\n" + play(t, body)
					if !*update {
						require.Equal(t, part, played)
					}
					parts[i+1] = played
				})
			}
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(strings.Join(parts, "\n== ")), 0o600))
			}
		})
	}
}

// play runs the commands of a sub-test, and returns its text with what they print.
func play(t *testing.T, body string) string {
	t.Helper()
	s, out := newScene(t), []string(nil)
	lines := strings.Split(body, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out = append(out, line)
		switch {
		case line == "----":
			for i+1 < len(lines) && lines[i+1] != "" {
				i++
			}
			out = append(out, s.printed...)
			s.printed = nil
		case line != "" && !strings.HasPrefix(line, "#"):
			require.Empty(t, s.printed, "put ---- and the output below the command before %q", line)
			s.do(strings.Fields(line))
		}
	}
	require.Empty(t, s.printed, "put ---- and the output below the last command")
	return strings.Join(out, "\n")
}

// A scene is a rig with a server that keeps pods, and a cache that shows them only when told.
type scene struct {
	*podRig
	t        *testing.T
	server   []*corev1.Pod
	cached   []*corev1.Pod
	owned    *appsv1.ReplicaSet // the owner on the server
	lag      bool               // the cache keeps the owner that it has
	versions int
	faults   []fault
	webhook  []string // attributes of created pods
	sent     *corev1.Pod
	printed  []string
}

// A fault is the answer to calls of a verb.
type fault struct {
	verb, name string // of the object; "": any
	err        func(name string) error
	lost       bool // the call takes effect
	skip, left int  // how many calls are let through before; how many fail, negative: all
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{podRig: newRig(0), t: t}
	s.owned = s.owner
	s.owned.ResourceVersion = s.next()
	s.owner = clone(s.owned)
	s.children = func() ([]*corev1.Pod, error) { return s.cached, s.fault("cache", "") }
	s.send = func(p *corev1.Pod) { s.sent = clone(p) }
	s.podRig.create = func(int) error { return s.answer("create", s.sent.Name, s.creates) }
	s.mutate = func(p *corev1.Pod) { *p = *clone(s.server[len(s.server)-1]) }
	s.remove = func(p *corev1.Pod, opts metav1.DeleteOptions) error {
		return s.answer("delete", p.Name, func() error { return s.deletes(p.Name, opts.Preconditions) })
	}
	s.patch = func(p *corev1.Pod) error { return s.answer("patch", p.Name, func() error { return s.patches(p) }) }
	s.patched = func(p *corev1.Pod) { *p = *clone(s.find(p.Name)) }
	s.dryRun = func(p *corev1.Pod) error { return s.fault("dry-run", p.Name) }
	s.get = func(name string) (*corev1.Pod, error) {
		if err := s.fault("get", name); err != nil {
			return nil, err
		}
		if p := s.find(name); p != nil {
			return clone(p), nil
		}
		return nil, notFound(name)
	}
	s.live = func() ([]*corev1.Pod, error) {
		s.liveVersion = strconv.Itoa(s.versions)
		matching := slices.DeleteFunc(clones(s.server), func(p *corev1.Pod) bool { return p.Labels["app"] != "web" })
		return matching, s.fault("list", "")
	}
	s.getOwner = func() (*appsv1.ReplicaSet, error) {
		if err := s.fault("owner", s.owner.Name); err != nil {
			return nil, err
		}
		if s.owned == nil {
			return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "replicasets"}, s.owner.Name)
		}
		return clone(s.owned), nil
	}
	s.patchStatus = func(_ int, rs *appsv1.ReplicaSet) error {
		return s.answer("status", rs.Name, func() error {
			s.owned.Status, s.owned.ResourceVersion = rs.Status, s.next()
			return nil
		})
	}
	s.stored = func(rs *appsv1.ReplicaSet) { *rs = *clone(s.owned) }
	return s
}

// next is the server's next version.
func (s *scene) next() string {
	s.versions++
	return strconv.Itoa(s.versions)
}

// fault returns the error of a call that fails.
func (s *scene) fault(verb, name string) error {
	for i := range s.faults {
		f := &s.faults[i]
		switch {
		case f.verb != verb || f.lost || f.name != "" && f.name != name || f.left == 0:
		case f.skip > 0:
			f.skip--
		default:
			f.left--
			return f.err(name)
		}
	}
	return nil
}

// answer makes a call that changes something, unless it fails without effect.
func (s *scene) answer(verb, name string, effect func() error) error {
	if err := s.fault(verb, name); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	for i := range s.faults {
		if f := &s.faults[i]; f.lost {
			f.lost = false
			err := s.fault(verb, name)
			f.lost = true
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scene) find(name string) *corev1.Pod {
	for _, p := range s.server {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func (s *scene) creates() error {
	if s.find(s.sent.Name) != nil {
		return alreadyExists(s.sent.Name)
	}
	p := clone(s.sent)
	p.UID, p.ResourceVersion = types.UID(fmt.Sprintf("uid-%s-%d", p.Name, s.versions+1)), s.next()
	p.CreationTimestamp = metav1.NewTime(s.now)
	s.set(p, s.webhook)
	s.server = append(s.server, p)
	return nil
}

func (s *scene) deletes(name string, only *metav1.Preconditions) error {
	p := s.find(name)
	switch {
	case p == nil:
		return notFound(name)
	case only != nil && only.UID != nil && *only.UID != p.UID, only != nil && only.ResourceVersion != nil && *only.ResourceVersion != p.ResourceVersion:
		return conflict(name)
	}
	s.drop(name)
	return nil
}

func (s *scene) drop(name string) {
	s.next()
	s.server = slices.DeleteFunc(s.server, func(p *corev1.Pod) bool { return p.Name == name })
}

// patches adopts an orphan, and releases any other pod.
func (s *scene) patches(shown *corev1.Pod) error {
	p := s.find(shown.Name)
	switch {
	case p == nil:
		return notFound(shown.Name)
	case p.UID != shown.UID:
		return conflict(shown.Name)
	}
	p.ResourceVersion = s.next()
	if metav1.GetControllerOf(shown) == nil {
		owned(s.owner)(p)
	} else {
		p.OwnerReferences = nil
	}
	return nil
}

// do runs one command.
func (s *scene) do(words []string) {
	command, args := words[0], words[1:]
	switch command {
	case "wanted":
		n := int32(s.number(args[0])) //nolint:gosec // small
		s.owned = clone(s.owned)
		s.owned.Spec.Replicas, s.owned.ResourceVersion = &n, s.next()
		s.owned.Generation++
		s.showOwner()
	case "owner":
		s.changeOwner(args[0])
	case "server":
		for _, arg := range args {
			name, attributes, _ := strings.Cut(arg, ":")
			p := podtest.Pod(name, owned(s.owner))
			s.set(p, strings.Split(attributes, ","))
			p.ResourceVersion = s.next()
			s.server = append(s.server, p)
		}
	case "edit":
		for _, arg := range args {
			name, attributes, _ := strings.Cut(arg, ":")
			p := s.find(name)
			require.NotNil(s.t, p, name)
			s.set(p, strings.Split(attributes, ","))
			p.ResourceVersion = s.next()
		}
	case "gone":
		for _, name := range args {
			require.NotNil(s.t, s.find(name), name)
			s.drop(name)
		}
	case "cache":
		s.show(args)
	case "fail", "lose":
		s.faults = append(s.faults, s.newFault(command == "lose", args))
	case "heal":
		s.faults = slices.DeleteFunc(s.faults, func(f fault) bool { return len(args) == 0 || slices.Contains(args, f.verb) })
	case "webhook":
		s.webhook = args
	case "parallel":
		s.opts.MaxParallel = s.number(args[0])
	case "wait":
		s.now = s.now.Add(s.duration(args[0]))
	case "pass":
		s.pass(true)
	case "passes": // for 400s every 1s
		for end, step := s.now.Add(s.duration(args[1])), s.duration(args[3]); s.now.Before(end); s.now = s.now.Add(step) {
			s.pass(false)
		}
	default:
		s.t.Fatalf("there is no command %q", command)
	}
}

func (s *scene) number(word string) int {
	n, err := strconv.Atoi(word)
	require.NoError(s.t, err)
	return n
}

func (s *scene) duration(word string) time.Duration {
	d, err := time.ParseDuration(word)
	require.NoError(s.t, err)
	return d
}

func (s *scene) changeOwner(how string) {
	before := s.owned
	switch how {
	case "gone":
		s.owned = nil
	case "deleted":
		s.owned = clone(s.owned)
		now := metav1.NewTime(s.now)
		s.owned.DeletionTimestamp, s.owned.ResourceVersion = &now, s.next()
	case "lags":
		s.lag = true
	case "shown":
		s.lag = false
	case "forgotten":
		s.forget(s.t)
	default:
		s.t.Fatalf("there is no owner %q", how)
	}
	if s.owned != before || how == "shown" {
		s.showOwner()
	}
}

// showOwner lets the cache have the owner as the server has it, unless the cache lags.
func (s *scene) showOwner() {
	if s.owned == nil || s.lag {
		return
	}
	was := s.owner
	s.owner = clone(s.owned)
	if s.controller != nil {
		require.NoError(s.t, s.controller.OwnerUpdated(was, s.owner))
	}
}

// show lets the cache have the named pods as the server has them, or all.
func (s *scene) show(only []string) {
	names := only
	if len(only) == 0 {
		for _, p := range slices.Concat(s.cached, s.server) {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	for _, name := range names {
		i := slices.IndexFunc(s.cached, func(p *corev1.Pod) bool { return p.Name == name })
		is := s.find(name)
		if i >= 0 && (is == nil || is.UID != s.cached[i].UID) {
			was := s.cached[i]
			s.cached, i = slices.Delete(slices.Clone(s.cached), i, i+1), -1
			require.NoError(s.t, s.start().ChildDeleted(was))
		}
		switch {
		case is == nil:
		case i < 0:
			s.cached = append(slices.Clone(s.cached), clone(is))
			require.NoError(s.t, s.start().ChildAdded(clone(is)))
		case is.ResourceVersion != s.cached[i].ResourceVersion:
			was := s.cached[i]
			s.cached = slices.Clone(s.cached)
			s.cached[i] = clone(is)
			require.NoError(s.t, s.start().ChildUpdated(was, clone(is)))
		}
	}
}

// set gives a pod attributes.
func (s *scene) set(p *corev1.Pod, attributes []string) {
	for _, attribute := range attributes {
		key, value, _ := strings.Cut(attribute, "=")
		switch key {
		case "":
		case "ready":
			podtest.ReadySince(s.now)(p)
			p.Status.Phase = corev1.PodRunning
		case "notready":
			podtest.NotReady(p)
		case "deleting":
			podtest.Deleting(p)
		case "failed":
			p.Status.Phase = corev1.PodFailed
		case "orphan":
			p.OwnerReferences = nil
		case "of":
			podtest.OwnedBy(ownerNamed(value, web), "apps/v1", "ReplicaSet")(p)
		case "app":
			p.Labels = map[string]string{"app": value}
		case "unlabelled":
			p.Labels = nil
		case "uid":
			p.UID = types.UID(value)
		case "cost":
			podtest.Cost(value)(p)
		default:
			s.t.Fatalf("a pod cannot be %q", attribute)
		}
	}
}

// newFault reads "VERB [of NAME] ERROR [after N] [times N]".
func (s *scene) newFault(lost bool, words []string) fault {
	f := fault{verb: words[0], lost: lost, left: -1}
	for words = words[1:]; len(words) > 0; {
		switch words[0] {
		case "of":
			f.name, words = words[1], words[2:]
		case "after":
			f.skip, words = s.number(words[1]), words[2:]
		case "times":
			f.left, words = s.number(words[1]), words[2:]
		case "busy":
			seconds := s.number(words[1])
			f.err, words = func(string) error { return busy(seconds) }, words[2:]
		default:
			f.err, words = failures[words[0]], words[1:]
		}
	}
	require.NotNil(s.t, f.err, "which error?")
	return f
}

var failures = map[string]func(name string) error{
	"timeout":         func(string) error { return timeout() },
	"reset":           func(string) error { return errors.New("connection reset") },
	"boom":            func(string) error { return errors.New("boom") },
	"exists":          alreadyExists,
	"exists-resent":   func(name string) error { return resent(alreadyExists(name)) },
	"quota":           func(string) error { return quotaFull() },
	"quota-resent":    func(string) error { return resent(quotaFull()) },
	"conflict":        conflict,
	"notfound":        notFound,
	"invalid":         invalid,
	"forbidden":       func(name string) error { return forbidden(name, "no") },
	"namespace-going": func(string) error { return namespaceTerminating() },
	"namespace-gone":  func(string) error { return namespaceGone() },
}

var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	metadata = regexp.MustCompile(`"metadata":\{[^}]*\},?`)
)

// pass makes a pass and prints it. Unless always, it prints only a pass that made calls.
func (s *scene) pass(always bool) {
	s.t.Helper()
	before := clones(s.cached)
	_, _ = s.sync(s.t, s.t.Context())
	require.Equal(s.t, before, s.cached, "Y14 what the cache returns is not changed")
	if !always && len(s.last.Calls) == 0 {
		return
	}
	text := instants.ReplaceAllStringFunc(s.last.String(), func(text string) string {
		at, err := time.Parse(time.RFC3339Nano, text)
		require.NoError(s.t, err)
		return "+" + at.Sub(podtest.Now).String()
	})
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  PatchStatus ") {
			line = metadata.ReplaceAllString(line, "")
		}
		s.printed = append(s.printed, line)
	}
	for _, event := range s.events {
		s.printed = append(s.printed, "  event: "+event)
	}
	if adds, dels := s.pending(); adds+dels > 0 {
		s.printed = append(s.printed, fmt.Sprintf("  the cache does not show %d creations and %d deletions", adds, dels))
	}
	if after := s.last.RequeueAfter; after > 0 {
		s.printed = append(s.printed, "  again in "+after.String())
	}
	s.showOwner()
}
