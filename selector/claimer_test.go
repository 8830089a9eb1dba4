// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package selector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/internal/sim/podtest"
	"github.com/replicakit/replicakit/selector"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	errGone     = apierrors.NewNotFound(podResource, "p")
	errInvalid  = apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil)
	errConflict = apierrors.NewConflict(podResource, "p", errors.New("it has been modified"))
	isDB        = podtest.Labels(map[string]string{"app": "db"})
	isOurs      = ownedBy("uid-web")
)

// server answers patches. The map errs contains the errors, keyed by the name of the pod.
type server struct {
	errs   map[string]error
	silent bool // whether the answers contain no pod

	mu    sync.Mutex
	calls []string
}

func (s *server) Patch(_ context.Context, p *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb := "adopt "
	if strings.Contains(string(patch.Data), `"$patch":"delete"`) {
		verb = "release "
	}
	s.calls = append(s.calls, verb+p.Name)
	if err := s.errs[p.Name]; err != nil || s.silent {
		return nil, err
	}
	return patchedBy(p), nil
}

// patchedBy returns the pod with which the server answers a patch of p.
func patchedBy(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.ResourceVersion = "patched"
	if metav1.GetControllerOfNoCopy(p) == nil {
		isOurs(p)
	}
	return p
}

// claimer returns a Claimer for the owner that sends its patches to s.
func (s *server) claimer(t require.TestingT, owner metav1.Object) selector.Claimer[*corev1.Pod] {
	return selector.Claimer[*corev1.Pod]{Owner: owner, Kind: setKind, Selector: appIsWeb(t), Patch: s.Patch}
}

func podNames(pods pods) []string {
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names
}

func TestClaimerClaims(t *testing.T) {
	t.Parallel()
	t.Run("C4 C8 C13 orphans are adopted, then strays released, each list in the order of the input", func(t *testing.T) {
		t.Parallel()
		in := pods{
			podtest.Pod("stray2", isOurs, isDB), podtest.Pod("b"), podtest.Pod("owned", isOurs),
			podtest.Pod("a"), podtest.Pod("foreign", ownedBy("other")), podtest.Pod("stray1", isOurs, isDB),
		}
		var before pods
		for _, p := range in {
			before = append(before, p.DeepCopy())
		}
		s := &server{}
		claimed, err := s.claimer(t, webSet()).Claim(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, []string{"adopt b", "adopt a", "release stray2", "release stray1"}, s.calls)
		assert.Equal(t, selector.Claimed[*corev1.Pod]{
			Owned:    pods{in[2]},
			Adopted:  pods{patchedBy(in[1]), patchedBy(in[3])},
			Released: pods{in[0], in[5]},
			Ignored:  pods{in[4]},
		}, claimed)
		assert.Equal(t, []string{"owned", "b", "a"}, podNames(claimed.Ours()))
		assert.Equal(t, before, in)
	})
	t.Run("C14 a client that answers without an object has patched it all the same", func(t *testing.T) {
		t.Parallel()
		p := podtest.Pod("a")
		claimed, err := (&server{silent: true}).claimer(t, webSet()).Claim(t.Context(), pods{p})
		require.NoError(t, err)
		require.Len(t, claimed.Adopted, 1)
		assert.Same(t, p, claimed.Adopted[0])
	})
	t.Run("nothing to do calls nothing", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		c := s.claimer(t, webSet())
		c.CanAdopt = func(context.Context) error { panic("asked") }
		c.Run = func(context.Context, int, func(context.Context, int) error) error { panic("run") }
		for _, in := range []pods{nil, {}, {podtest.Pod("a", isOurs)}} {
			claimed, err := c.Claim(t.Context(), in)
			require.NoError(t, err)
			assert.Len(t, claimed.Ours(), len(in))
		}
		assert.Empty(t, s.calls)
	})
	t.Run("a shortened plan is carried out as it is", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		c := s.claimer(t, webSet())
		claims, err := c.Plan(pods{podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c", isOurs, isDB)})
		require.NoError(t, err)
		claims.Adopt, claims.Release = claims.Adopt[1:], nil
		claimed, err := c.Apply(t.Context(), claims)
		require.NoError(t, err)
		assert.Equal(t, []string{"b"}, podNames(claimed.Adopted))
		assert.Equal(t, []string{"adopt b"}, s.calls)
	})
}

