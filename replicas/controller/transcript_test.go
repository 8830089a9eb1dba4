// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
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
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/replicakit/replicakit/internal/mergepatch"
	"github.com/replicakit/replicakit/internal/replicaset"
	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/replicas"
	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/status"
)

// TestTranscripts plays the files testdata/*.txt. A line that begins with "== " starts a sub-test and contains its
// name. A line that begins with "#" is a comment. All other lines are commands. If a command prints something, a line
// "----" follows. The output stands below this line, up to the next empty line. With the flag -update, the test writes
// the output to the files, so that the changes can be reviewed:
//
//	go test ./replicas/controller -run TestTranscripts -update
//
// At the start of a sub-test, the ReplicaSet default/web wants no pods, and the server and the cache have no pods.
// A POD is a name with optional attributes, for example web-a or web-a:orphan,notready. Without attributes, a pod
// is owned by web, has the label app=web, and has been ready for an hour. For the list of all attributes, see the
// method scene.set.
//
//	wanted N              the owner wants N pods, in a new generation
//	template N [OPTION...] the owner wants its pods changed in place to template N, in a new generation; the options are
//	                      limit=N (MaxUnavailable), free, replace (OrReplace), list (the image is changed, too) and
//	                      subresource=NAME; retire means that pods are asked to leave by an annotation, and are
//	                      discarded when they are drained, and keep means that such pods keep their place
//	spec OPTION...        the same without a change in place; more options are stay and go (pods with this attribute must
//	                      stay or go), stay=NAME, go=NAME, deletions=N, burst=N, paused and minready=SECONDS
//	back-off              pods that end soon after they were created are replaced after a delay (BackOffFailed)
//	groups GROUP...       the owner wants these groups in place of its own number, in a new generation; a GROUP is, for
//	                      example, gpu=3,limit=1,surge=1,deletions=0,slots,paused (MaxUnavailable, MaxSurge, MaxDeletions,
//	                      Slots, Paused); with lots, the slots are annotations (SlotOf), and pods of another image
//	                      than "new" must go
//	owner gone            the owner no longer exists on the server
//	owner deleted         the owner is being deleted on the server
//	owner replaced        another owner has the name on the server
//	owner lags            from now on, the cache keeps its version of the owner
//	owner shown           the cache shows the owner from the server again
//	owner forgotten       the owner leaves the cache, and returns
//	owner condition       others set a condition in the owner's status
//	status ignored        the server stores no status
//	status old            the server drops terminatingReplicas from each status, as servers before 1.35 do
//	status kept           the server stores each status
//	status N...           after each status write, others set replicas to the next one of these numbers ("-" is none)
//	server POD...         others create these pods on the server
//	edit POD...           these pods change on the server
//	gone NAME...          these pods disappear from the server
//	cache [NAME...]       the cache shows these pods, or all pods, as they are on the server, and sends the events
//	late NAME...          the cache sends events of pods that have come and gone on the server before it showed them
//	next NAME...          the cache shows the next version of these pods that the server had
//	versions              from now on, the caches return their versions; the version for pods changes only when the
//	                      cache shows all pods
//	fail VERB ERROR       calls fail without effect; VERB is create, delete, patch, dry-run, get, list,
//	                      owner (a read), status, cache or related; ERROR is a key of failures, or busy SECONDS
//	lose VERB ERROR       calls take effect, and then fail
//	                      options of fail and lose: "of NAME" (only calls for this object fail), "after N" (the first
//	                      N calls do not fail) and "times N" (only N calls fail)
//	heal [VERB...]        calls of these verbs, or all calls, no longer fail
//	before VERB N ...     the rest of the line is a command that runs just before the Nth call from now on
//	webhook ATTRIBUTE...  created and patched pods get these attributes
//	slow VERB DURATION    each call of this verb takes this long; VERB is create, delete, patch or status
//	opaque                from now on, versions are not numbers
//	wait DURATION         time passes
//	pass                  makes a pass, and prints it as Pass.String does
//	again N               makes N passes, each at the time that the last one requested; prints a line for each pass,
//	                      and the new events
//	passes for D every D  makes passes, and prints those with calls, events or an error; without "every D", each pass
//	                      runs at the time that the last one requested, but after an error at least a second later
//	brief                 makes a pass, and prints a line
//	brief for D every D   makes passes, and prints a line for those with calls, events or an error
//	log                   prints the gates that began or ended with the last pass, as a log does
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
				t.Run(name, func(t *testing.T) {
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

// play runs the commands of a sub-test, and returns its text with the output of the commands.
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
	for _, f := range s.faults {
		require.True(t, f.struck, "no %s has failed", f.verb)
	}
	for _, h := range s.hooks {
		require.LessOrEqual(t, h.n, 0, "no %s came before which to do %q", h.verb, h.words)
	}
	return strings.Join(out, "\n")
}

// A scene is a rig with a server that stores pods. The cache shows the pods only after a command.
type scene struct {
	*podRig
	t        *testing.T
	server   []*corev1.Pod
	ended    []*corev1.Pod // the pods that are gone from the server
	cached   []*corev1.Pod
	owned    *appsv1.ReplicaSet // the owner on the server
	lag      bool               // the cache keeps its version of the owner
	versions int
	prefix   string // the text before the number in each version
	faults   []fault
	hooks    []hook
	history  []*corev1.Pod            // all versions of all pods
	tells    bool                     // the caches return their versions
	slow     map[string]time.Duration // how long a call takes, by verb
	webhook  []string                 // the webhook sets these attributes on created and patched pods
	keeps    string                   // what the server keeps of a status: kept (or ""), ignored or old
	others   []string                 // the numbers of replicas that others write after the next status writes
	sent     *corev1.Pod
	printed  []string
}

// A fault makes calls of a verb fail.
type fault struct {
	verb, name string // name is the name of the object, or "" for any object
	err        func(name string) error
	lost       bool // the call takes effect before it fails
	skip, left int  // how many calls succeed first, and how many calls then fail (all calls if left is negative)
	struck     bool // a call has failed
}

// A hook is a command that runs just before the nth call of a verb.
type hook struct {
	verb  string
	n     int
	words []string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{podRig: newRig(0), t: t}
	s.change = s.changes
	withSpecOf(s.podRig, func(rs *appsv1.ReplicaSet, spec *replicas.SpecOfPods) {
		if groups, ok := rs.Annotations["groups"]; ok {
			groupsTo(spec, strings.Fields(groups))
		}
		if words := strings.Fields(rs.Annotations["template"]); len(words) > 0 {
			changesTo(spec, words[0], words[1:]...)
		}
	})
	s.owned = s.owner
	s.owned.ResourceVersion = s.next()
	s.owner = clone(s.owned)
	s.children = func() ([]*corev1.Pod, error) { return s.cached, s.fault("cache", "") }
	s.related = func() ([]*corev1.Pod, error) { return nil, s.fault("related", "") }
	s.send = func(p *corev1.Pod) { s.sent = clone(p) }
	s.create = func(int) error { return s.answer("create", s.sent.Name, s.creates) }
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
		err := s.fault("list", "")
		s.liveVersion = strconv.Itoa(s.versions)
		matching := slices.DeleteFunc(clones(s.server), func(p *corev1.Pod) bool { return p.Labels["app"] != "web" })
		return matching, err
	}
	s.getOwner = func() (*appsv1.ReplicaSet, error) {
		if err := s.fault("owner", s.owner.Name); err != nil {
			return nil, err
		}
		if s.owned == nil {
			return nil, apierrors.NewNotFound(setResource, s.owner.Name)
		}
		return clone(s.owned), nil
	}
	s.patchStatus = func(_ int, rs *appsv1.ReplicaSet) error {
		return s.answer("status", rs.Name, func() error {
			switch {
			case s.owned == nil:
				return apierrors.NewNotFound(setResource, rs.Name)
			case s.owned.ResourceVersion != rs.ResourceVersion:
				return apierrors.NewConflict(setResource, rs.Name, errors.New("the object has been modified"))
			}
			s.writes(rs.Status)
			return nil
		})
	}
	s.stored = func(rs *appsv1.ReplicaSet) {
		*rs = *clone(s.owned)
		if len(s.others) > 0 && s.others[0] != "-" {
			s.owned.Status.Replicas, s.owned.ResourceVersion = int32(s.number(s.others[0])), s.next() //nolint:gosec // small
		}
		s.others = s.others[min(1, len(s.others)):]
	}
	return s
}

