// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/selector"
)

type pods = []*corev1.Pod

// ownedBy gives a pod a controller reference to an owner with this UID.
func ownedBy(uid types.UID) podtest.Option {
	return podtest.OwnedBy(&metav1.ObjectMeta{Name: "web", UID: uid}, "apps/v1", "ReplicaSet")
}

// referring adds an owner reference with the given UID and the given value of the field controller.
func referring(uid types.UID, controller *bool) podtest.Option {
	return func(p *corev1.Pod) {
		p.OwnerReferences = append(p.OwnerReferences, metav1.OwnerReference{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: uid, Controller: controller,
		})
	}
}

func elsewhere(p *corev1.Pod) { p.Namespace = "elsewhere" }

func owner(options ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	rs := webSet()
	for _, option := range options {
		option(rs)
	}
	return rs
}

func ownerDeleting(rs *appsv1.ReplicaSet) {
	now := metav1.NewTime(podtest.Now)
	rs.DeletionTimestamp = &now
}

func clusterScoped(rs *appsv1.ReplicaSet) { rs.Namespace = "" }

func appIsWeb(t require.TestingT) labels.Selector {
	sel, err := selector.ForReplicaSet(webSet())
	require.NoError(t, err)
	return sel
}

// plan makes a Claimer for the owner and calls Plan.
func plan[T metav1.Object](owner metav1.Object, sel labels.Selector, objs []T) (selector.Claims[T], error) {
	return selector.Claimer[T]{Owner: owner, Selector: sel}.Plan(objs)
}

func TestClaimAsksTheSelector(t *testing.T) {
	t.Parallel()
	values := []string{"absent", "", "a", "b", "5"}
	for _, text := range []string{
		"app=a", "app==a", "app=", "app in (a)", "app in (a,b)", "app notin (a)", "app!=a", "app", "!app", "app>3", "app<3",
		"app=a,tier=b", "app=a,tier!=b", "app=a,tier in (a,b)", "app in (b),tier in (a)", "app=a,!tier",
	} {
		t.Run("C2 C4 "+text+": owned if it matches, released if not", func(t *testing.T) {
			t.Parallel()
			sel, err := labels.Parse(text)
			require.NoError(t, err)
			for _, app := range values {
				for _, tier := range values {
					set := map[string]string{"app": app, "tier": tier}
					maps.DeleteFunc(set, func(_, value string) bool { return value == "absent" })
					claims, err := plan(owner(), sel, pods{podtest.Pod("a", ownedBy("uid-web"), podtest.Labels(set))})
					require.NoError(t, err)
					assert.Equal(t, sel.Matches(labels.Set(set)), len(claims.Owned) == 1, "%v", set)
					assert.Len(t, claims.Release, 1-len(claims.Owned), "%v", set)
				}
			}
		})
	}
}

// A strict selector checks more than its requirements, because it never matches objects with the label debug.
type strict struct{ labels.Selector }

func (s strict) Matches(set labels.Labels) bool { return !set.Has("debug") && s.Selector.Matches(set) }

func TestClaimAsksASelectorOfTheCallersMaking(t *testing.T) {
	t.Parallel()
	debugged := podtest.Pod("debugged", ownedBy("uid-web"), podtest.Labels(map[string]string{"app": "web", "debug": "1"}))
	sel := strict{labels.SelectorFromSet(labels.Set{"app": "web"})}
	claims, err := plan(owner(), sel, pods{debugged})
	require.NoError(t, err)
	assert.Equal(t, []*corev1.Pod{debugged}, claims.Release)
}