func TestClaimerKeepsEveryAnswer(t *testing.T) {
	t.Parallel()
	const refused, undecided, gone, released, notReleased = "refused", "undecided", "gone", "released", "not released"
	for _, tt := range []struct {
		name           string
		err            error
		adopt, release string
	}{
		{"C15 C16 NotFound", errGone, gone, released},
		{"C15 C16 wrapped NotFound", fmt.Errorf("via proxy: %w", errGone), gone, released},
		{"C16 W42 Invalid", errInvalid, refused, released},
		{"C15 C16 Conflict", errConflict, undecided, notReleased},
		{"C15 C16 BadRequest", apierrors.NewBadRequest("x"), undecided, notReleased},
		{"C15 C16 Forbidden", apierrors.NewForbidden(podResource, "p", errors.New("policy")), undecided, notReleased},
		{"C15 C16 TooManyRequests", apierrors.NewTooManyRequests("x", 3), undecided, notReleased},
		{"C15 C16 InternalError", apierrors.NewInternalError(errors.New("x")), undecided, notReleased},
		{"C15 C16 Timeout", context.DeadlineExceeded, undecided, notReleased},
		{"C15 C16 no answer", errors.New("connection lost"), undecided, notReleased},
	} {
		t.Run(tt.name+": adopting "+tt.adopt+", releasing "+tt.release, func(t *testing.T) {
			t.Parallel()
			orphan, stray := podtest.Pod("orphan"), podtest.Pod("stray", isOurs, isDB)
			free, left := podtest.Pod("x-free"), podtest.Pod("x-left", isOurs, isDB)
			s := &server{errs: map[string]error{"orphan": tt.err, "stray": tt.err}}
			claimed, err := s.claimer(t, webSet()).Claim(t.Context(), pods{orphan, free, stray, left})

			want := selector.Claimed[*corev1.Pod]{Adopted: pods{patchedBy(free)}}
			failure := []selector.Failure[*corev1.Pod]{{Object: orphan, Err: tt.err}}
			switch tt.adopt {
			case refused:
				want.Refused = failure
			case undecided:
				want.AdoptionPending = failure
			case gone:
				want.Gone = failure
			}
			if tt.release == notReleased {
				want.Released = pods{left}
				want.NotReleased = []selector.Failure[*corev1.Pod]{{Object: stray, Err: tt.err}}
			} else {
				want.Released = pods{stray, left}
			}
			assert.Equal(t, want, claimed)
			assert.Len(t, s.calls, 4, "C13 a failure does not stop the others")
			if tt.adopt != undecided {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, tt.err)
			assert.EqualError(t, err, fmt.Sprintf("selector: ReplicaSet \"default/web\": adopting \"default/orphan\": %v\n"+
				"selector: ReplicaSet \"default/web\": releasing \"default/stray\": %v", tt.err, tt.err))
		})
	}
	t.Run("C8 an adoption whose answer the owner does not control is refused, or pending if nobody controls it", func(t *testing.T) {
		t.Parallel()
		orphan, lost, unknown := podtest.Pod("orphan"), podtest.Pod("lost"), podtest.Pod("unknown")
		claimer := (&server{}).claimer(t, webSet())
		claimer.Patch = func(_ context.Context, p *corev1.Pod, _ selector.Patch) (*corev1.Pod, error) {
			if p == unknown {
				return nil, nil
			}
			answer := p.DeepCopy()
			if p == orphan {
				answer.OwnerReferences = podtest.Pod("", ownedBy("faster")).OwnerReferences
			}
			return answer, nil
		}
		claimed, err := claimer.Claim(t.Context(), pods{orphan, lost, unknown})
		require.EqualError(t, err, `selector: ReplicaSet "default/web": adopting "default/lost": the answer is not controlled by ReplicaSet "default/web"`)
		assert.Equal(t, pods{unknown}, claimed.Adopted)
		require.Len(t, claimed.AdoptionPending, 1)
		assert.Same(t, lost, claimed.AdoptionPending[0].Object)
		require.Len(t, claimed.Refused, 1)
		assert.Same(t, orphan, claimed.Refused[0].Object)
		assert.EqualError(t, claimed.Refused[0].Err, `the answer is not controlled by ReplicaSet "default/web"`)
	})
	t.Run("ten errors are shown, all can be found", func(t *testing.T) {
		t.Parallel()
		s := &server{errs: map[string]error{}}
		var in pods
		for i := range 25 {
			p := podtest.Pod(fmt.Sprintf("p%02d", i))
			in, s.errs[p.Name] = append(in, p), errors.New("no")
		}
		s.errs["p24"] = errConflict
		_, err := s.claimer(t, webSet()).Claim(t.Context(), in)
		require.ErrorIs(t, err, errConflict)
		assert.Equal(t, 11, strings.Count(err.Error(), "\n")+1)
		assert.ErrorContains(t, err, "(15 more left out)")
	})
}