// writes stores what the server keeps of a status.
func (s *scene) writes(sent appsv1.ReplicaSetStatus) {
	switch s.keeps {
	case "ignored":
		return
	case "old":
		*replicaset.Terminating(&sent) = nil
	}
	if !apiequality.Semantic.DeepEqual(s.owned.Status, sent) {
		s.owned.Status, s.owned.ResourceVersion = sent, s.next()
	}
}

var setResource = schema.GroupResource{Group: "apps", Resource: "replicasets"}

// next increases the resourceVersion of the server, and returns the new resourceVersion.
func (s *scene) next() string {
	s.versions++
	return s.prefix + strconv.Itoa(s.versions)
}

// fault runs the hooks of a verb, and returns an error if the call fails without effect. If a call takes effect
// before it fails, the error comes from faultOf, which is then called with lost set to true.
func (s *scene) fault(verb, name string) error {
	for i := range s.hooks {
		if h := &s.hooks[i]; h.verb == verb {
			if h.n--; h.n == 0 {
				s.do(h.words)
			}
		}
	}
	return s.faultOf(verb, name, false)
}

func (s *scene) faultOf(verb, name string, lost bool) error {
	for i := range s.faults {
		f := &s.faults[i]
		switch {
		case f.verb != verb || f.lost != lost || f.name != "" && f.name != name || f.left == 0:
		case f.skip > 0:
			f.skip--
		default:
			f.left--
			f.struck = true
			return f.err(name)
		}
	}
	return nil
}