func TestClaimOne(t *testing.T) {
	t.Parallel()
	const ours, theirs = types.UID("uid-web"), types.UID("uid-other")
	yes, no := true, false
	db := podtest.Labels(map[string]string{"app": "db"})
	other := func(p *corev1.Pod) {
		p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "batch/v1", "Job", "x"
	}
	for _, tt := range []struct {
		name  string
		owner *appsv1.ReplicaSet
		pod   *corev1.Pod
		want  string
	}{
		{"C1 controlled by another, matching: ignored", owner(), podtest.Pod("a", ownedBy(theirs)), "ignored"},
		{"C1 controlled by another, not matching: ignored", owner(), podtest.Pod("a", ownedBy(theirs), db), "ignored"},
		{"C1 controlled by another, referring to us: ignored", owner(), podtest.Pod("a", referring(ours, nil), referring(theirs, &yes)), "ignored"},
		{"C2 ours and matching: owned", owner(), podtest.Pod("a", ownedBy(ours)), "owned"},
		{"C2 ours and matching while we are being deleted: owned", owner(ownerDeleting), podtest.Pod("a", ownedBy(ours)), "owned"},
		{"C2 ours and matching while the pod is being deleted: owned", owner(), podtest.Pod("a", ownedBy(ours), podtest.Deleting), "owned"},
		{"C3 ours, not matching, while we are being deleted: ignored", owner(ownerDeleting), podtest.Pod("a", ownedBy(ours), db), "ignored"},
		{"C4 ours, not matching: released", owner(), podtest.Pod("a", ownedBy(ours), db), "release"},
		{"C4 ours, without labels: released", owner(), podtest.Pod("a", ownedBy(ours), podtest.Labels(nil)), "release"},
		{"C4 ours, not matching, being deleted: released", owner(), podtest.Pod("a", ownedBy(ours), db, podtest.Deleting), "release"},
		{"C5 orphan while we are being deleted: ignored", owner(ownerDeleting), podtest.Pod("a"), "ignored"},
		{"C5 orphan, not matching: ignored", owner(), podtest.Pod("a", db), "ignored"},
		{"C6 orphan being deleted: ignored", owner(), podtest.Pod("a", podtest.Deleting), "ignored"},
		{"C7 F15 orphan of another namespace: ignored", owner(), podtest.Pod("a", elsewhere), "ignored"},
		{"C7 a cluster-scoped owner adopts from any namespace", owner(clusterScoped), podtest.Pod("a", elsewhere), "adopt"},
		{"C7 the namespace is not asked for what is ours already", owner(), podtest.Pod("a", ownedBy(ours), elsewhere), "owned"},
		{"C8 matching orphan: adopted", owner(), podtest.Pod("a"), "adopt"},
		{"C9 the UID alone decides who owns: another kind and name", owner(), podtest.Pod("a", ownedBy(ours), other), "owned"},
		{"C9 the UID alone decides who owns: our name, another UID", owner(), podtest.Pod("a", ownedBy("uid-web-before")), "ignored"},
		{"C10 a plain reference to us leaves an orphan", owner(), podtest.Pod("a", referring(ours, nil)), "adopt"},
		{"C10 controller: false leaves an orphan", owner(), podtest.Pod("a", referring(ours, &no)), "adopt"},
		{"C10 a plain reference to another leaves an orphan", owner(), podtest.Pod("a", referring(theirs, nil)), "adopt"},
		{"C28 controller UID ours and matching is owned, whatever else refers to it", owner(), podtest.Pod("a", referring(theirs, nil), referring(ours, &yes)), "owned"},
		{"W43 only labels decide: a finished pod stays owned", owner(), podtest.Pod("a", ownedBy(ours), podtest.Phase(corev1.PodFailed)), "owned"},
		{"W43 only labels decide: a finished orphan is adopted", owner(), podtest.Pod("a", podtest.Phase(corev1.PodSucceeded)), "adopt"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ownerBefore, podBefore := tt.owner.DeepCopy(), tt.pod.DeepCopy()
			claims, err := plan(tt.owner, appIsWeb(t), pods{tt.pod})
			require.NoError(t, err)
			want := map[string]selector.Claims[*corev1.Pod]{
				"owned":   {Owned: pods{tt.pod}},
				"adopt":   {Adopt: pods{tt.pod}},
				"release": {Release: pods{tt.pod}},
				"ignored": {Ignored: pods{tt.pod}},
			}[tt.want]
			assert.Equal(t, want, claims)
			assert.Equal(t, ownerBefore, tt.owner)
			assert.Equal(t, podBefore, tt.pod)
		})
	}
}

