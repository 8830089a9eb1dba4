// Copyright The replicakit Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/controller"

	"github.com/replicakit/replicakit/selector"
	"github.com/replicakit/replicakit/test/conformance/upstream"
)

// text returns a random string. Some strings contain characters that JSON must escape or replace.
func (g *gen) text() string {
	s := ""
	for range g.IntN(8) {
		s += pick(g, "a", "b-c", "web", "0", "_", ".", "/", "<", ">", "&", `"`, `\`, "\n", "\x00", "é", "\u2028", "😀", "\xff")
	}
	return s
}

type patched struct {
	Owner      metav1.ObjectMeta
	Kind       schema.GroupVersionKind
	PodUID     types.UID
	Finalizers []string
}

func newPatched(g *gen) patched {
	text := func() string {
		if g.in(20) {
			return ""
		}
		return "x" + g.text()
	}
	return patched{
		Owner:      metav1.ObjectMeta{Namespace: text(), Name: text(), UID: types.UID("x" + g.text())},
		Kind:       schema.GroupVersionKind{Group: pick(g, "", "apps", text()), Version: pick(g, "v1", text()), Kind: pick(g, "ReplicaSet", text())},
		PodUID:     types.UID("x" + g.text()),
		Finalizers: append(pick(g, nil, []string{}), some(g, 3, g.text)...),
	}
}

func (c patched) claimer() selector.Claimer[*metav1.ObjectMeta] {
	return selector.Claimer[*metav1.ObjectMeta]{Owner: &c.Owner, Kind: c.Kind, Finalizers: c.Finalizers}
}

func (c patched) child() *metav1.ObjectMeta { return &metav1.ObjectMeta{UID: c.PodUID} }

func TestPatches(t *testing.T) {
	t.Parallel()
	const refused = "a patch with an empty name, version or kind is refused"
	compare := func(named *tally, incomplete bool, theirs []byte, ours selector.Patch, err error) string {
		switch {
		case incomplete && err != nil && ours.Data == nil:
			named.add(refused)
			return ""
		case incomplete || err != nil || ours.Type != types.StrategicMergePatchType || !bytes.Equal(theirs, ours.Data):
			return fmt.Sprintf("Kubernetes: %s\nours: %s %s, %v", theirs, ours.Type, ours.Data, err)
		}
		return ""
	}
	t.Run("C20 C23 C24 patches that adopt are the same byte for byte", func(t *testing.T) {
		t.Parallel()
		comparison[patched]{
			cases: 300_000, of: "patches",
			input: newPatched,
			differ: func(c patched, named *tally) string {
				theirs, err := upstream.AdoptPatch(&c.Owner, c.Kind, c.PodUID, c.Finalizers...)
				if err != nil {
					return fmt.Sprintf("Kubernetes: %v", err)
				}
				ours, err := c.claimer().AdoptPatch(c.child())
				incomplete := slices.Contains([]string{c.Owner.Name, c.Kind.Kind, c.Kind.Version}, "")
				return compare(named, incomplete, theirs, ours, err)
			},
			names: []string{refused},
		}.run(t)
	})
	t.Run("C21 C24 patches that release are the same byte for byte", func(t *testing.T) {
		t.Parallel()
		comparison[patched]{
			cases: 300_000, of: "patches",
			input: newPatched,
			differ: func(c patched, named *tally) string {
				theirs, err := controller.GenerateDeleteOwnerRefStrategicMergeBytes(c.PodUID, []types.UID{c.Owner.UID}, c.Finalizers...)
				if err != nil {
					return fmt.Sprintf("Kubernetes: %v", err)
				}
				ours, err := c.claimer().ReleasePatch(c.child())
				return compare(named, false, theirs, ours, err)
			},
		}.run(t)
	})
}