func TestClaimerAsksWhetherItMayAdopt(t *testing.T) {
	t.Parallel()
	in := pods{podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("owned", isOurs), podtest.Pod("stray", isOurs, isDB)}
	t.Run("C17 once, before the first adoption", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		c := s.claimer(t, webSet())
		c.CanAdopt = func(context.Context) error {
			s.calls = append(s.calls, "can adopt?")
			return nil
		}
		_, err := c.Claim(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, []string{"can adopt?", "adopt a", "adopt b", "release stray"}, s.calls)
	})
	t.Run("C17 C18 a no forbids all adoptions, a NotFound too, and nothing else", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		c := s.claimer(t, webSet())
		c.CanAdopt = func(context.Context) error { return errGone }
		claimed, err := c.Claim(t.Context(), in)
		require.ErrorIs(t, err, errGone)
		require.EqualError(t, err, `selector: ReplicaSet "default/web": can't adopt 2 objects: pods "p" not found`)
		assert.Equal(t, []string{"release stray"}, s.calls)
		assert.Equal(t, selector.Claimed[*corev1.Pod]{
			Owned: in[2:3], Released: in[3:], CanAdoptErr: errGone,
			AdoptionPending: []selector.Failure[*corev1.Pod]{{Object: in[0], Err: errGone}, {Object: in[1], Err: errGone}},
		}, claimed)
	})
	t.Run("C17 not to release only", func(t *testing.T) {
		t.Parallel()
		c := (&server{}).claimer(t, webSet())
		c.CanAdopt = func(context.Context) error { return errGone }
		_, err := c.Claim(t.Context(), in[2:])
		require.NoError(t, err)
	})
}

func TestTheFilterIsNotAskedAboutObjectsOfOthers(t *testing.T) {
	t.Parallel()
	var asked []string
	c := selector.Claimer[*corev1.Pod]{Owner: webSet(), Filter: func(p *corev1.Pod) bool {
		asked = append(asked, p.Name)
		return true
	}}
	_, err := c.Plan(pods{podtest.Pod("theirs", ownedBy("uid-other")), podtest.Pod("mine", isOurs)})
	require.NoError(t, err)
	assert.Equal(t, []string{"mine"}, asked)
}