func TestClaimMany(t *testing.T) {
	t.Parallel()
	mine, db := ownedBy("uid-web"), podtest.Labels(map[string]string{"app": "db"})
	owned1, owned2, owned3 := podtest.Pod("o1", mine), podtest.Pod("o2", mine), podtest.Pod("o3", mine)
	orphan1, orphan2 := podtest.Pod("a1"), podtest.Pod("a2")
	lost1, lost2 := podtest.Pod("r1", mine, db), podtest.Pod("r2", mine, db)
	foreign1, foreign2 := podtest.Pod("i1", ownedBy("x")), podtest.Pod("i2", db)

	t.Run("C13 each list is in the order of the input", func(t *testing.T) {
		t.Parallel()
		claims, err := plan(webSet(), appIsWeb(t),
			pods{owned2, foreign2, orphan2, lost1, owned3, orphan1, foreign1, lost2, owned1})
		require.NoError(t, err)
		assert.Equal(t, selector.Claims[*corev1.Pod]{
			Owned:   pods{owned2, owned3, owned1},
			Adopt:   pods{orphan2, orphan1},
			Release: pods{lost1, lost2},
			Ignored: pods{foreign2, foreign1},
		}, claims)
		assert.Same(t, owned2, claims.Owned[0], "the pods are the caller's own")
	})
	t.Run("C13 the lists do not share the input's memory", func(t *testing.T) {
		t.Parallel()
		in := pods{owned1, owned2}
		claims, err := plan(webSet(), appIsWeb(t), in)
		require.NoError(t, err)
		claims.Owned[0] = nil
		assert.Equal(t, pods{owned1, owned2}, in)
	})
	t.Run("a pod listed twice is sorted twice", func(t *testing.T) {
		t.Parallel()
		claims, err := plan(webSet(), appIsWeb(t), pods{orphan1, orphan1})
		require.NoError(t, err)
		assert.Equal(t, selector.Claims[*corev1.Pod]{Adopt: pods{orphan1, orphan1}}, claims)
	})
	t.Run("nothing to sort", func(t *testing.T) {
		t.Parallel()
		for _, in := range []pods{nil, {}} {
			claims, err := plan(webSet(), appIsWeb(t), in)
			require.NoError(t, err)
			assert.Equal(t, selector.Claims[*corev1.Pod]{}, claims)
		}
	})
}

func TestClaimAnyKind(t *testing.T) {
	t.Parallel()
	t.Run("C27 replica sets by their deployment", func(t *testing.T) {
		t.Parallel()
		sets := []*appsv1.ReplicaSet{
			{ObjectMeta: podtest.Pod("a", ownedBy("uid-web")).ObjectMeta},
			{ObjectMeta: podtest.Pod("b").ObjectMeta},
		}
		deployment := &appsv1.Deployment{ObjectMeta: webSet().ObjectMeta}
		claims, err := plan(deployment, appIsWeb(t), sets)
		require.NoError(t, err)
		assert.Equal(t, selector.Claims[*appsv1.ReplicaSet]{Owned: sets[:1], Adopt: sets[1:]}, claims)
	})
	t.Run("C27 controller revisions by their daemon set", func(t *testing.T) {
		t.Parallel()
		history := []*appsv1.ControllerRevision{
			{ObjectMeta: podtest.Pod("a", ownedBy("uid-web"), podtest.Labels(nil)).ObjectMeta},
			{ObjectMeta: podtest.Pod("b", podtest.Deleting).ObjectMeta},
		}
		claims, err := plan(&appsv1.DaemonSet{ObjectMeta: webSet().ObjectMeta}, appIsWeb(t), history)
		require.NoError(t, err)
		assert.Equal(t, selector.Claims[*appsv1.ControllerRevision]{Release: history[:1], Ignored: history[1:]}, claims)
	})
	t.Run("custom resources", func(t *testing.T) {
		t.Parallel()
		widget := &unstructured.Unstructured{Object: map[string]any{}}
		widget.SetNamespace(podtest.Namespace)
		widget.SetLabels(map[string]string{"app": "web"})
		in := []*unstructured.Unstructured{widget, {}}
		claims, err := plan(webSet(), appIsWeb(t), in)
		require.NoError(t, err)
		assert.Equal(t, selector.Claims[*unstructured.Unstructured]{Adopt: in[:1], Ignored: in[1:]}, claims)
	})
	t.Run("a mixed list", func(t *testing.T) {
		t.Parallel()
		in := []metav1.Object{podtest.Pod("a"), &appsv1.ReplicaSet{ObjectMeta: podtest.Pod("b", ownedBy("uid-web")).ObjectMeta}}
		claims, err := plan(webSet(), appIsWeb(t), in)
		require.NoError(t, err)
		assert.Equal(t, selector.Claims[metav1.Object]{Adopt: in[:1], Owned: in[1:]}, claims)
	})
}

