// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package typed_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/replicakit/replicakit/replicas/controller"
	"github.com/replicakit/replicakit/replicas/replicastest"
	"github.com/replicakit/replicakit/replicas/typed"
	"github.com/replicakit/replicakit/selector"
)

type (
	set = *appsv1.ReplicaSet
	pod = *corev1.Pod
)

// These types have the same form as cache.IndexFunc and cache.Indexers of client-go.
type (
	indexFunc func(obj any) ([]string, error)
	indexers  map[string]indexFunc
)

// An informer implements both an informer and the store of that informer.
type informer struct {
	objects []any
	indexes indexers
	err     error  // returned by AddIndexers
	read    func() // called before each read of an index; may be nil
}

func (i *informer) GetIndexer() *informer { return i }

func (i *informer) GetIndexers() indexers { return i.indexes }

func (i *informer) AddIndexers(added indexers) error {
	if i.indexes == nil {
		i.indexes = indexers{}
	}
	maps.Copy(i.indexes, added)
	return i.err
}

func (i *informer) List() []any { return i.objects }

func (i *informer) GetByKey(key string) (obj any, exists bool, err error) {
	if key == "broken" {
		return nil, false, errors.New("broken")
	}
	for _, obj := range i.objects {
		meta := obj.(metav1.Object)
		if key == meta.GetName() && meta.GetNamespace() == "" || key == meta.GetNamespace()+"/"+meta.GetName() {
			return obj, true, nil
		}
	}
	return nil, false, nil
}

func (i *informer) ByIndex(name, value string) (found []any, err error) {
	if i.read != nil {
		i.read()
	}
	index, ok := i.indexes[name]
	if !ok {
		return nil, errors.New("no index " + name)
	}
	for _, obj := range i.objects {
		keys, err := index(obj)
		if err != nil {
			return nil, err
		}
		if slices.Contains(keys, value) {
			found = append(found, obj)
		}
	}
	return found, nil
}

// A tellingInformer is an informer with a store that reports its version.
type tellingInformer struct{ *informer }

func (i tellingInformer) GetIndexer() tellingInformer { return i }

func (tellingInformer) LastStoreSyncResourceVersion() string { return "7" }

func byNamespace(obj any) ([]string, error) { return []string{obj.(metav1.Object).GetNamespace()}, nil }

// newSet returns a ReplicaSet of a Deployment.
func newSet(namespace, name string) set {
	rs := replicastest.NewReplicaSet(namespace, name, 1)
	rs.UID = types.UID(namespace + "-" + name)
	yes := true
	rs.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "d", UID: "deployment", Controller: &yes}}
	return rs
}

// newPod returns a pod of an owner. If owner is nil, the pod is an orphan.
func newPod(namespace, name string, owner set) pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	return p
}

func names[T metav1.Object](objects []T) (names []string) {
	for _, obj := range objects {
		names = append(names, obj.GetName())
	}
	return names
}