// answer makes a call that changes something. If the call fails without effect, answer does not call effect.
func (s *scene) answer(verb, name string, effect func() error) error {
	s.now = s.now.Add(s.slow[verb])
	if err := s.fault(verb, name); err != nil {
		return err
	}
	if err := effect(); err != nil {
		return err
	}
	return s.faultOf(verb, name, true)
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
	case len(p.Finalizers) > 0:
		s.do([]string{"edit", name + ":deleting"})
		return nil
	}
	s.drop(name)
	return nil
}

func (s *scene) drop(name string) {
	s.next()
	s.ended = append(s.ended, s.find(name))
	s.server = slices.DeleteFunc(s.server, func(p *corev1.Pod) bool { return p.Name == name })
}

// patches adopts an orphan, and releases any other pod.
func (s *scene) patches(shown *corev1.Pod) error {
	p, adopts := s.find(shown.Name), metav1.GetControllerOf(shown) == nil
	switch {
	case p == nil:
		return notFound(shown.Name)
	case p.UID != shown.UID, adopts && metav1.GetControllerOf(p) != nil && !metav1.IsControlledBy(p, s.owner):
		return invalid(shown.Name)
	}
	was := clone(p)
	if adopts {
		owned(s.owner)(p)
	} else {
		p.OwnerReferences = nil
	}
	s.set(p, s.webhook)
	if !apiequality.Semantic.DeepEqual(was, p) { // if nothing has changed, the version stays the same
		p.ResourceVersion = s.next()
	}
	return nil
}

// changes answers the patch that changes a pod in place.
func (s *scene) changes(shown *corev1.Pod, patch selector.Patch) (patched *corev1.Pod, err error) {
	err = s.answer("change", shown.Name, func() error {
		var fields map[string]any
		require.NoError(s.t, json.Unmarshal(patch.Data, &fields))
		meta, _ := fields["metadata"].(map[string]any)
		p := s.find(shown.Name)
		switch {
		case p == nil:
			return notFound(shown.Name)
		case meta["uid"] != string(p.UID) || meta["resourceVersion"] != p.ResourceVersion:
			return conflict(shown.Name)
		}
		text, err := json.Marshal(p)
		require.NoError(s.t, err)
		var is map[string]any
		require.NoError(s.t, json.Unmarshal(text, &is))
		text, err = json.Marshal(mergepatch.Apply(is, fields))
		require.NoError(s.t, err)
		patched = &corev1.Pod{}
		require.NoError(s.t, json.Unmarshal(text, patched))
		s.set(patched, s.webhook)
		patched.ResourceVersion = s.next()
		*p = *clone(patched)
		return nil
	})
	return patched, err
}