func TestClaimRefuses(t *testing.T) {
	t.Parallel()
	unconverted, err := metav1.LabelSelectorAsSelector(nil)
	require.NoError(t, err)
	good := pods{podtest.Pod("a", ownedBy("uid-web"))}
	for _, tt := range []struct {
		name  string
		owner metav1.Object
		sel   labels.Selector
		pods  pods
		want  string
	}{
		{"nil owner", nil, appIsWeb(t), good, "selector: owner is nil"},
		{"typed nil owner", (*appsv1.ReplicaSet)(nil), appIsWeb(t), good, "selector: owner is nil"},
		{
			"an owner without UID and name would own what refers to nobody",
			&metav1.ObjectMeta{Namespace: "default"}, appIsWeb(t), good, `selector: owner "default/": UID and name are empty`,
		},
		{"W6 nil selector", webSet(), nil, good, `selector: owner "default/web": selector is nil`},
		{"W6 Y15 a nil LabelSelector, converted", webSet(), unconverted, good, `selector: owner "default/web": selector matches nothing`},
		{"W6 Y15 empty selector", webSet(), labels.Everything(), good, `selector: owner "default/web": selector is empty`},
		{"W6 nil set selector", webSet(), labels.ValidatedSetSelector(nil), good, `selector: owner "default/web": selector is empty`},
		{"W6 refused with no pods too", webSet(), labels.Everything(), nil, `selector: owner "default/web": selector is empty`},
		{"nil pod", webSet(), appIsWeb(t), append(good, nil), `selector: owner "default/web": object 1 is nil`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			claims, err := plan(tt.owner, tt.sel, tt.pods)
			require.EqualError(t, err, tt.want)
			assert.Equal(t, selector.Claims[*corev1.Pod]{}, claims)
		})
	}
	t.Run("typed nil in a mixed list", func(t *testing.T) {
		t.Parallel()
		_, err := plan(webSet(), appIsWeb(t), []metav1.Object{good[0], (*corev1.Pod)(nil)})
		require.EqualError(t, err, `selector: owner "default/web": object 1 is nil`)
		_, err = plan(webSet(), appIsWeb(t), []metav1.Object{nil})
		require.EqualError(t, err, `selector: owner "default/web": object 0 is nil`)
	})
}

// situation returns a pod in the situation that the byte encodes. With this encoding, tests can list all
// situations or choose random ones, and a fuzzer can search them.
func situation(b byte) *corev1.Pod {
	p := podtest.Pod("pod")
	switch b & 3 {
	case 1:
		ownedBy("uid-web")(p)
	case 2:
		ownedBy("uid-other")(p)
	case 3:
		referring("uid-web", nil)(p)
	}
	if b&4 != 0 {
		podtest.Labels(map[string]string{"app": "db"})(p)
	}
	if b&8 != 0 {
		podtest.Deleting(p)
	}
	if b&16 != 0 {
		p.Namespace = "elsewhere"
	}
	return p
}

func ownerSituation(b byte) *appsv1.ReplicaSet {
	rs := webSet()
	if b&1 != 0 {
		ownerDeleting(rs)
	}
	if b&2 != 0 {
		clusterScoped(rs)
	}
	return rs
}