func TestCache(t *testing.T) {
	t.Parallel()
	web, next, other := newSet("shop", "web"), newSet("shop", "next"), newSet("team", "web")
	lonely := newSet("shop", "lonely")
	lonely.OwnerReferences = nil
	owners := &informer{objects: []any{web, next, other, lonely}}
	children := &informer{objects: []any{
		newPod("shop", "web-a", web), newPod("shop", "next-a", next), newPod("team", "web-b", other),
		newPod("shop", "orphan", nil), newPod("team", "orphan-of-others", nil),
	}}
	cache, err := typed.NewCache(controller.ReplicaSets(), owners, children)
	require.NoError(t, err)
	ctx := t.Context()

	owner, err := cache.Owner(ctx, types.NamespacedName{Namespace: "shop", Name: "web"})
	require.NoError(t, err)
	assert.Same(t, web, owner)
	_, err = cache.Owner(ctx, types.NamespacedName{Namespace: "shop", Name: "gone"})
	assert.True(t, apierrors.IsNotFound(err), err)
	require.EqualError(t, err, `ReplicaSet.apps "gone" not found`)
	_, err = cache.Owner(ctx, types.NamespacedName{Name: "broken"})
	require.EqualError(t, err, "broken")

	for namespace, want := range map[string][]string{"shop": {"web", "next", "lonely"}, "team": {"web"}, "": {"web", "next", "web", "lonely"}, "none": nil} {
		found, err := cache.Owners(ctx, namespace)
		require.NoError(t, err)
		assert.Equal(t, want, names(found), "without an index of namespaces")
	}
	require.NoError(t, owners.AddIndexers(indexers{"namespace": byNamespace}))
	found, err := cache.Owners(ctx, "shop")
	require.NoError(t, err)
	assert.Equal(t, []string{"web", "next", "lonely"}, names(found))

	mine, err := cache.Children(ctx, web)
	require.NoError(t, err)
	assert.Equal(t, []string{"web-a", "orphan"}, names(mine))

	siblings, err := cache.Siblings(web)
	require.NoError(t, err)
	assert.Equal(t, []string{"web", "next", "web"}, names(siblings))
	related, err := cache.Related(ctx, web)
	require.NoError(t, err)
	assert.Subset(t, names(related), []string{"web-a", "next-a"})
	related, err = cache.Related(ctx, lonely)
	require.NoError(t, err)
	assert.Empty(t, related)

	assert.Empty(t, cache.OwnersVersion())
	assert.Empty(t, cache.ChildrenVersion())
	telling, err := typed.NewCache(controller.ReplicaSets(), tellingInformer{owners}, tellingInformer{children})
	require.NoError(t, err)
	assert.Equal(t, "7", telling.OwnersVersion())
	assert.Equal(t, "7", telling.ChildrenVersion())
}

// If a child is adopted or orphaned while the store is read, Children returns the child exactly once. The result
// has the newest state that a read has shown.
func TestChildrenThatMoveWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]int{"before the first": 1, "before the second": 2, "before the third": 3} {
		for _, adopted := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				web := newSet("shop", "web")
				states := [2]pod{newPod("shop", "web-a", nil), newPod("shop", "web-a", web)}
				if !adopted {
					slices.Reverse(states[:])
				}
				owners, children, reads := &informer{}, &informer{objects: []any{states[0]}}, 0
				children.read = func() {
					if reads++; reads == step {
						children.objects = []any{states[1]}
					}
				}
				cache, err := typed.NewCache(controller.ReplicaSets(), owners, children)
				require.NoError(t, err)
				found, err := cache.Children(t.Context(), web)
				require.NoError(t, err)
				require.Len(t, found, 1)
				if step < 3 || !adopted { // otherwise, no read shows the adopted child
					assert.Same(t, states[1], found[0])
				}
			})
		}
	}
}

func TestOwnersInNoNamespace(t *testing.T) {
	t.Parallel()
	zone := newSet("", "zone")
	owners, children := &informer{objects: []any{zone}}, &informer{objects: []any{newPod("a", "zone-a", zone), newPod("b", "zone-b", zone), newPod("c", "orphan", nil)}}
	kind := controller.ReplicaSets()
	kind.ClusterScoped = true
	cache, err := typed.NewCache(kind, owners, children)
	require.NoError(t, err)
	owner, err := cache.Owner(t.Context(), types.NamespacedName{Name: "zone"})
	require.NoError(t, err)
	found, err := cache.Children(t.Context(), owner)
	require.NoError(t, err)
	assert.Equal(t, []string{"zone-a", "zone-b", "orphan"}, names(found))
}

func TestIndexes(t *testing.T) {
	t.Parallel()
	indexesOf := func(i *informer) []string { return slices.Sorted(maps.Keys(i.indexes)) }
	owners, children := &informer{}, &informer{}
	for range 2 {
		_, err := typed.NewCache(controller.ReplicaSets(), owners, children)
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"controllerUID"}, indexesOf(owners))
	assert.Equal(t, []string{"podController"}, indexesOf(children))

	others := &informer{indexes: indexers{"podController": byNamespace}}
	_, err := typed.NewCache(controller.ReplicaSets(), owners, others)
	require.NoError(t, err)
	assert.Equal(t, []string{"podController", "replicakit.podController"}, indexesOf(others))
}