// groupsTo divides the pods of a spec by their label "group".
func groupsTo(spec *replicas.SpecOfPods, words []string) {
	spec.Replicas, spec.Template = 0, nil
	spec.GroupOf = func(p *corev1.Pod) string { return p.Labels["group"] }
	for _, word := range words {
		var g replicas.Group[*corev1.Pod]
		for i, option := range strings.Split(word, ",") {
			key, value, _ := strings.Cut(option, "=")
			number := intstr.Parse(value)
			switch {
			case i == 0:
				g.Name, g.Replicas = key, number.IntVal
			case key == "limit":
				g.MaxUnavailable = &number
			case key == "surge":
				g.MaxSurge = &number
			case key == "lots":
				g.Slots = replicas.Ordinals("web-" + g.Name)
				spec.SlotOf = func(p *corev1.Pod) string { return p.Annotations["slot"] }
				spec.Rules.MustGo = func(p *corev1.Pod) bool { return p.Annotations["slot"] != "" && p.Spec.Containers[0].Image != "new" }
			case key == "deletions":
				most := number.IntValue()
				g.MaxDeletions = &most
			case key == "slots":
				g.Slots = replicas.Ordinals("web-" + g.Name)
			case key == "paused":
				g.Paused = true
			}
		}
		name := g.Name
		g.New = func(pod string) (*corev1.Pod, error) {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web", "group": name}, Annotations: map[string]string{"slot": replicas.SlotIn(pod)}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "new"}}},
			}, nil
		}
		spec.Groups = append(spec.Groups, g)
	}
}