// claimTwin is a slow, obvious implementation of Kubernetes' decision table for claims.
func claimTwin(rs *appsv1.ReplicaSet, in pods, matching func(*corev1.Pod) bool) (claims selector.Claims[*corev1.Pod]) {
	for _, p := range in {
		controller := metav1.GetControllerOf(p)
		orphan := controller == nil
		ours := !orphan && controller.UID == rs.UID
		matches := matching(p)
		ownerAlive := rs.DeletionTimestamp == nil
		podAlive := p.DeletionTimestamp == nil
		near := rs.Namespace == "" || rs.Namespace == p.Namespace
		adoptable := orphan && matches && ownerAlive && podAlive && near
		if ours && matches {
			claims.Owned = append(claims.Owned, p)
		}
		if ours && !matches && ownerAlive {
			claims.Release = append(claims.Release, p)
		}
		if adoptable {
			claims.Adopt = append(claims.Adopt, p)
		}
		if !ours && !adoptable || ours && !matches && !ownerAlive {
			claims.Ignored = append(claims.Ignored, p)
		}
	}
	return claims
}

func checkAgainstTwin(t *testing.T, ownerByte byte, podBytes []byte) {
	t.Helper()
	rs := ownerSituation(ownerByte)
	var in pods
	for _, b := range podBytes {
		in = append(in, situation(b))
	}
	claims, err := plan(rs, appIsWeb(t), in)
	require.NoError(t, err)
	require.Equal(t, claimTwin(rs, in, func(p *corev1.Pod) bool { return p.Labels["app"] == "web" }), claims)
	require.Len(t, in, len(claims.Owned)+len(claims.Adopt)+len(claims.Release)+len(claims.Ignored), "each object stands in one list")
}

func TestClaimEqualsItsTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for ownerByte := range byte(4) {
		var all []byte
		for b := range byte(32) {
			checkAgainstTwin(t, ownerByte, []byte{b})
			all = append(all, b)
		}
		for range 50 {
			r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			checkAgainstTwin(t, ownerByte, all[:r.IntN(len(all))])
		}
	}
}

func FuzzClaim(f *testing.F) {
	f.Add(byte(0), []byte{0, 1, 2, 3, 4, 5, 8, 16})
	f.Add(byte(1), []byte{1, 5, 0})
	// The fuzzer found these inputs.
	f.Add(byte('5'), []byte("0"))
	f.Add(byte('5'), []byte("0022"))
	f.Add(byte('\x0f'), []byte("%%"))
	f.Add(byte('\x01'), []byte("001"))
	f.Add(byte('5'), []byte("%%%%%%%%"))
	f.Add(byte('\x00'), []byte("00000000"))
	f.Add(byte('\x00'), []byte("C110$%00C$%0"))
	f.Add(byte('\x05'), []byte("7777777777777777"))
	f.Add(byte('\x16'), []byte("0000000000000000"))
	f.Add(byte('\x04'), []byte("00000000000000000000000000000000"))
	f.Add(byte('>'), []byte("2222222222222222222222222222222222222222222222222222222222222222"))
	f.Add(byte('g'), []byte("000021717770727122210722700110711201127702722712170722710702117700701722102010107010101721107770027227712127022271%2012071011202"))
	f.Fuzz(checkAgainstTwin)
}