func TestNewCacheRefuses(t *testing.T) {
	t.Parallel()
	good := &informer{}
	_, err := typed.NewCache(controller.ReplicaSets(), (*informer)(nil), good)
	require.EqualError(t, err, "typed: owners: the informer is nil")
	_, err = typed.NewCache(controller.ReplicaSets(), good, (*informer)(nil))
	require.EqualError(t, err, "typed: children: the informer is nil")
	_, err = typed.NewCache(controller.Kind[controller.Object, pod]{}, good, good)
	require.EqualError(t, err, "typed: owners: controller.Object is no pointer type")
	_, err = typed.NewCache(controller.ReplicaSets(), &informer{err: errors.New("the informer was stopped")}, good)
	require.EqualError(t, err, "typed: owners: the informer was stopped")
}

func TestCacheTellsWhatItCannotTell(t *testing.T) {
	t.Parallel()
	web, ctx := newSet("shop", "web"), t.Context()
	owners, children := &informer{objects: []any{web}}, &informer{objects: []any{newPod("shop", "web-a", web)}}
	swapped, err := typed.NewCache(controller.ReplicaSets(), children, owners)
	require.NoError(t, err)
	_, err = swapped.Owner(ctx, types.NamespacedName{Namespace: "shop", Name: "web-a"})
	require.EqualError(t, err, "typed: the informer holds a *v1.Pod: want *v1.ReplicaSet")
	_, err = swapped.Owners(ctx, "shop")
	require.EqualError(t, err, "typed: the informer holds a *v1.Pod: want *v1.ReplicaSet")

	for want, cache := range map[string]typed.Cache[set, pod]{"typed: NewCache did not make this Cache": {}, "no index podController": broken(t)} {
		_, err = cache.Children(ctx, web)
		require.EqualError(t, err, want)
	}
	_, err = typed.Cache[set, pod]{}.Related(ctx, web)
	require.EqualError(t, err, "typed: NewCache did not make this Cache")
	_, err = typed.Cache[set, pod]{}.Owners(ctx, "")
	require.EqualError(t, err, "typed: NewCache did not make this Cache")
	_, err = swapped.Children(ctx, nil)
	require.EqualError(t, err, "typed: owner is nil")
}

// broken returns a Cache with an informer that has lost its index of children.
func broken(t *testing.T) typed.Cache[set, pod] {
	t.Helper()
	children := &informer{}
	cache, err := typed.NewCache(controller.ReplicaSets(), &informer{}, children)
	require.NoError(t, err)
	clear(children.indexes)
	return cache
}

// setCalls and podCalls are typed clients that record the arguments of their calls.
type (
	setCalls struct {
		asked   *[]any
		version string
	}
	podCalls struct {
		asked *[]any
		pages []corev1.PodList
		err   error
	}
)

func (c *setCalls) Get(_ context.Context, name string, _ metav1.GetOptions) (set, error) {
	*c.asked = append(*c.asked, name)
	return &appsv1.ReplicaSet{}, nil
}

func (c *setCalls) List(_ context.Context, opts metav1.ListOptions) (*appsv1.ReplicaSetList, error) {
	*c.asked = append(*c.asked, opts)
	return &appsv1.ReplicaSetList{ListMeta: metav1.ListMeta{ResourceVersion: c.version}}, nil
}

func (c *setCalls) Patch(_ context.Context, name string, kind types.PatchType, data []byte, _ metav1.PatchOptions, sub ...string) (set, error) {
	*c.asked = append(*c.asked, name, kind, string(data), sub)
	return &appsv1.ReplicaSet{}, nil
}