func TestClaimerFilters(t *testing.T) {
	t.Parallel()
	is := selector.Named[*corev1.Pod]
	in := pods{podtest.Pod("mine", isOurs), podtest.Pod("also", isOurs), podtest.Pod("orphan"), podtest.Pod("stray", isOurs, isDB), podtest.Pod("db", isDB)}
	for _, tt := range []struct {
		name                                    string
		change                                  func(*selector.Claimer[*corev1.Pod])
		owned, adopted, released, ignored, asks []string
	}{
		{
			"C11 the filter is asked about what the selector matches only",
			func(c *selector.Claimer[*corev1.Pod]) {},
			[]string{"mine", "also"},
			[]string{"orphan"},
			[]string{"stray"},
			[]string{"db"},
			[]string{"mine", "also", "orphan"},
		},
		{
			"C12 what is ours and filtered out is released",
			func(c *selector.Claimer[*corev1.Pod]) { c.Filter = is("mine", "stray", "db") },
			[]string{"mine"},
			nil,
			[]string{"also", "stray"},
			[]string{"orphan", "db"},
			[]string{"mine", "also", "orphan"},
		},
		{
			"W43 what is kept is not released",
			func(c *selector.Claimer[*corev1.Pod]) { c.Filter, c.Keep = is("mine"), is("also", "mine", "orphan") },
			[]string{"mine"},
			nil,
			[]string{"stray"},
			[]string{"also", "orphan", "db"},
			[]string{"mine", "also", "orphan"},
		},
		{
			"W43 all may be kept",
			func(c *selector.Claimer[*corev1.Pod]) { c.Filter, c.Keep = selector.None, selector.All },
			nil, nil, nil,
			[]string{"mine", "also", "orphan", "stray", "db"},
			[]string{"mine", "also", "orphan"},
		},
		{
			"W43 keeping does not claim",
			func(c *selector.Claimer[*corev1.Pod]) { c.Keep = selector.All },
			[]string{"mine", "also"},
			[]string{"orphan"},
			nil,
			[]string{"stray", "db"},
			[]string{"mine", "also", "orphan"},
		},
		{
			"without a selector the filter decides",
			func(c *selector.Claimer[*corev1.Pod]) { c.Selector, c.Filter = nil, is("mine", "db") },
			[]string{"mine"},
			[]string{"db"},
			[]string{"also", "stray"},
			[]string{"orphan"},
			[]string{"mine", "also", "orphan", "stray", "db"},
		},
		{
			"without a selector, all",
			func(c *selector.Claimer[*corev1.Pod]) { c.Selector, c.Filter = nil, selector.All },
			[]string{"mine", "also", "stray"},
			[]string{"orphan", "db"},
			nil, nil,
			[]string{"mine", "also", "orphan", "stray", "db"},
		},
		{
			"without a selector, none",
			func(c *selector.Claimer[*corev1.Pod]) { c.Selector, c.Filter = nil, is() },
			nil, nil,
			[]string{"mine", "also", "stray"},
			[]string{"orphan", "db"},
			[]string{"mine", "also", "orphan", "stray", "db"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			c := (&server{}).claimer(t, webSet())
			c.Filter = selector.All
			tt.change(&c)
			filter := c.Filter
			c.Filter = func(p *corev1.Pod) bool {
				asked = append(asked, p.Name)
				return filter(p)
			}
			claimed, err := c.Claim(t.Context(), in)
			require.NoError(t, err)
			assert.Equal(t, tt.owned, podNames(claimed.Owned))
			assert.Equal(t, tt.adopted, podNames(claimed.Adopted))
			assert.Equal(t, tt.released, podNames(claimed.Released))
			assert.Equal(t, tt.ignored, podNames(claimed.Ignored))
			assert.Equal(t, tt.asks, asked)
		})
	}
	t.Run("a selector that is empty is refused, whatever the filter", func(t *testing.T) {
		t.Parallel()
		for _, sel := range []labels.Selector{labels.Everything(), labels.Nothing(), (*strict)(nil)} {
			c := (&server{}).claimer(t, webSet())
			c.Selector, c.Filter = sel, selector.All
			_, err := c.Claim(t.Context(), in)
			require.ErrorContains(t, err, `selector: owner "default/web": selector `)
		}
	})
}