// changesTo makes a spec change its pods in place. A pod is ready if it runs the template that it bears.
func changesTo(spec *replicas.SpecOfPods, template string, options ...string) {
	var change replicas.Change[*corev1.Pod]
	withList := false
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		number := intstr.Parse(value)
		switch key {
		case "limit":
			spec.MaxUnavailable = &number
		case "free":
			change.Free = true
		case "replace":
			change.OrReplace = true
		case "subresource":
			change.Subresource = value
		case "list":
			withList = true
		case "retire":
			spec.Retire = func(p *corev1.Pod, leaves bool) replicas.Change[*corev1.Pod] {
				to := clone(p)
				if delete(to.Annotations, "leave"); leaves {
					metav1.SetMetaDataAnnotation(&to.ObjectMeta, "leave", "yes")
				}
				return replicas.Change[*corev1.Pod]{To: to}
			}
			spec.Rules.Leaving = func(p *corev1.Pod) bool { return p.Annotations["leave"] != "" }
			spec.Rules.Discard = func(p *corev1.Pod) bool {
				return p.Annotations["leave"] != "" && p.Annotations["drained"] != ""
			}
		case "keep":
			spec.Rules.Active = func(*corev1.Pod) bool { return true }
		case "stay":
			spec.Rules.MustStay = func(p *corev1.Pod) bool { return p.Name == value || p.Annotations["stay"] != "" }
		case "go":
			spec.Rules.MustGo = func(p *corev1.Pod) bool { return p.Name == value || p.Annotations["go"] != "" }
		case "deletions":
			most := number.IntValue()
			spec.MaxDeletions = &most
		case "burst":
			spec.BurstReplicas = number.IntValue()
		case "minready":
			spec.MinReadySeconds = number.IntVal
		case "paused":
			spec.Paused = true
		}
	}
	if template == "-" {
		return
	}
	spec.Update = func(p *corev1.Pod) replicas.Change[*corev1.Pod] {
		to := clone(p)
		metav1.SetMetaDataAnnotation(&to.ObjectMeta, "template", template)
		if withList {
			to.Spec.Containers[0].Image = "web:" + template
		}
		if apiequality.Semantic.DeepEqual(p, to) {
			return replicas.Change[*corev1.Pod]{}
		}
		change := change
		change.To = to
		return change
	}
	spec.Rules.Ready = func(p *corev1.Pod) bool {
		return status.IsPodReady(p) && p.Annotations["template"] == p.Annotations["runs"]
	}
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
	case "spec":
		s.do(append([]string{"template", "-"}, args...))
	case "template", "groups":
		s.owned = clone(s.owned)
		metav1.SetMetaDataAnnotation(&s.owned.ObjectMeta, command, strings.Join(args, " "))
		s.owned.ResourceVersion = s.next()
		s.owned.Generation++
		s.showOwner()
	case "owner":
		s.changeOwner(args[0])
	case "status":
		switch args[0] {
		case "ignored", "old", "kept":
			s.keeps = args[0]
		default:
			s.others = args
		}
	case "back-off":
		on := true
		s.opts.BackOffFailed = &on
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
	case "next":
		s.showNext(args)
	case "term":
		s.start().NewTerm(s.t.Context(), "")
	case "versions":
		s.tells = true
		s.ownersVersion, s.childrenVersion = strconv.Itoa(s.versions), strconv.Itoa(s.versions)
	case "opaque":
		s.prefix = "v"
	case "before":
		s.hooks = append(s.hooks, hook{args[0], s.number(args[1]), args[2:]})
	case "late":
		for _, name := range args {
			i := slices.IndexFunc(s.ended, func(p *corev1.Pod) bool { return p.Name == name })
			require.NotEqual(s.t, -1, i, name)
			require.NoError(s.t, s.start().ChildAdded(clone(s.ended[i])))
			require.NoError(s.t, s.start().ChildDeleted(clone(s.ended[i])))
		}
	case "fail", "lose":
		s.faults = append(s.faults, s.newFault(command == "lose", args))
	case "heal":
		s.faults = slices.DeleteFunc(s.faults, func(f fault) bool {
			healed := len(args) == 0 || slices.Contains(args, f.verb)
			require.True(s.t, f.struck || !healed, "no %s has failed", f.verb)
			return healed
		})
	case "webhook":
		s.webhook = args
	case "slow":
		s.slow = map[string]time.Duration{args[0]: s.duration(args[1])}
	case "wait":
		s.now = s.now.Add(s.duration(args[0]))
	case "pass":
		s.pass(true)
	case "again":
		s.again(s.number(args[0]))
	case "passes", "brief": // the arguments are, for example: for 400s every 1s
		if len(args) == 0 {
			s.pass(true)
			s.printed = s.inBrief(map[string]bool{})
			break
		}
		s.passes(s.now.Add(s.duration(args[1])), args[2:], command == "brief")
	case "log":
		if len(s.podRig.changes) == 0 {
			s.printed = append(s.printed, "nothing")
		}
		for _, c := range s.podRig.changes {
			what := "begins: "
			if c.Ended {
				what = "ends: "
			}
			s.printed = append(s.printed, what+s.relative(c.String()))
		}
	default:
		s.t.Fatalf("there is no command %q", command)
	}
	for _, p := range s.server {
		if !slices.ContainsFunc(s.history, func(was *corev1.Pod) bool { return was.ResourceVersion == p.ResourceVersion }) {
			s.history = append(s.history, clone(p))
		}
	}
}

func (s *scene) passes(end time.Time, every []string, brief bool) {
	told := map[string]bool{}
	for s.now.Before(end) {
		before := len(s.printed)
		if s.pass(false); brief && len(s.printed) > before {
			s.printed = append(s.printed[:before], s.inBrief(told)...)
		}
		step := s.last.RequeueAfter
		switch {
		case len(every) > 0:
			step = s.duration(every[1])
		case s.last.Err != nil:
			step = max(step, time.Second)
		case step == 0:
			step = end.Sub(s.now)
		}
		s.now = s.now.Add(min(step, end.Sub(s.now)))
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
	case "replaced":
		s.owned = clone(s.owned)
		s.owned.UID, s.owned.ResourceVersion = "uid-of-the-next", s.next()
	case "lags":
		s.lag = true
	case "shown":
		s.lag = false
	case "forgotten":
		s.forget(s.t)
	case "condition":
		s.owned = clone(s.owned)
		s.owned.Status.Conditions = append(s.owned.Status.Conditions, appsv1.ReplicaSetCondition{Type: "Theirs", Status: corev1.ConditionTrue})
		s.owned.ResourceVersion = s.next()
	default:
		s.t.Fatalf("there is no owner %q", how)
	}
	if s.owned != before || how == "shown" {
		s.showOwner()
	}
}