func TestOwners(t *testing.T) {
	t.Parallel()
	named := func(name string, options ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
		rs := owner(options...)
		rs.Name, rs.UID = name, types.UID(name)
		return rs
	}
	selecting := func(s *metav1.LabelSelector) func(*appsv1.ReplicaSet) {
		return func(rs *appsv1.ReplicaSet) { rs.Spec.Selector = s }
	}
	absent := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "gone", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	a, b := named("a"), named("b")
	type sets = []*appsv1.ReplicaSet
	for _, tt := range []struct {
		name   string
		child  metav1.Object
		owners sets
		want   sets
	}{
		{"V4 every owner that matches, in the order of the input", podtest.Pod("p"), sets{b, named("db", selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}})), a}, sets{b, a}},
		{"V4 owners of another namespace are passed over", podtest.Pod("p", elsewhere), sets{a, b}, nil},
		{"V4 an owner that is being deleted is woken too", podtest.Pod("p"), sets{named("c", ownerDeleting)}, sets{named("c", ownerDeleting)}},
		{"V4 a plain reference does not make an owner", podtest.Pod("p", referring("x", nil)), sets{a}, sets{a}},
		{"V4 a child that has a controller is no orphan", podtest.Pod("p", ownedBy("a")), sets{a, b}, nil},
		{"V5 a child without labels matches nothing", podtest.Pod("p", podtest.Labels(nil)), sets{named("c", selecting(absent))}, nil},
		{"V5 a child with empty labels matches nothing", podtest.Pod("p", podtest.Labels(map[string]string{})), sets{named("c", selecting(absent))}, nil},
		{"V5 nil and empty selectors match nothing", podtest.Pod("p"), sets{named("c", selecting(nil)), named("d", selecting(&metav1.LabelSelector{})), a}, sets{a}},
		{"V5 an invalid selector does not hide the other owners", podtest.Pod("p"), sets{named("c", selecting(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "a b"}})), a}, sets{a}},
		{"C7 a cluster-scoped owner is woken by orphans of any namespace", podtest.Pod("p", elsewhere), sets{a, named("c", clusterScoped)}, sets{named("c", clusterScoped)}},
		{"nil owners are passed over", podtest.Pod("p"), sets{nil, a, nil}, sets{a}},
		{"no owners", podtest.Pod("p"), nil, nil},
		{"nil child", nil, sets{a}, nil},
		{"typed nil child", (*corev1.Pod)(nil), sets{a}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, selector.Owners(tt.child, tt.owners, selector.ForReplicaSet))
		})
	}

	t.Run("A9 replication controllers by their map", func(t *testing.T) {
		t.Parallel()
		rc, empty, none := webController(), webController(), webController()
		empty.Spec.Selector, none.Spec.Selector = map[string]string{}, nil
		got := selector.Owners(podtest.Pod("p"), []*corev1.ReplicationController{none, empty, rc}, selector.ForReplicationController)
		assert.Equal(t, []*corev1.ReplicationController{rc}, got)
	})
	t.Run("V5 what a caller's sel answers is checked as well", func(t *testing.T) {
		t.Parallel()
		for _, sel := range []labels.Selector{nil, labels.Everything(), labels.Nothing()} {
			assert.Nil(t, selector.Owners(podtest.Pod("p"), sets{a}, func(*appsv1.ReplicaSet) (labels.Selector, error) { return sel, nil }))
		}
		assert.Nil(t, selector.Owners(podtest.Pod("p"), sets{a}, func(*appsv1.ReplicaSet) (labels.Selector, error) {
			return appIsWeb(t), errors.New("not now")
		}))
		assert.Nil(t, selector.Owners(podtest.Pod("p"), sets{a}, nil))
	})
	t.Run("typed nil in a mixed list", func(t *testing.T) {
		t.Parallel()
		in := []metav1.Object{(*appsv1.ReplicaSet)(nil), nil, a}
		got := selector.Owners(podtest.Pod("p"), in, func(metav1.Object) (labels.Selector, error) { return appIsWeb(t), nil })
		assert.Equal(t, in[2:], got)
	})
}

func TestWhatDoesNotCountIsInNoList(t *testing.T) {
	t.Parallel()
	owner := &metav1.ObjectMeta{Namespace: podtest.Namespace, Name: "web", UID: "uid-of-web"}
	mine := podtest.OwnedBy(owner, "apps/v1", "ReplicaSet")
	other := podtest.Labels(map[string]string{"app": "other"})
	failed := podtest.Phase(corev1.PodFailed)
	var pods, active []*corev1.Pod
	for i := range 100 { // more objects than fit into one block of Plan
		kind := [][]podtest.Option{{mine}, {mine, other}, {}, {other}}[i%4]
		pod := podtest.Pod(fmt.Sprintf("web-%d", i), kind...)
		pods, active = append(pods, pod, podtest.Pod(fmt.Sprintf("failed-%d", i), append(kind, failed)...)), append(active, pod)
	}
	c := selector.Claimer[*corev1.Pod]{Owner: owner, Selector: appIsWeb(t)}
	want, err := c.Plan(active)
	require.NoError(t, err)
	require.Len(t, want.Release, 25)

	c.Active = func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodFailed }
	got, err := c.Plan(pods)
	require.NoError(t, err)
	assert.Equal(t, want, got)

	c.Active = func(*corev1.Pod) bool { return false }
	got, err = c.Plan(pods)
	require.NoError(t, err)
	assert.Zero(t, got)
	_, err = c.Plan(append(pods, nil))
	require.EqualError(t, err, `selector: owner "default/web": object 200 is nil`)
}