func TestClaimerRuns(t *testing.T) {
	t.Parallel()
	in := pods{podtest.Pod("a"), podtest.Pod("b"), podtest.Pod("c"), podtest.Pod("stray", isOurs, isDB)}
	atOnce := func(ctx context.Context, n int, call func(context.Context, int) error) error {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _ = call(ctx, i) })
		}
		wg.Wait()
		return nil
	}
	t.Run("W39 as many at once as Run wants, and the lists keep their order", func(t *testing.T) {
		t.Parallel()
		s, together := &server{}, make(chan struct{}, 2)
		c := s.claimer(t, webSet())
		c.Run = atOnce
		c.Patch = func(ctx context.Context, p *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
			switch p.Name {
			case "a": // waits for the call for c
				<-together
			case "c":
				together <- struct{}{}
			}
			return s.Patch(ctx, p, patch)
		}
		claimed, err := c.Claim(t.Context(), in)
		require.NoError(t, err)
		assert.Equal(t, []string{"a", "b", "c"}, podNames(claimed.Adopted))
		assert.Equal(t, "release stray", s.calls[3])
	})
	t.Run("a call tells Run what is undecided, and only that", func(t *testing.T) {
		t.Parallel()
		var told []error
		c := (&server{errs: map[string]error{"a": errGone, "b": errInvalid, "c": errConflict}}).claimer(t, webSet())
		c.Run = func(ctx context.Context, n int, call func(context.Context, int) error) error {
			for i := range n {
				told = append(told, call(ctx, i))
			}
			return nil
		}
		_, err := c.Claim(t.Context(), in)
		require.Error(t, err)
		assert.Equal(t, []error{nil, nil, errConflict, nil}, told)
	})
	t.Run("what Run leaves out is undecided, with its reason", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		s := &server{}
		c := s.claimer(t, webSet())
		c.Run = func(ctx context.Context, _ int, call func(context.Context, int) error) error {
			return errors.Join(call(ctx, 0), broken)
		}
		claimed, err := c.Claim(t.Context(), in)
		require.ErrorIs(t, err, broken)
		assert.Equal(t, []string{"adopt a", "release stray"}, s.calls)
		require.Len(t, claimed.AdoptionPending, 2)
		require.ErrorIs(t, claimed.AdoptionPending[1].Err, broken)

		c.Run = func(context.Context, int, func(context.Context, int) error) error { return nil }
		claimed, err = c.Claim(t.Context(), in)
		require.ErrorContains(t, err, `releasing "default/stray": not tried`)
		assert.Len(t, claimed.NotReleased, 1)
	})
	t.Run("what was left out is neither gone nor released, whatever the reason", func(t *testing.T) {
		t.Parallel()
		for _, reason := range []error{errGone, errInvalid} {
			c := (&server{}).claimer(t, webSet())
			c.Run = func(context.Context, int, func(context.Context, int) error) error { return reason }
			claimed, err := c.Claim(t.Context(), in)
			require.ErrorIs(t, err, reason)
			assert.Len(t, claimed.AdoptionPending, 3)
			assert.Len(t, claimed.NotReleased, 1)
		}
	})
	t.Run("calls for no object are errors of those calls", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		c := s.claimer(t, webSet())
		c.Run = func(ctx context.Context, n int, call func(context.Context, int) error) error {
			return errors.Join(call(ctx, -1), call(ctx, n))
		}
		_, err := c.Claim(t.Context(), in)
		require.ErrorContains(t, err, `selector: ReplicaSet "default/web": Run called for index -1 of 3`)
		assert.Empty(t, s.calls)
	})
	t.Run("by default the calls end with their context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := errors.New("the lease is lost")
		s := &server{}
		c := s.claimer(t, webSet())
		c.Patch = func(ctx context.Context, p *corev1.Pod, patch selector.Patch) (*corev1.Pod, error) {
			cancel(ended)
			return s.Patch(ctx, p, patch)
		}
		claimed, err := c.Claim(ctx, in)
		require.ErrorIs(t, err, ended)
		assert.Equal(t, []string{"adopt a"}, s.calls)
		assert.Len(t, claimed.Adopted, 1)
		assert.Len(t, claimed.AdoptionPending, 2)
		assert.Len(t, claimed.NotReleased, 1)
	})
}