// showOwner makes the cache show the owner as it is on the server, unless the cache lags.
func (s *scene) showOwner() {
	if s.owned == nil || s.lag {
		return
	}
	was := s.owner
	s.owner = clone(s.owned)
	if s.tells {
		s.ownersVersion = strconv.Itoa(s.versions)
	}
	if s.controller != nil {
		require.NoError(s.t, s.controller.OwnerUpdated(was, s.owner))
	}
}

// show makes the cache show the named pods as they are on the server. If no names are given, the cache shows all
// pods as they are on the server.
func (s *scene) show(only []string) {
	names := only
	if len(only) == 0 {
		if s.tells {
			s.childrenVersion = strconv.Itoa(s.versions)
		}
		for _, p := range slices.Concat(s.cached, s.server) {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	for _, name := range names {
		s.showAs(name, s.find(name))
	}
}

// showNext makes the cache show the next version of each named pod, like a watch that is behind the server.
func (s *scene) showNext(names []string) {
	for _, name := range names {
		had := 0
		for _, p := range s.cached {
			if p.Name == name {
				had = s.number(p.ResourceVersion)
			}
		}
		i := slices.IndexFunc(s.history, func(p *corev1.Pod) bool { return p.Name == name && s.number(p.ResourceVersion) > had })
		require.NotEqual(s.t, -1, i, name)
		s.showAs(name, clone(s.history[i]))
	}
}

// showAs makes the cache show this version of a pod, and sends the event. If the version is nil, the pod leaves
// the cache.
func (s *scene) showAs(name string, is *corev1.Pod) {
	i := slices.IndexFunc(s.cached, func(p *corev1.Pod) bool { return p.Name == name })
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

// set gives a pod attributes.
func (s *scene) set(p *corev1.Pod, attributes []string) {
	for _, attribute := range attributes {
		key, value, _ := strings.Cut(attribute, "=")
		switch key {
		case "":
		case "ready":
			since := s.now
			switch value {
			case "":
			case "ever":
				since = time.Time{}
			default:
				since = since.Add(-s.duration(value))
			}
			podtest.ReadySince(since)(p)
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
		case "group":
			p.Labels = map[string]string{"app": "web", "group": value}
		case "unlabelled":
			p.Labels = nil
		case "uid":
			p.UID = types.UID(value)
		case "template", "runs", "leave", "drained", "slot", "stay", "go":
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
		case "image":
			p.Spec.Containers = []corev1.Container{{Name: "main", Image: value, Env: []corev1.EnvVar{{Name: "MODE", Value: "fast"}}}}
		case "blind": // as a cache that drops the environment
			p.Spec.Containers[0].Env = nil
		case "unscheduled":
			p.Spec.NodeName = ""
		case "finalizer":
			p.Finalizers = []string{"example.com/keep"}
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
	"boom":            func(string) error { return errors.New("boom") },
	"internal":        func(string) error { return apierrors.NewInternalError(errors.New("boom")) },
	"exists-resent":   func(name string) error { return resent(alreadyExists(name)) },
	"quota":           func(name string) error { return forbidden(name, "exceeded quota") },
	"quota-resent":    func(name string) error { return resent(forbidden(name, "exceeded quota")) },
	"conflict":        conflict,
	"notfound":        notFound,
	"invalid":         invalid,
	"badrequest":      func(string) error { return apierrors.NewBadRequest("no") },
	"forbidden":       func(name string) error { return forbidden(name, "no") },
	"namespace-going": func(string) error { return fmt.Errorf("wrapped: %w", namespaceTerminating()) },
	"namespace-gone":  func(string) error { return fmt.Errorf("wrapped: %w", namespaceGone()) },
}

var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	metadata = regexp.MustCompile(`"metadata":\{[^}]*\},?`)
)

// again makes n passes, each at the time that the last one requested, and prints a line for each pass.
func (s *scene) again(n int) {
	s.t.Helper()
	lines, told := []string(nil), map[string]bool{}
	for range n {
		require.Positive(s.t, s.last.RequeueAfter, "no pass is asked for")
		s.now = s.now.Add(s.last.RequeueAfter)
		s.pass(false)
		lines = append(lines, s.inBrief(told)...)
	}
	s.printed = lines
}

// inBrief returns a line about the last pass, and its events that are not in told yet.
func (s *scene) inBrief(told map[string]bool) []string {
	line := s.relative(s.last.Now.Format(time.RFC3339Nano)) + ":"
	var verbs []string
	for _, call := range s.last.Calls {
		verbs = append(verbs, call.Verb)
	}
	for len(verbs) > 0 {
		same := count(verbs, verbs[0])
		line += fmt.Sprintf(" %d %s,", same, verbs[0])
		verbs = slices.DeleteFunc(verbs[1:], func(verb string) bool { return verb == verbs[0] })
	}
	if s.last.Err != nil {
		line += " an error,"
	}
	lines := []string{fmt.Sprintf("%s again in %v", line, s.last.RequeueAfter)}
	for _, event := range s.events {
		if !told[event] {
			lines = append(lines, "  event: "+event)
		}
		told[event] = true
	}
	return lines
}

// relative replaces each time in a text by how long it is after the begin of the scene.
func (s *scene) relative(text string) string {
	return instants.ReplaceAllStringFunc(text, func(text string) string {
		at, err := time.Parse(time.RFC3339Nano, text)
		require.NoError(s.t, err)
		return "+" + at.Sub(podtest.Now).String()
	})
}

// pass makes a pass and prints it. If always is false, a pass without calls, events and errors is not printed.
func (s *scene) pass(always bool) {
	s.t.Helper()
	before := clones(s.cached)
	_, err := s.sync(s.t, s.t.Context())
	require.Equal(s.t, before, clones(s.cached), "Y14 what the cache returns is not changed")
	if !always && len(s.last.Calls)+len(s.events) == 0 && s.last.Err == nil {
		return
	}
	s.checkGates()
	for line := range strings.Lines(s.relative(s.last.String())) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  PatchStatus ") {
			line = metadata.ReplaceAllString(line, "")
		}
		s.printed = append(s.printed, line)
	}
	for _, event := range s.events {
		s.printed = append(s.printed, "  event: "+event)
	}
	for _, count := range []struct {
		of string
		n  int
	}{{"calls that failed", s.last.Failed}, {"creations not tried", s.last.Skipped}, {"creations in flight", s.last.InFlight}} {
		if count.n > 0 {
			s.printed = append(s.printed, fmt.Sprintf("  %s: %d", count.of, count.n))
		}
	}
	for _, list := range []struct {
		are  string
		pods []*corev1.Pod
	}{{"changed", s.last.Changed}, {"retired", s.last.Retired}, {"recalled", s.last.Recalled}, {"deleted", s.last.Deleted}, {"adopted", s.last.Adopted}, {"released", s.last.Released}} {
		if len(list.pods) > 0 {
			s.printed = append(s.printed, fmt.Sprintf("  %s: %s", list.are, strings.Join(names(list.pods), " ")))
		}
	}
	if (err == nil) != (s.last.Err == nil) {
		s.printed = append(s.printed, fmt.Sprintf("  Sync returns %v", err))
	}
	if s.last.HeldBack() {
		s.printed = append(s.printed, "  held back by an earlier pass")
	}
	if adds, dels := s.pending(); adds+dels > 0 {
		s.printed = append(s.printed, fmt.Sprintf("  not in the cache yet: %d created, %d deleted", adds, dels))
	}
	if after := s.last.RequeueAfter; after > 0 {
		s.printed = append(s.printed, "  again in "+after.String())
	}
	s.showOwner()
}

// checkGates compares the gates of the last pass with the metric, and with what a gate promises.
func (s *scene) checkGates() {
	const scale = controller.StopsCreations | controller.StopsDeletions | controller.StopsUpdates
	for _, g := range s.last.Gates {
		require.False(s.t, g.Since.IsZero(), "%v", g)
		if g.Stops&scale == scale && g.Reason != controller.BurstLimit && g.Reason != controller.SpecRefused {
			require.True(s.t, s.last.Waiting(), "%v", g)
		}
		require.Contains(s.t, s.last.Standing, g)
	}
	for _, sample := range s.recorder.Samples() {
		if sample.Name == "gated_owners" {
			stands := slices.ContainsFunc(s.last.Standing, func(g controller.Gate) bool { return g.Reason.String() == sample.Reason })
			require.Equal(s.t, stands, sample.Value == 1, sample.Reason)
		}
	}
}