func (c *podCalls) Create(_ context.Context, p pod, _ metav1.CreateOptions) (pod, error) {
	*c.asked = append(*c.asked, p.Name)
	return p, c.err
}

func (c *podCalls) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	*c.asked = append(*c.asked, name, opts)
	return c.err
}

func (c *podCalls) Patch(_ context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (pod, error) {
	*c.asked = append(*c.asked, name, kind, string(data), opts, sub)
	return &corev1.Pod{}, c.err
}

func (c *podCalls) Get(_ context.Context, name string, _ metav1.GetOptions) (pod, error) {
	*c.asked = append(*c.asked, name)
	return &corev1.Pod{}, c.err
}

func (c *podCalls) List(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	*c.asked = append(*c.asked, opts)
	if c.err != nil || len(c.pages) == 0 {
		return nil, c.err
	}
	page := c.pages[0]
	c.pages = c.pages[1:]
	return &page, nil
}

// newClient returns a client for the namespace "shop". The result asked contains the arguments of all calls.
func newClient(t *testing.T, pages ...corev1.PodList) (client controller.Client[set, pod], asked *[]any) {
	t.Helper()
	asked = &[]any{}
	sets, pods := &setCalls{asked, "5"}, &podCalls{asked, pages, nil}
	return typed.NewClient(
		func(namespace string) *setCalls {
			assert.Equal(t, "shop", namespace)
			return sets
		},
		func(namespace string) *podCalls {
			assert.Equal(t, "shop", namespace)
			return pods
		}), asked
}

func TestClientMakesTheCalls(t *testing.T) {
	t.Parallel()
	ctx, web := t.Context(), newSet("shop", "web")
	child, uid := newPod("shop", "web-a", web), types.UID("u")
	deletes := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	patches := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	for name, tt := range map[string]struct {
		call func(controller.Client[set, pod]) error
		want []any
	}{
		"Create": {func(c controller.Client[set, pod]) error { _, err := c.Create(ctx, child); return err }, []any{"web-a"}},
		"Delete": {func(c controller.Client[set, pod]) error { return c.Delete(ctx, child, deletes) }, []any{"web-a", deletes}},
		"Patch": {func(c controller.Client[set, pod]) error {
			_, err := c.Patch(ctx, child, selector.Patch{Type: types.MergePatchType, Data: []byte("{}")}, patches)
			return err
		}, []any{"web-a", types.MergePatchType, "{}", patches, []string(nil)}},
		"Patch of a subresource": {func(c controller.Client[set, pod]) error {
			patch := selector.Patch{Type: types.MergePatchType, Data: []byte("{}"), Subresource: "resize"}
			_, err := c.Patch(ctx, child, patch, metav1.PatchOptions{})
			return err
		}, []any{"web-a", types.MergePatchType, "{}", metav1.PatchOptions{}, []string{"resize"}}},
		"Get":      {func(c controller.Client[set, pod]) error { _, err := c.Get(ctx, "shop", "web-a"); return err }, []any{"web-a"}},
		"GetOwner": {func(c controller.Client[set, pod]) error { _, err := c.GetOwner(ctx, "shop", "web"); return err }, []any{"web"}},
		"PatchStatus": {func(c controller.Client[set, pod]) error {
			_, err := c.PatchStatus(ctx, web, selector.Patch{Type: types.MergePatchType, Data: []byte("{}")})
			return err
		}, []any{"web", types.MergePatchType, "{}", []string{"status"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, asked := newClient(t)
			require.NoError(t, tt.call(client))
			assert.Equal(t, tt.want, *asked)
		})
	}
}

func TestClientListsWhatIsThereNow(t *testing.T) {
	t.Parallel()
	page := func(version, next string, names ...string) corev1.PodList {
		list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version, Continue: next}}
		for _, name := range names {
			list.Items = append(list.Items, *newPod("shop", name, nil))
		}
		return list
	}
	matching := labels.SelectorFromSet(labels.Set{"app": "web"})
	client, asked := newClient(t, page("7", "more", "a", "b"), page("7", "", "c"))
	list, err := client.List(t.Context(), "shop", matching)
	require.NoError(t, err)
	assert.Equal(t, "7", list.Version)
	assert.Equal(t, []string{"a", "b", "c"}, names(list.Items))
	assert.Equal(t, []any{
		metav1.ListOptions{LabelSelector: "app=web", Limit: 500},
		metav1.ListOptions{LabelSelector: "app=web", Limit: 500, Continue: "more"},
	}, *asked, "no resourceVersion")

	full := make([]string, 500)
	for i := range full {
		full[i] = "p"
	}
	client, _ = newClient(t, page("7", "more", full...), page("7", "", "last"))
	list, err = client.List(t.Context(), "shop", matching)
	require.NoError(t, err)
	assert.Len(t, list.Items, 501)

	client, _ = newClient(t, page("7", "more", "a"), page("8", "", "b"))
	_, err = client.List(t.Context(), "shop", matching)
	require.EqualError(t, err, `typed: listing children: a page of version "8" follows a page of version "7"`)

	client, asked = newClient(t, page("9", "more", "a"))
	versioner, ok := client.(controller.Versioner)
	require.True(t, ok)
	version, err := versioner.ServerChildrenVersion(t.Context(), "shop")
	require.NoError(t, err)
	assert.Equal(t, "9", version)
	version, err = versioner.ServerOwnersVersion(t.Context(), "shop")
	require.NoError(t, err)
	assert.Equal(t, "5", version)
	assert.Equal(t, []any{metav1.ListOptions{Limit: 1}, metav1.ListOptions{Limit: 1}}, *asked)
}