func TestClaimerRefuses(t *testing.T) {
	t.Parallel()
	type claimer = selector.Claimer[*corev1.Pod]
	for _, tt := range []struct {
		name   string
		change func(*claimer)
		want   string
	}{
		{"no owner", func(c *claimer) { c.Owner = nil }, "selector: owner is nil"},
		{"typed nil owner", func(c *claimer) { c.Owner = (*appsv1.ReplicaSet)(nil) }, "selector: owner is nil"},
		{"owner without name", func(c *claimer) { c.Owner = &metav1.ObjectMeta{UID: "u"} }, `selector: owner "": name is empty`},
		{"no kind", func(c *claimer) { c.Kind = schema.GroupVersionKind{} }, `selector: owner "default/web": kind is empty`},
		{"patch type", func(c *claimer) { c.PatchType = types.JSONPatchType }, `selector: owner "default/web": patch type "application/json-patch+json" is neither strategic merge nor merge`},
		{"no Patch", func(c *claimer) { c.Patch = nil }, `selector: ReplicaSet "default/web": Claimer has no Patch`},
		{"W6 no selector and no filter", func(c *claimer) { c.Selector = nil }, `selector: owner "default/web": selector is nil`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &server{}
			c := s.claimer(t, webSet())
			tt.change(&c)
			claimed, err := c.Claim(t.Context(), pods{podtest.Pod("a")})
			require.EqualError(t, err, tt.want)
			assert.Zero(t, claimed)
			assert.Empty(t, s.calls)
		})
	}
	t.Run("a nil pod", func(t *testing.T) {
		t.Parallel()
		s := &server{}
		claimed, err := s.claimer(t, webSet()).Claim(t.Context(), pods{podtest.Pod("a"), nil})
		require.EqualError(t, err, `selector: owner "default/web": object 1 is nil`)
		assert.Zero(t, claimed)
		assert.Empty(t, s.calls)
	})
	t.Run("a nil pod in a plan of the caller's making", func(t *testing.T) {
		t.Parallel()
		claimed, err := (&server{}).claimer(t, webSet()).Apply(t.Context(), selector.Claims[*corev1.Pod]{Adopt: pods{nil}, Release: pods{nil}})
		require.EqualError(t, err, "selector: ReplicaSet \"default/web\": adopting nil: selector: child is nil\n"+
			"selector: ReplicaSet \"default/web\": releasing nil: selector: child is nil")
		assert.Len(t, claimed.AdoptionPending, 1)
	})
	t.Run("a nil context", func(t *testing.T) {
		t.Parallel()
		_, err := (&server{}).claimer(t, webSet()).Claim(nil, nil) //nolint:staticcheck // it is what is tested
		require.EqualError(t, err, `selector: ReplicaSet "default/web": context is nil`)
	})
}

func TestClaimerOfCustomResources(t *testing.T) {
	t.Parallel()
	orphan, stray := widget([]metav1.OwnerReference{plain("c")}, "f0"), widget([]metav1.OwnerReference{*metav1.NewControllerRef(o, setKind)}, "f0", "f1")
	orphan.SetLabels(map[string]string{"app": "web"})
	claimed, err := selector.Claimer[*unstructured.Unstructured]{
		Owner: o, Kind: setKind, Selector: appIsWeb(t), PatchType: types.MergePatchType, Finalizers: []string{"f1"},
		Patch: func(_ context.Context, w *unstructured.Unstructured, patch selector.Patch) (*unstructured.Unstructured, error) {
			return apply(t, w, patch), nil
		},
	}.Claim(t.Context(), []*unstructured.Unstructured{orphan, stray})
	require.NoError(t, err)
	require.Len(t, claimed.Adopted, 1)
	assert.Equal(t, types.UID("ouid"), metav1.GetControllerOf(claimed.Adopted[0]).UID)
	assert.Equal(t, []string{"f0", "f1"}, claimed.Adopted[0].GetFinalizers())
	assert.Equal(t, []*unstructured.Unstructured{stray}, claimed.Released)
}

// claimerTwin returns the outcome of Claim for one pod. The outcome depends on Kubernetes' decision table, and
// then on the server's answer.
func claimerTwin(rs *appsv1.ReplicaSet, p *corev1.Pod, c *selector.Claimer[*corev1.Pod], answer error) string {
	one := claimTwin(rs, pods{p}, func(p *corev1.Pod) bool { return p.Labels["app"] == "web" && c.Filter(p) })
	notFound, invalid := apierrors.IsNotFound(answer), apierrors.IsInvalid(answer)
	switch {
	case len(one.Owned) > 0:
		return "owned"
	case len(one.Ignored) > 0, len(one.Release) > 0 && c.Keep(p):
		return "ignored"
	case len(one.Release) > 0 && (answer == nil || notFound || invalid):
		return "released"
	case len(one.Release) > 0:
		return "not released"
	case answer == nil:
		return "adopted"
	case notFound:
		return "gone"
	case invalid:
		return "refused"
	}
	return "undecided"
}

// sorted maps the name of each pod to the name of the list that contains the pod.
func sorted(claimed selector.Claimed[*corev1.Pod]) map[string]string {
	found := map[string]string{}
	note := func(where string, in pods) {
		for _, p := range in {
			found[p.Name] += where
		}
	}
	objects := func(failures []selector.Failure[*corev1.Pod]) (in pods) {
		for _, f := range failures {
			in = append(in, f.Object)
		}
		return in
	}
	note("owned", claimed.Owned)
	note("adopted", claimed.Adopted)
	note("released", claimed.Released)
	note("ignored", claimed.Ignored)
	note("refused", objects(claimed.Refused))
	note("undecided", objects(claimed.AdoptionPending))
	note("gone", objects(claimed.Gone))
	note("not released", objects(claimed.NotReleased))
	return found
}

// checkClaimer compares Claim with claimerTwin. Each pair of bytes encodes a pod. The first byte encodes the
// situation of the pod. The second byte encodes the server's answer and the results of Filter and Keep.
func checkClaimer(t *testing.T, ownerByte byte, podBytes []byte) {
	t.Helper()
	rs, s := ownerSituation(ownerByte), &server{errs: map[string]error{}}
	answers := []error{nil, nil, errGone, errInvalid, errConflict, context.Canceled, fmt.Errorf("x: %w", errGone), errors.New("lost")}
	out, kept := map[string]bool{}, map[string]bool{}
	c := s.claimer(t, rs)
	c.Filter = func(p *corev1.Pod) bool { return !out[p.Name] }
	c.Keep = func(p *corev1.Pod) bool { return kept[p.Name] }
	var in pods
	want := map[string]string{}
	undecided := false
	for i, pair := range slices.Collect(slices.Chunk(podBytes, 2)) {
		p, b := situation(pair[0]), pair[len(pair)-1]
		p.Name = fmt.Sprintf("p%d", i)
		in = append(in, p)
		s.errs[p.Name], out[p.Name], kept[p.Name] = answers[b&7], b&8 != 0, b&16 != 0
		want[p.Name] = claimerTwin(rs, p, &c, s.errs[p.Name])
		undecided = undecided || want[p.Name] == "undecided" || want[p.Name] == "not released"
	}
	claimed, err := c.Claim(t.Context(), in)
	require.Equal(t, undecided, err != nil, "%v", err)
	require.Equal(t, want, sorted(claimed))

	again, err := c.Claim(t.Context(), in)
	require.Equal(t, undecided, err != nil)
	require.Equal(t, claimed, again, "it keeps nothing")
}

func TestClaimerEqualsItsTwin(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for ownerByte := range byte(4) {
		var all []byte
		for b := range byte(32) {
			for answer := range byte(32) {
				all = append(all, b, answer)
			}
		}
		checkClaimer(t, ownerByte, all)
		for range 100 {
			some := make([]byte, r.IntN(20))
			for i := range some {
				some[i] = byte(r.IntN(256))
			}
			checkClaimer(t, ownerByte, some)
		}
	}
}

func FuzzClaimer(f *testing.F) {
	f.Add(byte(0), []byte{0, 0, 1, 1, 2, 2, 5, 4, 5, 3, 0, 7, 0, 2})
	f.Add(byte(1), []byte{1, 9, 5, 24, 0})
	f.Fuzz(checkClaimer)
}