// If a part of the client is nil, controller.New and the calls that need this part return an error. A call with
// a nil argument also returns an error.
func TestClientOfNil(t *testing.T) {
	t.Parallel()
	of := func(c *podCalls) func(string) *podCalls { return func(string) *podCalls { return c } }
	sets := func(string) *setCalls { return &setCalls{} }
	cache, err := typed.NewCache(controller.ReplicaSets(), &informer{}, &informer{})
	require.NoError(t, err)
	for want, client := range map[string]controller.Client[set, pod]{
		"typed: children of the client is nil":                      typed.NewClient(sets, (func(string) *podCalls)(nil)),
		`typed: children of the client returned nil for namespace `: typed.NewClient(sets, of(nil)),
	} {
		_, err := controller.New(controller.ReplicaSets(), client, cache, func(types.NamespacedName, time.Duration) {}, controller.Options{})
		require.ErrorContains(t, err, want)
		_, err = client.Get(t.Context(), "shop", "web-a")
		require.ErrorContains(t, err, want)
		_, err = client.List(t.Context(), "shop", labels.Everything())
		require.ErrorContains(t, err, want)
	}
	client := typed.NewClient((func(string) *setCalls)(nil), of(&podCalls{}))
	for _, call := range []func() error{
		func() error { _, err := client.GetOwner(t.Context(), "", ""); return err },
		func() error {
			_, err := client.PatchStatus(t.Context(), newSet("shop", "web"), selector.Patch{})
			return err
		},
	} {
		require.EqualError(t, call(), "typed: owners of the client is nil")
	}
	for want, call := range map[string]func() error{
		"typed: owner is nil": func() error {
			_, err := client.PatchStatus(t.Context(), nil, selector.Patch{})
			return err
		},
		"typed: child is nil":                      func() error { _, err := client.Create(t.Context(), nil); return err },
		"typed: listing children: selector is nil": func() error { _, err := client.List(t.Context(), "", nil); return err },
	} {
		require.EqualError(t, call(), want)
	}
	for _, call := range []func() error{
		func() error { return client.Delete(t.Context(), nil, metav1.DeleteOptions{}) },
		func() error {
			_, err := client.Patch(t.Context(), nil, selector.Patch{}, metav1.PatchOptions{})
			return err
		},
	} {
		require.EqualError(t, call(), "typed: child is nil")
	}
}
